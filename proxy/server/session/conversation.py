"""The state machine of one session, without I/O, and the contract of its flows.

``dispatch.handle`` makes a *flow* of each message of the client: a generator that does no I/O, but
yields steps for its driver to take (``relay.Relay``; in tests a loop over lists).  The mirror's
messages go through ``mirrored`` as they come, also while a flow waits, and never resume one.

Driving.  Flows of one session run one at a time, in the order of the messages.  The driver takes
each step before it resumes the flow, and sends back

    SendToMirror, SendToClient    None, once the bytes are on their way, in order
    AwaitMirror                   None, once ``replies.settled``; a Flush first, if it says so
    RunInThread                   the call's result; its ``Error`` is thrown in instead, and an
                                  ``InternalError`` for any other exception

Yielding.  Whatever a flow sends to the mirror it has announced to ``replies`` before, message by
message, so that each reply finds its message.  It runs the engine's statement (``run_on_engine``)
only when the mirror has answered all that came before, is not skipping to a Sync, and is in no
failed transaction; at most once for each statement of the client.  What it sends to the client
itself, beside mirrored replies, are notices, errors, and ReadyForQuery after several statements.

Raising.  ``handle`` raises nothing but ``FrameError``, for a message type that the protocol does
not know: the connection ends.  Below it any ``Error`` may be raised, for a body that cannot be read
among others.  It becomes an ErrorResponse in the place of the mirror's own: the mirror gets a
statement that it cannot parse, fails as for any statement, and keeps transaction, portals and
skipping right.

Ending.  However a flow ends, all that it sent will be answered, and every Query, FunctionCall and
Sync that the mirror does not skip gets exactly one ReadyForQuery.  What is noted of statements and
portals is tied to the mirror's replies (``Expected``): what it failed or skipped has not happened.
A release is charged, and reported to ``on_outcome``, whatever becomes of its rows.

Stopping.  A cancellation stops what it meets.  In ``RunInThread`` it is the engine's: the call
raises ``QueryCanceledError``, never inside of a transaction of the ledger, and its ``cost`` is what
had been charged by then.  While the mirror works it is the mirror's: its ErrorResponse fails an
``Expected``, at which a flow looks after it has waited.  It holds for what the message still asks
of the engine, and is forgotten with the next one; between messages it is dropped, as PostgreSQL
does.  When either side has closed, the driver closes the flow at the step where it stands: a flow
has nothing to undo, and what was committed stays so.
"""

from __future__ import annotations

import codecs
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
from msgspec import Struct
from psycopg._encodings import pg2pyenc

from proxy.engine import Column, Result
from proxy.errors import DataError, Error, StatementTooComplexError
from proxy.server.mirror.mirror import refusal
from proxy.server.mirror.temporary_views import CATALOG, Versions, shown
from proxy.server.mirror.temporary_views import SETTING as VIEWS
from proxy.server.session import result_text
from proxy.server.session.engine_sessions import EngineSessions, Ran
from proxy.server.statements.routing import ToEngine
from proxy.server.wire import messages
from proxy.server.wire.frames import Frames, frame
from proxy.server.wire.messages import Report
from proxy.server.wire.replies import Expected, Replies
from proxy.settings import ANSWERS, TABLE

SETTINGS = (*TABLE, "client_min_messages", "statement_timeout", VIEWS)
READ = "SELECT " + ", ".join(f"pg_catalog.current_setting('{name}', true)" for name in SETTINGS)
QUIET = ("warning", "error", "log")
ZONE = (
    "privacy: the times of a protected table are in the time zone of its policy, and what is "
    "compared with them is brought into that one, whatever TimeZone is"
)
WRONG = b"!"  # a statement that fails in every state
HELD, HELD_BYTES = 2000, 32 << 20  # what one session may hold
MANY = 1000  # rows that take more than some milliseconds to write


class SendToMirror(Struct, frozen=True):
    """Bytes for the mirror."""

    data: bytes


class SendToClient(Struct, frozen=True):
    """Bytes for the client."""

    data: bytes


class AwaitMirror(Struct, frozen=True):
    """Wait until the mirror has answered all that it was sent; ``flush`` sends a Flush first."""

    flush: bool


class RunInThread(Struct, frozen=True):
    """A call to make in a thread; an ``Error`` that it raises is raised in the flow.

    What is ``stoppable`` waits for the user's turn, may use a worker process, and ends where the
    statement is cancelled; all else is not lost with it.
    """

    call: Callable[[], Any]
    stoppable: bool = True


Step = SendToMirror | SendToClient | AwaitMirror | RunInThread
Flow = Generator[Step, Any, Any]


def offload(call: Callable[[], Any], long: bool) -> Flow:
    """Make a call: in a thread if it takes long, since it blocks all sessions here."""
    return (yield RunInThread(call, stoppable=False)) if long else call()


@dataclass
class Statement:
    """A prepared statement that the engine answers."""

    request: ToEngine
    types: tuple[int, ...]
    columns: tuple[Column, ...]
    refusal: Error | None = None  # the engine's: run as a probe, or not at all
    parsed: Expected | None = None  # the reply to its stub; None: it came from PREPARE
    ends: list[Expected] = field(default_factory=list)  # replies to what may have ended it

    @property
    def alive(self) -> bool:
        """Whether the mirror has its stub, as far as its replies have come."""
        return self.parsed_well and all(end.failed for end in self.ends)

    @property
    def parsed_well(self) -> bool:
        """Whether the mirror took its stub, as far as its reply has come."""
        return self.parsed is None or not self.parsed.failed

    def end(self, reply: Expected) -> None:
        """Note a message that ends the statement, unless the mirror fails or skips it."""
        self.ends = [end for end in self.ends if not end.failed] + [reply]


@dataclass
class Portal:
    """A portal of such a statement, before it has run or after."""

    statement: Statement
    bind: messages.Bind
    size: int  # bytes
    bound: Expected  # the mirror's reply to Bind
    ran: bool = False


@dataclass
class Conversation:
    """The state of one session, and the steps that both protocols share."""

    engine: EngineSessions
    datasets: tuple[str, ...]
    home: str  # the dataset whose database this is
    public: tuple[tuple[str, str], ...] = ()  # public tables, each with its dataset
    replies: Replies = field(default_factory=Replies)
    statements: dict[str, Statement] = field(default_factory=dict)
    portals: dict[bytes, Portal] = field(default_factory=dict)
    unnamed: Expected | None = None  # the Bind that made the portal without a name, if one has
    settings: dict[str, str] = field(default_factory=dict)
    views: Versions = field(default_factory=Versions)
    browses: set[bytes] = field(default_factory=set)  # names of statements that read catalogs
    dirty: bool = True  # a statement ran that may have changed the settings
    forwarded: bool = False  # likewise since the last Sync
    in_series: bool = False  # the client's last message was none that ReadyForQuery answers
    last: bytes = b""  # the kind of the mirror's last message
    ended: bool = False  # the mirror has told why it ends the session
    released: float = 0.0  # alpha charged in the open transaction
    ran: Ran | None = None  # the statement that was routed last, where it ran at once
    on_outcome: Callable[[str, Result | Error, float], None] = lambda *_: None

    def route(self, text: str, several: bool = False) -> Flow:
        """Return the statements of a text, their offsets, and who answers each."""
        of = (text, self.datasets, self.home, self.public, (*self.views.datasets.items(),), several)
        plan = self.engine.known_route(*of)
        self.ran = None
        if plan is None:
            settings = dict(self.settings)
            if several and self.replies.settled and not self.unread:
                plan, self.ran = yield RunInThread(
                    lambda: self.engine.route_and_run(of, self.home, settings)
                )
            else:
                plan = yield RunInThread(lambda: self.engine.route(of, self.home, settings))
        return plan

    def ran_of(self, request: ToEngine) -> Ran | None:
        """Return what came of a statement, if it ran in the step that routed it."""
        return self.ran if self.ran is not None and self.ran.request is request else None

    def room(self, more: int) -> Flow:
        """Make room for ``more`` bytes of statements and portals.

        Raises:
            StatementTooComplexError: the client holds too many.
        """
        if self._full(more):
            yield from self.await_mirror(True)
            self.statements = {name: s for name, s in self.statements.items() if s.alive}
            self.portals = {name: p for name, p in self.portals.items() if self.is_open(p)}
            if self._full(more):
                raise StatementTooComplexError(
                    f"a session holds {HELD} statements and portals, of {HELD_BYTES} bytes in all",
                    hint="close some: DEALLOCATE ALL",
                )

    def _full(self, more: int) -> bool:
        held = [len(statement.request.text) for statement in self.statements.values()]
        held += [portal.size for portal in self.portals.values()]
        return len(held) >= HELD or sum(held) + more > HELD_BYTES

    def statement(self, name: str) -> Flow:
        """Return the engine's statement of this name; None if the mirror has it no more."""
        statement = self.statements.get(name)
        if statement is not None and not all(end.answered for end in statement.ends):
            yield from self.await_mirror(True)
        return statement if statement is not None and statement.alive else None

    def end_statements(self, name: str | None, reply: Expected) -> None:
        """Note a message that ends the engine's statement of this name, or with None all."""
        for each in [name] if name is not None else list(self.statements):
            if each in self.statements:
                self.statements[each].end(reply)

    def is_open(self, portal: Portal) -> bool:
        """Whether a portal is still the stub's, once the mirror has answered everything."""
        bound, current = portal.bound, self.replies.transaction
        return portal.statement.parsed_well and bound.done and bound.transaction == current

    # --- texts -----------------------------------------------------------------------------------

    @property
    def has_unnamed(self) -> bool:
        """Whether a Bind has made the portal without a name, and no Query has taken its place."""
        return self.unnamed is not None and not self.unnamed.failed

    @property
    def encoding(self) -> str:
        """Python's name of the client's encoding; ASCII where Python lacks it."""
        name = self.replies.parameters.get(b"client_encoding", b"UTF8")
        if name == b"SQL_ASCII":
            return "utf-8"
        try:
            return codecs.lookup(pg2pyenc(name)).name
        except (psycopg.NotSupportedError, LookupError):
            return "ascii"

    def decode(self, text: bytes) -> str:
        """Decode a text of the client.

        Raises:
            DataError: it is not in the client's encoding.
        """
        try:
            return text.decode(self.encoding)
        except UnicodeDecodeError:
            raise DataError("the statement is not in the client's encoding") from None

    def encode(self, text: str) -> bytes:
        """Encode a text for the mirror, in the client's encoding.

        Raises:
            DataError: the encoding lacks one of its characters.
        """
        try:
            return text.encode(self.encoding)
        except UnicodeEncodeError:
            raise DataError(
                f"a value cannot be written in the client's encoding {self.encoding}",
                hint="SET client_encoding = 'UTF8'",
            ) from None

    def report(self, error: Error, offset: int = 0) -> bytes:
        """Encode an error as an ErrorResponse."""
        return Report.of(error, offset).encode(self.encoding)

    # --- the mirror's messages -------------------------------------------------------------------

    def mirrored(self, kind: bytes, body: bytes) -> bytes:
        """Return what the client gets of a message from the mirror, perhaps nothing."""
        self.last, notice = kind, b""
        if kind == b"E":
            said = messages.fields(body)
            self.ended = said.get("V") in (b"FATAL", b"PANIC")
            if error := refusal(said):
                body = self.report(error)[5:]
        if kind == b"C" and body.startswith((b"ROLLBACK\0", b"COMMIT\0")):
            if self.released and body.startswith(b"ROLLBACK"):
                notice = Report(
                    "NOTICE",
                    "00000",
                    f"privacy: what was released in this transaction stays charged "
                    f"({self.released:.4g}): it has been seen",
                ).encode(self.encoding)
            self.released = 0.0
        changed = kind == b"S" and body.startswith(b"TimeZone\0")
        if changed and self.settings.get("client_min_messages") not in QUIET:
            notice = Report("NOTICE", "00000", ZONE).encode(self.encoding)
        return notice + self.replies.got(kind, body)

    def mirrored_rows(self, rows: bytes) -> bytes:
        """Return what the client gets of a run of rows from the mirror: all, or nothing."""
        if self.replies.shows_rows:
            self.last = b"D"
            return rows
        run = Frames(len(rows))
        run.feed(rows)
        shown = b""
        while message := run.next():
            shown += self.mirrored(*message)
        return shown

    # --- steps that simple and extended queries share --------------------------------------------

    def await_mirror(self, flush: bool) -> Iterator[Step]:
        """Wait until the mirror has answered everything, unless it has."""
        if not self.replies.settled:
            yield AwaitMirror(flush)

    @property
    def unread(self) -> bool:
        """Whether the settings may have changed, or the mirror would refuse to tell them."""
        return self.dirty or self.replies.status == b"E"

    def read_settings(self, sync: bool) -> Flow:
        """Read the settings from the mirror, if they may have changed.

        Return the mirror's ErrorResponse if it fails, which the caller must send to the client.
        """
        if not self.unread:
            return None
        expected = yield from self._unseen(READ, sync)
        yield AwaitMirror(not sync)
        captured = dict(message for each in expected for message in each.captured)
        if b"E" in captured:
            return frame(b"E", captured[b"E"])
        self.dirty = False
        values = messages.data_row(captured[b"D"])
        self.settings = {
            setting: (value or b"").decode() or (TABLE[setting].default if setting in TABLE else "")
            for setting, value in zip(SETTINGS, values, strict=True)
        }
        version = self.settings[VIEWS]
        self.engine.views = self.views.at(version)
        if sync and self.replies.status == b"I":
            self.views.keep(version)
        return None

    def show_views(self, text: str, sync: bool) -> Flow:
        """Put the session's views into the mirror's catalogs, for a statement that reads catalogs.

        Return whether a transaction was begun for it, which the caller must end.
        """
        if not self.views.datasets or not CATALOG.search(text) or self.replies.status == b"E":
            return False
        yield from self.await_mirror(not sync)
        if self.replies.failed:
            return False
        unread = yield from self.read_settings(sync)
        if unread and not sync:
            yield SendToClient(unread)
        if unread or (not self.engine.views and self.replies.status == b"I"):
            return False
        show, begins = shown(self.engine.views), sync and self.replies.status == b"I"
        yield from self._unseen(f"BEGIN; {show}" if begins else show, sync)
        return begins

    def _unseen(self, text: str, sync: bool, shift: int = 0) -> Flow:
        """Run a hidden statement on the mirror; return its expected replies."""
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
        yield SendToMirror(b"".join(data for _, data in sent))
        return expected

    def run_on_engine(self, request: ToEngine, text: str) -> Flow:
        """Run a statement on the engine, and send the client its notices; return the result.

        Raises:
            Error: the engine's; what it charged is recorded all the same.
        """
        settings = dict(self.settings)
        began = time.monotonic()
        ran, self.ran = self.ran_of(request), None
        result: Result
        try:
            if ran is None:
                result = yield RunInThread(
                    lambda: self.engine.execute(request.dataset, text, settings)
                )
            else:
                began -= ran.seconds
                if isinstance(ran.outcome, Error):
                    raise ran.outcome
                result = ran.outcome
        except Error as error:
            self.on_outcome(request.dataset, error, time.monotonic() - began)
            if self.replies.status != b"I":
                self.released += error.cost
            raise
        self.on_outcome(request.dataset, result, time.monotonic() - began)
        if self.replies.status != b"I":
            self.released += result.cost
        with_answers = TABLE[ANSWERS].read(settings.get(ANSWERS, ""))
        if with_answers or settings.get("client_min_messages") not in QUIET:
            notices = yield from offload(
                lambda: [
                    n.encode(self.encoding) for n in result_text.notices(result, with_answers)
                ],
                len(result.rows) > MANY,
            )
            yield SendToClient(b"".join(notices))
        return result

    def try_out(
        self, request: ToEngine, columns: Sequence[Column], offset: int, sync: bool
    ) -> Flow:
        """Run a hidden COPY or DECLARE without rows on the mirror; return its error if it fails.

        So what the mirror refuses costs nothing: an option, a cursor outside of a transaction.
        """
        if not (request.tail or request.declares):
            return None
        none = result_text.stub(columns, "WHERE false")
        begins = f"{request.head} {none} "
        shift = offset - len(request.head)
        if request.tail:
            shift = offset - request.offset + request.behind - len(begins)
        expected = yield from self._unseen(begins + request.tail, sync, shift)
        yield AwaitMirror(not sync)
        captured = dict(message for each in expected for message in each.captured)
        if b"E" in captured:
            return frame(b"E", captured[b"E"])
        if request.declares:
            yield from self._unseen(f"CLOSE {request.declares}", sync)
            yield AwaitMirror(not sync)
        return None

    def rows(self, request: ToEngine, result: Result, columns: Sequence[Column]) -> Flow:
        """Return the statement that gives a result's rows, or that records a change of views."""
        if request.view:
            self.dirty = self.forwarded = True
            views = self.engine.views_of(request.dataset)
            return self.encode(self.views.add(views, self.engine.views, request.dataset))
        return (
            yield from offload(
                lambda: self.encode(
                    f"{request.head} {result_text.rows(result, columns)} {request.tail}"
                ),
                len(result.rows) > MANY,
            )
        )
