"""A family as bytes and back: canonical, versioned, exact.

Layout: a version byte, a byte that says whether the rest is packed by zlib, then a JSON header, a
zero byte, and the arrays that the header announces, little-endian, row-major, each in the smallest
signed integer type that holds it.  The shape of an array follows from its axes.  Invariant:
``decode(encode(family))`` is the same family; ``decode`` of any other bytes is a well-formed
family or an IntegrityError, never a crash, and takes no more memory than a query may.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxy.errors import IntegrityError
from proxy.inference.family import Family
from proxy.inference.query import (
    MAX_CELLS,
    MAX_COEFFICIENT,
    Box,
    Factor,
    LinearQuery,
    Space,
    Term,
)

VERSION = 1
MAX_BYTES = 2**30  # of one family, decompressed
PLAIN, PACKED = 0, 1
SHORT, LONG = 2**9, 2**16  # bytes: not worth packing; too many to pack well

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
    body = b"".join([json.dumps(header, separators=(",", ":")).encode(), b"\0", *arrays])
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
    reach = max(int(array.max()), -int(array.min()) - 1)
    width = next(width for width in (1, 2, 4, 8) if reach < 1 << (8 * width - 1))
    arrays.append(array.astype(f"<i{width}").tobytes())
    return width


class _Decoder:
    """Reads the header, then the arrays in turn; every number is checked before it is used."""

    def __init__(self, data: bytes) -> None:
        _need(data[0] == VERSION and data[1] in (PLAIN, PACKED), "of an unknown version")
        body = data[2:]
        if data[1] == PACKED:
            unpacker = zlib.decompressobj()
            body = unpacker.decompress(body, MAX_BYTES)
            _need(unpacker.eof and not unpacker.unused_data, "cut short or too long")
        end = body.index(b"\0")
        self.header = json.loads(body[:end])
        self.body, self.at = body, end + 1
        self.space = Space(
            tuple(_integer(size, 1) for size in self.header["sizes"]),
            tuple(_box(*box) for box in self.header["boxes"]),
        )

    def family(self) -> Family:
        """Return the family, having used every byte."""
        numerator, denominator = (_integer(n, 1) for n in self.header["grid"])
        parts: dict[int, Term] = {}
        for part, scale, factors in self.header["parts"]:
            _need(part > max(parts, default=-1), "with parts out of order")
            parts[_integer(part, 0, 2 * len(self.space.boxes))] = self.term(scale, factors)
        query = LinearQuery(self.space, Fraction(numerator, denominator), parts)
        axes, width, rows = self.header["labels"]
        labels = self.array(self.axes(axes), width)
        _integer(rows, 1, 1 if not axes else None)
        _need(labels.min() >= (-1 if axes else 0) and labels.max() < rows, "with wrong labels")
        _need(self.at == len(self.body), "with bytes left over")
        return Family(query, tuple(axes), labels.astype(np.int32), rows)

    def term(self, scale: int, factors: list[Any]) -> Term:
        """Return one part's coefficients."""
        _need(_integer(scale) != 0, "with a zero term")
        done: list[Factor] = []
        seen: set[int] = set()
        largest = abs(scale)
        for axes, width in factors:
            array = self.array(self.axes(axes), width).astype(np.int64)
            _need(bool(axes) and not seen & set(axes), "with overlapping factors")
            seen |= set(axes)
            largest *= max(int(array.max()), -int(array.min()))
            done.append(Factor(tuple(axes), array))
        _need(0 < largest <= MAX_COEFFICIENT, "with coefficients out of range")
        return Term(scale, tuple(done))

    def axes(self, axes: list[int]) -> tuple[int, ...]:
        """Return axes that exist, in ascending order."""
        for axis in axes:
            _integer(axis, 0, len(self.space.sizes) - 1)
        _need(axes == sorted(set(axes)), "with axes out of order")
        return tuple(axes)

    def array(self, axes: tuple[int, ...], width: int) -> Array:
        """Return the next array of the body."""
        shape = [self.space.sizes[axis] for axis in axes]
        count = math.prod(shape)
        _need(count <= MAX_CELLS and width in (1, 2, 4, 8), "too large")
        _need(self.at + count * width <= len(self.body), "cut short")
        array: Array = np.frombuffer(self.body, f"<i{width}", count, self.at).reshape(shape)
        self.at += count * width
        return array


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
