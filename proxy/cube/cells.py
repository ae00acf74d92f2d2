"""An open cube: exact answers to families of linear queries, from its marginals over their scopes.

Answer of a row = Σ_parts Σ_cells coefficient · unknown, an integer in units of the family's grid,
computed in floats, 64-bit integers or Python's, whichever the public bounds (max_records, clip,
coefficients) show to be exact.  Nothing is read at open but ``meta``; the cells come at the first
answer and stay, and so does the marginal over a scope, so that a large cube is scanned once for
each scope.  Invariant: an answer goes through every cell of the marginal, empty or not, or of a
larger scope through every cell of the cube, so that its time does not show which cells are empty.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxy.cube.file import AWAY, FORMAT, columns, damaged, digest, meta, reading
from proxy.domain import Domain
from proxy.errors import IntegrityError, StateError
from proxy.inference.family import Family
from proxy.inference.query import COUNT, Factor, Term

CHUNK = 2**16  # cells; what a chunk needs stays in the processor's cache
LARGEST = 2**22  # cells of a scope whose marginal is kept
KEPT = 2**24  # cells of all that are kept: 128 MiB
Column = NDArray[Any]  # unsigned codes and counts, int64 sums
REBUILT = "the cube has been rebuilt since it was opened"


class Cube:
    """The cells of one dataset at one time; safe to use from several threads."""

    def __init__(self, path: Path, domain: Domain, found: dict[str, str]) -> None:
        self.id = found["id"]
        self.max_records = int(found["max_records"])
        self._path = path
        self._domain = domain
        self._lock = threading.Lock()
        self._codes: list[Column] = []
        self._parts: dict[int, Column] = {}
        self._marginals: dict[tuple[int, tuple[int, ...]], NDArray[np.int64]] = {}

    @classmethod
    def open(cls, path: Path, domain: Domain, ledger_id: str, origin: str = "") -> Cube:
        """Open the cube of a domain, a ledger and an origin; any number of processes may.

        Raises:
            StateError: there is no cube, or it is of another domain or origin.
            IntegrityError: the file is damaged, or belongs to another ledger.
        """
        if not path.exists():
            raise StateError("there is no cube yet", hint="privacy-proxy init builds it")
        with reading(path) as connection:
            found = meta(connection)
        if found.get("format") != FORMAT:
            raise StateError("the cube was built by another version", hint="build it anew")
        if not {"id", "ledger", "domain", "max_records"} <= found.keys():
            raise damaged(path)
        if found["ledger"] != ledger_id:
            raise IntegrityError("the cube belongs to another ledger", hint=AWAY)
        if found["domain"] != digest(domain):
            raise StateError(
                "the cube was built for other attributes or measures than the policy has now",
                hint="build it anew, as a new snapshot",
            )
        if found.get("origin", "") != origin:
            raise StateError(
                "the cube was built from another source than its snapshot says",
                hint="take it away and let `privacy-proxy init` build the right one",
            )
        return cls(path, domain, found)

    def answer(self, family: Family) -> list[int]:
        """Return the exact answer of every row, in units of the family's grid."""
        space = family.query.space
        if space.sizes != self._domain.sizes:
            raise ValueError("the family is of another cube")
        self._load()
        totals = [0] * family.rows
        for part, term in family.query.parts.items():
            reach = max(map(abs, self._domain.measures[part // 2].bounds)) if part % 2 else 1
            sums = self._sums(term, part, reach * self.max_records, family)
            totals = [t + term.scale * int(s) for t, s in zip(totals, sums, strict=True)]
        return totals

    def _sums(self, term: Term, part: int, most: int, family: Family) -> NDArray[Any]:
        """Return, by row, Σ_cells Π factors · unknown; Σ |unknown| of the part is at most most."""
        most *= math.prod(factor.largest for factor in term.factors)
        kind: Any = np.float64 if most < 2**53 else np.int64 if most < 2**63 else object
        axes = tuple(sorted({*family.axes, *(axis for f in term.factors for axis in f.axes)}))
        if math.prod(self._domain.sizes[axis] for axis in axes) > LARGEST:
            return self._scanned(term, self._parts[part], kind, family)
        values = self._marginal(part, axes).astype(kind)
        for factor in term.factors:
            values *= factor.over(axes)
        sums = np.zeros(family.rows + 1, dtype=kind)
        if not family.axes:
            sums[0] = values.sum()
        else:
            labels = Factor(family.axes, family.labels.astype(np.int64)).over(axes)
            _add(sums, np.broadcast_to(labels, values.shape).reshape(-1), values.reshape(-1))
        return sums[:-1]

    def _marginal(self, part: int, axes: tuple[int, ...]) -> NDArray[np.int64]:
        """Return the sums of a part by the cells of a scope [axes], which are kept."""
        if (known := self._marginals.get((part, axes))) is not None:
            return known
        with self._lock:
            wider = [
                (found.size, scope)
                for (of, scope), found in self._marginals.items()
                if of == part and {*axes} <= {*scope}
            ]
            if wider:
                scope = min(wider)[1]
                out = tuple(at for at, axis in enumerate(scope) if axis not in axes)
                made = self._marginals[part, scope].sum(axis=out)
            else:
                made = self._scan(part, axes)
            made = np.asarray(made)
            while self._size() + made.size > KEPT and self._marginals:
                self._marginals.pop(next(iter(self._marginals)))  # the oldest
            self._marginals[part, axes] = made
            return made

    def _size(self) -> int:
        """Return the number of cells of all marginals that are kept."""
        return sum(each.size for each in self._marginals.values())

    def _scan(self, part: int, axes: tuple[int, ...]) -> NDArray[np.int64]:
        """Return the sums of a part by the cells of a scope, from all cells of the cube."""
        shape = [self._domain.sizes[axis] for axis in axes]
        column, sums = self._parts[part], np.zeros(math.prod(shape), dtype=np.int64)
        for start in range(0, column.size, CHUNK):
            chunk = slice(start, start + CHUNK)
            values = column[chunk].astype(np.int64)
            if axes:
                np.add.at(sums, self._places(axes, shape, chunk), values)
            else:
                sums[0] += values.sum()
        return sums.reshape(shape)

    def _scanned(self, term: Term, column: Column, kind: Any, family: Family) -> NDArray[Any]:
        """Return what ``_sums`` does, from all cells of the cube."""
        tables = [(f.axes, f.array.shape, f.array.reshape(-1)) for f in term.factors]
        labels = family.labels.reshape(-1)
        sums = np.zeros(family.rows + 1, dtype=kind)
        for start in range(0, column.size, CHUNK):
            chunk = slice(start, start + CHUNK)
            values = column[chunk].astype(kind)
            for axes, shape, table in tables:
                values *= table[self._places(axes, shape, chunk)]
            if not family.axes:
                sums[0] += values.sum()
            else:
                rows = labels[self._places(family.axes, family.labels.shape, chunk)]
                _add(sums, rows, values)
        return sums[:-1]

    def _places(self, axes: Sequence[int], shape: Sequence[int], part: slice) -> NDArray[np.intp]:
        """Return where the cells of a chunk are in a flat array over some axes."""
        places = self._codes[axes[0]][part].astype(np.intp)
        for axis, size in zip(axes[1:], shape[1:], strict=True):
            places *= size
            places += self._codes[axis][part]
        return places

    def _load(self) -> None:
        """Read the cells, once."""
        with self._lock:
            if self._parts:
                return
            with reading(self._path) as connection:
                if meta(connection)["id"] != self.id:
                    raise StateError(REBUILT, hint="connect again")
                cells = columns(connection, self._domain, self.max_records)
            sizes = self._domain.sizes
            self._codes = [cells[f"c{i}"] for i in range(len(sizes))]
            parts = {COUNT: cells["n"]}
            for k, measure in enumerate(self._domain.measures):
                parts[1 + 2 * k] = cells[f"s{k}"]
                parts[2 + 2 * k] = cells[f"p{k}" if measure.nullable else "n"]
            whole = all(
                int(codes.max(initial=0)) < size
                for codes, size in zip(self._codes, sizes, strict=True)
            )
            if not whole or int(parts[COUNT].sum()) > self.max_records:
                raise IntegrityError("the cube is damaged: cells out of bounds", hint=AWAY)
            self._parts = parts


def _add(sums: NDArray[Any], rows: NDArray[Any], values: NDArray[Any]) -> None:
    """Add values to the sums of their rows; those of label -1 to the last entry."""
    if sums.dtype == np.float64:
        sums += np.bincount(np.where(rows < 0, sums.size - 1, rows), values, sums.size)
    else:
        np.add.at(sums, rows, values)
