"""The paper's running times: of the estimator, and of the posterior by three methods.

- ``blue``: m = 100:100:2000 rows over n = 100 cells; and n = 100:100:2000 cells, m = 2n;
  coefficients up to 10, alpha uniform on [0, 1].  The paper's way solves the weighted least squares
  from the rows; ours asks a history that keeps them factorised, and proves estimability exactly.
- ``posterior``: gamma = 0.01, coefficients up to 5.  Times at m = 200:100:1000 (n = 100) and at
  n = 50:50:400 (m = 500; printed as 50:50:100, which is two points); PC against β at m = 1000; MC
  against its number of samples, 10⁵:10⁵:10⁶.  The error of a mass vector u is Σ (u_j - E u_j)²,
  E u_j from the exact inversion.  The exact vector is cut off where it has lost 10⁻⁹, not gamma.

Units: seconds of the processor, the median of the repetitions.
Source: Xiao & Xiong, Sections "BLUE" and "Bayesian Inference" of the experimental study.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal, TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from proxy.experiment.study import Outcome
from proxy.inference.family import Family
from proxy.inference.history import History
from proxy.inference.laplace import LaplaceSum
from proxy.inference.query import Factor, LinearQuery
from proxy.inference.space import Space

Floats = NDArray[np.float64]
Method = Literal["exact", "pc", "mc"]
Made = TypeVar("Made")

GAMMA = 0.01
CUT = 1e-9  # the mass that the exact vector leaves out
RECORDS = 1_000_000
OUR_CELLS = 500  # up to which our history is built cell for cell: that, not asking, takes long
Progress = Callable[[float], None]


def blue(seed: int, repeats: int, progress: Progress) -> Iterator[Outcome]:
    """Yield the times of one estimate against the rows m, and against the cells n."""
    rng = np.random.default_rng(seed)
    sizes = range(100, 2001, 100)
    for step, system_m in enumerate(_against_rows(rng, seed, repeats, sizes)):
        progress(step / (4 * len(sizes)))
        yield system_m
    for step, cells in enumerate(sizes):
        rows, weights = _rows(rng, 2 * cells, cells, 10)
        yield _paper(rows, weights, rng, seed, repeats, "n")
        if cells <= OUR_CELLS:
            yield _ours(_history(rows, weights), rng, seed, repeats, "n")
        progress(0.5 + step / (2 * len(sizes)))


def _against_rows(
    rng: np.random.Generator, seed: int, repeats: int, sizes: range
) -> Iterator[Outcome]:
    rows, weights = _rows(rng, sizes[-1], 100, 10)
    history = History(Space((100,)), RECORDS)
    for m in sizes:
        yield _paper(rows[:m], weights[:m], rng, seed, repeats, "m")
        _extend(history, rows[len(history) : m], weights[len(history) : m])
        yield _ours(history, rng, seed, repeats, "m")


def _paper(
    rows: Floats, weights: Floats, rng: np.random.Generator, seed: int, repeats: int, figure: str
) -> Outcome:
    m, n = rows.shape
    queries = rng.integers(0, 11, (repeats, n)).astype(np.float64)
    _, seconds = _timed(lambda i: _noise(rows, weights, queries[i]), repeats)
    return Outcome(
        "blue", seed, "paper", repeats, seconds=seconds, setting={"against": figure, "m": m, "n": n}
    )


def _ours(
    history: History, rng: np.random.Generator, seed: int, repeats: int, figure: str
) -> Outcome:
    space, m = history.space, len(history)
    queries = [_query(space, rng.integers(0, 11, space.sizes[0])) for _ in range(repeats)]
    _, seconds = _timed(lambda i: history.estimators(queries[i]), repeats)
    n = space.sizes[0]
    return Outcome(
        "blue", seed, "ours", repeats, seconds=seconds, setting={"against": figure, "m": m, "n": n}
    )


def _rows(rng: np.random.Generator, m: int, n: int, largest: int) -> tuple[Floats, Floats]:
    """Return random rows [m, n] of integers up to ``largest``, and weights alpha / S [m]."""
    rows = rng.integers(0, largest + 1, (m, n)).astype(np.float64)
    return rows, rng.uniform(size=m) / rows.max(axis=1)


def _noise(rows: Floats, weights: Floats, query: Floats) -> Floats:
    """Return the BLUE's coefficients on unit noise, from nothing (paper, Theorem 3.1)."""
    scaled = rows * weights[:, None]
    normal = np.linalg.solve(scaled.T @ scaled, query)
    return np.asarray(scaled @ normal)


def _query(space: Space, coefficients: NDArray[np.int64]) -> LinearQuery:
    return LinearQuery.count(space, Factor((0,), coefficients))


def _history(rows: Floats, weights: Floats) -> History:
    history = History(Space((rows.shape[1],)), RECORDS)
    _extend(history, rows, weights)
    return history


def _extend(history: History, rows: Floats, weights: Floats) -> None:
    for row, weight in zip(rows, weights, strict=True):
        query = _query(history.space, row.astype(np.int64))
        history.append(Family(query), 1 / (weight * float(query.grid)))


def _timed(action: Callable[[int], Made], repeats: int) -> tuple[list[Made], float]:
    """Return what an action makes of 0, 1, … and its median time."""
    made, times = [], []
    for i in range(repeats):
        start = time.process_time()
        made.append(action(i))
        times.append(time.process_time() - start)
    return made, statistics.median(times)


class Case(Struct, frozen=True, eq=False):
    """A law whose mass vector is wanted: where it stands in the figures, by which methods."""

    noise: Floats  # [m] coefficients on unit noise
    setting: dict[str, float | str]
    methods: tuple[Method, ...]
    samples: int | None = None


def posterior(seed: int, repeats: int, progress: Progress) -> Iterator[Outcome]:
    """Yield times and errors of the mass vector: exact, PC and MC."""
    cases = _cases(np.random.default_rng(seed))
    for done, case in enumerate(cases, 1):
        yield from _masses(case, repeats, seed)
        progress(done / len(cases))


def _cases(rng: np.random.Generator) -> list[Case]:
    every: tuple[Method, ...] = ("exact", "pc", "mc")
    cases = []
    for figure, m, n in [
        *(("m", m, 100) for m in range(200, 1001, 100)),
        *(("n", 500, n) for n in range(50, 401, 50)),
    ]:
        cases.append(Case(_terms(rng, m, n), {"against": figure, "m": m, "n": n}, every))
    terms = _terms(rng, 1000, 100)
    for noise in (terms * 2.0**power for power in range(-1, 6)):
        beta = float(noise.sum()) ** 2
        at: dict[str, float | str] = {"against": "beta", "m": 1000, "n": 100, "beta": beta}
        cases.append(Case(noise, at, ("exact", "pc")))
    terms = _terms(rng, 200, 100)
    for samples in range(100_000, 1_000_001, 100_000):
        at = {"against": "samples", "m": 200, "n": 100, "samples": samples}
        cases.append(Case(terms, at, ("mc",), samples))
    return cases


def _terms(rng: np.random.Generator, m: int, n: int) -> Floats:
    """Return the coefficients on unit noise of a random query from random rows."""
    rows, weights = _rows(rng, m, n, 5)
    return np.abs(_noise(rows, weights, rng.integers(0, 6, n).astype(np.float64)))


def _masses(case: Case, repeats: int, seed: int) -> Iterator[Outcome]:
    law = LaplaceSum(case.noise)
    truth = law.mass("exact", gamma=CUT / 1000)
    for method in case.methods:
        rng = np.random.default_rng([seed, 1])
        times = 1 if method == "mc" else repeats  # it takes seconds each
        make = partial(_mass, law, method, case.samples, rng)
        found, seconds = _timed(make, times)
        error = float(np.mean([_difference(u, truth) for u in found]))
        yield Outcome(
            "posterior", seed, method, times, error=error, seconds=seconds, setting=case.setting
        )


def _mass(
    law: LaplaceSum, method: Method, samples: int | None, rng: np.random.Generator, _: int
) -> Floats:
    return law.mass(method, CUT if method == "exact" else GAMMA, samples, rng)


def _difference(mass: Floats, truth: Floats) -> float:
    """Return Σ (u_j - E u_j)² of two vectors with one middle."""
    reach = max(len(mass), len(truth)) // 2
    padded = [np.pad(vector, reach - len(vector) // 2) for vector in (mass, truth)]
    return float(np.sum((padded[0] - padded[1]) ** 2))
