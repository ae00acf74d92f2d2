"""The state machine of a session without a socket: messages in memory, mirror and engine scripted.

The mirror, and the reference that is compared with, are the small PostgreSQL of ``model``.
"""

import asyncio
import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.errors import Error, UndefinedColumnError
from proxy.server.limits import Limits
from proxy.server.session.conversation import (
    AwaitMirror,
    Conversation,
    RunInThread,
    SendToClient,
    SendToMirror,
)
from proxy.server.session.dispatch import handle
from proxy.server.session.relay import Relay
from proxy.server.wire import messages
from proxy.server.wire.frames import FrameError, Frames, frame
from proxy.server.wire.messages import Bind, Parse, fields
from proxy.server.wire.transport import Transport
from proxy.server.workers.turns import Turns
from tests.server.model import COUNT, DEAR, GROUPS, HIDDEN, LOST, WHERE, Engine, Postgres

SYNC, FLUSH = (b"S", b""), (b"H", b"")


def query(text):
    return b"Q", text.encode() + b"\0"


def parse(text, name=""):
    return b"P", Parse(name.encode(), text.encode(), ()).encode()[5:]


def bind(values=(), name="", portal=""):
    given = tuple(value.encode() for value in values)
    return b"B", Bind(portal.encode(), name.encode(), (), given, b"\0\0").encode()[5:]


def execute(portal="", rows=0):
    return b"E", messages.execute(portal.encode(), rows)[5:]


def describe(kind="P", name=""):
    return b"D", kind.encode() + name.encode() + b"\0"


def close(kind="S", name=""):
    return b"C", kind.encode() + name.encode() + b"\0"


class Session:
    """A conversation between a client, a mirror and an engine, all in memory.

    ``deliver`` says behind each step how many of the mirror's messages come in before the next, and
    ``cancels`` for each step whether a cancel request comes in the midst of it.
    """

    def __init__(self, deliver=lambda: 0, cancels=()):
        self.mirror, self.engine = Postgres(has_data=False), Engine()
        self.conversation = Conversation(self.engine, ("people",), "people")
        self.engine.before_run = self._check_before_run
        self.deliver, self.cancels = deliver, iter(cancels)
        self.client = Frames(1 << 20)
        self.flow = None
        self.engine_runs = False
        self.steps = []  # of the flow that ran last, by kind

    def _check_before_run(self):
        replies = self.conversation.replies
        assert replies.settled, "the mirror has not answered what came before"
        assert not replies.failed, "the mirror skips: nothing may run"
        assert replies.status != b"E", "the transaction has failed: nothing may run"

    def send(self, *sent):
        for kind, body in sent:
            self.engine.begin()
            self._drive(handle(self.conversation, kind, body))
        return self

    def _drive(self, flow):
        self.flow, value, error, self.steps = flow, None, None, []
        while True:
            try:
                step = flow.send(value) if error is None else flow.throw(error)
            except StopIteration:
                return
            value = error = None
            self.steps.append(type(step))
            self.engine_runs = isinstance(step, RunInThread)
            if isinstance(step, SendToMirror):
                self.mirror.feed(step.data)
            if next(self.cancels, False):
                self.cancel()
            match step:
                case SendToClient(data):
                    self.client.feed(data)
                case AwaitMirror(flush):
                    if flush:
                        self.mirror.feed(frame(b"H"))
                    self.wait()
                case RunInThread(call):
                    try:
                        value = call()
                    except Error as raised:
                        error = raised
            self.engine_runs = False
            for _ in range(self.deliver()):
                self._receive()

    def _receive(self):
        """Take one message from the mirror, if it has or can make one."""
        while (message := self.mirror.out.next()) is None:
            if not self.mirror.step():
                return False
        self.client.feed(self.conversation.mirrored(*message))
        return True

    def wait(self):
        while not self.conversation.replies.settled:
            assert self._receive(), "nothing would ever end this wait"

    def cancel(self):
        """Do as a cancel request does."""
        if self.engine_runs:
            self.engine.cancel("canceling statement due to user request")
        elif not self.conversation.replies.settled:
            self.mirror.cancel()

    def received(self):
        """Return what the client has got once the mirror has nothing more to say."""
        while self._receive():
            pass
        return list(iter(self.client.next, None))


def reference(*sent):
    """Return what PostgreSQL says to the same messages where it has the data itself."""
    postgres = Postgres(has_data=True)
    for kind, body in sent:
        postgres.feed(frame(kind, body))
    while postgres.step():
        pass
    return list(iter(postgres.out.next, None))


def seen(received):
    """Return messages as a client tells them apart: errors by their SQLSTATE, no notices.

    Rows may be announced before the error that comes in their place, or not.
    """
    messages = [
        (kind, fields(body)["C"] if kind == b"E" else body)
        for kind, body in received
        if kind != b"N"
    ]
    return [
        message
        for message, (after, _) in zip(messages, [*messages[1:], (b"", b"")], strict=True)
        if message[0] not in (b"T", b"H") or after != b"E"
    ]


def kinds(received):
    return b"".join(kind for kind, _ in received if kind not in b"N")


COPY = f"COPY ({GROUPS}) TO STDOUT"
USE = [bind(), describe(), execute(), SYNC]  # of the unnamed statement


def test_a_statement_that_is_known_runs_once_in_the_step_that_routes_it():
    """
    Its rows are told, or its error, once; not where others are beside it, nor where the mirror has
    to be asked first.
    """
    session = Session()

    def asked(*texts):
        """Return what the client gets, how often something ran, and in how many steps."""
        before = len(session.engine.runs)
        session.send(*map(query, texts))
        got = kinds(session.received())
        return got, len(session.engine.runs) - before, session.steps.count(RunInThread)

    assert asked(COUNT) == (b"TDCZ", 1, 2)  # the settings are not known yet
    assert asked(COUNT) == (b"TDCZ", 1, 1)
    assert asked(GROUPS) == (b"TDDDDCZ", 1, 3)  # what it means is not known
    assert asked(DEAR) == (b"EZ", 1, 1)
    assert asked(f"{COUNT}; {COUNT}") == (b"TDCTDCZ", 2, 3)
    assert asked("SELECT 1", COUNT)[1:] == (1, 2)  # which may have changed a setting
    assert asked(COUNT) == (b"TDCZ", 1, 1)
    assert asked("BEGIN", COUNT)[1:] == (1, 2)
    assert asked(DEAR, COUNT)[:2] == (b"EZEZ", 1)  # the second fails with the transaction
    assert asked("ROLLBACK", COUNT)[1:] == (1, 2)


def test_what_ran_at_once_is_told_though_its_meaning_is_forgotten():
    """
    As where policies change, or others ask much, in the midst of it: it is paid.
    """
    session = Session().send(query(COUNT))
    session.received()

    def forget(*of):
        raise UndefinedColumnError("who knows")

    session.engine.before_run = lambda: setattr(session.engine, "describe", forget)
    assert kinds(session.send(query(COUNT)).received()) == b"TDCZ"
    assert session.engine.runs == [COUNT] * 2


SERIES = {
    "a simple query": [query(COUNT)],
    "a simple query of the mirror's": [query("SELECT 1"), query(""), query("oops")],
    "refused when described, and when run": [query(HIDDEN), query(DEAR), query(COUNT)],
    "extended": [parse(COUNT), *USE],
    "extended, with a parameter": [parse(WHERE), describe("S"), bind(["5"]), execute(), SYNC],
    "a parameter too few": [parse(WHERE), bind(), execute(), SYNC, bind(["5"]), execute(), SYNC],
    "everything after an error is skipped": [parse("oops"), *USE, parse(COUNT), *USE],
    "errors of the engine, likewise": [parse(HIDDEN), *USE, parse(DEAR), *USE, query(COUNT)],
    "a query behind an error, before Sync": [parse("oops"), query(COUNT), SYNC, query(COUNT)],
    "rows in parts": [parse(GROUPS), bind(), execute(rows=3), execute(rows=3), execute(), SYNC],
    "parts that come out even": [parse(GROUPS), bind(), execute(rows=4), execute(rows=4), SYNC],
    "a portal ends with its transaction": [
        *(parse(GROUPS), bind(portal="s"), execute("s", 1), SYNC, execute("s"), SYNC),
        *(query("BEGIN"), parse(COUNT), bind(portal="s"), SYNC, query("COMMIT"), query("BEGIN")),
        *(execute("s"), SYNC, query("ROLLBACK")),
        *(
            query("BEGIN"),
            parse(COUNT),
            bind(portal="s"),
            SYNC,
            query("COMMIT; BEGIN"),
            execute("s"),
            SYNC,
        ),
    ],
    "the transaction's status": [
        *(query("BEGIN"), query(COUNT), query(DEAR), query(COUNT), query("ROLLBACK")),
        *(query("BEGIN"), parse(COUNT), *USE, parse(DEAR), *USE, query(COUNT), query("COMMIT")),
    ],
    "a portal in a transaction that failed": [
        *(query("BEGIN"), parse(COUNT), bind(portal="s"), SYNC, parse("oops"), SYNC),
        *(execute("s"), SYNC, query("ROLLBACK")),
    ],
    "several statements": [
        query(f"SELECT 1; {COUNT}"),
        query(f"{COUNT}; {DEAR}; SELECT 1"),
        query(f"{COUNT}; SELECT 1 / 0; SELECT 1"),
        query(f"BEGIN; {COUNT}"),
        query(f"{GROUPS}; COMMIT; {COUNT}"),
        query(f"{COUNT}; {LOST}; SELECT 1"),
        query(COUNT),
    ],
    "copy out": [query(COPY), parse(COPY), *USE, query(f"COPY ({DEAR}) TO STDOUT"), query(COUNT)],
    "several series at once": [parse(COUNT), *USE, parse(DEAR), *USE, parse(GROUPS), *USE],
    "a named statement": [
        *(parse(COUNT, "s"), SYNC, bind(name="s"), execute(), SYNC, parse(GROUPS, "s"), SYNC),
        *(close("S", "s"), parse("SELECT 1", "s"), bind(name="s"), execute(), SYNC),
    ],
    "what an error makes the mirror skip is not done here either": [
        *(parse(COUNT, "s"), SYNC, parse("oops"), close("S", "s"), SYNC, bind(name="s")),
        *(execute(), SYNC, parse(COUNT), SYNC, parse("oops", "t"), parse("SELECT 1"), SYNC, *USE),
    ],
    "the unnamed statement outlives errors of others": [
        *(parse(DEAR), bind(), execute(), SYNC, *USE, parse(COUNT), parse(HIDDEN, "s"), SYNC),
        *USE,
    ],
    "PREPARE and EXECUTE": [
        *map(query, [f"PREPARE q AS {COUNT}", "EXECUTE q", "DEALLOCATE q", "EXECUTE q"]),
        *(parse("SELECT 1", "q"), parse(COUNT, "q"), SYNC, query("EXECUTE q")),
    ],
    "DEALLOCATE that fails leaves everything": [
        *map(query, [f"PREPARE q AS {COUNT}", "BEGIN", "oops", "DEALLOCATE ALL", "ROLLBACK"]),
        *map(query, ["EXECUTE q", "DISCARD PLANS", "EXECUTE q", "BEGIN", "DISCARD ALL"]),
        *map(query, ["ROLLBACK", "EXECUTE q", "DISCARD ALL", "EXECUTE q", COUNT]),
    ],
}


@pytest.mark.parametrize("together", [True, False], ids=["pipelined", "one by one"])
@pytest.mark.parametrize("sent", SERIES.values(), ids=SERIES)
def test_a_client_sees_what_postgresql_would_say(sent, together):
    """
    Replies, rows, tags, SQLSTATEs and transaction status are those of one PostgreSQL with the data.
    """
    session = Session(deliver=(lambda: 0) if together else (lambda: 99))
    assert seen(session.send(*sent).received()) == seen(reference(*sent))


def test_a_notice_with_the_cost_comes_before_the_rows():
    """
    What a statement cost is a NOTICE, before the rows, in both protocols.
    """
    received = Session().send(query(COUNT), parse(COUNT), *USE).received()
    assert b"".join(kind for kind, _ in received) == b"NTDCZ" + b"12TNDCZ"


def test_a_parsed_statement_is_run_by_execute_alone():
    """
    Parse, Bind and Describe run nothing; each Execute of a new portal does once, parts or not.
    """
    session = Session().send(parse(GROUPS), bind(), describe(), SYNC)
    assert session.engine.runs == []
    session.send(bind(), execute(rows=1), execute(rows=1), execute(), SYNC)
    assert session.engine.runs == [GROUPS]


def stopped(before, sent):
    """Yield a session and what its client got, cancelled at each step in turn, then at none."""
    for step in range(99):
        session = Session().send(*before)
        session.received()
        session.cancels = iter([False] * step + [True])
        got = seen(session.send(*sent).received())
        was_last = next(session.cancels, False)
        yield session, got
        if was_last:
            return


@pytest.mark.parametrize("before", [[], [query("BEGIN")]], ids=["alone", "in a transaction"])
@pytest.mark.parametrize("sent", [[query(COUNT)], [parse(COUNT), *USE], [query(COPY)]], ids=kinds)
def test_a_cancellation_at_any_step_ends_in_the_answer_or_its_error(sent, before):
    """
    At whichever step it comes, the client gets the whole answer or 57014, and the session goes on.
    """
    answer, outcomes = seen(reference(*before, *sent))[len(before) * 2 :], []
    for session, got in stopped(before, sent):
        errors = [body for kind, body in got if kind == b"E"]
        outcomes += [errors]
        assert errors == [b"57014"] or got == answer
        assert got[-1] == (b"Z", b"E" if errors and before else b"T" if before else b"I")
        session.send(query("ROLLBACK"), query(COUNT))
        assert kinds(session.received()) == b"CZTDCZ"
    assert outcomes[-1] == []
    assert [b"57014"] in outcomes


class Memory(asyncio.Transport):
    """What a connection writes to, in memory."""

    def __init__(self, write):
        super().__init__()
        self.write, self.closed = write, False

    def is_closing(self):
        return self.closed

    def close(self):
        self.closed = True


def arrive(transport, data):
    """Let bytes arrive."""
    while data:
        buffer = transport.get_buffer(-1)
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        transport.buffer_updated(size)
        data = data[size:]


async def relayed(sent, life):
    """Return what a client gets whose mirror ends after so many messages, and its conversation."""
    client, mirror = Transport(Frames(1 << 20)), Transport(Frames(1 << 20))
    model, received, lives = Postgres(has_data=False), Frames(1 << 20), iter(range(life))
    conversation = Conversation(Engine(), ("people",), "people")

    def answer(data):
        model.feed(data)
        while model.step():
            while message := model.out.next():
                if next(lives, None) is None:
                    mirror.connection_lost(None)
                    return
                arrive(mirror, frame(*message))

    client.connection_made(Memory(received.feed))
    loop = asyncio.get_running_loop()
    mirror.connection_made(Memory(lambda data: loop.call_soon(answer, data)))
    with ThreadPoolExecutor(1) as pool:
        turns = Turns(1)
        relay = Relay(client, mirror, conversation, Limits(), "ann", turns, pool, lambda: None)
        arrive(client, b"".join(frame(*message) for message in [*sent, (b"X", b"")]))
        await asyncio.wait_for(relay.run(), 20)
    return list(iter(received.next, None)), conversation, client


@pytest.mark.parametrize("sent", [[query(COUNT)], [parse(COUNT), *USE], [query("!")]], ids=kinds)
def test_a_mirror_that_ends_ends_the_session(sent):
    """
    After whichever message the mirror ends, the client is told so, last, and is disconnected; what
    runs is cancelled, and nothing is raised or waited for any more.
    """
    whole, *_ = asyncio.run(relayed(sent, 99))
    assert seen(whole) == seen(reference(*sent))
    for life in range(len(whole)):
        received, conversation, client = asyncio.run(relayed(sent, life))
        *before, (kind, body) = received
        assert (kind, fields(body)["S"], fields(body)["C"]) == (b"E", b"FATAL", b"57P02")
        assert b"Z" not in kinds(before)
        assert client.raw.is_closing()
        assert conversation.engine.canceled


class Closed(Exception):
    """The driver has closed a flow."""


class Closing(Session):
    """A session whose connection ends in the place of a cancellation."""

    def cancel(self):
        self.flow.close()
        raise Closed


@pytest.mark.parametrize("sent", SERIES.values(), ids=SERIES)
def test_a_flow_can_be_closed_at_any_step(sent):
    """
    A flow whose connection has ended stops at its step: it asks for nothing more.
    """
    for step in range(999):
        session = Closing(cancels=[False] * step + [True])
        try:
            session.send(*sent)
        except Closed:
            assert session.flow.gi_frame is None
            continue
        assert step
        return


# --- whatever a client sends ---------------------------------------------------------------------

EXTENDED = ("SELECT 1", "SELECT 1 / 0", "BEGIN", "COMMIT", "ROLLBACK", "oops", "", COPY)
EXTENDED += (COUNT, GROUPS, WHERE, HIDDEN, DEAR)
SIMPLE = (*EXTENDED, f"PREPARE q AS {COUNT}", "EXECUTE q", "DEALLOCATE q", "DEALLOCATE ALL")
SIMPLE += ("DISCARD ALL", "DISCARD PLANS", f"SELECT 1; {COUNT}", f"{COUNT}; SELECT 1 / 0; SELECT 1")
SIMPLE += (
    LOST,
    f"{COUNT}; {LOST}",
    f"BEGIN; {COUNT}",
    f"{COUNT}; {DEAR}",
    f"{COUNT}; COMMIT; {GROUPS}",
)
NAMES = st.sampled_from(["", "s"])
VALUES = st.sampled_from([(), ("5",), ("x",)])
PARSES = st.builds(parse, st.sampled_from(EXTENDED), NAMES)
BINDS = st.builds(bind, VALUES, NAMES, NAMES)
EXECUTES = st.builds(execute, NAMES, st.integers(0, 2))
DESCRIBES = st.builds(describe, st.sampled_from("SP"), NAMES)
CLOSES = st.builds(close, st.sampled_from("SP"), NAMES)
ONE = st.one_of(PARSES, BINDS, EXECUTES, DESCRIBES, CLOSES, st.sampled_from([SYNC, FLUSH]))
FRAGMENTS = st.one_of(
    st.sampled_from(SIMPLE).map(lambda text: [query(text)]),
    st.tuples(ONE),
    st.tuples(ONE, st.just(SYNC)),
    st.tuples(PARSES, BINDS, EXECUTES, st.just(SYNC)),
    st.tuples(st.just(query("BEGIN")), ONE, ONE, st.just(SYNC)),
)


def sequences(fragments):
    """Sequences of few fragments, each of which comes again and again."""
    few = st.lists(fragments, min_size=1, max_size=6)
    many = few.flatmap(lambda pool: st.lists(st.sampled_from(pool), min_size=4, max_size=12))
    return many.map(lambda parts: [message for part in parts for message in part])


@pytest.mark.slow
@given(sequences(FRAGMENTS), st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_any_sequence_is_answered_as_by_postgresql(sent, random):
    """
    Whatever is sent, and whenever the mirror's replies come, nothing tells a session from one
    PostgreSQL with the data: so each Sync and each query that is not skipped has one ReadyForQuery.
    """
    session = Session(deliver=lambda: random.randrange(3))
    assert seen(session.send(*sent, SYNC).received()) == seen(reference(*sent, SYNC))


KINDS = st.sampled_from([b"Q", b"P", b"B", b"D", b"E", b"C"])
JUNK = st.builds(lambda kind, body: [(kind, body)], KINDS, st.binary(max_size=9))
JUNK |= st.just([(b"!", b"")])


@given(sequences(FRAGMENTS | JUNK), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_any_sequence_ends_ready_or_closed(sent, random):
    """
    With messages that cannot be read, and a cancellation at any step, nothing is raised but a
    protocol error, which closes; else there is one ReadyForQuery for each Sync and each query.
    """
    cancels = (random.randrange(4) == 0 for _ in itertools.count())
    session, ready, series = Session(lambda: random.randrange(3), cancels), 0, False
    for kind, body in [*sent, SYNC]:
        if kind == b"Q" and series:  # behind an error it would be skipped
            session.send(SYNC)
            ready += 1
        try:
            session.send((kind, body))
        except FrameError:
            assert kind == b"!"
            return
        series = kind not in (b"Q", b"S")
        ready += not series
    received = kinds(session.received())
    assert received.count(b"Z") == ready
    assert received.endswith(b"Z")
    assert session.conversation.replies.settled
