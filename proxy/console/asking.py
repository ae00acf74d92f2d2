"""Asking on behalf of a visit: what a statement costs, and its result at no more than that.

A statement goes to the user's own session, as any client's.  What a statement changes in a session
(SET, views) holds for the visit: it is done again in the session that previews, and in one that
is opened anew.  Invariant: nobody pays more than the price that they were shown.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from sys import getsizeof
from typing import Any

from msgspec import Struct

from proxy.console.backend import Session
from proxy.console.results import amount, finite
from proxy.console.visits import LOOK, WORK, Visit
from proxy.engine.allowances import said
from proxy.engine.answers import Result
from proxy.engine.explained.price import first_cost, in_steps
from proxy.errors import (
    Error,
    InsufficientBudgetError,
    NotSupportedError,
    ProgrammingError,
    QueryCanceledError,
)
from proxy.settings import EXPLANATIONS, MAX_COST, SPEND, UTILITY
from proxy.sql.parse.first_word import first_word

CHANGES = {"SET", "RESET", "CREATE", "DROP", "DISCARD"}  # of what a session is
HARMLESS = {"SHOW", "BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE"}
UNPRICED = {"COPY", "EXECUTE", "FETCH", "DECLARE", "MOVE"}  # which may cost, and take no EXPLAIN
COMMANDS = {*CHANGES, *HARMLESS, *UNPRICED, "EXPLAIN", "PREPARE", "DEALLOCATE", "CLOSE"}
REFUSED = "the statement would be refused: "
ROUNDING = 1e-9  # by which a limit is above the price, relatively
CHANGES_KEPT, RESULTS_KEPT, ASKED_KEPT = 100, 4, 200
LONGEST = 100_000  # characters of a statement
LARGEST = 20_000_000  # bytes of the values of a result
TRIES = 10  # to take back a limit, while somebody cancels


class Price(Struct, frozen=True):
    """What a statement costs: ``most`` in alpha, None where nobody knows beforehand."""

    most: float | None
    first: float  # what its first step costs
    left: float
    left_of: str
    after: float
    numbers: tuple[dict[str, Any], ...] = ()
    notices: tuple[str, ...] = ()
    refused: str = ""

    @property
    def limit(self) -> float:
        """The most that whoever has seen this price agrees to; nothing, where it is refused."""
        if self.refused:
            return 0.0
        return self.left if self.most is None else self.most

    def told(self) -> dict[str, Any]:
        """Return the price in words, and the limit as a number."""
        steps = self.most is None or self.most > self.first * (1 + ROUNDING)
        cost, left = amount(self.first), said(self.left, self.left_of)
        beyond = self.limit > allowed(self.left)  # in cells that have more left than the least
        if steps:  # each of which follows from the answers before it
            cost = f"{cost} or more, {amount(self.limit)} at most"
        return {
            "limit": finite(self.limit),
            "free": not (self.limit or self.refused),
            "cost": cost,
            "steps": steps,
            "left": f"{left} left{' in the cell that has least' if beyond else ''}",
            "of": "" if steps or beyond else f" of {left} left",
            "leaves": amount(self.after),
            "numbers": list(self.numbers),
            "notices": list(self.notices),
            "refused": self.refused,
        }


def price(explained: Result) -> Price:
    """Return what EXPLAIN UTILITY says of a statement."""
    rows = explained.rows
    refused = next((n for n in explained.notices if n.startswith(REFUSED)), "")
    mosts = [row[6] for row in rows]
    known = all(each is not None for each in mosts)
    most = max(mosts, default=0.0) if known else None
    return Price(
        most,
        first_cost(rows) if most is None or in_steps(rows) else most,
        explained.left,
        explained.left_of,
        min((row[5] for row in rows), default=explained.left),
        tuple(_numbers(rows)),
        tuple(n for n in explained.notices if n != refused),
        refused.removeprefix(REFUSED),
    )


def _numbers(rows: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """Return the numbers of a statement, each with all of its groups."""
    found: dict[str, dict[str, Any]] = {}
    for label, _, source, _, half, *_ in rows:
        number = found.setdefault(label, {"label": label, "groups": 0, "measured": 0, "half": None})
        number["groups"] += 1
        number["measured"] += source == "measured"
        if half is not None:
            number["half"] = max(number["half"] or 0.0, half)
    return [each | {"half": each["half"] and f"{each['half']:,.10g}"} for each in found.values()]


class Kept(Struct, frozen=True):
    """A result that can still be downloaded."""

    result: Result
    statement: str


@dataclass
class Asked:
    """A statement that was run, as the visit remembers it."""

    statement: str
    time: float
    outcome: str


@dataclass(eq=False)
class Asking:
    """What one visit does in one dataset."""

    visit: Visit
    dataset: str
    changes: list[str] = field(default_factory=list)  # statements that changed the session
    changed: int = 0  # how many there have been
    asked: list[Asked] = field(default_factory=list)  # oldest first
    latest: int = 0  # preview that was asked for
    _ready: dict[str, tuple[Session, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, visit: Visit, dataset: str) -> Asking:
        """Return that of a visit."""
        found = visit.memory.setdefault(f"asking {dataset}", cls(visit, dataset))
        assert isinstance(found, cls)
        return found

    async def preview(self, text: str) -> Price | None:
        """Return what a statement would cost; nothing where another preview was asked for since.

        Raises:
            Error: the statement is wrong.
        """
        self.latest += 1
        mine = self.latest
        await self.visit.cancel(self.dataset, LOOK)
        if not is_query(text):
            return None

        def look(session: Session) -> Price | None:
            return self._priced(session, LOOK, text) if mine == self.latest else None

        for last in (False, True):
            try:
                return await self.visit.use(self.dataset, look, LOOK)
            except Error as error:
                if mine != self.latest:
                    break
                if last or not isinstance(error, QueryCanceledError):
                    raise  # else the cancellation of the preview before came late
        return None

    async def run(self, text: str, limit: float | None) -> Result | Price:
        """Return the result of a statement, or its price, if that is more than the limit.

        Raises:
            Error: the statement fails.
        """
        return await self.visit.use(self.dataset, lambda session: self._run(session, text, limit))

    async def utility(self) -> str:
        """Return how good numbers must be, if a statement of this visit has set that."""
        if not any(UTILITY in text.lower() for text in self.changes):
            return ""
        try:
            shown = await self.visit.execute(self.dataset, f"SHOW {UTILITY}")
        except Error:  # as in a transaction that has failed
            return ""
        return str(shown.rows[0][0])

    async def cancel(self) -> None:
        """Stop the statement that runs."""
        await self.visit.cancel(self.dataset, WORK)

    def _run(self, session: Session, text: str, limit: float | None) -> Result | Price:
        self._replay(session, WORK)
        if not is_query(text):
            return self._commanded(session, text)
        price, agreed = self._priced(session, WORK, text), allowed(limit or 0.0)
        if price.limit > agreed:
            return price
        with _limited(session, 0.0 if price.refused else agreed):
            return session.execute(text)

    def _commanded(self, session: Session, text: str) -> Result:
        """Return the result of a command, whose price was not shown: so that it spends nothing."""
        if (word := first_word(text)) in CHANGES:
            result = session.execute(text)
            self.changes = [*self.changes[-CHANGES_KEPT + 1 :], text]
            self.changed += 1
            self._ready[WORK] = (session, self.changed)
            with suppress(Error):  # which RESET ALL ends too
                session.execute(f"SET {EXPLANATIONS} = on")
            return result
        if word in HARMLESS:
            return session.execute(text)
        with _limited(session, 0.0):
            try:
                return session.execute(text)
            except InsufficientBudgetError as error:
                error.hint = "no price is shown of a command, so that it may not spend: SELECT it"
                raise

    def _priced(self, session: Session, purpose: str, text: str) -> Price:
        self._replay(session, purpose)
        head = "EXPLAIN UTILITY "
        try:
            return price(session.execute(head + text))
        except Error as error:
            if error.position is not None:
                error.position = max(error.position - len(head), 1)
            raise

    def _replay(self, session: Session, purpose: str) -> None:
        """Do in a session what statements have changed, as far as that was not done in it."""
        known, done = self._ready.get(purpose, (None, 0))
        if known is not session:
            done = 0
            if purpose == WORK:
                session.execute(f"SET {EXPLANATIONS} = on")
        first = len(self.changes) - (self.changed - done)
        for text in self.changes[max(first, 0) :]:
            with suppress(ProgrammingError):  # of what was rolled back, or is there no more
                session.execute(text)
        self._ready[purpose] = (session, self.changed)

    def keep(self, result: Result, statement: str) -> str:
        """Keep a result for downloads; return its name.

        Raises:
            NotSupportedError: it is larger than a page should have.
        """
        size = sum(getsizeof(value) for row in result.rows for value in row)
        if size > LARGEST:
            raise NotSupportedError(
                f"a result of {len(result.rows):,} rows is too large for a page",
                hint="ask with LIMIT, or from a SQL client: what was measured is free to ask again",
            )
        name = secrets.token_urlsafe(9)
        self.visit.shelf.put(self, name, Kept(result, statement), size, RESULTS_KEPT)
        return name

    def kept(self, name: str) -> Kept | None:
        """Return a result that is kept, if it still is."""
        found: Kept | None = self.visit.shelf.get(self, name)
        return found

    def remember(self, statement: str, outcome: str) -> None:
        """Add a statement to those of this visit."""
        self.asked = [*self.asked[-ASKED_KEPT + 1 :], Asked(statement, time.time(), outcome)]


def is_query(text: str) -> bool:
    """Return whether a text asks for numbers, or for nothing that makes sense: it is no command."""
    return first_word(text, "(") not in COMMANDS


def unpriced(text: str) -> str:
    """Return the command that a text begins with, if nobody knows beforehand what it costs."""
    word = first_word(text)
    return word if word in UNPRICED else ""


@contextmanager
def _limited(session: Session, most: float) -> Iterator[None]:
    """Let a session spend so much, unless it has a limit of its own that is lower."""
    name = MAX_COST if most else SPEND
    own = session.execute(f"SHOW {name}").rows[0][0]
    if not most:
        session.execute(f"SET {name} = off")
    elif not own or float(own) > most:
        session.execute(f"SET {name} = '{most!r}'")
    try:
        yield
    finally:
        for _ in range(TRIES):
            try:
                session.execute(f"SET {name} = '{own}'" if own else f"RESET {name}")
            except QueryCanceledError:  # a cancellation that came late
                continue
            except Error:  # of a transaction that has failed, or a lost connection
                pass
            break


def allowed(limit: float) -> float:
    """Return the most that a statement may cost whose price was shown: more by what digits lose."""
    return limit * (1 + ROUNDING)


def checked(text: str) -> str:
    """Return a statement that is not too long.

    Raises:
        NotSupportedError: it is.
    """
    if len(text) > LONGEST:
        raise NotSupportedError(f"a statement has at most {LONGEST:,} characters here")
    return text
