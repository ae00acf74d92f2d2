"""Statements as data: what is accepted equals PostgreSQL, what is refused says why.

In a file of ``cases`` each statement stands under ``-- what is claimed``; ``-- reference:`` is
what PostgreSQL is asked where its own SQL differs, ``-- ordered`` says that the order of the rows
counts, ``-- rows:`` how many there are.  In a file of ``refused`` there are the class of the
error, words of its message, and the text at which it points.
"""

import re
from pathlib import Path

import pytest

from proxy import errors
from tests.sql.compare import same
from tests.sql.survey import program, run

HERE = Path(__file__).parent
QUOTED = re.compile(r"('(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/)", re.DOTALL)


def read(folder):
    """Yield (file, claim, keys, statement) of each case."""
    for path in sorted((HERE / folder).glob("*.sql")):
        for block in path.read_text().split("\n\n"):
            lines = block.strip().splitlines()
            if not lines:
                continue
            claim, keys = lines[0].removeprefix("-- "), {}
            rest = lines[1:]
            while rest and rest[0].startswith("-- "):
                name, _, value = rest.pop(0).removeprefix("-- ").partition(":")
                keys[name] = value.strip()
            yield pytest.param(keys, "\n".join(rest), id=f"{path.stem}: {claim}")


@pytest.mark.parametrize("keys, text", list(read("cases")))
def test_accepted(keys, text, postgres):
    """
    Without noise, the statement gives what PostgreSQL gives on the raw records.
    """
    result = run(text)
    names, rows = postgres.query(keys.get("reference", text), raw="raw" in keys)
    assert same(result, program(text), names, rows, "ordered" in keys) is None
    if "rows" in keys:
        assert len(result.rows) == int(keys["rows"])


@pytest.mark.parametrize("keys, text", list(read("refused")))
def test_refused(keys, text):
    """
    The statement is refused with the error of its kind, in words that help.
    """
    with pytest.raises(errors.Error) as caught:
        run(text)
    assert type(caught.value).__name__ == keys["error"]
    assert keys["says"] in str(caught.value)
    if "at" in keys:
        assert caught.value.position == text.index(keys["at"]) + 1


@pytest.mark.slow
@pytest.mark.parametrize("how", [str.lower, str.upper])
def test_the_case_of_words_says_nothing(how):
    """
    Every accepted statement gives the same with its words, but for what is quoted, in small
    letters and in capitals.
    """
    for case in read("cases"):
        text = case.values[1]
        pieces = QUOTED.split(text)
        if "$" in text or not text.isascii() or re.search(r"\b[EeUu]&?'", text):
            continue  # other quotations, and letters that PostgreSQL does not fold
        same_words = "".join(p if i % 2 else how(p) for i, p in enumerate(pieces))
        one, two = run(text), run(same_words)
        assert one.columns == two.columns, text
        assert sorted(map(repr, one.rows)) == sorted(map(repr, two.rows)), text
