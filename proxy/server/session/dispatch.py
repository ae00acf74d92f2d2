"""From a message of the client to the flow that handles it."""

from __future__ import annotations

from collections.abc import Callable

from proxy.errors import Error
from proxy.server.session import extended_query, simple_query
from proxy.server.session.conversation import Conversation, Flow, SendToMirror
from proxy.server.wire.frames import FrameError, frame
from proxy.server.wire.replies import flush

HANDLERS: dict[bytes, Callable[[Conversation, bytes], Flow]] = {
    b"Q": simple_query.query,
    b"P": extended_query.parse,
    b"B": extended_query.bind,
    b"D": extended_query.describe,
    b"E": extended_query.execute,
    b"C": extended_query.close,
    b"S": extended_query.sync,
}
FLUSH, CALL = b"H", b"F"
QUERIES = (b"Q", CALL)
ENDS = (*QUERIES, b"S")  # messages that ReadyForQuery answers
COPY_IN = b"G"  # the mirror waits for rows
COPY_DATA = (b"d", b"c", b"f")  # they come


def handle(conversation: Conversation, kind: bytes, body: bytes) -> Flow:
    """Handle one message of the client.

    Raises:
        FrameError: there is no message of this kind; the connection cannot go on.
    """
    if kind in QUERIES and conversation.in_series and (yield from _skipped(conversation)):
        return
    conversation.in_series = True
    if kind in HANDLERS:
        yield from _guarded(conversation, kind, HANDLERS[kind](conversation, body))
    elif kind == FLUSH:
        yield SendToMirror(flush())
    elif kind == CALL:
        conversation.replies.expect(kind)
        yield SendToMirror(frame(kind, body))
    elif kind in COPY_DATA:
        yield SendToMirror(frame(kind, body))
    else:
        raise FrameError(f"invalid frontend message type {kind[0]}")
    conversation.in_series = kind not in ENDS


def _skipped(conversation: Conversation) -> Flow:
    """Whether the mirror, after an error, skips all messages up to the next Sync."""
    if conversation.last != COPY_IN:
        yield from conversation.await_mirror(True)
    return conversation.replies.failed


def _guarded(conversation: Conversation, kind: bytes, flow: Flow) -> Flow:
    """Run a flow; an error that it raises fails the message, and the session goes on."""
    try:
        yield from flow
    except Error as error:
        yield from (simple_query.fail if kind == b"Q" else extended_query.fail)(conversation, error)
