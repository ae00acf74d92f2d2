"""One session of a client, as a state machine without I/O.

The client's messages come in, one at a time, through ``handle``, a generator that yields what is
to be done next (``Send``, ``Tell``, ``SETTLE``, ``Do``) and gets the outcome back; the mirror's
messages pass through ``mirrored``.  Invariant: the engine runs a statement only when the mirror
has settled everything before it without an error, and an engine's error leaves the mirror, and
with it the client's transaction, in the state that any failed statement would.
"""

from __future__ import annotations

import codecs
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg._encodings import pg2pyenc

from proxy.engine import Column, Result
from proxy.errors import DataError, Error, StatementTooComplexError
from proxy.server.mirror.mirror import refusal
from proxy.server.mirror.temporary_views import CATALOG, Versions, shown
from proxy.server.mirror.temporary_views import SETTING as VIEWS
from proxy.server.session import result_text
from proxy.server.session.engine_sessions import Desk
from proxy.server.session.routing import Ask, Decision, decide
from proxy.server.wire import messages
from proxy.server.wire.frames import frame
from proxy.server.wire.messages import Report
from proxy.server.wire.replies import Expected, Replies
from proxy.settings import ANSWERS, TABLE

SETTINGS = (*TABLE, "client_min_messages", "statement_timeout", VIEWS)
READ = "SELECT " + ", ".join(f"pg_catalog.current_setting('{name}', true)" for name in SETTINGS)
QUIET = ("warning", "error", "log")
WRONG = b"!"  # a statement that fails in every state
HELD, HELD_BYTES = 2000, 32 << 20  # what one session may hold
MANY = 1000  # rows that take more than some milliseconds to write


@dataclass(frozen=True)
class Send:
    """Bytes for the mirror."""

    data: bytes


@dataclass(frozen=True)
class Tell:
    """Bytes for the client."""

    data: bytes


@dataclass(frozen=True)
class Settle:
    """Wait until the mirror has answered all that it was sent; ``flush`` makes it send."""

    flush: bool


@dataclass(frozen=True)
class Do:
    """A call to make in a worker thread; its errors come back as they are."""

    call: Callable[[], Any]


Step = Send | Tell | Settle | Do
Flow = Generator[Step, Any, Any]


def worked(call: Callable[[], Any], long: bool) -> Flow:
    """Make a call: in a worker thread, if it is a long one, since all sessions wait for it here."""
    return (yield Do(call)) if long else call()


@dataclass
class Statement:
    """A prepared statement that is a question to the engine."""

    ask: Ask
    types: tuple[int, ...]
    columns: tuple[Column, ...]
    refusal: Error | None = None  # the engine's; it is run as a probe, if it is one, or not at all
    made: Expected | None = None  # the mirror's reply to its stub


@dataclass
class Portal:
    """A portal of such a statement."""

    statement: Statement
    bind: messages.Bind
    size: int  # bytes
    syncs: int
    ran: bool = False


@dataclass
class Conversation:
    """What is known of one session."""

    desk: Desk
    datasets: tuple[str, ...]
    home: str  # the dataset whose database this is
    public: tuple[tuple[str, str], ...] = ()  # public tables, and whose dataset's each is
    replies: Replies = field(default_factory=Replies)
    statements: dict[str, Statement] = field(default_factory=dict)
    portals: dict[bytes, Portal] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    views: Versions = field(default_factory=Versions)
    browses: set[bytes] = field(default_factory=set)  # the mirror's statements that read catalogs
    dirty: bool = True  # a statement ran that may have changed the settings
    forwarded: bool = False  # likewise since the last Sync
    prepared: bool = False  # the statement that reads the settings
    syncs: int = 0
    released: float = 0.0  # in the transaction that is open
    on_outcome: Callable[[str, Result | Error, float], None] = lambda *told: None

    def decide(self, text: str) -> Decision:
        """Return what to do with a statement."""
        return decide(text, self.datasets, self.home, self.public, (*self.views.datasets.items(),))

    def room(self, more: int) -> Flow:
        """Make room for so many bytes of statements and portals.

        Raises:
            StatementTooComplexError: the client holds too many.
        """
        if self._full(more):
            yield from self.settle(True)
            if self.replies.status == b"I":  # portals end with their transaction
                live = self.portals.items()
                self.portals = {name: p for name, p in live if p.syncs == self.syncs}
            if self._full(more):
                raise StatementTooComplexError(
                    f"a session holds {HELD} statements and portals, of {HELD_BYTES} bytes in all",
                    hint="close some: DEALLOCATE ALL",
                )

    def _full(self, more: int) -> bool:
        held = [len(statement.ask.text) for statement in self.statements.values()]
        held += [portal.size for portal in self.portals.values()]
        return len(held) >= HELD or sum(held) + more > HELD_BYTES

    # --- texts -----------------------------------------------------------------------------------

    @property
    def encoding(self) -> str:
        """The Python name of the client's encoding; ASCII for one that Python has not."""
        name = self.replies.parameters.get(b"client_encoding", b"UTF8")
        if name == b"SQL_ASCII":
            return "utf-8"
        try:
            return codecs.lookup(pg2pyenc(name)).name
        except (psycopg.NotSupportedError, LookupError):
            return "ascii"

    def decode(self, text: bytes) -> str:
        """Return a text of the client.

        Raises:
            DataError: it is not in the client's encoding.
        """
        try:
            return text.decode(self.encoding)
        except UnicodeDecodeError:
            raise DataError("the statement is not in the client's encoding") from None

    def encode(self, text: str) -> bytes:
        """Return a text for the mirror, in the client's encoding.

        Raises:
            DataError: it has a character that the encoding has not.
        """
        try:
            return text.encode(self.encoding)
        except UnicodeEncodeError:
            raise DataError(
                f"a value cannot be written in the client's encoding {self.encoding}",
                hint="SET client_encoding = 'UTF8'",
            ) from None

    def report(self, error: Error, offset: int = 0) -> bytes:
        """Return an error as a message."""
        return Report.of(error, offset).encode(self.encoding)

    # --- the mirror's messages -------------------------------------------------------------------

    def mirrored(self, kind: bytes, body: bytes) -> bytes:
        """Return what the client gets of a message of the mirror."""
        told = b""
        if kind == b"E" and (error := refusal(messages.fields(body))):
            body = self.report(error)[5:]
        if kind == b"C" and body.startswith((b"ROLLBACK\0", b"COMMIT\0")):
            if self.released and body.startswith(b"ROLLBACK"):
                told = Report(
                    "NOTICE",
                    "00000",
                    f"privacy: what was released in this transaction stays charged "
                    f"({self.released:.4g}): it has been seen",
                ).encode(self.encoding)
            self.released = 0.0
        return told + self.replies.got(kind, body)

    # --- steps that simple and extended queries share --------------------------------------------

    def settle(self, flush: bool) -> Iterator[Step]:
        """Wait for the mirror."""
        if not self.replies.settled:
            yield Settle(flush)

    def read_settings(self, sync: bool) -> Flow:
        """Learn the settings from the mirror, if they may have changed.

        Return its error, if it cannot say; the client has not been told, and must be.
        """
        if not self.dirty:
            return None
        name = b"privacy.settings"
        sent = [
            (b"P", messages.Parse(name, READ.encode(), ()).encode()),
            (b"B", messages.Bind(name, name, (), (), b"\0\0").encode()),
            (b"E", messages.execute(name)),
            (b"C", messages.close(b"P", name)),
            (b"S", frame(b"S")),
        ][self.prepared : None if sync else 4]
        expected = [self.replies.expect(kind, hide=True, hide_error=True) for kind, _ in sent]
        yield Send(b"".join(data for _, data in sent))
        yield Settle(not sync)
        kept = dict(message for each in expected for message in each.kept)
        if b"E" in kept:
            return frame(b"E", kept[b"E"])
        self.prepared, self.dirty = True, False
        values = messages.data_row(kept[b"D"])
        self.settings = {
            setting: (value or b"").decode() or (TABLE[setting].default if setting in TABLE else "")
            for setting, value in zip(SETTINGS, values, strict=True)
        }
        version = self.settings[VIEWS]
        self.desk.views = self.views.at(version)
        if sync and self.replies.status == b"I":
            self.views.keep(version)
        return None

    def show_views(self, text: str, sync: bool) -> Flow:
        """Put the views into the mirror's catalogs, for a statement that reads those.

        Return whether the transaction that they are in was begun for this statement.
        """
        if not self.views.datasets or not CATALOG.search(text) or self.replies.status == b"E":
            return False
        yield from self.settle(not sync)
        if self.replies.failed:
            return False
        unread = yield from self.read_settings(sync)
        if unread and not sync:
            yield Tell(unread)
        if unread or (not self.desk.views and self.replies.status == b"I"):
            return False
        show, begins = shown(self.desk.views), sync and self.replies.status == b"I"
        yield from self._unseen(f"BEGIN; {show}" if begins else show, sync)
        return begins

    def _unseen(self, text: str, sync: bool, shift: int = 0) -> Flow:
        """Let the mirror run a statement of which the client sees nothing; return the replies."""
        raw, name = self.encode(text), b"privacy.unseen"
        sent = [
            (b"P", messages.Parse(name, raw, ()).encode()),
            (b"B", messages.Bind(name, name, (), (), b"\0\0").encode()),
            (b"C", messages.close(b"S", name)),  # before it can fail
            (b"E", messages.execute(name)),
            (b"C", messages.close(b"P", name)),
        ]
        if sync:
            sent = [(b"Q", messages.query(raw))]
        hidden = {"hide": True, "hide_error": True, "shift": shift}
        expected = [self.replies.expect(kind, **hidden) for kind, _ in sent]
        yield Send(b"".join(data for _, data in sent))
        return expected

    def ask(self, ask: Ask, text: str) -> Flow:
        """Run a statement on the engine, and say what it cost."""
        settings = dict(self.settings)
        self.desk.begin()
        began = time.monotonic()
        try:
            result: Result = yield Do(lambda: self.desk.execute(ask.dataset, text, settings))
        except Error as error:
            self.on_outcome(ask.dataset, error, time.monotonic() - began)
            if self.replies.status != b"I":
                self.released += error.cost
            raise
        self.on_outcome(ask.dataset, result, time.monotonic() - began)
        if self.replies.status != b"I":
            self.released += result.cost
        with_answers = TABLE[ANSWERS].read(settings.get(ANSWERS, ""))
        if with_answers or settings.get("client_min_messages") not in QUIET:
            said = yield from worked(
                lambda: [
                    n.encode(self.encoding) for n in result_text.notices(result, with_answers)
                ],
                len(result.rows) > MANY,
            )
            yield Tell(b"".join(said))
        return result

    def tried(self, ask: Ask, columns: Sequence[Column], offset: int, sync: bool) -> Flow:
        """Let the mirror do a COPY without rows, which the client does not see; return its error.

        So an option that it refuses costs nothing.
        """
        none = result_text.stub(columns, "WHERE false")
        begins = f"{ask.head} {none} "
        shift = offset - ask.offset + ask.behind - len(begins)
        expected = yield from self._unseen(begins + ask.tail, sync, shift)
        yield Settle(not sync)
        kept = dict(message for each in expected for message in each.kept)
        return frame(b"E", kept[b"E"]) if b"E" in kept else None

    def rows(self, ask: Ask, result: Result, columns: Sequence[Column]) -> Flow:
        """Return the statement that gives the rows of a result, or that notes a change of views."""
        if ask.view:
            self.dirty = self.forwarded = True
            views = self.desk.views_of(ask.dataset)
            return self.encode(self.views.add(views, self.desk.views, ask.dataset))
        return (
            yield from worked(
                lambda: self.encode(f"{ask.head} {result_text.rows(result, columns)} {ask.tail}"),
                len(result.rows) > MANY,
            )
        )

    def forget(self, name: str | None) -> None:
        """Drop a prepared statement, or all."""
        if name is None:
            self.statements.clear()
            self.prepared = False
        else:
            self.statements.pop(name, None)
