"""An estimator of one query: the answers that it adds up, their coefficients, and its error."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cached_property, reduce

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from proxy.inference.space import common_grid

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

Cancellation = Callable[[], None]  # raises where the work is to stop; asked before each estimator


def never_cancel() -> None:
    """Stop nothing."""


SHARES = 2**16  # of which each estimator of a mixture has some
FINE_SHARES = 2**40  # the same, where the mixture is to be the best but for rounding


SMALL = 1000  # denominators of coefficients that are looked for


NEARLY = 1e-9  # how near to whole a float is that may stand for a whole number


class Rates:
    """The privacy loss per grid unit of each row of a history, [rows], with room for more."""

    def __init__(self) -> None:
        self._rates = np.zeros(16)
        self._count = 0

    def append(self, rate: float, rows: int) -> None:
        """Add rows of one rate."""
        self._count += rows
        if self._count > len(self._rates):
            self._rates = np.concatenate([self._rates, np.zeros(self._count)])
        self._rates[self._count - rows : self._count] = rate

    def put(self, rows: range, rate: float) -> None:
        """Give rows another rate."""
        self._rates[rows.start : rows.stop] = rate

    def of(self, rows: Integers) -> Floats:
        """Return the rates of some rows, which are there."""
        return np.asarray(self._rates[: self._count][rows])

    def truncate(self, rows: int) -> None:
        """Forget the rows from a number on."""
        self._count = rows


class Estimator(Struct, frozen=True, eq=False, dict=True):
    """θ̂ = unit · Σ coefficients · answers of ``rows``; |bias| ≤ unit · ``slack``.

    ``unit`` is the grid of the query, so that a row that is the query itself has the coefficient 1
    exactly; answers are in grid units of their rows; ``rates`` [k] = 1 / scale.
    """

    unit: Fraction
    rows: Integers
    coefficients: Floats
    rates: Floats
    slack: float = 0.0

    @property
    def noise(self) -> Floats:
        """[k] The coefficients c on unit noise, in answer units: the variance is 2‖c‖²."""
        return float(self.unit) * self.coefficients / omega(self.rates)

    def before(self, row: int) -> bool:
        """Whether it rests on no row from this one on."""
        return bool(self.rows.max(initial=-1) < row)

    def same(self, other: Estimator) -> bool:
        """Whether it is another's equal: of the same answers, with the same weights."""
        return self is other or (
            (self.unit, self.slack) == (other.unit, other.slack)
            and np.array_equal(self.rows, other.rows)
            and np.array_equal(self.coefficients, other.coefficients)
            and np.array_equal(self.rates, other.rates)
        )

    @cached_property
    def variance(self) -> float:
        """The variance of θ̂ - θ, in answer units squared."""
        return float(2 * np.sum(self.noise**2))


def mixed(
    one: Estimator, two: Estimator, reach: Callable[[Integers], Floats], shares: int = SHARES
) -> Estimator | None:
    """Return the best mixture of two estimators of a query; None where it is one of the two.

    ``reach`` gives the most that all records together move some rows: for the slack, where the
    coefficients have to be rounded.
    """
    rows, places = np.unique(np.concatenate([one.rows, two.rows]), return_inverse=True)
    unit = common_grid(one.unit, two.unit)
    own, rates = np.zeros((2, len(rows))), np.zeros(len(rows))
    rates[places] = np.concatenate([one.rates, two.rates])
    times = [float(each.unit / unit) for each in (one, two)]
    own[0, places[: len(one.rows)]] = one.coefficients * times[0]
    own[1, places[len(one.rows) :]] = two.coefficients * times[1]
    noise = own / omega(rates)
    first, both, second = noise[0] @ noise[0], noise[0] @ noise[1], noise[1] @ noise[1]
    apart = first + second - 2 * both
    part = (second - both) / apart if 0 < apart < math.inf else 0.0
    if not 0 < (share := round(shares * min(max(part, 0.0), 1.0))) < shares:
        return None
    mixture = own * np.array([[share], [shares - share]])
    coefficients, sizes = mixture.sum(axis=0), np.abs(mixture).sum(axis=0)
    slack = max(one.slack * times[0], two.slack * times[1])
    if sizes.max() >= 2**53 or (mixture % 1).any():  # else whole, and exact
        slack += 2.0**-51 * float(sizes @ reach(rows)) / shares
    used = coefficients != 0
    return Estimator(unit, rows[used], coefficients[used] / shares, rates[used], slack)


def correlation(estimators: Sequence[Estimator]) -> float:
    """Return the factor by which Var(Σ g θ̂) may pass Σ g² Var(θ̂): 1 where no two share a row."""
    rows = np.concatenate([each.rows for each in estimators])
    names, places = np.unique(rows, return_inverse=True)
    if len(names) == len(rows):
        return 1.0
    noise = np.zeros((len(estimators), len(names)))
    owner = np.repeat(np.arange(len(estimators)), [len(each.rows) for each in estimators])
    noise[owner, places] = np.concatenate([each.noise for each in estimators])
    norms = np.linalg.norm(noise, axis=1, keepdims=True)
    noise = noise / np.where(norms > 0, norms, 1.0)
    return max(float(np.linalg.norm(noise, 2)) ** 2, 1.0)


def omega(rates: Floats) -> Floats:
    """Return ω = 2 sinh(rate / 2): the geometric noise has variance 2 / ω².

    From a rate of 100 on the noise is 0 but for 1 draw in 10⁴³, and ω, of which least squares take
    the fourth power, is that of 100.
    """
    return np.asarray(2 * np.sinh(np.minimum(rates, 100.0) / 2))


def whole_multiples(ratios: Sequence[Fraction]) -> tuple[Fraction, Floats, bool]:
    """Return a step, the whole multiples of it that the ratios are, and true.

    Where one would not be exact in floats: 1, the ratios, rounded, and false.
    """
    step = reduce(common_grid, {abs(ratio) for ratio in ratios}, Fraction(0))
    whole = bool(step) and max(abs(ratio) for ratio in ratios) / step < 2**53
    step = step if whole else Fraction(1)
    return step, np.array([float(ratio / step) for ratio in ratios]), whole


def denominator(values: Floats) -> int | None:
    """Return the least D with D · values all but whole, if they are fractions of small ones."""
    below = 1
    for value in sorted(set(np.abs(values).tolist())):
        if abs(value * below - round(value * below)) > NEARLY * max(1.0, value * below):
            below = math.lcm(below, Fraction(value).limit_denominator(SMALL).denominator)
        if below > SMALL**2 or value * below >= 2**50:
            return None
        if abs(value * below - round(value * below)) > NEARLY * max(1.0, value * below):
            return None
    return below
