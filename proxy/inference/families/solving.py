"""Conjugate gradients over the rows of families, and what their result misses, exactly.

See ``system``, whose notation this is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from msgspec import Struct
from scipy import sparse
from scipy.sparse import csgraph

from proxy.inference.estimator import Cancellation, Floats, Integers, denominator
from proxy.inference.families.products import Measured, Pairs
from proxy.inference.query import TooLargeError

MAX_TERMS = 2**19  # coefficients of COLUMNS queries, which are looked at one by one
STEPS = 100  # of conjugate gradients
VAIN = 10  # of them, in which none came nearer
ROUNDS = 3  # of refinement, with exact residuals


@dataclass(eq=False)
class System:
    """Families that are solved together, and the inner products of their rows."""

    families: tuple[Measured, ...]
    gram: sparse.csr_array  # int64, in units of the cells outside of the scope
    scope: frozenset[int]
    outside: int  # cells outside of the scope: each product is a multiple of it
    row_sum: int  # the largest Σ |G_ij| of a row

    @cached_property
    def real(self) -> sparse.csr_array:
        """The products as floats."""
        return self.gram.astype(np.float64)

    @cached_property
    def parts(self) -> Integers:
        """[n] The part of every row: rows of different parts have no products, nor by others."""
        return np.asarray(csgraph.connected_components(self.gram, directed=False)[1])

    @property
    def omega(self) -> Floats:
        """[n, 1] ω of every row."""
        return np.concatenate(
            [np.full(f.family.rows, math.sqrt(f.weights.sum())) for f in self.families]
        )[:, None]


class Coefficients(Struct, frozen=True, eq=False, dict=True):
    """Coefficients of rows for several queries, query by query: those that may not be 0."""

    count: int  # of queries
    rows: Integers
    queries: Integers  # ascending
    values: Floats
    sides: Integers  # the products of the rows with the queries
    columns: Integers  # of a matrix of the rows, one for all queries that meet different parts

    @cached_property
    def largest(self) -> Floats:
        """[queries] The largest absolute coefficient."""
        largest = np.zeros(self.count)
        np.maximum.at(largest, self.queries, np.abs(self.values))
        return largest

    @cached_property
    def _ends(self) -> list[int]:
        return list(np.searchsorted(self.queries, np.arange(self.count + 1)).tolist())

    def of(self, query: int) -> slice:
        """Return where the coefficients of a query are."""
        return slice(self._ends[query], self._ends[query + 1])


def coefficients(
    system: System, right: Pairs, count: int, cancellation: Cancellation
) -> Coefficients:
    """Return a of queries with these products with the rows, as near as floats come.

    Queries that meet different parts of the rows, as the groups of one GROUP BY may, are solved
    as if they were one.
    """
    parts = system.parts
    owners = np.full((parts.max(initial=0) + 1, 2), -1)
    np.maximum.at(owners[:, 0], parts[right.rows], right.columns)
    np.maximum.at(owners[:, 1], parts[right.rows], count - right.columns)
    one = bool(((owners[:, 0] < 0) | (owners.sum(axis=1) == count)).all())
    side = np.zeros((len(parts), 1 if one else count), dtype=np.int64)
    side[right.rows, 0 if one else right.columns] = right.values
    weights, real = system.omega, system.real
    values = weights * _least(real, weights, weights * side, cancellation)
    for _ in range(ROUNDS):
        below = np.clip(52 - np.frexp(np.abs(values).max(axis=0, initial=0.0))[1], 0, 62)
        whole = np.rint(np.ldexp(values, below)).astype(np.int64)
        values = np.ldexp(whole.astype(np.float64), -below)
        # modulo 2**64, of which a wrong one is found out in the end
        rest = (side << below) - (system.gram @ whole)
        if (np.abs(rest) <= system.row_sum).all():
            break  # no nearer than whole numbers are
        rest = np.ldexp(rest.astype(np.float64), -below)
        values = values + weights * _least(real, weights, weights * rest, cancellation)
    if one:
        queries = owners[parts, 0]
        rows = np.argsort(queries, kind="stable")
        rows = rows[queries[rows] >= 0]
        queries, columns = queries[rows], np.zeros(len(rows), dtype=np.int64)
    else:
        queries, rows = np.nonzero(values.T)
        columns = queries
    at = rows, columns
    return Coefficients(count, rows, queries, values[at], side[at], columns)


def fractions(system: System, found: Coefficients) -> tuple[Floats, list[int]]:
    """Return whole numbers and their denominators [queries], where coefficients may be fractions of
    small ones; else 0 and 1.
    """
    whole, below = np.zeros_like(found.values), [1] * found.count
    if any(len(known.blocks) > 1 for known in system.families):
        return whole, below  # whose shares are no such fractions
    values = np.where(np.abs(found.values) > 2.0**-40, found.values, 0.0)
    for query in range(found.count):
        here = found.of(query)
        number = denominator(values[here])
        if number is not None:
            below[query] = number
            whole[here] = np.rint(values[here] * number)
    return whole, below


def missing(
    system: System,
    found: Coefficients,
    whole: Floats,
    below: Sequence[int],
    norms: Sequence[int],
) -> list[int]:
    """Return ‖D q - Σ A_i h_i‖² of every query, exactly; of whole numbers A below 2**53."""
    used = np.flatnonzero(whole)
    if len(used) > MAX_TERMS:
        raise TooLargeError("too many coefficients")
    numbers, queries = whole[used].astype(np.int64), found.queries[used]
    at = found.rows[used], found.columns[used]
    shape = system.gram.shape[0], int(found.columns.max(initial=0)) + 1
    limb = 62 - system.row_sum.bit_length()  # bits of A whose products with G are exact in int64
    sides = -2 * np.array(below, dtype=object)[queries] * found.sides[used].astype(object)
    for shift in range(0, 54, limb):
        part = numbers >> shift
        if shift + limb < 54:
            part &= (1 << limb) - 1
        if part.any():
            image = system.gram @ sparse.csc_array((part, at), shape)
            sides = sides + image.toarray()[at].astype(object) * (1 << shift)
    ends = np.searchsorted(queries, np.arange(found.count + 1)).tolist()
    products = (numbers.astype(object) * sides).tolist()
    return [
        sum(products[first:last], scale * scale * norm)
        for scale, norm, first, last in zip(below, norms, ends[:-1], ends[1:], strict=True)
    ]


def _least(
    gram: sparse.csr_array, weights: Floats, right: Floats, cancellation: Cancellation
) -> Floats:
    """Return the s of least norm with Ω G Ω s = right, [n, m], by conjugate gradients from 0.

    Rounding leads away from it once they are near, so the nearest is kept, and no nearer looked for
    long.
    """
    found, rest = np.zeros_like(right), right.copy()
    towards, size = rest.copy(), np.sum(rest * rest, axis=0)
    best, least, enough, vain = found.copy(), size.copy(), size * 1e-28, 0
    for _ in range(STEPS):
        cancellation()
        open_ = least > enough
        if not open_.any() or vain > VAIN:
            break
        image = weights * (gram @ (weights * towards))
        curve = np.sum(towards * image, axis=0)
        step = np.divide(size, curve, out=np.zeros_like(size), where=open_ & (curve > 0))
        found += step * towards
        rest -= step * image
        new = np.sum(rest * rest, axis=0)
        turn = np.divide(new, size, out=np.zeros_like(size), where=open_ & (size > 0))
        towards = rest + turn * towards
        size = new
        nearer = size < least
        vain = 0 if nearer.any() else vain + 1
        best[:, nearer], least = found[:, nearer], np.where(nearer, size, least)
    return best
