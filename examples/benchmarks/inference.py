"""How fast inference is: every figure as a ratio within one run, so that the machine cancels out.

    python examples/benchmarks/inference.py            all, in a few minutes
    python examples/benchmarks/inference.py pc cells   some of them: pc, cells, rows, append,
                                                       families, warm, text

Times are medians, of the processor; for statements by the clock too, as a durable commit waits for
the disk.  A decision is what a query costs that may or may not be inferred: estimability,
the best estimator, and whether its posterior is good enough.
"""

import cProfile
import os
import pstats
import resource
import statistics
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path

# BLAS threads that wait for one another cost more than they bring at these sizes.
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

from proxy.engine.cache import Cache
from proxy.inference import plan
from proxy.inference.family import Family
from proxy.inference.history import History
from proxy.inference.laplace import LaplaceSum
from proxy.inference.query import Factor, LinearQuery
from proxy.inference.space import Space

ROOT = Path(__file__).parents[2]
RECORDS = 1_000_000


def timed(*actions, repeats=9):
    """Return the median seconds of the processor of each action; they take turns."""
    times = [[] for _ in actions]
    for turn in range(repeats + 1):
        for action, mine in zip(actions, times, strict=True):
            start = time.process_time()
            action()
            if turn:  # the first is not counted
                mine.append(time.process_time() - start)
    medians = [statistics.median(mine) for mine in times]
    return medians if len(medians) > 1 else medians[0]


def show(what, ratio, goal, *details):
    """Print one figure of the list."""
    print(f"{what:<58}{ratio:>12}   goal {goal}")
    for detail in details:
        print(f"    {detail}")


def ranges(space, rng, axes=3):
    """Return a random conjunction of ranges over the first axes."""
    factors = []
    for axis in range(axes):
        size = space.sizes[axis]
        low = rng.integers(0, size)
        inside = np.zeros(size, dtype=np.int64)
        inside[low : rng.integers(low + 1, size + 1)] = 1
        factors.append(Factor((axis,), inside))
    return LinearQuery.count(space, *factors)


def grown(space, rows, seed=0):
    """Return a history of so many random conjunctions."""
    rng = np.random.default_rng(seed)
    history = History(space, RECORDS)
    for _ in range(rows):
        history.append(Family(ranges(space, rng)), float(rng.uniform(5, 50)))
    return history


def forget(history):
    """Drop what was remembered of earlier decisions, so that each is made anew."""
    history._forget()
    for cache in (plan._law, plan._meets, plan._half_width):
        cache.cache_clear()


def decide(history, queries, half_width=100):
    """Decide some queries anew: which of them the history can tell within ``half_width``."""
    forget(history)
    return [plan.best(history, query, Fraction(half_width), 0.05) for query in queries]


def spanned(history, count=5, seed=1):
    """Return queries that the history knows: each the sum of two rows."""
    rng = np.random.default_rng(seed)
    blocks = history.blocks
    pairs = rng.integers(0, len(blocks), (count, 2))
    return [blocks[i].family.query + blocks[j].family.query for i, j in pairs]


def pc():
    """Exact inversion against the paper's discrete probability calculation."""
    m, gamma = 1000, 0.01
    for largest in (2, 10):
        law = LaplaceSum(np.random.default_rng(0).uniform(0, largest, m))
        beta = float(law.noise.sum()) ** 2
        exact = timed(lambda law=law: law.mass("exact", gamma=1e-9))
        start = time.process_time()
        approximate = law.mass("pc", gamma=gamma)
        slow = time.process_time() - start
        truth = law.mass("exact", gamma=1e-12)
        reach = len(approximate) // 2
        wide = np.pad(truth, max(reach - len(truth) // 2, 0))
        wide = wide[len(wide) // 2 - reach :][: len(approximate)]
        places = np.linspace(0, len(truth) // 2 - 1, 20).astype(int)  # each by its own inversion
        apart = [law.probability(j - 0.5, j + 0.5) for j in places] - truth[
            len(truth) // 2 + places
        ]
        show(
            f"exact vs PC, m = {m}, gamma = {gamma}, beta = {beta:.2g}",
            f"{slow / exact:,.0f} x",
            ">= 100" if largest == 10 else "(small beta, for comparison)",
            f"exact {exact * 1e3:.2f} ms, PC {slow * 1e3:,.0f} ms (direct convolution, shortest "
            "first)",
            f"largest error of a mass: exact {np.abs(apart).max():.0e}, "
            f"PC {np.abs(approximate - wide).max():.1e}",
        )


def cells():
    """The same rows over 10³ and over 10⁹ cells."""
    small, large = Space((10,) * 3), Space((10,) * 9)
    histories = [(h, spanned(h)) for h in (grown(small, 1000), grown(large, 1000))]
    times = [t / 5 for t in timed(*(lambda h=h, q=q: decide(h, q) for h, q in histories))]
    show(
        "a decision at m = 1000, n = 10^9 against n = 10^3",
        f"{times[1] / times[0]:.2f} x",
        "<= 1.3",
        f"{times[0] * 1e3:.1f} ms and {times[1] * 1e3:.1f} ms; rank {histories[0][0].rank}",
    )


def rows():
    """Growth with the length of the history."""
    space = Space((10,) * 9)
    sizes, times = (250, 500, 1000, 2000), []
    history, rng = History(space, RECORDS), np.random.default_rng(0)
    for size in sizes:
        while len(history) < size:
            history.append(Family(ranges(space, rng)), float(rng.uniform(5, 50)))
        queries = spanned(history)
        times.append(timed(lambda q=queries: decide(history, q)) / len(queries))
    show(
        "a decision, m = 2000 against m = 500",
        f"{times[-1] / times[1]:.1f} x",
        "<= 16 (quadratic)",
        ", ".join(f"m = {m}: {t * 1e3:.1f} ms" for m, t in zip(sizes, times, strict=True)),
    )


def families():
    """20 GROUP BYs of 500 groups, and 500 single rows."""
    space = Space((20, 25) * 5)
    rng = np.random.default_rng(0)
    history = History(space, RECORDS)
    pairs = [(a, b) for a in range(0, 10, 2) for b in range(1, 10, 2)][:20]
    start = time.process_time()
    for a, b in pairs:
        first, second = sorted((a, b))
        shape = (space.sizes[first], space.sizes[second])
        labels = np.arange(500, dtype=np.int32).reshape(shape)
        history.append(
            Family(LinearQuery.count(space), (first, second), labels, 500),
            float(rng.uniform(5, 50)),
        )
    grouped = time.process_time() - start
    for _ in range(500):
        history.append(Family(ranges(space, rng)), float(rng.uniform(5, 50)))
    built = time.process_time() - start - grouped
    inside = [
        ranges(space, rng, axes=2),  # of one GROUP BY
        ranges(space, rng, axes=1),  # of several
        ranges(space, rng),  # of none
    ]
    times = [timed(lambda q=query: decide(history, [q], 10_000)) for query in inside]
    known = ["inferred" if decide(history, [query], 10_000)[0] else "not" for query in inside]
    show(
        f"the slowest decision at {len(history):,} rows (20 GROUP BYs, 500 others)",
        f"{max(times):.3f} s",
        "<= 0.5 s",
        "of one GROUP BY, of several, of none: "
        + ", ".join(f"{t * 1e3:.1f} ms ({k})" for t, k in zip(times, known, strict=True)),
        f"built in {grouped:.1f} s and {built:.1f} s",
    )
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    show("    the most memory of this process so far", f"{memory:.2f} GB", "<= 2 GB")


def append():
    """One row more, in decisions."""
    space = Space((10,) * 9)
    history, rng = grown(space, 1000), np.random.default_rng(2)
    queries = spanned(history)
    decision = timed(lambda: decide(history, queries)) / len(queries)
    fresh = [ranges(space, rng, axes=4) for _ in range(9)]
    times = []
    for query in fresh:
        start = time.process_time()
        history.append(Family(query), 20.0)
        times.append(time.process_time() - start)
    more = statistics.median(times)
    show(
        "appending one row at m = 1000, in decisions",
        f"{more / decision:.2f} x",
        "<= 2",
        f"{more * 1e3:.1f} ms against {decision * 1e3:.1f} ms",
    )


def warm():
    """A warm statement on cps1988 through DB-API, at 500 history rows."""
    import proxy
    from proxy.engine import init

    with tempfile.TemporaryDirectory() as state:
        policy = ROOT / "policies" / "cps1988.yaml"
        init(policy, state, accept_second_budget=True)
        with proxy.connect(policy, state=state) as connection:
            cursor = connection.cursor()
            rows = _fill(cursor)
            inferred = [
                f"SELECT COUNT(*) FROM cps1988 WHERE education >= {years} AND smsa = 'no' "
                "WITH UTILITY (100000, 0.05)"
                for years in range(4, 15)
            ]
            measured = [
                f"SELECT COUNT(*) FROM cps1988 WHERE education >= {years} AND region = 'south' "
                f"AND parttime = 'no' WITH UTILITY ({half_width}, 0.05)"
                for half_width in (4000, 3000)
                for years in range(4, 15)
            ]
            for sql in inferred:  # compiled once; those that are measured are new each time
                cursor.execute(sql)
            accountant = connection._engine.planner._accountants["shared"]

            def anew():
                forget(accountant.history)
                accountant.cache.clear()
                connection._engine._cache = Cache()

            _statements("inferred", cursor, inferred * 2, rows, 5, anew)
            _statements("inferred", cursor, inferred * 2, rows, 5, lambda: None, " (asked again)")
            _statements("measured", cursor, measured, rows, 15, anew)


def _fill(cursor):
    """Ask GROUP BYs, cheaply, until there are 500 rows; return their number."""
    groups = ("education, region", "education, experience", "region, experience", "education, smsa")
    groups += ("education, ethnicity", "experience, smsa", "education, parttime", "region, smsa")
    groups += ("region, parttime", "experience, parttime", "experience, ethnicity")
    groups += ("education, region, smsa",)
    count = 0
    for by in groups:
        if count < 500:
            cursor.execute(
                f"SELECT {by}, COUNT(*) FROM cps1988 GROUP BY {by} WITH UTILITY (6000, 0.05)"
            )
            count += len(cursor.fetchall())
    return count


def _statements(what, cursor, statements, rows, goal, before, note=""):
    """Time statements that are all inferred, or all measured, and say where the time goes."""
    profile, times, processor = cProfile.Profile(time.process_time), [], []
    for number, sql in enumerate(statements):
        before()
        start, busy = time.perf_counter(), time.process_time()
        if number % 2:  # half of them, since profiling slows them down
            profile.runcall(cursor.execute, sql)
        else:
            cursor.execute(sql)
            times.append(time.perf_counter() - start)
            processor.append(time.process_time() - busy)
        source = cursor.answers[0][0].source
        if source != what:
            raise SystemExit(f"{sql}: {source}, not {what}")
    show(
        f"a warm statement, {what}{note}, at {rows} history rows",
        f"{statistics.median(times) * 1e3:.1f} ms",
        f"<= {goal} ms",
        f"of which the processor worked {statistics.median(processor) * 1e3:.1f} ms",
        "where it goes, in ms under the profiler, which slows Python down:",
    )
    for line in _profiled(profile, len(statements) // 2):
        print(f"        {line}")


def _profiled(profile, calls):
    """Yield the stages that the engine goes through, and then the dearest functions."""
    entries = pstats.Stats(profile).stats.items()
    named = [
        (f"{Path(file).name}:{name}", own / calls * 1e3, total / calls * 1e3, callers)
        for (file, _, name), (_, _, own, total, callers) in entries
    ]
    stages = [
        (total, name)
        for name, _, total, callers in named
        if any(Path(file).name in ("engine.py", "infer.py", "measure.py") for file, _, _ in callers)
        and not name.startswith(("engine.py:execute", "~"))
        and total > 0.2
    ]
    for total, name in sorted(stages, reverse=True)[:12]:
        yield f"{total:7.2f} in all   {name}"
    for own, name in sorted(((own, name) for name, own, _, _ in named), reverse=True)[:12]:
        yield f"{own:7.2f} own      {name}"


TYPICAL = """
    SELECT "source"."region" AS "region", SUM(CASE WHEN "source"."smsa" = 'yes' THEN 1 ELSE 0 END)
      AS "city", COUNT(*) AS "count", SUM("source"."wage") / NULLIF(COUNT(*), 0) AS "mean"
    FROM (SELECT "public"."cps1988"."region" AS "region", "public"."cps1988"."smsa" AS "smsa",
            "public"."cps1988"."wage" AS "wage" FROM "public"."cps1988"
          WHERE ("public"."cps1988"."education" >= {} AND "public"."cps1988"."ethnicity" IN
            ('afam', 'cauc'))) AS "source"
    GROUP BY "source"."region" HAVING COUNT(*) > 0 ORDER BY "count" DESC, "region" ASC LIMIT 2000
"""


def text():
    """From the text of a BI tool's statement to its plan: the first time, and again."""
    from proxy.engine import Engine, init

    with tempfile.TemporaryDirectory() as state:
        policy = ROOT / "policies" / "cps1988.yaml"
        init(policy, state, accept_second_budget=True)
        begun, first, again = [], [], []
        for _ in range(5):
            engine = Engine.open(policy, state)
            session = engine.session()
            for years in range(3, 16):
                for times in (first if years > 3 else begun, *[again] * 9):
                    start = time.perf_counter()
                    session.describe(TYPICAL.format(years))
                    times.append(time.perf_counter() - start)
            engine.close()
    milliseconds = [statistics.median(times) * 1e3 for times in (begun, first, again)]
    show("text to plan, the first of an engine", f"{milliseconds[0]:.2f} ms", "<= 10 ms")
    show("text to plan, a new text", f"{milliseconds[1]:.2f} ms", "<= 10 ms")
    show("text to plan, again", f"{milliseconds[2]:.3f} ms", "<= 1 ms")


BENCHMARKS = {f.__name__: f for f in (pc, cells, rows, append, families, warm, text)}


if __name__ == "__main__":
    for name in sys.argv[1:] or BENCHMARKS:
        BENCHMARKS[name]()
