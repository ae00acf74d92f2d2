"""The protocol's parts without I/O: framing, messages, and which reply is whose."""

import struct
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import UndefinedColumnError
from proxy.server.session import extended_query, simple_query
from proxy.server.session.conversation import AwaitMirror, Conversation, RunInThread, SendToMirror
from proxy.server.statements.routing import ToMirror
from proxy.server.wire.frames import FrameError, Frames, frame
from proxy.server.wire.messages import Bind, Parse, Report, fields
from proxy.server.wire.replies import Replies

MESSAGES = st.lists(st.tuples(st.sampled_from([b"Q", b"P", b"X", b"d"]), st.binary(max_size=50)))


@given(MESSAGES, st.integers(1, 7))
def test_messages_come_whole_however_the_bytes_are_cut(messages, size):
    """
    Whatever the pieces in which the bytes arrive, the same messages come out.
    """
    data = b"".join(frame(kind, body) for kind, body in messages)
    frames, found = Frames(100), []
    for at in range(0, len(data), size):
        frames.feed(data[at : at + size])
        while message := frames.next():
            found.append(message)
    assert found == messages
    assert frames.waiting == 0


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 3, 105, 2**31 - 1])
def test_a_length_that_cannot_be_is_seen_at_once(length):
    """
    A message that is too short or too long is refused before its body is collected.
    """
    frames = Frames(100)
    frames.feed(b"Q" + struct.pack("!i", length))
    with pytest.raises(FrameError):
        frames.next()


@given(st.binary(max_size=60))
def test_what_cannot_be_read_is_a_frame_error(body):
    """
    Parse and Bind are read or refused, and what was read is written back the same.
    """
    for kind, message in ((b"P", Parse), (b"B", Bind)):
        try:
            read = message.decode(body)
        except FrameError:
            continue
        again = message.decode(read.encode()[5:])
        assert again == read
        assert read.encode()[:1] == kind


def test_an_error_has_postgresqls_fields():
    """
    Severity, SQLSTATE, message, hint and position; the picture of the position is left out.
    """
    error = UndefinedColumnError('column "é" does not exist', hint="look", position=3)
    error.detail = "line 1, column 3\n  a é\n    ^"
    found = fields(Report.of(error, offset=10).encode("utf-8")[5:])
    assert found["M"].decode() == error.message
    assert {key: found[key] for key in "SVCHP"} == {
        "S": b"ERROR",
        "V": b"ERROR",
        "C": b"42703",
        "H": b"look",
        "P": b"13",
    }
    assert "D" not in found


def got(replies, *messages):
    return [replies.got(kind, body)[:1] for kind, body in messages]


def test_hidden_replies_do_not_reach_the_client():
    """
    Of a hidden message, everything is kept for us; of the one behind it, nothing is.
    """
    replies = Replies()
    hidden = replies.expect(b"E", hide=True)
    replies.expect(b"E")
    seen = got(replies, (b"D", b"1"), (b"C", b"SELECT 1\0"), (b"D", b"2"), (b"C", b"SELECT 1\0"))
    assert seen == [b"", b"", b"D", b"C"]
    assert [kind for kind, _ in hidden.captured] == [b"D", b"C"]
    assert hidden.done
    assert replies.settled


def test_an_error_voids_what_was_expected_up_to_the_next_sync():
    """
    The mirror skips to Sync: the replies that will not come are no longer waited for.
    """
    replies = Replies()
    replies.expect(b"P")
    skipped = replies.expect(b"B")
    replies.expect(b"S")
    behind = replies.expect(b"P")
    assert got(replies, (b"E", b"SERROR\0\0")) == [b"E"]
    assert skipped.failed
    assert not behind.failed
    assert not replies.settled  # Sync's reply will come
    assert got(replies, (b"Z", b"I"), (b"1", b"")) == [b"Z", b"1"]
    assert replies.settled


def test_what_is_sent_after_an_error_and_skipped_is_void_too():
    """
    Messages that the mirror skips, sent before its error was read, get no reply but Sync's.
    """
    replies = Replies()
    replies.expect(b"P")
    got(replies, (b"E", b"SERROR\0\0"))
    assert replies.settled
    late = replies.expect(b"B")
    replies.expect(b"S")
    assert not replies.settled
    assert got(replies, (b"Z", b"E")) == [b"Z"]
    assert late.failed
    assert replies.settled
    assert replies.status == b"E"


def test_what_is_sent_after_an_error_is_not_remembered():
    """
    However much a client sends behind an error, nothing of it is kept until the mirror skips it.
    """
    replies = Replies()
    replies.expect(b"P")
    got(replies, (b"E", b"SERROR\0\0"))
    assert all(replies.expect(kind).failed for kind in [b"C", b"B", b"D"] * 100)
    assert not replies._expected
    assert not replies.expect(b"S").failed
    behind = replies.expect(b"P")
    assert got(replies, (b"Z", b"I"), (b"1", b"")) == [b"Z", b"1"]
    assert behind.done


def test_a_statement_is_read_by_a_worker():
    """
    The process that holds connections reads no statement: a step that may be ended does, unless it
    has done so before, in both protocols.
    """
    text = "SELECT 1"
    known = SimpleNamespace(known_route=lambda *of: [(text, 0, ToMirror(text))])
    unknown = SimpleNamespace(known_route=lambda *of: None)
    for handle, body in (
        (simple_query.query, text.encode() + b"\0"),
        (extended_query.parse, Parse(b"", text.encode(), ()).encode()[5:]),
    ):
        for engine, kind in ((known, SendToMirror), (unknown, RunInThread)):
            conversation = Conversation(engine, datasets=("cps1988",), home="cps1988")
            assert isinstance(next(handle(conversation, body)), kind)


def test_an_error_of_ours_takes_the_mirrors_place():
    """
    Our own error is sent instead, and only that one.
    """
    replies = Replies()
    replies.expect(b"Q", error=b"ours")
    assert replies.got(b"E", b"SERROR\0\0") == b"ours"
    assert got(replies, (b"Z", b"I")) == [b"Z"]


def test_a_position_counts_in_the_clients_message():
    """
    The mirror's position in one statement of several is moved to where that statement began.
    """
    replies = Replies()
    replies.expect(b"Q", shift=100)
    told = replies.got(b"E", b"SERROR\0C42703\0P8\0\0")
    assert fields(told[5:])["P"] == b"108"


def test_settings_that_cannot_be_read_are_an_error_to_be_told_once():
    """
    Where the mirror fails to say the settings, the client has seen nothing, and gets that error.
    """
    conversation = Conversation(engine=None, datasets=(), home="")
    flow = conversation.read_settings(sync=True)
    assert isinstance(next(flow), SendToMirror)
    assert isinstance(next(flow), AwaitMirror)
    assert conversation.mirrored(b"E", b"SERROR\0C57014\0\0") == b""
    assert conversation.mirrored(b"Z", b"I") == b""
    with pytest.raises(StopIteration) as ended:
        flow.send(None)
    assert fields(ended.value.value[5:])["C"] == b"57014"
    assert conversation.dirty
