"""The engine's side of one connection: an engine session for each dataset.

Called from worker threads, one call at a time; ``cancel`` may come from any thread at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from proxy.engine import Column, Engine, Result, Session
from proxy.engine.allowances import said
from proxy.errors import Error, NotSupportedError, QueryCanceledError, StatementTooComplexError
from proxy.policy import User
from proxy.server.limits import Limits
from proxy.server.mirror.type_lookup import TypeLookup
from proxy.server.session import parameters
from proxy.server.session.probe import gives_no_row
from proxy.settings import TABLE
from proxy.sql.parse.views import Views


@dataclass(frozen=True)
class Prepared:
    """A statement before its parameters have values."""

    types: tuple[int, ...]  # of the parameters
    columns: tuple[Column, ...]
    refusal: Error | None = None  # the engine's, where only the mirror describes it


class EngineSessions:
    """The engine sessions of one connection, opened as they are needed."""

    def __init__(
        self,
        engines: Callable[[], Mapping[str, Engine]],  # as they are now
        user: User,
        type_lookup: TypeLookup,
        limits: Limits,
    ) -> None:
        self._engines = engines
        self._user = user
        self._type_lookup = type_lookup
        self._limits = limits
        self._source: Mapping[str, Engine] = {}  # whose sessions these are
        self._sessions: dict[str, Session] = {}
        self._canceled: str | None = None
        self.views: Views = {}  # of the session, as the mirror has it

    def views_of(self, dataset: str) -> Views:
        """Return the views as the last statement of a dataset left them."""
        return self._sessions[dataset].settings.views

    def begin(self) -> None:
        """Forget a cancellation that came before the statement that is about to run."""
        self._canceled = None

    def cancel(self, reason: str) -> None:
        """Cancel the statement that runs; ``reason`` becomes its error message."""
        self._canceled = reason
        for session in list(self._sessions.values()):
            session.cancel()

    def describe(self, dataset: str, text: str, settings: Mapping[str, str]) -> tuple[Column, ...]:
        """Return the columns of a statement's result; nothing is released."""
        return self._session(dataset, settings).describe(text)

    def execute(self, dataset: str, text: str, settings: Mapping[str, str]) -> Result:
        """Run a statement.

        Raises:
            QueryCanceledError: ``cancel`` was called since ``begin``.
            StatementTooComplexError: the result has too many rows; its cost is charged.
            Error: the engine refuses the statement, or fails.
        """
        session = self._session(dataset, settings)
        if self._canceled:
            raise QueryCanceledError(self._canceled)
        try:
            result = session.execute(text)
        except QueryCanceledError as error:
            canceled = QueryCanceledError(
                self._canceled or "canceling statement due to user request", hint=error.hint
            )
            canceled.cost = error.cost
            raise canceled from None
        if len(result.rows) > self._limits.rows:
            too_long = StatementTooComplexError(
                f"the result has {len(result.rows):,} rows; {self._limits.rows:,} are allowed",
                hint="add a LIMIT; what it asked for is known now, and free"
                f"; cost {result.cost:.4g}, left {said(result.left, result.left_of)}",
            )
            too_long.cost = result.cost
            raise too_long
        return result

    def prepare(
        self,
        dataset: str,
        text: str,
        plain: str,
        declared: tuple[int, ...],
        settings: Mapping[str, str],
    ) -> Prepared:
        """Return the types of the parameters, and the columns.

        Raises:
            Error: neither the engine nor the mirror knows them.
        """
        numbers = [number for number, _, _ in parameters.places(text)]
        if not numbers and not declared:
            types: tuple[int, ...] = ()
        else:
            oids = self._type_lookup.types(plain, declared, self.views) or declared
            count = max([len(declared), *numbers])
            oids = (*oids, *(0 for _ in range(count - len(oids))))
            types = tuple(oid if oid not in (0, 705) else parameters.TEXT for oid in oids)
        try:
            return Prepared(types, self._columns(dataset, text, types, settings))
        except Error as error:
            columns = self._type_lookup.columns(plain, types, self.views)
            if columns is None:
                raise
            return Prepared(types, columns, error)

    def probe(self, text: str, plain: str) -> tuple[Column, ...] | None:
        """Return the columns of a probe, which gives no row whatever the data; else None."""
        if not gives_no_row(text):
            return None
        return self._type_lookup.columns(plain, (), self.views)

    def prepare_sql(
        self, dataset: str, text: str, plain: str, declared: str, settings: Mapping[str, str]
    ) -> tuple[Prepared, list[str]]:
        """Do the same for PREPARE, with the types by name; ``declared`` is its list of types.

        Raises:
            Error: the engine refuses it, and it is no probe.
        """
        if declared.count(",") >= parameters.MOST:
            raise StatementTooComplexError(f"a statement has at most {parameters.MOST} parameters")
        oids = self._type_lookup.oids(declared) if declared.strip() else ()
        prepared = self.prepare(dataset, text, plain, oids, settings)
        if prepared.refusal is not None and not gives_no_row(text):
            raise prepared.refusal
        return prepared, self._type_lookup.names(prepared.types)

    def _columns(
        self, dataset: str, text: str, types: tuple[int, ...], settings: Mapping[str, str]
    ) -> tuple[Column, ...]:
        if not types:
            return self.describe(dataset, text, settings)
        try:
            return self.describe(
                dataset, parameters.fill(text, parameters.nulls(types)).text, settings
            )
        except Error:
            bound = parameters.fill(text, parameters.samples(types))
            try:
                return self.describe(dataset, bound.text, settings)
            except Error as error:
                if error.position is not None:
                    error.position = bound.original(error.position)
                raise

    def _session(self, dataset: str, settings: Mapping[str, str]) -> Session:
        engines = self._engines()
        if engines is not self._source:  # policies or users have changed
            self._source, self._sessions = engines, {}
        if dataset not in engines:
            raise NotSupportedError(f"there is no dataset {dataset} here any more")
        if dataset not in self._sessions:
            self._sessions[dataset] = engines[dataset].session(user=self._user.name)
        session = self._sessions[dataset]
        session.settings.views = self.views
        for name, text in settings.items():
            if name in TABLE and session.settings.text(name) != text:
                session.settings.set(name, text)
        return session
