"""The one evaluator: an empty DuckDB in a sandbox, which knows the public domain and no data.

It evaluates a scalar expression on every combination of the values of the axes it reads (but plain
comparisons, see ``comparisons.py``), and runs the SQL outside of the aggregations over noisy
answers.  Axis i is relation ``di`` with the columns ``code`` and ``v``; of a binned axis, ``v``
runs over values inside each bin, so that what is not constant inside a bin shows.  Invariant: what
a statement can reach and use up is the sandbox's, and what is kept has a bound.
"""

from __future__ import annotations

import datetime
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import astuple, replace
from numpy.typing import NDArray

from proxy.domain import Attribute, Domain, Value
from proxy.errors import StatementTooComplexError
from proxy.inference.query import MAX_CELLS, Factor
from proxy.lazy import duckdb
from proxy.sql import types
from proxy.sql.evaluator.comparisons import comparison
from proxy.sql.evaluator.failures import failure
from proxy.sql.evaluator.public_tables import PublicTable, load
from proxy.sql.evaluator.sandbox import Here, Sandbox

Array = NDArray[Any]
Found = TypeVar("Found")
Points = tuple[Value, ...] | None  # None: all values inside the bins

CACHED = 512  # arrays, programs
SCALARS = {type(None), bool, int, float, Fraction}
SEQUENCES = (tuple, list)
CACHED_BYTES = 64 << 20  # of all of them
CACHED_CELLS = 2**16  # an array larger than this is not kept
SMALL = 2**12  # cells
MAX_ROWS = 1_000_000  # of a result


class Values(Struct, frozen=True):
    """An expression over the product of some axes: its values, and where it is not NULL."""

    axes: tuple[int, ...]
    array: Array  # [sizes of the axes]; what stands where it is NULL means nothing
    present: NDArray[np.bool_]  # [sizes of the axes]
    scale: int = 0  # decimals of a numeric
    decimal: bool = False  # it is a numeric
    uneven: tuple[tuple[int, ...], ...] = ()  # cells of binned axes inside which it is not constant
    some: NDArray[np.bool_] | None = None  # of an uneven condition: where it is true of some value
    factor: Factor | None = None  # of a condition of few cells: 1 where it is true


class Evaluator:
    """A DuckDB for one domain, in a sandbox.  Its methods may be called from any thread."""

    def __init__(
        self,
        domain: Domain,
        sandbox: Sandbox | None = None,
        public: Mapping[str, PublicTable] | None = None,
    ) -> None:
        self.domain = domain
        self._sandbox = sandbox or Here()
        self._lock = threading.RLock()  # of a call
        self._guard = threading.Lock()  # of who calls, and of what is kept
        self._caller: int | None = None  # the thread
        self._tables: set[str] = set()
        self._read = public or {}  # public tables that need not be read
        self._public: dict[str, tuple[str, list[tuple[str, str, int]]]] = {}
        self._cache: OrderedDict[object, tuple[object, int]] = OrderedDict()  # and its bytes
        self._cached_bytes = 0

    def cached(
        self, key: object, make: Callable[[], Found], small: Callable[[Found], bool] | None = None
    ) -> Found:
        """Return what was made under a key, or make it, and keep it if it is small."""
        with self._guard:
            if key in self._cache:
                self._cache.move_to_end(key)
                return self._cache[key][0]  # type: ignore[return-value]  # a key has one maker
        made = make()
        if small is not None and not small(made):
            return made
        size = bytes_of(made)
        with self._guard:
            _, before = self._cache.pop(key, (None, 0))  # another thread was as fast
            self._cache[key] = made, size
            self._cached_bytes += size - before
            while len(self._cache) > CACHED or self._cached_bytes > CACHED_BYTES:
                _, (_, freed) = self._cache.popitem(last=False)
                self._cached_bytes -= freed
        return made

    def evaluate(
        self, sql: str, axes: Iterable[int], points: Mapping[int, Points] | None = None
    ) -> Values:
        """Return an expression's values in code order.

        ``points`` are the values at which binned axes are looked at, None for all there are.

        Raises:
            DataError: the expression fails for some value of the domain.
            StatementTooComplexError: it reads too many cells at once.
        """
        axes, points = tuple(sorted(axes)), dict(points or {})
        cells = 1
        for a in axes:
            attribute = self.domain.attributes[a]
            if a in points:
                looks = points[a]
                cells *= (inside(attribute) if looks is None else len(looks)) + attribute.null
            else:
                cells *= attribute.size
        if cells > MAX_CELLS:
            names = ", ".join(self.domain.attributes[a].name for a in axes)
            raise StatementTooComplexError(
                f"an expression over {names} has {cells:,} cells; {MAX_CELLS:,} are allowed",
                hint="split it into conditions on fewer columns, joined by AND",
            )
        if cells > CACHED_CELLS:
            return self._evaluate(sql, axes, points)
        key = (sql, axes, tuple(sorted(points.items())))
        return self.cached(key, lambda: self._evaluate(sql, axes, points))

    def _evaluate(self, sql: str, axes: tuple[int, ...], points: Mapping[int, Points]) -> Values:
        shape = tuple(self.domain.attributes[a].size for a in axes)
        decimal, scale = False, 0
        if (columns := self._compared(sql, axes, points)) is None:
            columns, kind = self._fetched(sql, axes, points)
            decimal = kind.startswith("DECIMAL(")
            scale = int(kind.rstrip(")").split(",")[1]) if decimal else 0
        found = _dense(*columns, shape, bool(points))
        factor = None
        if found.array.dtype == bool and found.array.size <= SMALL:
            factor = Factor(axes, (found.array & found.present).astype(np.int64))
        return replace(found, axes=axes, scale=scale, decimal=decimal, factor=factor)

    def _compared(
        self, sql: str, axes: tuple[int, ...], points: Mapping[int, Points]
    ) -> tuple[Array, Array] | None:
        """Return codes and values of an axis's comparison with constants, which needs no DuckDB."""
        if len(axes) != 1 or (axes[0] in points and points[axes[0]] is not None):
            return None
        attribute = self.domain.attributes[axes[0]]
        compared = comparison(sql, attribute)
        if compared is None or (inside(attribute) if points else attribute.size) > SMALL:
            return None
        codes, values = _looks(attribute, bool(points))
        return np.array(codes), compared(values)

    def _fetched(
        self, sql: str, axes: tuple[int, ...], points: Mapping[int, Points]
    ) -> tuple[tuple[Array, Array], str]:
        """Return codes and values of an expression, and their type, as DuckDB has them."""
        sources = [
            f"{self._points(a, points[a]) if a in points else self._axis(a)} AS d{a}" for a in axes
        ]
        index = "CAST(0 AS BIGINT)"
        for a in axes:
            index = f"({index} * {self.domain.attributes[a].size} + d{a}.code)"
        tail = f" FROM {', '.join(sources)}" if sources else ""
        (codes, values), kinds = self.fetch(f"SELECT {index} AS i, {sql} AS v{tail}")
        return (codes, values), kinds[1]

    def fetch(self, sql: str) -> tuple[list[Array], list[str]]:
        """Return the columns of a query as numpy arrays, and their DuckDB types.

        Raises:
            DataError, QueryCanceledError, StatementTooComplexError: as ``failure`` says.
        """
        with self._calling(met=False):
            return self._sandbox.fetch(sql)

    def rows(self, sql: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
        """Return the rows of a query with named parameters.

        Raises:
            QueryCanceledError: it was interrupted, or took too long.
            StatementTooComplexError: it has too many rows, or needs too much memory.
        """
        with self._calling():
            found = self._sandbox.rows(sql, parameters, MAX_ROWS + 1)
        if len(found) > MAX_ROWS:
            raise StatementTooComplexError(f"the result has more than {MAX_ROWS:,} rows")
        return found

    def value(self, sql: str) -> object:
        """Return the value of an expression of constants.

        Raises:
            DataError: it has none.
        """
        return self.cached(("constant", sql), lambda: self.rows(f"SELECT {sql}", {}))[0][0]

    @contextmanager
    def _calling(self, met: bool = True) -> Iterator[None]:
        """Take the sandbox for one call; ``met`` as ``failure`` has it."""
        with self._lock:
            with self._guard:
                self._caller = threading.get_ident()
            try:
                yield
            except duckdb.Error as error:
                raise failure(error, met) from None
            finally:
                with self._guard:
                    self._caller = None

    def public(self, name: str, path: Path) -> tuple[str, list[tuple[str, str, int]]]:
        """Return the relation of a public table, loaded when first needed, and its columns
        (name, type, bytes of the longest value).

        Raises:
            OperationalError: the file cannot be read.
        """
        with self._lock:
            if name not in self._public:
                table = public_relation(name)
                columns, values = self._read.get(name) or load(name, path)
                parts = [
                    f"unnest(CAST(${i + 1} AS {duckdb_type}[])) AS c{i}"
                    for i, (_, _, duckdb_type) in enumerate(columns)
                ]
                with self._calling():
                    self._sandbox.run(f"CREATE TABLE {table} AS SELECT {', '.join(parts)}", values)
                widths = [max((len(str(v)) * 4 for v in column), default=1) for column in values]
                self._public[name] = (
                    table,
                    [(c, kind, w) for (c, kind, _), w in zip(columns, widths, strict=True)],
                )
            return self._public[name]

    def interrupt(self, thread: int) -> None:
        """Stop the call of a thread, from another one, if it runs."""
        with self._guard:
            if self._caller == thread:
                self._sandbox.interrupt()

    def rest(self) -> None:
        """Let go of a child process, until it is needed again."""
        with self._lock:
            self._sandbox.rest()

    def close(self) -> None:
        """Let go of the sandbox."""
        self._sandbox.close()

    def _axis(self, axis: int) -> str:
        """Return the relation of an axis."""
        attribute = self.domain.attributes[axis]
        return self._table(f"axis{axis}", attribute, *_looks(attribute, False))

    def _points(self, axis: int, points: Points) -> str:
        """Return the relation of the values inside the bins of an axis."""
        attribute = self.domain.attributes[axis]
        if points is not None:
            kind = column_type(attribute, points)
            lists = ", ".join(types.literal(types.of_attribute(attribute), p) for p in points)
            null = ""
            if attribute.null:
                null = f" UNION ALL SELECT {attribute.size - 1}, CAST(NULL AS {kind})"
            return (
                f"(SELECT unnest({bins(attribute, points)}) AS code, "
                f"unnest(CAST([{lists}] AS {kind}[])) AS v{null})"
            )
        return self._table(f"points{axis}", attribute, *_looks(attribute, True))

    def _table(
        self, name: str, attribute: Attribute, codes: list[int], values: Sequence[Value | None]
    ) -> str:
        with self._lock:
            if name not in self._tables:
                kind = column_type(attribute, values)
                with self._calling():
                    self._sandbox.run(
                        f"CREATE TABLE {name} AS SELECT unnest(CAST($1 AS INTEGER[])) AS code, "
                        f"unnest(CAST($2 AS {kind}[])) AS v",
                        [codes, list(values)],
                    )
                self._tables.add(name)
        return name


def public_relation(name: str) -> str:
    """Return the relation of a public table: the same in every evaluator."""
    quoted = name.replace('"', '""')
    return f'"public {quoted}"'


def bytes_of(made: object) -> int:
    """Return about how much memory a value takes: its arrays, and 64 bytes for all else in it."""
    total, left = 0, [made]
    for each in left:
        kind = type(each)
        if kind in SCALARS:
            pass
        elif kind is str:
            total += len(each)  # type: ignore[arg-type]
        elif isinstance(each, np.ndarray):
            total += each.nbytes + (64 * each.size if each.dtype == object else 0) - 64
        elif isinstance(each, SEQUENCES):
            left += each
        elif isinstance(each, Struct):
            left += (*astuple(each), *getattr(each, "__dict__", {}).values())
        elif isinstance(each, Mapping):
            left += each.values()
    return total + 64 * len(left)


def column_type(attribute: Attribute, values: Sequence[Value | None]) -> str:
    """Return the DuckDB type that holds an axis's values exactly."""
    kind = types.of_attribute(attribute)
    if kind != "numeric":
        return types.DUCKDB[kind]
    return decimal_type(value for value in values if isinstance(value, Decimal))


def inside(attribute: Attribute) -> int:
    """Return how many values the bins of a discrete axis hold."""
    low, high = (attribute.edges or ())[0], (attribute.edges or ())[-1]
    if isinstance(low, datetime.date) and isinstance(high, datetime.date):
        return (high - low).days
    return high - low  # type: ignore[operator, return-value]  # two integers


def _looks(attribute: Attribute, inside: bool) -> tuple[list[int], list[Value | None]]:
    """Return codes and values of an axis: of its cells, or all ``inside`` its bins; NULL last."""
    if not inside:
        return list(range(attribute.size)), [*map(attribute.value, range(attribute.size))]
    values = everything(attribute)
    null = [attribute.size - 1] if attribute.null else []
    return bins(attribute, values) + null, [*values, *(None for _ in null)]


def everything(attribute: Attribute) -> list[Value]:
    """Return all values inside the bins of a discrete axis."""
    low = (attribute.edges or ())[0]
    if isinstance(low, datetime.date):
        return [low + datetime.timedelta(days=i) for i in range(inside(attribute))]
    return list(range(low, low + inside(attribute)))  # type: ignore[operator, arg-type]


def decimal_type(values: Iterable[Decimal]) -> str:
    """Return the DuckDB type that holds decimals exactly."""
    scale = whole = 0
    for value in values:
        _, digits, exponent = value.as_tuple()
        scale = max(scale, -int(exponent))
        whole = max(whole, len(digits) + int(exponent))
    return f"DECIMAL({min(max(whole, 1) + scale, 38)}, {min(scale, 37)})"


def bins(attribute: Attribute, points: Sequence[Value | None]) -> list[int]:
    """Return the bin of each point."""
    edges = list(attribute.edges or ())
    return [bisect_right(edges, point) - 1 for point in points]  # type: ignore[type-var]


def _dense(index: Array, values: Array, shape: tuple[int, ...], binned: bool) -> Values:
    """Return values scattered to their cells, and the cells whose values differ."""
    here, plain = np.ones(len(values), dtype=bool), values
    if type(values) is not np.ndarray:  # masked, as something is NULL; else NumPy need not load it
        here, plain = ~np.ma.getmaskarray(values), np.ma.getdata(values)
    if plain.dtype == object:  # strings have None instead of a mask
        here = here & np.array([value is not None for value in plain], dtype=bool)
    size = int(np.prod(shape, dtype=np.int64))
    array = np.zeros(size, dtype=plain.dtype)
    present = np.zeros(size, dtype=bool)
    array[index] = plain
    present[index] = here
    uneven: tuple[tuple[int, ...], ...] = ()
    some = None
    if binned:
        wrong = (present[index] != here) | (here & present[index] & (array[index] != plain))
        cells = np.unique(np.asarray(index)[wrong])
        uneven = tuple(tuple(int(i) for i in np.unravel_index(c, shape)) for c in cells[:16])
    if uneven and plain.dtype == bool:
        some = (np.bincount(np.asarray(index)[plain & here], minlength=size) > 0).reshape(shape)
    array.setflags(write=False)
    present.setflags(write=False)
    return Values((), array.reshape(shape), present.reshape(shape), uneven=uneven, some=some)
