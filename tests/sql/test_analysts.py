"""Two hundred statements as analysts write and tools send them: which are answered, and why not.

They are data in ``analysts``, in the styles of dashboards (Metabase, Superset, Looker, Grafana,
Tableau, Power BI, Redash, Mode), of reports (dbt), of windows, and of questions and notebooks as
Stack Overflow and Kaggle have them; chosen before it was known which are answered.
``-- refused:`` gives the reason, the SQLSTATE and words of the message.  ``python -m
tests.sql.test_analysts`` prints the share that is answered, and the reasons.
"""

import sys
from collections import Counter

import pytest

from proxy.errors import Error
from tests.sql.compare import same
from tests.sql.survey import program, run
from tests.sql.test_cases import read

STATEMENTS = list(read("analysts"))
REFUSED = [each for each in STATEMENTS if "refused" in each.values[0]]
REASONS = {"single rows", "bins", "sampling", "aggregates", "language"}


@pytest.mark.parametrize("keys, text", [each for each in STATEMENTS if each not in REFUSED])
def test_a_statement_is_answered(keys, text, postgres):
    """
    Without noise, it gives what PostgreSQL gives on the raw records.
    """
    names, rows = postgres.query(text)
    assert same(run(text), program(text), names, rows, "ordered" in keys) is None


@pytest.mark.parametrize("keys, text", REFUSED)
def test_a_statement_is_refused(keys, text):
    """
    The error is of its kind, and says what is not done.
    """
    reason, state, words = keys["refused"].split("; ", 2)
    with pytest.raises(Error) as caught:
        run(text)
    assert reason in REASONS
    assert (caught.value.sqlstate, words in caught.value.message) == (state, True)


def test_there_are_two_hundred():
    """
    183 are answered; of the others four are matters of the language.
    """
    reasons = Counter(each.values[0]["refused"].split(";")[0] for each in REFUSED)
    assert (len(STATEMENTS), len(STATEMENTS) - len(REFUSED), reasons["language"]) == (200, 183, 4)


def report():
    """The share that is answered, and the reasons of the others."""
    refusals = []
    for each in STATEMENTS:
        keys, text = each.values
        try:
            run(text)
        except Error as error:
            reason = keys.get("refused", "unexpected").split(";")[0]
            refusals.append((reason, f"{each.id}: {error.message}"))
    lines = [f"{len(STATEMENTS) - len(refusals)} of {len(STATEMENTS)} are answered"]
    for reason, count in Counter(reason for reason, _ in refusals).most_common():
        lines.append(f"{count} refused: {reason}")
        lines += [f"  {line[:150]}" for other, line in refusals if other == reason]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(report())
