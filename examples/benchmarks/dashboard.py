"""What a dashboard costs: 30 charts, refreshed every five minutes for 30 days, dates moving.

    python examples/benchmarks/dashboard.py [--days 30] [--every 5]     about half an hour

Orders of a shop over 90 days, made up.  Each chart sends the SQL that a BI tool would, the dates
of its filter written out; at midnight they move on by a day.  Every refresh runs, through the
engine, on a durable ledger.  The strategies are that of the paper, topping up, and ``auto``, which
follows what a simulation chose: over the charts of the first day, declared as the policy's workload
before anything is asked, or over the log of the first day.  Printed for each strategy: what the
dearest cell has paid (alpha), how many numbers were shown, which share of them was inferred, and
the time of a refresh of the 30 charts.  For comparison: each text is paid once and its answer kept
(a cache); and every refresh is paid.
"""

import argparse
import datetime
import os
import random
import tempfile
import time
from collections import Counter
from pathlib import Path

# BLAS threads that wait for one another cost more than they bring at these sizes.
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

from proxy.engine import Engine, init
from proxy.engine.choice import adopt, compare, log
from proxy.engine.goals.linear import AbsoluteGoal
from proxy.inference import plan as planning
from proxy.inference.accounting import UNIT, charge, maximum
from proxy.inference.history import History
from proxy.inference.plan import Allocation
from proxy.sql.compile.release_point import space

START = datetime.date(2026, 1, 1)
DAYS = 90  # that the orders span; the dashboard is first looked at on the 60th
ORDERS = 2_000  # a day, about
POLICY = """
dataset: orders
source: {engine: duckdb, path: orders.csv}
max_records: 1_000_000
outside: error
nulls: error
attributes:
  day: {type: date, from: '2026-01-01', to: '2026-04-01', bin: day}
  region: {values: [north, east, south, west]}
  product: {values: [a, b, c, d, e, f]}
  channel: {values: [web, shop, phone]}
  returned: {type: boolean}
measures:
  amount: {clip: [0, 500], quantum: 0.01}
privacy:
  budget: 100
  unit: row
  strategy: STRATEGY
"""
DECLARED = "workload: charts.sql\n"  # what `init` chooses by
WAYS = {  # name: strategy, what else the policy says, and what it is in words
    "topup": ("topup", "", "infer, or pay what is missing"),
    "paper": ("paper", "", "infer, or pay all of it"),
    "declared": ("auto", DECLARED, "auto, with the first day declared"),
    "learned": ("auto", "", "auto, with the log of the first day"),
}


def orders(path):
    """Write orders whose number follows the week, and whose amounts follow the product."""
    rng = random.Random(1)
    lines = ["day,region,product,channel,returned,amount"]
    for i in range(DAYS):
        day = START + datetime.timedelta(days=i)
        for _ in range(int(ORDERS * (0.7 if day.weekday() > 4 else 1.1))):
            product = rng.choices("abcdef", (8, 5, 4, 2, 2, 1))[0]
            region = rng.choices(("north", "east", "south", "west"), (4, 3, 2, 2))[0]
            channel = rng.choices(("web", "shop", "phone"), (6, 3, 1))[0]
            amount = min(rng.lognormvariate(3 + "abcdef".index(product) / 4, 0.6), 500)
            back = str(rng.random() < 0.08).lower()
            lines.append(f"{day},{region},{product},{channel},{back},{amount:.2f}")
    path.write_text("\n".join([*lines, ""]))


def charts(today):
    """Return the SQL of the 30 charts on a day."""

    def since(days):
        first = today - datetime.timedelta(days=days)
        return f"day >= DATE '{first}' AND day < DATE '{today}'"

    week = today - datetime.timedelta(days=today.weekday())
    weeks = f"day >= DATE '{week - datetime.timedelta(days=56)}' AND day < DATE '{week}'"
    month = f"day >= DATE '{today.replace(day=1)}' AND day < DATE '{today}'"
    january = "day >= DATE '2026-01-01' AND day < DATE '2026-02-01'"
    count, total = "WITH UTILITY (150, 0.05)", "WITH UTILITY (15000, 0.05)"
    by = "SELECT {0}, COUNT(*) AS n FROM orders WHERE {1} GROUP BY {0} {2}"
    amounts = "SELECT {0}, SUM(amount) AS revenue FROM orders WHERE {1} GROUP BY {0} {2}"
    back = "COUNT(*) FILTER (WHERE returned)"
    both = "WITH UTILITY (150, 0.05), revenue (15000, 0.05)"
    return [
        # five numbers at the top
        f"SELECT COUNT(*) AS yesterday FROM orders WHERE {since(1)} {count}",
        f"SELECT COUNT(*) AS week FROM orders WHERE {since(7)} WITH UTILITY (300, 0.05)",
        f"SELECT COUNT(*) AS month FROM orders WHERE {since(30)} WITH UTILITY (1000, 0.05)",
        f"SELECT SUM(amount) AS week FROM orders WHERE {since(7)} WITH UTILITY (30000, 0.05)",
        f"SELECT SUM(amount) AS month FROM orders WHERE {since(30)} WITH UTILITY (100000, 0.05)",
        # lines over the last 30 days
        by.format("day", since(30), count) + " ORDER BY day",
        amounts.format("day", since(30), total) + " ORDER BY day",
        by.format("day, channel", since(30), count),
        by.format("day", f"{since(30)} AND region = 'north'", count) + " ORDER BY day",
        by.format("day", f"{since(30)} AND returned", count) + " ORDER BY day",
        # bars over the last 7 and 30 days
        *(
            by.format(column, since(days), "WITH UTILITY (300, 0.05)")
            for days in (7, 30)
            for column in ("region", "product", "channel")
        ),
        *(
            amounts.format(column, since(days), "WITH UTILITY (30000, 0.05)")
            for days in (7, 30)
            for column in ("region", "product")
        ),
        by.format("region, product", since(30), "WITH UTILITY (300, 0.05)"),
        by.format("product, channel", since(7), "WITH UTILITY (300, 0.05)"),
        # tables with several numbers
        f"SELECT product, {back} AS back, 100.0 * {back} / COUNT(*) AS share FROM orders "
        f"WHERE {since(30)} GROUP BY product WITH UTILITY (150, 0.05) ORDER BY share DESC",
        "SELECT region, COUNT(*) AS n, SUM(amount) AS revenue, SUM(amount) / COUNT(*) AS basket "
        f"FROM orders WHERE {month} GROUP BY region {both} ORDER BY revenue DESC",
        f"SELECT channel, COUNT(*) AS n, SUM(amount) AS revenue FROM orders WHERE {month} "
        f"GROUP BY channel {both}",
        # bars by week
        f"SELECT date_trunc('week', day) AS w, COUNT(*) AS n FROM orders WHERE {weeks} "
        "GROUP BY 1 WITH UTILITY (300, 0.05) ORDER BY 1",
        f"SELECT date_trunc('week', day) AS w, SUM(amount) AS n FROM orders WHERE {weeks} "
        "GROUP BY 1 WITH UTILITY (30000, 0.05) ORDER BY 1",
        # a month that is over
        by.format("region", january, count),
        amounts.format("product", january, total),
        f"SELECT COUNT(*) AS n FROM orders WHERE {january} {count}",
    ]


def state(folder, way):
    """Make the state of the orders under a strategy; return the path of the policy."""
    strategy, more, _ = WAYS[way]
    path = folder / f"{way}.yaml"
    path.write_text(POLICY.replace("STRATEGY", strategy) + more)
    first = START + datetime.timedelta(days=60)
    (folder / "charts.sql").write_text(";\n".join(charts(first)) + ";\n")
    if not (folder / "orders.csv").exists():
        orders(folder / "orders.csv")
    init(path, folder / way, accept_second_budget=True)
    return path


def run(folder, way, days, every):
    """Run the dashboard; return the dearest cell's alpha, numbers by source, seconds a refresh."""
    engine = Engine.open(state(folder, way), folder / way)
    session, seen, spans = engine.session(), Counter(), []
    for day in range(days):
        texts = charts(START + datetime.timedelta(days=60 + day))
        for refresh in range(0, 24 * 60, every):
            start = time.perf_counter()
            for text in texts:
                result = session.execute(text)
                numbers = Counter(answer.source for row in result.answers for answer in row)
                assert not (refresh and result.cost), "what has not changed is free"
                seen += numbers
            spans.append(time.perf_counter() - start)
        if way == "learned" and not day:  # what `privacy-proxy plan --log --adopt` does
            adopt(engine, compare(engine, log(engine.ledger), repeated=False), "steward")
    spent = max(rule.spent for rule in engine.budget().rules)
    engine.close()
    return spent, seen, sorted(spans)


def apart(folder, days, every):
    """Return what the dearest cell pays where each text is paid once, and at every refresh."""
    engine = Engine.open(folder / "paper.yaml", folder / "paper")
    session, shape, once, known = engine.session(), space(engine.policy.domain), [], set()
    always = []
    for day in range(days):
        for text in charts(START + datetime.timedelta(days=60 + day)):
            program = engine.compile(text, session)
            targets = []
            for release in program.releases:
                for number in release.numbers:
                    half, delta = number.utility.half_width, float(number.utility.delta)
                    targets.append(AbsoluteGoal(number, half, delta).target)
            new = History(shape, engine.policy.max_records)
            plan = planning.plan(
                new, targets, Allocation(False, float(engine.policy.privacy.floor))
            )
            terms = [charge(each.family, each.scale) for each in plan.measurements]
            always += terms
            if text not in known:
                known.add(text)
                once += terms
    engine.close()
    refreshes = len(range(0, 24 * 60, every))
    return maximum(once, shape).value / UNIT, refreshes * maximum(always, shape).value / UNIT


def main():
    """Run the strategies and print what each cost."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--every", type=int, default=5, help="minutes between refreshes")
    parser.add_argument("--only", choices=WAYS, action="append", help="strategies to run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = []
        for way in options.only or WAYS:
            spent, seen, spans = run(folder, way, options.days, options.every)
            share = sum(seen.values()) - seen["measured"]
            rows.append((WAYS[way][2], spent, f"{share / sum(seen.values()):.3%}", spans))
        once = always = None
        if not options.only:
            once, always = apart(folder, options.days, options.every)
    refreshes = options.days * len(range(0, 24 * 60, options.every))
    print(
        f"30 charts, {refreshes:,} refreshes in {options.days} days, {sum(seen.values()):,} numbers"
    )
    print(f"{'strategy':36}{'alpha':>10}{'free':>10}{'p50':>9}{'p99':>9}")
    for words, spent, share, spans in rows:
        middle, late = spans[len(spans) // 2], spans[int(len(spans) * 0.99)]
        print(f"{words:36}{spent:10.2f}{share:>10}{middle * 1e3:6.0f} ms{late * 1e3:6.0f} ms")
    if once is not None:
        print(f"{'pay each text once':36}{once:10.2f}")
        print(f"{'pay every refresh':36}{always:10,.2f}")


if __name__ == "__main__":
    main()
