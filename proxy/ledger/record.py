"""A family as bytes and back: canonical, versioned, exact.

Layout: a version byte; a byte that says whether the rest is packed by zlib; the length of a JSON
header in four bytes; the header; the arrays that it announces, little-endian, row-major, each in
the smallest signed integer type that holds it.  The shape of an array follows from its axes.
Invariant: ``decode(encode(family))`` is the same family; ``decode`` of any other bytes is a
well-formed family or an IntegrityError, never a crash, and takes no more memory than a query may.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxy.errors import IntegrityError
from proxy.inference.family import Family
from proxy.inference.query import MAX_CELLS, MAX_COEFFICIENT, Factor, LinearQuery, Term
from proxy.inference.space import Box, Space

VERSION = 1
MAX_HEADER = 2**20  # bytes
PLAIN, PACKED = 0, 1
FEW = 2**6  # entries that Python looks through faster
SHORT, LONG = 2**9, 2**16  # bytes: not worth packing; too many to pack well

_json = json.JSONEncoder(separators=(",", ":")).encode

Array = NDArray[np.signedinteger[Any]]


def encode(family: Family) -> bytes:
    """Return the bytes of a family."""
    query = family.query
    arrays: list[bytes] = []
    parts = [
        [part, term.scale, [[f.axes, _add(f.array, arrays)] for f in term.factors]]
        for part, term in query.parts.items()
    ]
    header = {
        "sizes": query.space.sizes,
        "boxes": [[box.low, box.high, box.nullable] for box in query.space.boxes],
        "grid": [query.grid.numerator, query.grid.denominator],
        "parts": parts,
        "labels": [family.axes, _add(family.labels, arrays), family.rows],
    }
    head = _json(header).encode()
    body = b"".join([len(head).to_bytes(4, "little"), head, *arrays])
    if len(body) <= SHORT:
        return bytes([VERSION, PLAIN]) + body
    return bytes([VERSION, PACKED]) + zlib.compress(body, 6 if len(body) <= LONG else 1)


def decode(data: bytes) -> Family:
    """Return the family of some bytes.

    Raises:
        IntegrityError: they are not the bytes of a family.
    """
    try:
        return _Decoder(data).family()
    except IntegrityError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, ArithmeticError,
            RecursionError, zlib.error) as error:  # fmt: skip
        raise IntegrityError("a record of the ledger is damaged") from error


def pack(answers: Sequence[int]) -> bytes:
    """Return answers as bytes: the width of an integer, then the integers."""
    packed: list[bytes] = []
    try:
        width = _add(np.array(answers, dtype=np.int64), packed)
    except OverflowError:
        raise ValueError("an answer past 2**63") from None
    return bytes([width]) + packed[0]


def unpack(data: bytes) -> tuple[int, ...]:
    """Return the answers of some bytes.

    Raises:
        IntegrityError: they are not the bytes of answers.
    """
    if not data or data[0] not in (1, 2, 4, 8) or len(data) % data[0] != 1 % data[0]:
        raise IntegrityError("a record of the ledger is damaged")
    return tuple(np.frombuffer(data, f"<i{data[0]}", offset=1).tolist())


def _add(array: Array, arrays: list[bytes]) -> int:
    """Add an array to a list, as the smallest type that holds its entries; return that width."""
    if array.size <= FEW:
        entries = array.ravel().tolist()
        reach = max(max(entries), -min(entries) - 1)
    else:
        reach = max(int(array.max()), -int(array.min()) - 1)
    width = next(width for width in (1, 2, 4, 8) if reach < 1 << (8 * width - 1))
    arrays.append(array.astype(f"<i{width}").tobytes())
    return width


class _Decoder:
    """Reads the header, then the arrays that it announces, in turn; all of it is checked."""

    def __init__(self, data: bytes) -> None:
        _need(data[0] == VERSION and data[1] in (PLAIN, PACKED), "of an unknown version")
        self.unpacker = zlib.decompressobj() if data[1] == PACKED else None
        self.packed, self.ready = (data[2:], b"") if self.unpacker else (b"", data[2:])
        length = int.from_bytes(self.take(4), "little")
        _need(length <= MAX_HEADER, "too large")
        head = self.take(length)
        self.header = (_header if length <= SHORT else _header.__wrapped__)(head)

    def family(self) -> Family:
        """Return the family, having used every byte."""
        space, grid, parts, labelled, rows = self.header
        terms = {part: self.term(scale, factors) for part, scale, factors in parts}
        labels = self.array(labelled)
        least = -1 if labelled.axes else 0
        _need(labels.min() >= least and labels.max() < rows, "with wrong labels")
        whole = self.unpacker is None or self.unpacker.eof
        _need(not self.more(1) and not self.packed and whole, "with bytes left over")
        query = LinearQuery(space, grid, terms)
        return Family(query, labelled.axes, labels.astype(np.int32), rows)

    def term(self, scale: int, factors: Sequence[_Announced]) -> Term:
        """Return one part's coefficients."""
        done = [Factor(each.axes, self.array(each).astype(np.int64)) for each in factors]
        largest = abs(scale) * math.prod(factor.largest for factor in done)
        _need(0 < largest <= MAX_COEFFICIENT, "with coefficients out of range")
        return Term(scale, tuple(done))

    def array(self, announced: _Announced) -> Array:
        """Return the next array of the body."""
        _, shape, kind, count = announced
        array: Array = np.frombuffer(self.take(count), kind).reshape(shape)
        return array

    def take(self, count: int) -> bytes:
        """Return the next bytes."""
        _need(self.more(count), "cut short")
        taken, self.ready = self.ready[:count], self.ready[count:]
        return taken

    def more(self, count: int) -> bool:
        """Whether there are so many bytes; unpacks no more than these."""
        while self.unpacker and len(self.ready) < count:
            unpacked = self.unpacker.decompress(self.packed, count - len(self.ready))
            self.packed = self.unpacker.unconsumed_tail or self.unpacker.unused_data
            self.ready += unpacked
            if self.unpacker.eof or not unpacked:
                break
        return len(self.ready) >= count


class _Announced(NamedTuple):
    """An array of the body, as the header announces it."""

    axes: tuple[int, ...]
    shape: tuple[int, ...]
    kind: str  # of its entries
    bytes: int


# space, grid, the parts with their scales and factors, the labels, and the number of rows
_Header = tuple[Space, Fraction, list[tuple[int, int, list[_Announced]]], _Announced, int]


@lru_cache(maxsize=64)  # which many records have in common
def _header(head: bytes) -> _Header:
    """Return what a header says; every number is checked."""
    header = json.loads(head)
    sizes = tuple(_integer(size, 1) for size in header["sizes"])
    space = Space(sizes, tuple(_box(*box) for box in header["boxes"]))
    numerator, denominator = (_integer(n, 1) for n in header["grid"])
    parts: list[tuple[int, int, list[_Announced]]] = []
    for part, scale, factors in header["parts"]:
        _need(not parts or part > parts[-1][0], "with parts out of order")
        _need(_integer(scale) != 0, "with a zero term")
        announced = [_announced(space, axes, width) for axes, width in factors]
        axes = [axis for each in announced for axis in each.axes]
        whole = all(each.axes for each in announced) and len(axes) == len(set(axes))
        _need(whole, "with overlapping factors")
        parts.append((_integer(part, 0, 2 * len(space.boxes)), scale, announced))
    axes, width, rows = header["labels"]
    labels = _announced(space, axes, width)
    rows = _integer(rows, 1, 1 if not axes else None)
    return space, Fraction(numerator, denominator), parts, labels, rows


def _announced(space: Space, axes: list[int], width: int) -> _Announced:
    """Return an array over axes that exist, in ascending order."""
    for axis in axes:
        _integer(axis, 0, len(space.sizes) - 1)
    _need(axes == sorted(set(axes)), "with axes out of order")
    shape = tuple(space.sizes[axis] for axis in axes)
    count = math.prod(shape)
    _need(count <= MAX_CELLS and width in (1, 2, 4, 8), "too large")
    return _Announced(tuple(axes), shape, f"<i{width}", count * width)


def _box(low: int, high: int, nullable: bool) -> Box:
    _need(_integer(low) <= _integer(high) and isinstance(nullable, bool), "with a wrong box")
    return Box(low, high, nullable)


def _integer(value: int, low: int | None = None, high: int | None = None) -> int:
    _need(type(value) is int, "with a number that is not whole")
    _need((low is None or value >= low) and (high is None or value <= high), "out of range")
    return value


def _need(holds: bool | np.bool_, fault: str) -> None:
    if not holds:
        raise IntegrityError(f"a record of the ledger is damaged: {fault}")
