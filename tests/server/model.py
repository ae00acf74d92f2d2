"""A model of PostgreSQL's side of the protocol, in memory: the statements of the tests, no others.

It stands behind the state machine as its mirror, and beside it as the reference that has the data:
then a protected table has rows, and the errors of ``Engine`` are PostgreSQL's own.
"""

import re
import struct
from collections import deque
from dataclasses import dataclass, field

from proxy.engine import Column, Result
from proxy.errors import (
    Error,
    InsufficientBudgetError,
    InsufficientPrivilegeError,
    QueryCanceledError,
    UndefinedColumnError,
)
from proxy.server.session.conversation import READ, SETTINGS
from proxy.server.session.engine_sessions import EngineSessions, Prepared
from proxy.server.wire import messages
from proxy.server.wire.frames import Frames, frame
from proxy.server.wire.messages import Bind, Parse, Report
from proxy.server.workers import tasks
from proxy.server.workers.pool import Lease

COUNT = "SELECT COUNT(*) FROM people"
GROUPS = "SELECT COUNT(*) FROM people GROUP BY region"
WHERE = "SELECT COUNT(*) FROM people WHERE age = $1"
HIDDEN = "SELECT name FROM people"  # refused when it is described
LOST = "SELECT lost FROM people"  # likewise, and whether it is a probe cannot be found out
DEAR = "SELECT SUM(wage) FROM people"  # refused when it is run
ROWS = {COUNT: ["7"], GROUPS: ["1", "2", "3", "4"], WHERE: ["5"]}
EXITS = ("COMMIT", "ROLLBACK")  # what a failed transaction may do
INTEGER = 23


class Failed(Exception):
    """An ErrorResponse with this SQLSTATE."""


def outcome(text):
    """Return the rows of a query on the protected table, or raise its error."""
    text = re.sub(r"= \(?5\)?$", "= $1", text.strip())
    if text == HIDDEN:
        raise InsufficientPrivilegeError("rows are not shown")
    if text == DEAR:
        raise InsufficientBudgetError("too dear", requested=1.0, spent=0.0, left=0.5)
    if text not in ROWS:
        raise UndefinedColumnError("no such column")
    return ROWS[text]


class Engine:
    """The engine sessions of one connection, whose answers are known beforehand."""

    def __init__(self):
        self.views = {}
        self.runs = []  # the texts that were run
        self.canceled = None
        self.before_run = lambda: None

    def begin(self):
        self.canceled = None

    def cancel(self, reason):
        self.canceled = reason

    def known_route(self, *of):
        return None

    def known_columns(self, dataset, text, settings):
        return self.describe(dataset, text, settings) if text.strip() in (COUNT, DEAR) else None

    def route(self, of, home, settings):
        return self.work(tasks.routed, *of)

    route_and_run = EngineSessions.route_and_run  # which gives a worker back in between
    _pool, _lease = None, Lease(None)

    def check_canceled(self):
        if self.canceled:
            raise QueryCanceledError(self.canceled)

    def step(self, call):
        return call()

    def work(self, function, *arguments):
        self.check_canceled()
        return function(*arguments)

    def describe(self, dataset, text, settings):
        if text.strip() != DEAR:
            outcome(text)
        return (Column("n", "bigint"),)

    def prepare(self, dataset, text, plain, declared, settings):
        return Prepared((INTEGER,) * text.count("$1"), self.describe(dataset, text, settings))

    def prepare_sql(self, dataset, text, plain, declared, settings):
        return self.prepare(dataset, text, plain, (), settings), ["integer"] * text.count("$1")

    def filled(self, texts, arguments, types):
        return tasks.filled(texts, arguments, types)[0]

    def probe(self, text, plain):
        return None if text.strip() != LOST else outcome(text)

    def execute(self, dataset, text, settings):
        self.before_run()
        if self.canceled:
            raise QueryCanceledError(self.canceled)
        self.runs.append(text)
        rows = [(int(value),) for value in outcome(text)]
        return Result((Column("n", "bigint"),), rows, [], 0.1, 0.9, numbers=len(rows))


@dataclass
class Statement:
    """A prepared statement of the model."""

    text: str
    types: tuple[int, ...] = ()


@dataclass
class Portal:
    """A portal, and which of its rows are still to come."""

    text: str
    rows: deque = field(default_factory=deque)
    ran: bool = False


class Postgres:
    """One backend: messages in by ``feed``, one handled by each ``step``, replies in ``out``."""

    def __init__(self, has_data):
        self.has_data = has_data
        self.frames = Frames(1 << 20)
        self.status = b"I"
        self.block = False  # BEGIN was said
        self.skips = False
        self.canceled = False
        self.statements, self.portals = {}, {}
        self.pending = b""  # replies that wait for Flush, Sync, or the end of a Query
        self.out = Frames(1 << 20)

    def feed(self, data):
        self.frames.feed(data)

    def step(self):
        """Handle one message; return whether there was one."""
        message = self.frames.next()
        if message is None:
            return False
        kind, body = message
        if kind == b"H":
            self._flush()
        elif kind == b"S":
            self.skips = False
            self._ready()
        elif self.skips:
            pass
        elif kind == b"Q":
            self.statements.pop("", None)
            try:
                self._query(messages.read_query(body).decode())
            except (Failed, Error) as error:
                self._fail(error)
            self._ready()
        else:
            try:
                getattr(self, "_" + kind.decode())(body)
            except (Failed, Error) as error:
                self._fail(error)
                self.skips = True
                self._flush()
        return True

    def cancel(self):
        """Fail whatever runs now: here, the next message that runs something."""
        self.canceled = self.frames.waiting > 0

    # --- replies ---------------------------------------------------------------------------------

    def _say(self, kind, body=b""):
        self.pending += frame(kind, body)

    def _flush(self):
        self.out.feed(self.pending)
        self.pending = b""

    def _fail(self, error):
        code = error.sqlstate if isinstance(error, Error) else str(error)
        self.pending += Report("ERROR", code, "message").encode("utf-8")
        self.status = b"E" if self.block else b"I"
        if not self.block:
            self.portals.clear()

    def _ready(self):
        if not self.block:
            self._end()
        self.canceled = False
        self._say(b"Z", self.status)
        self._flush()

    def _end(self):
        self.block, self.status = False, b"I"
        self.portals.clear()

    # --- messages --------------------------------------------------------------------------------

    def _query(self, texts):
        pieces = [piece for piece in texts.split(";") if piece.strip()]
        if any(re.match(r"\W*(!|oops)", piece) for piece in pieces):
            raise Failed("42601")  # the whole text is parsed before anything runs
        if not pieces:
            self._say(b"I")
        for text in pieces:
            portal = Portal(text.strip().replace('"q"', "q"))
            self._check(portal.text)
            self._run(portal, 0, describes=True)

    def _P(self, body):
        message = Parse.decode(body)
        text, name = message.text.decode().strip(), message.name.decode()
        if not name:
            self.statements.pop(name, None)
        if re.match(r"!|oops", text):
            raise Failed("42601")
        self._check(text)
        if name in self.statements:
            raise Failed("42P05")
        types = message.types or (INTEGER,) * text.count("$1")
        self.statements[name] = Statement(text, types)
        self._say(b"1")

    def _B(self, body):
        message = Bind.decode(body)
        statement = self._statement(message.statement)
        if len(message.values) != len(statement.types):
            raise Failed("08P01")
        self._abort_unless_exit(statement.text)
        if message.portal and message.portal in self.portals:
            raise Failed("42P03")
        if not all(value.isdigit() for value in message.values):
            raise Failed("22P02")
        self.portals[message.portal] = Portal(statement.text)
        self._say(b"2")

    def _D(self, body):
        kind, name = messages.read_target(body, "DESCRIBE")
        if kind == b"S":
            statement = self._statement(name)
            text, types = statement.text, statement.types
        else:
            text = self._portal(name).text
        if self.status == b"E" and self._columns(text):
            raise Failed("25P02")
        if kind == b"S":
            self._say(b"t", struct.pack(f"!H{len(types)}I", len(types), *types))
        self._say(*((b"T", b"n") if self._columns(text) else (b"n",)))

    def _E(self, body):
        name, limit = messages.read_execute(body)
        portal = self._portal(name)
        if not portal.text:
            self._say(b"I")
            return
        self._abort_unless_exit(portal.text)
        self._run(portal, limit)

    def _C(self, body):
        kind, name = messages.read_target(body, "CLOSE")
        if kind == b"S":
            self.statements.pop(name.decode(), None)
        else:
            self.portals.pop(name, None)
        self._say(b"3")

    def _statement(self, name):
        if name.decode() not in self.statements:
            raise Failed("26000")
        return self.statements[name.decode()]

    def _portal(self, name):
        if name not in self.portals:
            raise Failed("34000")
        return self.portals[name]

    # --- statements ------------------------------------------------------------------------------

    def _abort_unless_exit(self, text):
        if self.status == b"E" and text not in EXITS:
            raise Failed("25P02")

    def _check(self, text):
        """Parse and analyse one statement."""
        self._abort_unless_exit(text)
        if match := re.match(
            r"(?:COPY \(|PREPARE q(?: \(\w+\))? AS )(.*?)(?:\) TO STDOUT)?$", text
        ):
            text = match[1]
        if self.has_data and "people" in text and text != DEAR:
            outcome(text)

    def _columns(self, text):
        if match := re.match(r"EXECUTE (\w+)", text):
            text = self._prepared(match[1])
        return text.startswith("SELECT")

    def _prepared(self, name, runs=False):
        statement = self._statement(name.encode())
        if runs and statement.types:
            raise Failed("42601")  # the tests give EXECUTE no arguments
        return statement.text

    def _rows(self, text):
        if self.canceled:
            self.canceled = False
            raise Failed("57014")
        if "guard()" in text:
            raise Failed("0A000")
        if text == "SELECT 1 / 0":
            raise Failed("22012")
        if text == READ:
            return [[""] * len(SETTINGS)]
        if "people" in text:
            assert self.has_data, text
            return [[row] for row in outcome(text)]
        if match := re.search(r"unnest\(E'\{(.*?)\}'", text):
            return [[row] for row in match[1].split(",")]
        return [] if text.endswith("WHERE false") else [["1"]]

    def _run(self, portal, limit, describes=False):
        """Run a statement, or go on with the rows of a portal."""
        text = portal.text
        if match := re.match(r"EXECUTE (\w+)", text):
            text = self._prepared(match[1], runs=True)
        if match := re.match(r"COPY \((.*?)\) TO STDOUT$", text):
            rows = self._rows(match[1].strip())
            self._say(b"H", b"\0\0\1\0\0")
            for row in rows:
                self._say(b"d", row[0].encode() + b"\n")
            self._say(b"c")
            self._say(b"C", b"COPY %d\0" % len(rows))
        elif text.startswith("SELECT"):
            if not portal.ran:
                portal.rows.extend(self._rows(text))
            portal.ran = True
            if describes:
                self._say(b"T", b"n")
            count = min(limit or len(portal.rows), len(portal.rows))
            for _ in range(count):
                values = [value.encode() for value in portal.rows.popleft()]
                listed = b"".join(struct.pack("!i", len(value)) + value for value in values)
                self._say(b"D", struct.pack("!H", len(values)) + listed)
            if limit and count == limit:
                self._say(b"s")
            else:
                self._say(b"C", b"SELECT %d\0" % count)
        else:
            self._say(b"C", self._command(text).encode() + b"\0")

    def _command(self, text):
        """Run what gives no rows, and return its tag."""
        if self.canceled:
            self.canceled = False
            raise Failed("57014")
        if text == "BEGIN":
            self.block, self.status = True, b"T"
        elif text in EXITS:
            tag = "ROLLBACK" if self.status == b"E" else text
            self._end()
            return tag
        elif match := re.match(r"PREPARE (\w+)(?: \(\w+\))? AS (.*)", text):
            if match[1] in self.statements:
                raise Failed("42P05")
            self.statements[match[1]] = Statement(match[2], (INTEGER,) * text.count("$1"))
            return "PREPARE"
        elif match := re.match(r"DEALLOCATE (\w+)", text):
            if match[1] == "ALL":
                self.statements.clear()
            else:
                self._prepared(match[1])
                del self.statements[match[1]]
        elif text == "DISCARD ALL":
            if self.block:
                raise Failed("25001")
            self.statements.clear()
        return text.replace(" q", "")
