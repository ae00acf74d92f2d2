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
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, tzinfo
from itertools import chain
from pathlib import Path
from typing import Any

import proxy.engine.reports as reports
import proxy.policy as policies
from proxy.accountant import LEFT, Book, too_dear, weight
from proxy.budgets import limits
from proxy.cube import Cube
from proxy.engine.allowances import Room, least, rooms, sums
from proxy.engine.answers import Answer
from proxy.engine.averages import Average
from proxy.engine.bill import Bill
from proxy.engine.goals import Goal, extras, reaches
from proxy.engine.linear_goals import Absolute, Relative
from proxy.engine.reports import COST, STEP, BudgetReport, HistoryLine
from proxy.engine.result import Numbers, Result, assemble
from proxy.engine.session import Session
from proxy.errors import (
    Error,
    InsufficientBudgetError,
    NotSupportedError,
    StateError,
    StatementTooComplexError,
    UtilityError,
)
from proxy.inference import plan as planning
from proxy.inference.accounting import UNIT
from proxy.inference.history import Block, Estimator
from proxy.inference.mechanism import GeometricSampler, Sampler, UnsafeNoiseError, check_safe
from proxy.inference.plan import Allocation, Wanted
from proxy.inference.query import Term, TooLargeError
from proxy.ledger import Ledger, Measurement, Reads, Transaction
from proxy.ledger.sqlite import SQLiteLedger
from proxy.policy import Policy
from proxy.privileges import ANALYST, Standing, honoured, standing, users_of
from proxy.protection import protection
from proxy.settings import (
    SPEND,
    UTILITY,
    checked,
    defaults,
)
from proxy.sql.evaluator.evaluator import Evaluator
from proxy.sql.evaluator.sandbox import Child
from proxy.sql.program import Command, Number, Program, Request
from proxy.sql.statement import compile_statement, too_complex
from proxy.state import anchor_path, ledger_path, state_folder
from proxy.steward import arranged, open_cube, same_policy, take_users, upgrade

Rows = list[Estimator | None]  # an estimator of every row of a family

TRIES = 64  # of which rows a step can measure
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
        self.wishes = defaults(policy)
        self._lock = threading.RLock()
        self._books: dict[str, Book] = {}
        self._users = users_of(policy)
        self.protection = protection(policy, self._evaluator, self._users)
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
        evaluator = None
        try:
            upgrade(loaded, folder, ledger)
            loaded = arranged(loaded, ledger)

            def cube(snapshot: int) -> Cube:
                current = ledger.snapshot()
                if current.id != snapshot:
                    raise StateError("the cube has been rebuilt meanwhile", hint="connect again")
                return open_cube(loaded, folder, ledger.id, current)

            evaluator = Evaluator(loaded.domain, Child() if sandbox else None)
            engine = cls(loaded, ledger, cube, sampler=sampler, evaluator=evaluator)
            same_policy(loaded, engine.protection, ledger)
            cube(ledger.snapshot().id)
            take_users(loaded, engine._users, ledger)
            return engine
        except BaseException:
            if evaluator is not None:
                evaluator.close()
            ledger.close()
            raise

    def session(
        self,
        user: str | None = None,
        utility: tuple[float, float] | str | None = None,
        dialect: str = "postgres",
    ) -> Session:
        """Return a new session of a user, with a default utility."""
        return Session(self, user or NOBODY, utility, dialect)

    def read_users(self) -> None:
        """Read the users file again: sessions that begin from now on stand as it says.

        Raises:
            StateError: it gives somebody more than was accepted; the old one stands.
        """
        users = users_of(self.policy)
        take_users(self.policy, users, self.ledger)
        self._users = users

    def close(self) -> None:
        """Release the ledger's files, and end the evaluator."""
        self._evaluator.close()
        self.ledger.close()

    # --- the way of a query ----------------------------------------------------------------------

    def execute(self, text: str, session: Session) -> Result:
        """Run one statement: parse, bind, compile, plan, measure, infer, post-process."""
        statement = self.compile(text, session)
        if isinstance(statement, Command):
            return session.command(statement)
        with self._lock, self._runs(session):
            session.check_canceled()
            if statement.releases:
                session.standing.require(ANALYST)
            book = self._book(session.standing)
            asked = (
                id(statement),
                session.user,
                str(session.wishes()),
                *session.settings.items(),
            )
            if again := self._again(book, statement, asked, session):
                return again
            numbers = [number for release in statement.releases for number in release.numbers]
            goals = [self._goal(number, session) for number in numbers]
            session.bill = Bill(book.space)
            with self._telling(book, session):
                with book.watched(session.check_canceled):
                    answers, cost, notices = self._answer(book, goals, statement.text, session)
                more = [extras(g, a, book.history) for g, a in zip(goals, answers, strict=True)]
                reached = [reaches(goal) for goal in goals] if statement.derived else []
                rows, shown, places, drowned = assemble(
                    statement,
                    Numbers(answers, more, reached),
                    self._systems(statement, session),
                    session.settings,
                    self._evaluator,
                )
            room = self._left(book, session)
            sources = [answer.source for each in answers for answer in each]
            result = Result(
                tuple(rows.columns),
                list(rows.rows),
                shown,
                cost / UNIT,
                room.left,
                statement.notices + notices + drowned,
                f"SELECT {len(rows.rows)}",
                places,
                room.name,
                len(sources),
                sources.count("measured"),
                book.left(),
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
        room = self._left(book, session)  # another day may have begun
        return replace(kept[1], rows=list(kept[1].rows), left=room.left, left_of=room.name)

    def compile(self, text: str, session: Session) -> Program | Command:
        """Return what a statement means, without running it."""
        with self._runs(session):
            return compile_statement(
                text,
                self.policy,
                self._evaluator,
                settings=session.settings.texts,
                views=session.settings.views,
                language=session.dialect,
            )

    @contextmanager
    def _telling(self, book: Book, session: Session) -> Iterator[None]:
        """Let an error say what the statement has paid before it failed."""
        try:
            yield
        except Error as error:
            if session.bill is not None and session.bill.first:
                error.cost = session.bill.cost() / UNIT
                told = (
                    f"what it measured before is kept, and free to ask again: cost "
                    f"{error.cost:.4g}, left {self._left(book, session)}"
                )
                error.hint = f"{error.hint}; {told}" if error.hint else told
            raise

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
        request = number.utility or session.wishes().of(number)
        stepwise = number.kind == "avg" or (request is not None and request.relative)
        if stepwise and number.family.rows > planning.QUICK_ROWS:
            raise NotSupportedError(
                f"{number.label} is met in steps, which more than {planning.QUICK_ROWS} groups "
                "are too many for",
                hint="group by fewer columns, or ask for COUNT and SUM with a half_width",
                position=number.position,
            )
        budget = float(self.policy.privacy.budget)
        if request is not None and request.relative:
            if number.kind not in ("count", "sum"):
                raise NotSupportedError(
                    f"{number.label} takes no relative utility (PERCENT)",
                    hint="give half_width in the units of the number",
                    position=number.position,
                )
            wish = checked(request.half_width, request.delta, True, number.position)
            return Relative(number, wish.half_width, float(wish.delta), budget)
        if request is not None:
            wish = checked(request.half_width, request.delta, False, number.position)
        else:
            wish = self._default(number, session)
        if number.kind == "avg":
            assert number.bounds is not None
            clip = float(number.bounds[0]), float(number.bounds[1])
            return Average(number, wish.half_width, float(wish.delta), budget, clip)
        return Absolute(number, wish.half_width, float(wish.delta))

    def _default(self, number: Number, session: Session) -> Request:
        """Return the policy's default for a number that the session says nothing of.

        What is good enough for a sum says nothing of a mean, which has its own or the session's.
        """
        found = self.wishes.of(number)
        if found is None and number.kind == "avg":
            found = session.wishes().counts
        if found is None or found.relative:
            name = number.label if number.kind == "avg" else number.measure or number.label
            raise UtilityError(
                f"how good must {number.label} be? The query does not say, and there is no default "
                "for it; a pair of numbers without a name is the default of counts",
                hint="add WITH UTILITY (half_width, delta), for example WITH UTILITY (100, 0.05), "
                f"or name it: SET {UTILITY} = '{name} half_width, delta'",
                position=number.position,
            )
        return found

    def _answer(
        self, book: Book, goals: Sequence[Goal], text: str, session: Session
    ) -> tuple[list[list[Answer]], int, tuple[str, ...]]:
        """Measure what is needed, in steps where a goal needs them, and infer every number.

        Where no further step is possible, what the earlier ones gave is the answer: those of this
        statement, or those of others, so that asking again gives the same.
        """
        end, bill = "", session.bill
        assert bill is not None
        found: Sequence[Rows] | None = None
        wants: list[list[Wanted]] = []
        blocks: list[Block] = []
        for _ in range(max((goal.steps for goal in goals), default=1)):
            session.check_canceled()
            book.catch_up(self.ledger)
            wants = [goal.wants(book.history) for goal in goals]
            try:
                blocks, found = self._measure(book, wants, text, session)
            except NO_MORE as error:
                end = error.message
                if not self._leave_out(book, goals, session) and not bill.paid:
                    raise
                wants = [goal.wants(book.history) for goal in goals]
                try:
                    blocks, found = self._measure(book, wants, text, session)
                except NO_MORE:  # somebody was faster
                    if not bill.paid:
                        raise
                    break
            if not blocks:
                break
        if bill.paid or found is None:  # the history is longer than it was when that was planned
            wants = [goal.wants(book.history) for goal in goals]
            found = [planning.estimators(book.history, wanted) for wanted in chain(*wants)]
        if not bill.paid:
            self.ledger.note("inferred", session.user, text)
        rows = iter(found)
        answers = []
        for place, (goal, each) in enumerate(zip(goals, wants, strict=True)):
            rests = bill.rests(place)
            known = goal.answers(book.history, [next(rows) for _ in each], rests)
            answers.append(bill.priced(goal.number, known, rests))
        more = bool(blocks)  # each step has brought something new
        notices = chain(*(reports.unmet(goal, end, more) for goal in goals))
        return answers, bill.cost(), tuple(notices)

    def _leave_out(self, book: Book, goals: Sequence[Goal], session: Session) -> bool:
        """Leave out of the next step the rows that it cannot measure, so that all others are met.

        Cheap rows come first, and what is tried is bounded: what was not tried is left out.  Return
        whether there is something to answer: not where all of a number is left out and unknown.
        """
        rows = [
            (look.price, index, row)
            for index, goal in enumerate(goals)
            for row, look in goal.looks.items()
            if look.asked
        ]
        for _, index, row in rows:
            goals[index].left_out.add(row)
        if not rows or self._stop(book, goals, session):
            return False
        chunks = [sorted(rows)]
        for _ in range(TRIES):
            if not chunks:
                break
            chunk = chunks.pop()
            for _, index, row in chunk:
                goals[index].left_out.discard(row)
            if self._stop(book, goals, session):
                for _, index, row in chunk:
                    goals[index].left_out.add(row)
                half = len(chunk) // 2
                chunks += [part for part in (chunk[half:], chunk[:half]) if half]
        wholly = [g for g in goals if len(g.left_out) == g.number.family.rows]
        return all(goal.known(book.history) for goal in wholly)

    def _stop(self, book: Book, goals: Sequence[Goal], session: Session) -> str:
        """Return why what is wanted now may not be measured; nothing, where it may."""
        kept = len(book.history.blocks)
        try:
            wants = [goal.wants(book.history) for goal in goals]
            plan = self._plan(book, list(chain(*wants)))
            if plan.measurements:
                self._permit(book, plan, session)
                self._check(book, book.charges(plan.measurements), session, self.ledger)
                self._check_rows(plan, book, session)
        except NO_MORE as error:
            return error.message
        finally:
            book.history.truncate(kept)
        return ""

    def _measure(
        self, book: Book, wants: Sequence[Sequence[Wanted]], text: str, session: Session
    ) -> tuple[list[Block], Sequence[Rows]]:
        """Measure what cannot be inferred of each number, all or nothing; return the new blocks."""
        book.catch_up(self.ledger)
        kept, bill = len(book.history.blocks), session.bill
        assert bill is not None
        bill.owners = [place for place, each in enumerate(wants) for _ in each]
        try:
            plan = self._plan(book, list(chain(*wants)))
            if not plan.measurements:
                return [], plan.estimators
            self._permit(book, plan, session)
            session.check_canceled()
            with self.ledger.transaction() as tx:
                if tx.sequence() != book.sequence:  # somebody was faster: plan again, in the lock
                    book.history.truncate(kept)
                    book.catch_up(tx)
                    kept = len(book.history.blocks)
                    plan = self._plan(book, list(chain(*wants)))
                terms = book.charges(plan.measurements)
                self._check(book, terms, session, tx)
                self._check_rows(plan, book, session)
                cost = book.cost(terms)
                rows = [self._draw(each, book, tx) for each in plan.measurements]
                sequence = tx.sequence()
                if rows:
                    spent = {book.name: book.account.spent((), terms).value}
                    step = {STEP: bill.first, COST: bill.cost(terms)} if bill.first else None
                    sequence = tx.audit("measured", session.user, text, cost, step, spent)
            blocks = book.history.blocks[kept:]
            bill.add(blocks, sequence, [each.wanted for each in plan.measurements])
            book.measured(rows, blocks, sequence)
            return blocks, plan.estimators
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
                book.chargeable(each)
                check_safe(each.family, each.scale, self.policy.max_records)
        except TooLargeError as error:
            raise too_complex("a number", error) from error
        except UnsafeNoiseError as error:
            raise NotSupportedError(
                f"this number cannot be measured safely: {error}", hint=error.hint
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

    def _check(self, book: Book, terms: Sequence[Term], session: Session, tx: Reads) -> None:
        """Refuse what would break a budget: of the cells, of the analyst, of the period."""
        breach = book.breach(terms)
        if breach is not None:
            raise too_dear(breach)
        cost = book.cost(terms)
        for room in sums(session.standing, book, tx, self._clock(self.policy.zone)):
            if room.spent + cost > room.budget:
                raise InsufficientBudgetError(
                    f"refused: the statement costs more than {room.name} has left",
                    requested=cost / UNIT,
                    spent=room.spent / UNIT,
                    left=room.left,
                    hint="ask for a wider interval, or ask the data steward",
                )

    def _check_rows(self, plan: planning.Plan, book: Book, session: Session) -> None:
        """Refuse what would make the history longer than the policy allows."""
        more = sum(weight(each.family.rows) for each in plan.measurements)
        limits, user = self.policy.privacy.rows, session.user
        total = int(limits.total * session.standing.share)
        found = [("the history", sum(book.weights.values()), total)]
        if limits.analyst < total:
            mine = {line.seq for line in self.ledger.audit() if line.user == user}
            there = sum(each for line, each in book.weights.items() if line in mine)
            found.append((f"the history of {user or 'this user'}", there, limits.analyst))
        for who, there, limit in found:
            if there + more > limit:
                left = max(limit - there, 0)
                raise InsufficientBudgetError(
                    f"refused: {who} is full: {limit:,} numbers, and this statement adds {more:,}",
                    requested=more,
                    spent=there,
                    left=left,
                    hint="ask for what follows from earlier answers, or ask the data steward "
                    "(privacy.rows); a GROUP BY of more than 128 groups counts a hundredth of them",
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
            self._books[name] = Book(name, self.policy, self._limits, self.protection.digest)
        return self._books[name]

    def standing(self, user: str) -> Standing:
        """Return what a user may do, see and spend."""
        return standing(self.policy, self._users, user)

    def budget(self, user: str = NOBODY) -> BudgetReport:
        """Return every budget of the history that serves a user, and what is left of it."""
        with self._lock:
            book = self._book(self.standing(user))
            book.catch_up(self.ledger)
            now = self._clock(self.policy.zone)
            found = rooms(self.standing(user), book, self.ledger, now)
            return reports.budget(self.policy.dataset, book, found)

    def history(self, user: str | None = None) -> list[HistoryLine]:
        """Return the statements that were paid for, oldest first; of one user, or of all."""
        return reports.history(self.ledger, user)

    def left(self, session: Session) -> Room:
        """Return the limit that has least left for a session's user."""
        with self._lock:
            book = self._book(session.standing)
            book.catch_up(self.ledger)
            return self._left(book, session)

    def _left(self, book: Book, session: Session) -> Room:
        """Return the limit that has least left; worked out once while nothing changes."""
        now = self._clock(self.policy.zone)
        key = LEFT, session.user, now.date()
        if key not in book.kept:
            book.keep(key, least(rooms(session.standing, book, self.ledger, now)))
        room: Room = book.kept[key]
        return room

    def left_in_cells(self) -> float:
        """Return the alpha that the shared history has left in the cell that has least."""
        with self._lock:
            book = self._book(self.standing(NOBODY))
            book.catch_up(self.ledger)
            return book.left()

    def explain(
        self, program: Program, session: Session
    ) -> tuple[list[tuple[Any, ...]], tuple[str, ...]]:
        """Return what each number of a statement would cost, and notices; measure nothing."""
        with self._lock:
            numbers = [number for release in program.releases for number in release.numbers]
            goals = [self._goal(number, session) for number in numbers]
            book = self._book(session.standing)
            now = self._clock(self.policy.zone)
            book.catch_up(self.ledger)
            why = self._stop(book, goals, session)
            refused = bool(why) and not self._leave_out(book, goals, session)
            if refused:
                for goal in goals:
                    goal.left_out.clear()

            def after(terms: Sequence[Term]) -> float:
                more = () if refused else terms
                return least(rooms(session.standing, book, self.ledger, now, more)).left

            rows = reports.explain(program, goals, book, self._plan, after)
            if refused:
                return rows, (f"the statement would be refused: {why}",)
            most = book.most_left()
            for room in sums(session.standing, book, self.ledger, now):
                most = min(most, max(room.budget - room.spent, 0))
            return rows, tuple(chain(*(reports.foreseen(goal, why, most) for goal in goals)))

    def _systems(self, program: Program, session: Session) -> dict[str, list[tuple[Any, ...]]]:
        """Return the rows of the relations of schema privacy that a statement reads."""
        rows: dict[str, list[tuple[Any, ...]]] = {}
        if "budget" in program.systems:
            rows["budget"] = reports.budget_rows(self.budget(session.user))
        if "history" in program.systems:
            rows["history"] = list(reports.history_rows(self.history(session.standing.sees)))
        return rows
