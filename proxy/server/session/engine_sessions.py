"""The engine's side of one connection: an engine session for each dataset.

Called from threads, one call at a time, each with a worker process that reads the texts; ``cancel``
may come from any thread at any time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from proxy.engine import Column, Engine, Result, Session
from proxy.engine.allowances import said
from proxy.engine.result import columns
from proxy.errors import Error, NotSupportedError, QueryCanceledError, StatementTooComplexError
from proxy.policy import User
from proxy.server.limits import Limits
from proxy.server.mirror.type_lookup import TypeLookup
from proxy.server.statements import parameters, routing
from proxy.server.statements.routing import Decision, ToEngine
from proxy.server.workers import tasks
from proxy.server.workers.compiler import RemoteCompiler
from proxy.server.workers.planners import RemotePlanner
from proxy.server.workers.pool import Lease, Pool
from proxy.settings import TABLE
from proxy.sql.parse.views import Views
from proxy.sql.program import Program
from proxy.sql.statement import ProgramKey


class Prepared(Struct, frozen=True):
    """A statement before its parameters have values."""

    types: tuple[int, ...]  # of the parameters
    columns: tuple[Column, ...]
    refusal: Error | None = None  # the engine's, where only the mirror describes it


class Ran(Struct, frozen=True):
    """What came of a statement that ran in the step that routed it."""

    request: ToEngine
    columns: tuple[Column, ...]
    outcome: Result | Error
    seconds: float


class _Opened(Struct, frozen=True):
    """What serves one dataset."""

    engine: Engine
    compiler: RemoteCompiler
    session: Session


class EngineSessions:
    """The engine sessions of one connection, opened as they are needed."""

    def __init__(
        self,
        engines: Callable[[], Mapping[str, Engine]],  # as they are now
        user: User,
        type_lookup: TypeLookup,
        limits: Limits,
        pool: Pool,
        planners: Pool,
    ) -> None:
        self._engines = engines
        self._user = user
        self._type_lookup = type_lookup
        self._limits = limits
        self._pool = pool
        self._planners = planners
        self._lease = Lease(pool)  # of the step that runs
        self._planning = Lease(planners)
        self._source: Mapping[str, Engine] = {}  # whose sessions these are
        self._opened: dict[str, _Opened] = {}
        self.canceled: str | None = None
        self.views: Views = {}  # of the session, as the mirror has it

    def views_of(self, dataset: str) -> Views:
        """Return the views as the last statement of a dataset left them."""
        return self._opened[dataset].session.settings.views

    def begin(self) -> None:
        """Forget a cancellation that came before the message that is about to be handled."""
        self.canceled = None

    def cancel(self, reason: str) -> None:
        """Cancel the statement that runs; ``reason`` becomes its error message."""
        self.canceled = reason
        self._lease.cancel(reason)
        self._planning.cancel(reason)
        for opened in list(self._opened.values()):
            opened.session.cancel()

    def step(self, call: Callable[[], Any]) -> Any:
        """Make a call that may need a worker, in this thread."""
        self._lease, self._planning = Lease(self._pool), Lease(self._planners)
        try:
            return call()
        finally:
            self._lease.close()
            self._planning.close()

    def check_canceled(self) -> None:
        """Raise if the statement is to stop."""
        if self.canceled is not None:
            raise QueryCanceledError(self.canceled)

    def work(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the value of a function of a text, worked out by the worker of this step.

        Raises:
            QueryCanceledError: ``cancel`` was called since ``begin``.
            StatementTooComplexError: it takes too much time or memory.
        """
        self.check_canceled()
        return self._lease.call(function, *arguments)

    def plan(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the value of a function of a program, worked out by the planner of this step.

        Raises:
            QueryCanceledError: ``cancel`` was called since ``begin``.
            Error: the program is refused, or takes too much memory.
        """
        self.check_canceled()
        return self._planning.call(function, *arguments)

    def known_route(self, *of: Any) -> list[tuple[str, int, Decision]] | None:
        """Return what ``route`` returned for the same, if that is still kept."""
        plan: list[tuple[str, int, Decision]] | None = self._pool.routes.get(of)
        return plan

    def route(
        self, of: tuple[Any, ...], home: str, settings: Mapping[str, str]
    ) -> list[tuple[str, int, Decision]]:
        """Return the statements of a text, their offsets, and who answers; as ``tasks.routed``.

        Where it is one statement of the dataset ``home``, and these are its settings, its program
        comes with it, and is kept.
        """
        text, began = of[0], time.monotonic()
        compiler, key = self._expected(home, text, settings)
        plan: list[tuple[str, int, Decision]]
        plan, program = self.work(tasks.read, of, key)
        cost = time.monotonic() - began
        self._pool.routes.put(of, plan, 4 * len(text), cost)
        if compiler is not None and key is not None and program is not None:
            compiler.keep(key, program, cost)
        return plan

    def route_and_run(
        self, of: tuple[Any, ...], home: str, settings: Mapping[str, str]
    ) -> tuple[list[tuple[str, int, Decision]], Ran | None]:
        """Return what ``route`` does; a single statement that is known then runs at once."""
        plan = self.route(of, home, settings)
        to = plan[0][2]
        if len(plan) > 1 or not isinstance(to, ToEngine):
            return plan, None
        if any((to.head, to.tail, to.prepares, to.declares, to.explains, to.view)):
            return plan, None
        known = self.known_columns(to.dataset, to.text, settings)
        if known is None:
            return plan, None
        self._lease.close()  # others may have the worker while it is planned
        self._lease = Lease(self._pool)
        began = time.monotonic()
        outcome: Result | Error
        try:
            outcome = self.execute(to.dataset, to.text, settings)
        except Error as error:
            outcome = error
        return plan, Ran(to, known, outcome, time.monotonic() - began)

    def known_columns(
        self, dataset: str, text: str, settings: Mapping[str, str]
    ) -> tuple[Column, ...] | None:
        """Return what ``describe`` would, if the program of a text that is short is kept."""
        if len(text) > routing.LONG:
            return None
        compiler, key = self._expected(dataset, text, settings)
        program = compiler.known(key) if compiler is not None and key is not None else None
        if not isinstance(program, Program):
            return None
        return columns(program, self._opened[dataset].session.settings)

    def _expected(
        self, dataset: str, text: str, settings: Mapping[str, str]
    ) -> tuple[RemoteCompiler, ProgramKey] | tuple[None, None]:
        """Return what a text would be compiled by; nothing where an error is to be told first."""
        try:
            opened = self._open(dataset, settings)
        except Error:
            return None, None
        return opened.compiler, opened.engine.key(text, opened.session)

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
        try:
            result = session.execute(text)
        except QueryCanceledError as error:
            canceled = QueryCanceledError(
                self.canceled or "canceling statement due to user request", hint=error.hint
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
        numbers, texts = self.work(tasks.numbers, text), list[int]()
        if not numbers and not declared:
            types: tuple[int, ...] = ()
        else:
            known = self._type_lookup.types(plain, declared, self.views)
            if known is None:  # perhaps since a text is declared where none may be
                texts = [i for i, oid in enumerate(declared) if oid in parameters.TEXTS]
            oids = known or declared
            count = max([len(declared), *numbers])
            oids = (*oids, *(0 for _ in range(count - len(oids))))
            types = tuple(oid if oid not in (0, 705) else parameters.TEXT for oid in oids)
        try:
            return Prepared(types, self._columns(dataset, text, types, texts, settings))
        except QueryCanceledError:
            raise
        except Error as error:
            columns = self._type_lookup.columns(plain, types, self.views)
            if columns is None:
                raise
            return Prepared(types, columns, error)

    def probe(self, text: str, plain: str) -> tuple[Column, ...] | None:
        """Return the columns of a probe, which gives no row whatever the data; else None."""
        if not self.work(tasks.gives_no_row, text):
            return None
        return self._type_lookup.columns(plain, (), self.views)

    def prepare_sql(
        self, dataset: str, text: str, plain: str, declared: str, settings: Mapping[str, str]
    ) -> tuple[Prepared, list[str]]:
        """Do the same for PREPARE, with the types by name; ``declared`` is its list of types.

        Raises:
            Error: the engine refuses it, and it is no probe.
        """
        named = routing.split_types(declared)
        if len(named) > parameters.MOST:
            raise StatementTooComplexError(f"a statement has at most {parameters.MOST} parameters")
        oids = self._type_lookup.oids(named)
        prepared = self.prepare(dataset, text, plain, oids, settings)
        if prepared.refusal is not None and not self.work(tasks.gives_no_row, text):
            raise prepared.refusal
        return prepared, self._type_lookup.names(prepared.types)

    def filled(
        self, texts: Sequence[str], arguments: Sequence[str], types: Sequence[int]
    ) -> list[str]:
        """Return texts with the arguments of EXECUTE in them, converted to these types.

        Raises:
            Error: one cannot be.
        """
        found: list[str]
        found, computed = self.work(tasks.filled, texts, arguments, types)
        for i in computed:
            given = self._type_lookup.columns(f"SELECT {arguments[i]}", (), self.views)
            if given:
                parameters.require(i + 1, given[0].type, parameters.kind_of(types[i]))
        return found

    def _columns(
        self,
        dataset: str,
        text: str,
        types: tuple[int, ...],
        texts: list[int],
        settings: Mapping[str, str],
    ) -> tuple[Column, ...]:
        if not types:
            return self.describe(dataset, text, settings)
        try:
            bound = self.work(parameters.fill, text, parameters.nulls(types, texts))
            return self.describe(dataset, bound.text, settings)
        except QueryCanceledError:
            raise
        except Error:
            bound = self.work(parameters.fill, text, parameters.samples(types, texts))
            try:
                return self.describe(dataset, bound.text, settings)
            except Error as error:
                if error.position is not None:
                    error.position = bound.original(error.position)
                raise

    def _session(self, dataset: str, settings: Mapping[str, str]) -> Session:
        return self._open(dataset, settings).session

    def _open(self, dataset: str, settings: Mapping[str, str]) -> _Opened:
        """Return what serves a dataset, with the session's settings."""
        engines = self._engines()
        if engines is not self._source:  # policies or users have changed
            self._source, self._opened = engines, {}
        if dataset not in engines:
            raise NotSupportedError(f"there is no dataset {dataset} here any more")
        if dataset not in self._opened:
            engine = engines[dataset]
            compiler = RemoteCompiler(engine.policy, self._pool.programs, self.work)
            engine = engine.through(compiler, RemotePlanner(engine.policy.key, self.plan))
            session = engine.session(user=self._user.name)
            self._opened[dataset] = _Opened(engine, compiler, session)
        session = self._opened[dataset].session
        session.settings.views = self.views
        for name, text in settings.items():
            if name in TABLE and session.settings.written(name) != text:
                session.settings.set(name, text)
        return self._opened[dataset]
