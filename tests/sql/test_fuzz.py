"""Mutated statements: whatever the text, there is an answer or an error of ours, and no crash."""

import random
from pathlib import Path

import pytest

from proxy.errors import Error, InternalError
from proxy.sql import Program, postprocess
from tests.searches import share
from tests.sql.survey import evaluator, program

CORPUS = [
    line
    for path in sorted(Path(__file__).parent.glob("*/*.sql"))
    for line in path.read_text().splitlines()
    if line and not line.startswith("--")
]
PIECES = sorted({word for text in CORPUS for word in text.replace("(", " ( ").split()})
ODD = ["'", '"', "(", ")", ",", ";", "--", "/*", "*/", "$$", "\0", "é", "\\", "%", "[", "]", "{"]
ODD += ["}", "::", "-", "NULL", "0", "1e9", "*", ".", "AS", "\n", "😀", "@", "?", "$1", "\ud800"]


def mutated(draw):
    """A statement of the corpus with one to three accidents."""
    words = draw.choice(CORPUS).replace("(", " ( ").replace(")", " ) ").split(" ")
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        at = draw.randrange(len(words))
        kind = draw.random()
        if kind < 0.25:
            del words[at : at + draw.randint(1, 3)]
        elif kind < 0.5:
            words.insert(at, draw.choice(PIECES))
        elif kind < 0.65:
            words[at] = draw.choice(PIECES)
        elif kind < 0.8:
            words.insert(at, draw.choice(ODD))
        elif kind < 0.9:
            other = draw.choice(CORPUS).split(" ")
            words[at:at] = other[draw.randrange(len(other)) :]
        else:
            words.insert(at, words[draw.randrange(len(words))])
        words = words or ["x"]
    return " ".join(words)


def answer(text):
    """Run a statement with zeros for numbers; whether it was a query."""
    found = program(text)
    if not isinstance(found, Program):
        return False
    values = [[[0] * r.rows for _ in r.numbers] for r in found.releases]
    companions = [
        [[[None] * r.rows for _ in n.companions] for n in r.numbers] for r in found.releases
    ]
    postprocess(found, values, evaluator(), companions, {name: () for name in found.systems})
    return True


def check(seed, count):
    """Run mutated statements; how many were answered."""
    draw = random.Random(seed)
    answered = 0
    for _ in range(count):
        text = mutated(draw)
        error = None
        try:
            answered += answer(text)
        except Error as known:
            error = known
        except Exception as crash:
            raise AssertionError(ascii(text)) from crash
        if error is not None:
            at = error.position
            wrong = isinstance(error, InternalError) or error.sqlstate == "XX000"
            told = ascii(text)  # a letter that UTF-8 has not would end the run
            assert error.message, told
            assert not wrong, told
            assert at is None or 1 <= at <= len(text) + 1, told
    return answered


@pytest.mark.parametrize("count", share(1, [400, 2000]))
def test_mutated_statements(count):
    """
    Of 2,000 mutated statements (400 in the fast run) some are answered, the others refused.
    """
    assert 0.01 < check(1, count) / count < 0.975


@pytest.mark.parametrize("seed", share(0, range(10), 1))
def test_a_hundred_thousand_mutated_statements(seed):
    """
    100,000 of them (10,000 in the slow run), no crash.
    """
    assert check(seed + 100, 10_000) > 100
