"""The Python door (PEP 249): ``proxy.connect(policy)`` gives connections and cursors.

A cursor holds the finished results of what it executed; nothing is computed, and nothing paid,
while rows are fetched.  Statements commit by themselves, since what was released is charged for
good; after a BEGIN, settings last as in PostgreSQL, and an error fails all until ROLLBACK.  Beside
PEP 249, a cursor has the ``answers``, ``cost``, ``left`` and ``notices`` of its result.

The embedded connection has the data in its own process: it protects what leaves through the SQL,
and is no boundary against the person who runs the process.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import proxy.errors as errors

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from proxy.engine import Answer, Engine, Explanation, Result
    from proxy.policy import Policy
    from proxy.remote import Remote

apilevel = "2.0"
threadsafety = 1  # threads may share the module, not a connection
paramstyle = "pyformat"

Parameters = Mapping[str, Any] | Sequence[Any]
Row = tuple[Any, ...]
Description = tuple[str, str, None, None, None, None, None]


class TypeObject:
    """Equal to the type codes (PostgreSQL's names of types) of one PEP 249 kind of column."""

    __hash__ = None  # type: ignore[assignment]  # equal to several codes: no hash would be right

    def __init__(self, *codes: str) -> None:
        self.codes = frozenset(codes)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TypeObject):
            return self.codes == other.codes
        return other in self.codes if isinstance(other, str) else NotImplemented

    def __repr__(self) -> str:
        return f"TypeObject({', '.join(map(repr, sorted(self.codes)))})"


STRING = TypeObject("text")
NUMBER = TypeObject(
    "smallint", "integer", "bigint", "numeric", "real", "double precision", "boolean"
)
DATETIME = TypeObject("date", "timestamp")
BINARY = TypeObject("bytea")
ROWID = TypeObject("oid")

Date = datetime.date
Time = datetime.time
Timestamp = datetime.datetime
Binary = bytes
DateFromTicks = datetime.date.fromtimestamp
TimestampFromTicks = datetime.datetime.fromtimestamp


def TimeFromTicks(ticks: float) -> datetime.time:
    """Return the local time of day at ``ticks`` seconds after the epoch."""
    return datetime.datetime.fromtimestamp(ticks).time()


def connect(
    policy: str | Path,
    *,
    state: str | Path | None = None,
    utility: tuple[float, float] | str | None = None,
    max_cost: float | str | None = None,
    user: str | None = None,
    dialect: str = "postgres",
) -> Connection:
    """Connect to the dataset of a policy file, whose state ``privacy-proxy init`` has made.

    ``policy`` may be the URL of a running proxy, ``postgresql://alice@host:5439/cps1988``.

    ``utility`` is (half_width, delta) of the counts that bring none, or a text that names others
    too, ``"50, 0.05; wage 170000, 0.05"``; ``max_cost`` is the most alpha that any one statement
    may cost; ``user`` is the analyst of the policy on whose account the statements run.

    Raises:
        PolicyError: the policy file is missing or wrong.
        StateError: no state yet, or it belongs to another policy.
        OperationalError: there is no proxy at the URL, or it does not let us in.
    """
    if str(policy).startswith(("postgresql:", "postgres:")):
        from proxy.remote import Remote

        engine: Engine | Remote = Remote(str(policy))
        return Connection(engine, user=user, utility=utility, max_cost=max_cost, dialect=dialect)
    # Imported here, since DuckDB, SciPy and OpenDP take a second that `import proxy` need not wait.
    from proxy.engine import Engine

    engine = Engine.open(policy, state)
    return Connection(engine, user=user, utility=utility, max_cost=max_cost, dialect=dialect)


class Connection:
    """One analyst's session.  It closes at the end of a ``with`` block."""

    Warning = errors.Warning
    Error = errors.Error
    InterfaceError = errors.InterfaceError
    DatabaseError = errors.DatabaseError
    DataError = errors.DataError
    OperationalError = errors.OperationalError
    IntegrityError = errors.IntegrityError
    InternalError = errors.InternalError
    ProgrammingError = errors.ProgrammingError
    NotSupportedError = errors.NotSupportedError

    def __init__(
        self,
        engine: Engine | Remote,
        *,
        user: str | None = None,
        utility: tuple[float, float] | str | None = None,
        max_cost: float | str | None = None,
        dialect: str = "postgres",
    ) -> None:
        self.closed = False
        self._engine = engine
        more: dict[str, Any] = {} if max_cost is None else {"max_cost": max_cost}
        try:
            self._session = engine.session(user=user, utility=utility, dialect=dialect, **more)
        except BaseException:
            engine.close()
            raise

    def cursor(self) -> Cursor:
        """Return a new cursor; all cursors of a connection share its session settings."""
        self._check_open()
        return Cursor(self)

    def execute(self, operation: str, parameters: Parameters | None = None) -> Cursor:
        """Execute one statement in a cursor of its own, and return that cursor."""
        return self.cursor().execute(operation, parameters)

    def commit(self) -> None:
        """End the transaction that a BEGIN has opened; without one, do nothing."""
        self._end("COMMIT")

    def rollback(self) -> None:
        """End it, and take its settings back; what has been seen stays charged."""
        self._end("ROLLBACK")

    def _end(self, statement: str) -> None:
        self._check_open()
        if self._session.in_transaction:
            self._session.execute(statement)

    def cancel(self) -> None:
        """Stop the running statement, from another thread: it fails, unless it is committed."""
        self._check_open()
        self._session.cancel()

    @property
    def in_transaction(self) -> bool:
        """Whether a BEGIN has no end yet."""
        self._check_open()
        return self._session.in_transaction

    @property
    def policy(self) -> Policy | None:
        """The policy of an embedded connection; None of a running proxy, which does not tell."""
        return self._engine.policy

    def close(self) -> None:
        """Close the connection and its cursors; closing twice is no error."""
        if not self.closed:
            self.closed = True
            self._session.close()
            self._engine.close()

    def _run(self, operation: str, parameters: Parameters | None) -> Result:
        self._check_open()
        return self._session.execute(operation, parameters)

    def _run_script(self, operation: str) -> list[Result]:
        self._check_open()
        return self._session.execute_script(operation)

    def _check_open(self) -> None:
        if self.closed:
            raise errors.InterfaceError("the connection is closed")

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class Cursor:
    """Executes statements one at a time, and holds the result of the last one."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.arraysize = 1
        self.closed = False
        self._results: list[Result] = []  # the current one first; more after executemany
        self._next = 0  # the row of the current result that is fetched next

    def execute(self, operation: str, parameters: Parameters | None = None) -> Self:
        """Execute one statement; ``%(name)s`` stands for a parameter only if some are given."""
        self._check_open()
        self._results, self._next = [], 0
        self._results = [self.connection._run(operation, parameters)]
        return self

    def executemany(self, operation: str, seq_of_parameters: Iterable[Parameters]) -> Self:
        """Execute one statement with each of the parameters; ``nextset`` goes from one to the next.

        If one fails, what the ones before it released stays charged, and is free to ask again.
        """
        self._check_open()
        self._results, self._next = [], 0
        self._results = [self.connection._run(operation, each) for each in seq_of_parameters]
        return self

    def executescript(self, operation: str) -> Self:
        """Execute several statements; ``nextset`` goes from the result of one to the next.

        They are planned together: what several of them need is measured once, and the first
        result has the cost of it.  A server plans each by itself.
        """
        self._check_open()
        self._results, self._next = [], 0
        self._results = self.connection._run_script(operation)
        return self

    def nextset(self) -> bool | None:
        """Go to the next result of ``executemany`` or ``executescript``; None if there is none."""
        self._check_open()
        self._results, self._next = self._results[1:], 0
        return True if self._results else None

    @property
    def description(self) -> list[Description] | None:
        """Name and type of each column; None where the last statement returned no rows."""
        result = self._result
        if result is None or not result.columns:
            return None
        return [(c.name, c.type, None, None, None, None, None) for c in result.columns]

    @property
    def rowcount(self) -> int:
        """The number of rows of the result; -1 where there is none."""
        return len(self._results[0].rows) if self.description else -1

    @property
    def statusmessage(self) -> str | None:
        """PostgreSQL's command tag of the last statement, such as ``SELECT 3``."""
        return self._result.tag if self._result else None

    @property
    def result(self) -> Result | None:
        """All of the last statement's result, as every door shows it."""
        return self._result

    @property
    def answers(self) -> list[list[Answer]]:
        """For each row of the result, one Answer for each of its numbers, fetched or not."""
        return self._result.answers if self._result else []

    @property
    def explanations(self) -> list[list[Explanation | None]]:
        """As ``answers``, how probable values are and what numbers rest on, where that is known.

        It is there after ``SET privacy.explanations = on``.
        """
        return self._result.explanations if self._result else []

    @property
    def cost(self) -> float | None:
        """The privacy cost (alpha) that the statement added; 0 where all was inferred."""
        return self._result.cost if self._result else None

    @property
    def left(self) -> float | None:
        """The privacy budget left after the statement: the least that binds the user now."""
        return self._result.left if self._result else None

    @property
    def left_of(self) -> str | None:
        """The limit of which that is left."""
        return self._result.left_of if self._result else None

    @property
    def notices(self) -> tuple[str, ...]:
        """What the proxy has to say about the result."""
        return self._result.notices if self._result else ()

    def __repr__(self) -> str:
        return f"<proxy.Cursor: {self.statusmessage or 'nothing executed'}>"

    def _repr_html_(self) -> str | None:
        """Return the result as an HTML table, as notebooks show it."""
        if self._result is None:
            return None
        from proxy.notebook.tables import html

        return html(self._result)

    def plot(self, axes: Axes | None = None, *, column: str | None = None) -> Axes:
        """Draw the result with matplotlib, the extra ``plots``; return the axes.

        Bars with their intervals, of all numbers or those of a ``column``; of a single number its
        posterior, after ``SET privacy.explanations = on``, else the number and its interval.
        """
        from proxy.notebook.plots import plot

        return plot(self._result, axes, column)

    def fetchone(self) -> Row | None:
        """Return the next row, or None after the last."""
        return next(iter(self._fetch(1)), None)

    def fetchmany(self, size: int | None = None) -> list[Row]:
        """Return the next ``size`` rows (by default ``arraysize``), fewer at the end."""
        return self._fetch(self.arraysize if size is None else size)

    def fetchall(self) -> list[Row]:
        """Return all rows not yet fetched."""
        return self._fetch(None)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.fetchone, None)

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """Do nothing, as PEP 249 allows."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Do nothing, as PEP 249 allows."""

    def close(self) -> None:
        """Close the cursor; closing twice is no error."""
        self.closed = True
        self._results = []

    @property
    def _result(self) -> Result | None:
        return self._results[0] if self._results else None

    def _fetch(self, count: int | None) -> list[Row]:
        self._check_open()
        if self.description is None:
            raise errors.ProgrammingError(
                "there are no rows to fetch: the last statement returned none, or none was executed"
            )
        rows = self._results[0].rows
        end = len(rows) if count is None else min(len(rows), self._next + max(count, 0))
        fetched, self._next = rows[self._next : end], end
        return fetched

    def _check_open(self) -> None:
        if self.closed:
            raise errors.InterfaceError("the cursor is closed")
        self.connection._check_open()

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
