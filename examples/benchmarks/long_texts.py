"""What long texts cost beside sqlglot's parsing of the same text: each kind, answered and refused.

    python examples/benchmarks/long_texts.py                   all, some minutes
    python examples/benchmarks/long_texts.py ORs IN            those whose names have one of these
    python examples/benchmarks/long_texts.py --share 0.1       all, a tenth as long
    python examples/benchmarks/long_texts.py --served          as workers of a server compile them
    python examples/benchmarks/long_texts.py --whole           planned and shown, too

A generator makes texts of each kind, as long as a statement may be, or up to a MB.  Figures are of
the processor, over all threads, in one run, from text to program; the goal of each is 3 x.  "again"
is a second text of the same kind.  Nothing is kept, and nothing asserted.
"""

import argparse
import gc
import os
import random
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import duckdb
import sqlglot

import proxy
from proxy.engine import Engine, init
from proxy.sql.parse.deep_stack import have_room

POLICY = """
dataset: people
source: {engine: duckdb, path: people.parquet}
max_records: 1_000_000
outside: drop
nulls: drop
attributes:
  age: {type: integer, range: [0, 99]}
  years: {type: integer, edges: [-5, 0, 5, 10, 20, 30, 40, 64]}
  share: {type: decimal, edges: [0, 0.25, 0.5, 0.75, 1]}
  day: {from: 2020-01-01, to: 2020-12-31, bin: day}
  city: {values: [Bern, Genf, Lyon, Rom, Wien]}
measures:
  income: {clip: [0, 1000], quantum: 1}
privacy:
  budget: 100_000
  unit: row
"""
UTILITY = " WITH UTILITY (%d, 0.05)"
BINS = [[-5, -1], [0, 4], [5, 9], [10, 19], [20, 29], [30, 39], [40, 63]]
CITIES = ["Bern", "Genf", "Lyon", "Rom", "Wien", "Nirgendwo"]


def people(folder):
    """Write made-up people and their policy; return its path."""
    duckdb.execute(
        "COPY (SELECT CAST(hash(i) % 100 AS INTEGER) AS age, "
        "CAST(hash(i + 1) % 69 AS INTEGER) - 5 AS years, "
        "CAST((hash(i + 2) % 1000) / 1000 AS DECIMAL(4, 3)) AS share, "
        "DATE '2020-01-01' + CAST(hash(i + 3) % 366 AS INTEGER) AS day, "
        "['Bern', 'Genf', 'Lyon', 'Rom', 'Wien'][1 + CAST(hash(i + 4) % 5 AS INTEGER)] AS city, "
        "CAST(hash(i + 5) % 1000 AS INTEGER) AS income FROM range(100000) t(i)) "
        f"TO '{folder / 'people.parquet'}' (FORMAT parquet)"
    )
    path = folder / "people.yaml"
    path.write_text(POLICY)
    return path


# --- texts ----------------------------------------------------------------------------------------


def counted(where, what="COUNT(*) AS n"):
    """Return a statement that counts people."""
    return f"SELECT {what} FROM people WHERE {where}"


def alone(name, text):
    """Return what is parsed beside a text: a list in quotes as if it were written out."""
    text = text.partition(" WITH UTILITY")[0]
    return text.replace("'{", "ARRAY[").replace("}'", "]") if name == "ANY of a text" else text


def joined(word, term, count):
    """Return so many terms, joined by a word."""
    return f" {word} ".join(term() for _ in range(count))


def day(rng):
    """Return a day as a text."""
    return f"'2020-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}'"


def conditions(rng, size):
    """Return the kinds of conditions: of connectives, and of lists."""
    terms, values = int(4900 * size), int(19_800 * size)

    def number(most=100):
        return str(rng.randrange(most))

    def listed(value, count=values):
        return ", ".join(value() for _ in range(count))

    def row():
        return f"({number()}, '{rng.choice(CITIES)}')"

    def edge():
        low, high = rng.choice(BINS[1:-1])
        return f"(years >= {low} AND years < {high + 1})"

    return {
        "ORs": joined("OR", lambda: f"age = {number()}", terms),
        "ORs of two axes": joined("OR", lambda: f"age = {number()} AND city = 'Rom'", terms // 2),
        "ORs of texts": joined("OR", lambda: f"city = '{rng.choice(CITIES)}'", terms),
        "ORs of days": joined("OR", lambda: f"day = {day(rng)}", terms),
        "ORs, binned": joined("OR", edge, terms // 2),
        "ORs, binned, cut": joined("OR", lambda: f"years = {number(60)}", terms),
        "ORs, dense bins": joined("OR", lambda: "share < 0.25", terms),
        "ORs, dense bins, cut": joined("OR", lambda: f"share < 0.{number(1000)}", terms // 4),
        "ORs, a fault last": joined("OR", lambda: f"age = {number()}", terms) + " OR age = 'x'",
        "ORs, a name last": joined("OR", lambda: f"age = {number()}", terms) + " OR nothing = 1",
        "ORs, a function last": joined("OR", lambda: f"age = {number()}", terms) + " OR nil(age)",
        "ORs, a measure last": joined("OR", lambda: f"age = {number()}", terms) + " OR income = 1",
        "ORs, half a term last": joined("OR", lambda: f"age = {number()}", terms) + " OR age =",
        "ORs, 10 times too many": joined("OR", lambda: f"age = {number()}", terms * 10),
        "ANDs": joined("AND", lambda: f"age <> {number()}", terms),
        "ANDs, NOTs": joined("AND", lambda: f"NOT (age = {number()} OR city = 'Rom')", terms // 2),
        "ANDs, binned, cut": joined("AND", lambda: f"years <> {number(60)}", terms),
        "ANDs of nulls": joined("AND", lambda: "city IS NOT NULL", terms),
        "BETWEENs": joined("OR", lambda: f"age BETWEEN {number(50)} AND 60", terms // 2),
        "BETWEENs, cut": joined("OR", lambda: f"years BETWEEN {number(50)} AND 60", terms // 2),
        "LIKEs": joined("OR", lambda: f"city LIKE '{rng.choice(CITIES)[:2]}%'", terms),
        "IN": f"age IN ({listed(number)})",
        "IN, of texts": f"city IN ({listed(lambda: repr(rng.choice(CITIES)))})",
        "IN, of days": f"day IN ({listed(lambda: day(rng))})",
        "IN, negative": f"age IN ({listed(lambda: '-' + number(), values * 2 // 3)})",
        "IN, binned": f"years IN ({listed(lambda: str(rng.randint(20, 29)))},"
        f"{','.join(map(str, range(20, 30)))})",
        "IN, binned, cut": f"years IN ({listed(lambda: number(60))})",
        "IN, dense bins, cut": f"share IN ({listed(lambda: f'0.{number(1000)}')})",
        "IN, a fault last": f"age IN ({listed(number)}, 'x')",
        "IN, too long": f"age IN ({listed(number, values * 10)})",
        "NOT IN": f"age NOT IN ({listed(number)})",
        "INs": joined("OR", lambda: f"age IN ({listed(number, 8)})", terms // 2),
        "ANY": f"age = ANY (ARRAY[{listed(number)}])",
        "ANY of a text": f"age = ANY ('{{{listed(number, values * 10)}}}')",
        "> ALL": f"age > ALL (ARRAY[{listed(number, int(8_000 * size))}])",
        "IN, of rows": f"(age, city) IN ({listed(row, int(2400 * size))})",
    }


def shapes(rng, size):
    """Return the kinds of other texts."""
    terms, depth = int(4900 * size), int(480 * size)

    def number(most=100):
        return str(rng.randrange(most))

    whens = " ".join(f"WHEN age = {number()} THEN {number()}" for _ in range(int(9_000 * size)))
    cuts = " ".join(f"WHEN years = {number(60)} THEN {number()}" for _ in range(int(9_000 * size)))
    rows = ", ".join(f"({number()})" for _ in range(int(14_000 * size)))
    ones = " + ".join(number() for _ in range(int(4_000 * size)))
    nested = "CASE WHEN age = 1 THEN 1 ELSE " * (depth // 2) + "0" + " END" * (depth // 2)
    return {
        "VALUES": f"SELECT SUM(x) FROM (VALUES {rows}) AS v (x)",
        "VALUES in IN": counted(f"age IN (SELECT x FROM (VALUES {rows}) AS v (x))"),
        "CASE, grouped": f"SELECT CASE {whens} ELSE 0 END AS g, COUNT(*) FROM people GROUP BY 1",
        "CASE, summed": f"SELECT SUM(CASE {whens} ELSE 0 END) FROM people",
        "CASE, binned, cut": f"SELECT SUM(CASE {cuts} ELSE 0 END) FROM people",
        "CASE of a result": f"SELECT CASE {whens.replace('age', 'n')} END FROM "
        "(SELECT COUNT(*) AS n FROM people) AS t",
        "CASE, nested": counted(f"{nested} = 1"),
        "brackets": counted("(" * depth + "age = 1" + ")" * depth),
        "brackets, ORs": counted("(" * depth + "age = 1" + f" OR age = {number()})" * depth),
        "NOTs": counted("NOT " * depth + "age = 1"),
        "sums of an axis": counted(f"age + {ones} > 1000"),
        "sums of a measure": f"SELECT SUM(income + {ones}) FROM people",
        "sums of a count": f"SELECT COUNT(*) + {ones} FROM people",
        "sums of a result": f"SELECT n + {ones} FROM (SELECT COUNT(*) AS n FROM people) AS t",
        "sums of counts": "SELECT "
        + joined("+", lambda: f"COUNT(*) FILTER (WHERE age = {number()})", int(190 * size))
        + " FROM people",
        "texts, joined": counted(joined("||", lambda: "city", int(2_000 * size)) + " = 'x'"),
        "HAVING": "SELECT city, COUNT(*) FROM people GROUP BY city HAVING "
        + joined("OR", lambda: f"COUNT(*) > {number()}", terms),
        "WHERE of a result": "SELECT n FROM (SELECT city, COUNT(*) AS n FROM people GROUP BY city) "
        "AS t WHERE " + joined("OR", lambda: f"n > {number()}", terms),
        "columns": f"SELECT COUNT(*), {', '.join(number() for _ in range(terms // 4))} FROM people",
        "UNION ALL": " UNION ALL ".join(["SELECT COUNT(*) FROM people"] * int(180 * size)),
        "WITHs": "WITH "
        + ", ".join(f"t{i} AS (SELECT COUNT(*) AS n FROM people)" for i in range(int(180 * size)))
        + " SELECT n FROM t1",
        "COALESCE": counted(f"COALESCE({', '.join(['age'] * terms)}) = 1"),
        "a comment": counted("age = 1") + " /* " + "x " * int(490_000 * size) + "*/",
        "a text": counted(f"city = '{'x' * int(990_000 * size)}'"),
        "blanks": counted("age = 1") + " " * int(990_000 * size),
    }


# --- measuring ------------------------------------------------------------------------------------


def spent(action, *arguments):
    """Return the processor's seconds, of all threads, of an action, and how it ended."""
    gc.collect()
    gc.freeze()  # of what others have left nobody has to look for garbage
    start = time.process_time()
    try:
        action(*arguments)
        how = "answered"
    except (proxy.errors.Error, sqlglot.errors.SqlglotError, RecursionError) as error:
        how = type(error).__name__
    return time.process_time() - start, how


def measured(session, wanted, size, whole):
    """Print a line for each kind of text."""
    print(f"{'':<26}{'kB':>6}{'parsing':>9}{'ours':>9}{'ratio':>8}{'again':>8}")
    work = None if whole else session._engine.compile
    kinds = {}
    for seed in (1, 2):
        rng = random.Random(seed)
        made = {k: counted(where) for k, where in conditions(rng, size).items()}
        for name, text in (made | shapes(rng, size)).items():
            kinds.setdefault(name, []).append(text + UTILITY % (9000 + seed))
    over = 0
    for name, texts in kinds.items():
        if wanted and not any(word in name for word in wanted):
            continue
        figures = []
        for text in texts:
            parsing, _ = spent(sqlglot.parse_one, alone(name, text), "postgres")
            ours, how = spent(work, text, session) if work else spent(session.execute, text)
            figures.append((parsing, ours, how))
        (parsing, ours, how), (again, second, _) = figures
        ratios = ours / parsing, second / again
        over += min(ratios) > 3
        mark = "  <-- over" if min(ratios) > 3 else ""
        print(
            f"{name:<26}{len(texts[0]) / 1e3:>6.0f}{parsing:>8.2f}s{ours:>8.2f}s"
            f"{ratios[0]:>6.1f} x{ratios[1]:>6.1f} x  {how}{mark}",
            flush=True,
        )
    print(f"{over} over 3 x")


def main():
    """Measure some kinds or all."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--share", type=float, default=1.0, help="of the longest texts")
    parser.add_argument("--served", action="store_true", help="with the deep stack of workers")
    parser.add_argument("--whole", action="store_true", help="plan, measure and show, too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        policy = people(folder)
        init(policy, folder / "state", accept_second_budget=True)
        if options.served:
            have_room()

        def run():
            with closing(Engine.open(policy, folder / "state")) as engine:
                session = engine.session()
                session.execute(counted("age = 1 OR years >= 10 OR share < 0.5") + UTILITY % 9000)
                measured(session, options.names, options.share, options.whole)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()


if __name__ == "__main__":
    main()
