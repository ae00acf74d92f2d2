"""An open cube: exact answers to families of linear queries, by one scan of all its cells.

Answer of a row = Σ_parts Σ_cells coefficient · unknown, an integer in units of the family's grid,
computed in floats, 64-bit integers or Python's, whichever the public bounds (max_records, clip,
coefficients) show to be exact.  Nothing is read at open but ``meta``; the cells come at the first
answer and stay.  Invariant: every answer scans every cell, whatever the query, so that the time
it takes does not show which cells are empty.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxy.cube.file import FORMAT, columns, damaged, digest, meta, reading
from proxy.domain import Domain
from proxy.errors import IntegrityError, StateError
from proxy.inference.family import Family
from proxy.inference.query import COUNT, Term

CHUNK = 2**16  # cells; what a chunk needs stays in the processor's cache
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
            raise IntegrityError("the cube belongs to another ledger")
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
            sums = self._sums(term, self._parts[part], reach * self.max_records, family)
            totals = [t + term.scale * int(s) for t, s in zip(totals, sums, strict=True)]
        return totals

    def _sums(self, term: Term, column: Column, most: int, family: Family) -> NDArray[Any]:
        """Return, by row, Σ_cells Π factors · column; Σ |column| is at most ``most``."""
        most *= math.prod(factor.largest for factor in term.factors)
        kind: Any = np.float64 if most < 2**53 else np.int64 if most < 2**63 else object
        tables = [(f.axes, f.array.shape, f.array.reshape(-1)) for f in term.factors]
        labels = family.labels.reshape(-1)
        sums = np.zeros(family.rows + 1, dtype=kind)  # the last entry takes label -1
        for start in range(0, column.size, CHUNK):
            part = slice(start, start + CHUNK)
            values = column[part].astype(kind)
            for axes, shape, table in tables:
                values *= table[self._places(axes, shape, part)]
            if not family.axes:
                sums[0] += values.sum()
                continue
            rows = labels[self._places(family.axes, family.labels.shape, part)]
            if kind is np.float64:
                rows[rows < 0] = family.rows
                sums += np.bincount(rows, weights=values, minlength=family.rows + 1)
            else:
                np.add.at(sums, rows, values)
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
                raise IntegrityError("the cube is damaged: cells out of bounds")
            self._parts = parts
