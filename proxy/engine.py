"""A SQL text enters, a result leaves: read this first.

    parse, bind, compile   the text becomes releases of linear queries over the public domain
    plan                   each number: inferred from the history, or measured with least budget
    measure                one ledger transaction: check every budget, draw the noise, commit
    infer                  estimate and interval of every number from the (now longer) history
    post-process           the outer SQL runs on the noisy relation

Invariants (the proxy's promise): nothing computed from the data leaves except through a committed,
charged measurement; plans, refusals and errors depend on public things and released answers only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import proxy.policy as policies
import proxy.reports as reports
from proxy.block import KINDS, TransactionBlock
from proxy.book import Book, limits
from proxy.cube import Cube
from proxy.errors import (
    Error,
    InsufficientBudgetError,
    NotSupportedError,
    QueryCanceledError,
    StatementTooComplexError,
    UtilityError,
)
from proxy.goals import SCOUT, Absolute, Answer, Average, Goal, Relative, extras
from proxy.inference import plan as planning
from proxy.inference.accounting import UNIT, budget_units, charge
from proxy.inference.history import Block, Estimator
from proxy.inference.mechanism import GeometricSampler, Sampler, UnsafeNoiseError, check_safe
from proxy.inference.plan import Allocation, Wanted
from proxy.inference.query import Term, TooLargeError
from proxy.ledger import Ledger, Measurement, Transaction
from proxy.ledger.sqlite import SQLiteLedger
from proxy.policy import Policy
from proxy.reports import BudgetReport, HistoryLine, RuleReport
from proxy.result import Numbers, Result, assemble, columns
from proxy.roles import ANALYST, Standing, honoured, standing, users_of
from proxy.settings import SPEND, UTILITY, Settings, checked, given
from proxy.sql.evaluate import Evaluator
from proxy.sql.parameters import bind_parameters
from proxy.sql.program import Column, Command, Number, Program
from proxy.sql.sandbox import Child
from proxy.sql.statement import compile_statement
from proxy.state import anchor_path, ledger_path, state_folder
from proxy.steward import init, open_cube, other_policy

Rows = list[Estimator | None]  # an estimator of every row of a family

HARMLESS = ("set", "reset")
NO_MORE = (InsufficientBudgetError, NotSupportedError, StatementTooComplexError)  # of a plan
KEPT = 10_000  # rows and characters: what has more is worked out anew when it is asked for again
NOBODY = ""  # the user of an embedded connection that names none


class Engine:
    """One dataset: its policy, its ledger, its cube, and the way of a query between them."""

    def __init__(
        self,
        policy: Policy,
        ledger: Ledger,
        cube: Callable[[int], Cube],
        *,
        sampler: Sampler | None = None,
        clock: Callable[[tzinfo], datetime] = datetime.now,
        evaluator: Evaluator | None = None,
    ) -> None:
        self.policy = policy
        self._clock = clock
        self.ledger = ledger
        self._open_cube = cube  # of a snapshot
        self._cube: tuple[int, Cube] | None = None
        self._sampler = sampler or GeometricSampler()
        self._evaluator = evaluator or Evaluator(policy.domain)
        self._limits = limits(policy, self._evaluator)
        self._lock = threading.RLock()
        self._books: dict[str, Book] = {}
        self._users = users_of(policy)
        privacy = policy.privacy
        self._allocation = Allocation(privacy.allocation == "topup", float(privacy.floor))

    @classmethod
    def open(
        cls,
        policy: str | Path,
        state: str | Path | None = None,
        *,
        sampler: Sampler | None = None,
        sandbox: bool = False,
    ) -> Engine:
        """Open the dataset of a policy file, whose state ``init`` has made.

        With ``sandbox``, statements are worked on in a child process that has bounds.

        Raises:
            PolicyError: the policy is missing or wrong.
            StateError: there is no state yet, or it is not of this policy.
        """
        loaded = policies.load(policy)
        honoured(loaded)
        folder = state_folder(loaded, state)
        ledger = SQLiteLedger.open(
            ledger_path(folder), dataset=loaded.dataset, anchor=anchor_path(folder)
        )
        try:
            known = ledger.protection()
            if known.digest != loaded.digest:
                raise other_policy(loaded, dict(known.protection))

            def cube(snapshot: int) -> Cube:
                return open_cube(loaded, folder, ledger.id, snapshot)

            cube(ledger.snapshot().id)
            evaluator = Evaluator(loaded.domain, Child() if sandbox else None)
            try:
                return cls(loaded, ledger, cube, sampler=sampler, evaluator=evaluator)
            except BaseException:
                evaluator.close()
                raise
        except BaseException:
            ledger.close()
            raise

    def session(
        self,
        user: str | None = None,
        utility: tuple[float, float] | None = None,
        dialect: str = "postgres",
    ) -> Session:
        """Return a new session of a user, with a default utility."""
        return Session(self, user or NOBODY, utility, dialect)

    def read_users(self) -> None:
        """Read the users file again: sessions that begin from now on stand as it says."""
        self._users = users_of(self.policy)

    def close(self) -> None:
        """Release the ledger's files, and end the evaluator."""
        self._evaluator.close()
        self.ledger.close()

    # --- the way of a query ----------------------------------------------------------------------

    def execute(self, text: str, parameters: Any, session: Session) -> Result:
        """Run one statement: parse, bind, compile, plan, measure, infer, post-process."""
        statement = self.compile(text, parameters, session)
        if isinstance(statement, Command):
            return session.command(statement)
        with self._lock, self._runs(session):
            session.check_canceled()
            if statement.releases:
                session.standing.require(ANALYST)
            book = self._book(session.standing)
            asked = (id(statement), session.user, session.utility(), *session.settings.items())
            if again := self._again(book, statement, asked, session):
                return again
            numbers = [number for release in statement.releases for number in release.numbers]
            goals = [self._goal(number, session) for number in numbers]
            with book.watched(session.check_canceled):
                answers, cost, notices = self._answer(book, goals, statement.text, session)
            more = [extras(g, a, book.history) for g, a in zip(goals, answers, strict=True)]
            rows, shown, places = assemble(
                statement,
                Numbers(answers, more),
                self._systems(statement, session),
                session.settings,
                self._evaluator,
            )
            result = Result(
                tuple(rows.columns),
                list(rows.rows),
                shown,
                cost / UNIT,
                book.left(),
                statement.notices + notices,
                f"SELECT {len(rows.rows)}",
                places,
            )
            free = not cost and not notices  # an unmet request may be met when there is more budget
            if free and not statement.systems and len(rows.rows) + len(statement.text) < KEPT:
                book.keep(asked, (statement, result))
            return result

    def _again(
        self, book: Book, statement: Program, asked: Hashable, session: Session
    ) -> Result | None:
        """Return what the same statement gave, if it was free and the history is as it was."""
        book.catch_up(self.ledger)
        kept: tuple[Program, Result] | None = book.kept.get(asked)
        if kept is None or kept[0] is not statement:  # an id may be that of another by now
            return None
        self.ledger.note("inferred", session.user, statement.text)
        return replace(kept[1], rows=list(kept[1].rows))

    def compile(self, text: str, parameters: Any, session: Session) -> Program | Command:
        """Return what a statement means, without running it."""
        with self._runs(session):
            return compile_statement(
                text,
                self.policy,
                self._evaluator,
                parameters,
                session.settings.texts,
                language=session.dialect,
            )

    @contextmanager
    def _runs(self, session: Session) -> Iterator[None]:
        """Mark whose statement a thread runs, so that a cancellation stops no other."""
        session.thread = threading.get_ident()
        try:
            yield
        finally:
            session.thread = None

    def interrupt(self, session: Session) -> None:
        """Stop the evaluator, from another thread, if it works for a session."""
        if session.thread is not None:
            self._evaluator.interrupt(session.thread)

    def _goal(self, number: Number, session: Session) -> Goal:
        """Return how good a number must be: the nearest request wins."""
        request = number.utility
        stepwise = number.kind == "avg" or (request is not None and request.relative)
        if stepwise and number.family.rows > planning.QUICK_ROWS:
            raise NotSupportedError(
                f"{number.label} is met in steps, which more than {planning.QUICK_ROWS} groups "
                "are too many for",
                hint="group by fewer columns, or ask for COUNT and SUM with a half_width",
                position=number.position,
            )
        scout = float(self.policy.privacy.budget * SCOUT)
        if request is not None and request.relative:
            if number.kind not in ("count", "sum"):
                raise NotSupportedError(
                    f"{number.label} takes no relative utility (PERCENT)",
                    hint="give half_width in the units of the number",
                    position=number.position,
                )
            wish = checked(request.half_width, request.delta, number.position)
            return Relative(number, wish.half_width, float(wish.delta), scout)
        if request is not None:
            wish = checked(request.half_width, request.delta, number.position)
        else:
            wish = session.utility() or self._default(number)
        if number.kind == "avg":
            assert number.bounds is not None
            clip = float(number.bounds[0]), float(number.bounds[1])
            return Average(number, wish.half_width, float(wish.delta), scout, clip)
        return Absolute(number, wish.half_width, float(wish.delta))

    def _default(self, number: Number) -> policies.Utility:
        """Return the default of the number's measure, or of the dataset for counts."""
        default = None
        if number.measure is not None:
            default = self.policy.measure_utility.get(number.measure)
        if number.kind == "avg":
            default = None  # what is good enough for a sum says nothing of a mean
        elif number.measure is None and (
            number.kind == "count" or number.family.sensitivity * number.family.grid <= 1
        ):
            default = self.policy.utility
        if default is None:
            raise UtilityError(
                f"how good must {number.label} be? The query does not say, and the policy has "
                "no default for it",
                hint="add WITH UTILITY (half_width, delta), for example WITH UTILITY (100, 0.05)",
                position=number.position,
            )
        return default

    def _answer(
        self, book: Book, goals: Sequence[Goal], text: str, session: Session
    ) -> tuple[list[list[Answer]], int, tuple[str, ...]]:
        """Measure what is needed, in steps where a goal needs them, and infer every number.

        Where no further step is possible, what the earlier ones gave is the answer: those of this
        statement, or those of others, so that asking again gives the same.
        """
        cost, paid, end = 0, dict[int, Block](), ""
        found: Sequence[Rows] | None = None
        for step in range(max((goal.steps for goal in goals), default=1)):
            session.check_canceled()
            book.catch_up(self.ledger)
            wants = [goal.wants(book.history) for goal in goals]
            try:
                spent, blocks, found = self._measure(book, list(chain(*wants)), text, session)
            except NO_MORE as error:
                if not step and not all(goal.known(book.history) for goal in goals):
                    raise
                end = error.message
                break
            cost += spent
            paid |= {row: block for block in blocks for row in block.rows}
            if not blocks:
                break
        if paid or found is None:  # the history is longer than it was when that was planned
            wants = [goal.wants(book.history) for goal in goals]
            found = [planning.estimators(book.history, wanted) for wanted in chain(*wants)]
        if not paid:
            self.ledger.note("inferred", session.user, text)
        rows = iter(found)
        answers = [
            goal.answers(book.history, [next(rows) for _ in each], paid)
            for goal, each in zip(goals, wants, strict=True)
        ]
        return answers, cost, tuple(_unmet(goal, end) for goal in goals if goal.unmet)

    def _measure(
        self, book: Book, wants: Sequence[Wanted], text: str, session: Session
    ) -> tuple[int, list[Block], Sequence[Rows]]:
        """Measure what cannot be inferred, all or nothing; return the cost and the new blocks."""
        book.catch_up(self.ledger)
        kept = len(book.history.blocks)
        try:
            plan = self._plan(book, wants)
            if not plan.measurements:
                return 0, [], plan.estimators
            self._permit(book, plan, session)
            session.check_canceled()
            with self.ledger.transaction() as tx:
                if tx.sequence() != book.sequence:  # somebody was faster: plan again, in the lock
                    book.history.truncate(kept)
                    book.catch_up(tx)
                    kept = len(book.history.blocks)
                    plan = self._plan(book, wants)
                terms = book.charges(plan.measurements)
                self._check(book, terms, session, tx)
                self._check_rows(plan, session, tx)
                cost = book.cost(terms)
                rows = [self._draw(each, book, tx) for each in plan.measurements]
                sequence = tx.sequence()
                if rows:
                    spent = {book.name: book.account.spent((), terms).value}
                    sequence = tx.audit("measured", session.user, text, cost, spent=spent)
            blocks = book.history.blocks[kept:]
            book.measured(rows, blocks, sequence)
            return cost, blocks, plan.estimators
        except NO_MORE as error:  # nothing was measured: the plan is taken back
            book.history.truncate(kept)
            self.ledger.note("refused", session.user, text, {"reason": error.message})
            raise
        except BaseException:  # whatever was or was not committed: the ledger knows
            self._books.pop(book.name, None)
            raise

    def _plan(self, book: Book, wants: Sequence[Wanted]) -> planning.Plan:
        try:
            plan = planning.plan(book.history, wants, self._allocation)
            for each in plan.measurements:
                charge(each.family, each.scale)
                check_safe(each.family, each.scale, self.policy.max_records)
        except TooLargeError as error:
            raise StatementTooComplexError(
                f"a number ties too many columns together: {error}",
                hint="group by fewer columns, or split conditions into parts joined by AND",
            ) from error
        except UnsafeNoiseError as error:
            raise NotSupportedError(
                f"this number cannot be measured safely: {error}",
                hint="ask for a half_width nearer to the size of the number",
            ) from error
        return plan

    def _permit(self, book: Book, plan: planning.Plan, session: Session) -> None:
        """Refuse to spend where the session or the analyst must not, before any lock."""
        if not (session.settings.value(SPEND) and session.standing.spend):
            who = "this session" if session.standing.spend else f"analyst {session.user}"
            raise InsufficientBudgetError(
                f"refused: {who} may only infer (spend: off), and this must be measured",
                requested=book.cost(book.charges(plan.measurements)) / UNIT,
                spent=0.0,
                left=0.0,
                hint="ask for a wider interval, or for what follows from earlier answers",
            )

    def _check(self, book: Book, terms: Sequence[Term], session: Session, tx: Transaction) -> None:
        """Refuse what would break a budget: of the cells, of the analyst, of the period."""
        breach = book.breach(terms)
        if breach is not None:
            raise InsufficientBudgetError(
                f"refused: the statement costs more than {breach.rule.name} has left",
                requested=breach.requested / UNIT,
                spent=breach.spent / UNIT,
                left=breach.left / UNIT,
                hint="ask for a wider interval (larger half_width or delta), for fewer numbers, "
                "or for what follows from earlier answers",
            )
        cost = book.cost(terms)
        for name, cap, spent in self._caps(session.standing, tx):
            if spent + cost > cap:
                raise InsufficientBudgetError(
                    f"refused: the statement costs more than {name} has left",
                    requested=cost / UNIT,
                    spent=spent / UNIT,
                    left=max(cap - spent, 0) / UNIT,
                    hint="ask for a wider interval, or ask the data steward",
                )

    def _caps(self, standing: Standing, tx: Transaction) -> Iterable[tuple[str, int, int]]:
        """Yield name, cap and sum so far of the limits on what statements spend together."""
        for cap in standing.caps:
            yield cap.name, budget_units(cap.budget), sum(map(tx.spent_by, cap.users))
        now = self._clock(self.policy.zone)
        today = now.replace(hour=0, minute=0, second=0, microsecond=0)
        for period, budget in self.policy.privacy.per.items():
            days = today.weekday() if period == "week" else 0
            since = (today - timedelta(days=days)).astimezone(UTC)
            spent = standing.total(partial(tx.spent_by, since=since))
            part = budget / self.policy.privacy.unit.max_rows * standing.share
            yield f"this {period}", budget_units(part), spent

    def _check_rows(self, plan: planning.Plan, session: Session, tx: Transaction) -> None:
        """Refuse what would make the history longer than the policy allows."""
        more = sum(each.family.rows for each in plan.measurements)
        limits = self.policy.privacy.rows
        user, standing = session.user, session.standing
        for who, there, limit in (
            ("the history", standing.total(tx.answers_by), int(limits.total * standing.share)),
            (f"the history of {user or 'this user'}", tx.answers_by(user), limits.analyst),
        ):
            if there + more > limit:
                raise InsufficientBudgetError(
                    f"refused: {who} is full: {limit} numbers, and this statement adds {more}",
                    requested=0.0,
                    spent=0.0,
                    left=0.0,
                    hint="ask for what follows from earlier answers, or ask the data steward",
                )

    def _draw(self, planned: planning.Measurement, book: Book, tx: Transaction) -> Measurement:
        """Read the exact answers, add the noise, and put the sum, alone, into the ledger."""
        if self._cube is None or self._cube[0] != book.snapshot:
            self._cube = book.snapshot, self._open_cube(book.snapshot)
        exact = self._cube[1].answer(planned.family)
        noise = self._sampler.draw(planned.scale, planned.family.rows)
        noisy = tuple(a + k for a, k in zip(exact, noise, strict=True))
        row = Measurement(planned.family, planned.scale, noisy, book.name, book.snapshot)
        return Measurement(
            row.family, row.scale, row.answers, row.history, row.snapshot, id=tx.append(row)
        )

    # --- budgets and reports ---------------------------------------------------------------------

    def _book(self, standing: Standing) -> Book:
        """Return the history that serves a user: their own, or the shared one."""
        name = standing.history
        if name not in self._books:
            self._books[name] = Book(name, self.policy, self._limits)
        return self._books[name]

    def standing(self, user: str) -> Standing:
        """Return what a user may do, see and spend."""
        return standing(self.policy, self._users, user)

    def budget(self, user: str = NOBODY) -> BudgetReport:
        """Return every budget of the history that serves a user, and what is left of it."""
        with self._lock:
            book = self._book(self.standing(user))
            book.catch_up(self.ledger)
            return reports.budget(self.policy.dataset, book)

    def history(self, user: str | None = None) -> list[HistoryLine]:
        """Return the statements that were paid for, oldest first; of one user, or of all."""
        return reports.history(self.ledger, user)

    def left(self, session: Session) -> float:
        """Return the alpha that is left in the cell that has least."""
        with self._lock:
            book = self._book(session.standing)
            book.catch_up(self.ledger)
            return book.left()

    def explain(self, program: Program, session: Session) -> list[tuple[Any, ...]]:
        """Return what each number of a statement would cost, and measure nothing."""
        with self._lock:
            numbers = [number for release in program.releases for number in release.numbers]
            goals = [self._goal(number, session) for number in numbers]
            book = self._book(session.standing)
            return reports.explain(program, goals, book, self.ledger, self._plan)

    def _systems(self, program: Program, session: Session) -> dict[str, list[tuple[Any, ...]]]:
        """Return the rows of the relations of schema privacy that a statement reads."""
        rows: dict[str, list[tuple[Any, ...]]] = {}
        if "budget" in program.systems:
            rows["budget"] = reports.budget_rows(self.budget(session.user))
        if "history" in program.systems:
            rows["history"] = list(reports.history_rows(self.history(session.standing.sees)))
        return rows


def _unmet(goal: Goal, end: str) -> str:
    """Return the notice that a number met in steps is not as good as it was asked for, and why."""
    groups = f", for {goal.unmet} of {rows} groups" if (rows := goal.number.family.rows) > 1 else ""
    why = end or "the steps it was given were not enough; asking again may bring it nearer"
    return f"{goal.number.label} is less exact than was asked{groups}: {why}"


class Session:
    """One client's statements, on one user's account, with settings of their own."""

    def __init__(
        self, engine: Engine, user: str, utility: tuple[float, float] | None, dialect: str
    ) -> None:
        self.user = user
        self.standing = engine.standing(user)
        self.settings = Settings(given(utility) if utility is not None else self.standing.utility)
        self.block = TransactionBlock(self.settings)
        self._engine = engine
        self.dialect = dialect
        self.thread: int | None = None  # which runs a statement
        self._canceled = False

    def execute(self, text: str, parameters: Any = None) -> Result:
        """Run one statement; in a transaction, an error makes it fail until its end."""
        self._canceled = False
        if parameters is not None:  # wrong ones are no statement yet, and fail no transaction
            text = bind_parameters(text, parameters)
        try:
            if self.block.failed:
                self.block.check(self._kind(text))
            return self._engine.execute(text, None, self)
        except Exception:
            self.block.fail()
            raise

    def _kind(self, text: str) -> str | None:
        """Return which command a text is; None for all else, and for what is none."""
        try:
            statement = self._engine.compile(text, None, self)
        except Error:
            return None
        return statement.kind if isinstance(statement, Command) else None

    @property
    def in_transaction(self) -> bool:
        """Whether a BEGIN has no end yet."""
        return self.block.open

    def explain(self, text: str) -> Result:
        """Return what a query would cost, and measure nothing: EXPLAIN UTILITY."""
        program = self._engine.compile(text, None, self)
        if not isinstance(program, Program):
            raise NotSupportedError(f"EXPLAIN UTILITY takes a query, not {program.kind.upper()}")
        return self.command(Command("explain", "utility", text, program=program))

    def describe(self, text: str) -> tuple[Column, ...]:
        """Return the columns that a statement would give: it is compiled, and releases nothing."""
        statement = self._engine.compile(text, None, self)
        if isinstance(statement, Program):
            return columns(statement, self.settings)
        return self.command(statement).columns if statement.kind in ("show", "explain") else ()

    def cancel(self) -> None:
        """Stop the statement that runs, from another thread, if it is not yet committed."""
        self._canceled = True
        self._engine.interrupt(self)

    def check_canceled(self) -> None:
        """Raise if the statement that runs is to stop."""
        if self._canceled:
            raise QueryCanceledError("canceling statement due to user request")

    def utility(self) -> policies.Utility | None:
        """Return the session's own default: SET privacy.utility, or what it was opened with."""
        chosen: policies.Utility | None = self.settings.value(UTILITY)
        return chosen

    def command(self, command: Command) -> Result:
        """Run a statement that releases nothing."""
        columns: tuple[Column, ...] = ()
        rows: list[tuple[Any, ...]] = []
        notices: tuple[str, ...] = ()
        tag = command.kind.upper()
        if command.kind in ("set", "reset") and command.name.startswith("privacy."):
            notices = self.block.set(command.name, command.value, command.local)
        elif command.kind == "reset" and command.name == "all":
            self.block.reset_all()
        elif command.kind == "discard":
            tag = self.block.discard(command.name)
        elif command.kind == "empty":
            tag = ""
        elif command.kind in KINDS:
            tag, notices = self.block.command(command.kind, command.name)
        elif command.kind == "show":
            columns, rows = self._shown(command.name)
        elif command.kind == "explain" and command.program is not None:
            columns, rows = reports.EXPLAINED, self._engine.explain(command.program, self)
        elif command.kind not in HARMLESS:
            raise NotSupportedError(
                f"{command.kind.upper()} is not supported",
                hint="EXPLAIN UTILITY SELECT … says what a statement would cost"
                if command.kind == "explain"
                else None,
            )
        left = self._engine.left(self)
        none: list[list[Any]] = [[] for _ in rows]
        return Result(columns, rows, none, 0.0, left, notices, tag, none)

    def _shown(self, name: str) -> tuple[tuple[Column, ...], list[tuple[Any, ...]]]:
        """Return what SHOW shows."""
        if name == "budget":
            return reports.BUDGET, reports.budget_rows(self._engine.budget(self.user))
        if name == "history":
            return reports.HISTORY, list(
                reports.history_rows(self._engine.history(self.standing.sees))
            )
        return (Column(name, "text"),), [(self.settings.text(name),)]

    def close(self) -> None:
        """End the session."""


__all__ = [
    "Answer",
    "BudgetReport",
    "Column",
    "Engine",
    "HistoryLine",
    "Result",
    "RuleReport",
    "Session",
    "init",
]
