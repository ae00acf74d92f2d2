"""The extended protocol: Parse, Bind, Describe, Execute, Close, Sync, Flush.

A statement for the engine is, for the mirror, a *stub*: a statement with the same parameters and
columns, which raises when it is run.  The mirror describes it, and checks the values bound to it.
Only Execute runs the engine; then a portal with the rows takes the stub's place.
"""

from __future__ import annotations

from proxy.errors import DataError, Error, NotSupportedError
from proxy.server.mirror.temporary_views import CATALOG
from proxy.server.mirror.temporary_views import SETTING as VIEWS
from proxy.server.session import result_text
from proxy.server.session.conversation import (
    WRONG,
    Conversation,
    Flow,
    Portal,
    RunInThread,
    SendToClient,
    SendToMirror,
    Statement,
)
from proxy.server.session.simple_query import resolved
from proxy.server.statements import parameters, routing
from proxy.server.statements.routing import Deallocate, Reject, ToEngine
from proxy.server.wire import messages
from proxy.server.wire.frames import frame
from proxy.server.workers import tasks

NOTHING = f"SET {VIEWS} = ''"  # the stub of what gives no rows
FAILED = b"privacy.failed"  # of the statement that cannot be parsed
ROWS = b"privacy.rows"  # the statement that gives the rows, while a portal is made of it


def parse(conversation: Conversation, body: bytes) -> Flow:
    """Handle Parse."""
    message = messages.Parse.decode(body)
    try:
        text = conversation.decode(message.text)
        name = conversation.decode(message.name)
    except Error as error:
        yield from fail(conversation, error, name=message.name)
        return
    ((_, _, decision),) = yield from conversation.route(text)
    decision = yield from resolved(conversation, decision)
    if isinstance(decision, Reject):
        yield from fail(conversation, decision.error, name=message.name)
    elif isinstance(decision, ToEngine) and decision.prepares is None:
        yield from _parse_to_engine(conversation, message, name, decision)
    elif isinstance(decision, ToEngine):
        hint = "send the query itself in Parse, or PREPARE in a simple query"
        refusal = NotSupportedError("PREPARE inside of Parse is not supported", hint=hint)
        yield from fail(conversation, refusal, name=message.name)
    else:
        if CATALOG.search(text) and routing.first_word(text) in routing.QUERY:
            yield from conversation.show_views(text, sync=False)
            conversation.browses.add(message.name)
        else:
            conversation.browses.discard(message.name)
        raw = (
            message.text if isinstance(decision, Deallocate) else conversation.encode(decision.text)
        )
        expected = conversation.replies.expect(b"P")
        conversation.end_statements(name, expected)  # it was closed before, or has no name
        if isinstance(decision, Deallocate):
            conversation.end_statements(decision.name, expected)
        yield SendToMirror(messages.Parse(message.name, raw, message.types).encode())


def _parse_to_engine(
    conversation: Conversation, message: messages.Parse, name: str, request: ToEngine
) -> Flow:
    yield from conversation.await_mirror(True)
    if conversation.replies.failed:
        return
    unread = yield from conversation.read_settings(sync=False)
    if unread:
        yield SendToClient(unread)
        return
    settings = dict(conversation.settings)
    try:
        yield from conversation.room(len(request.text))
        prepared = yield RunInThread(
            lambda: conversation.engine.prepare(
                request.dataset, request.text, request.plain, message.types, settings
            )
        )
        if prepared.refusal is not None and (request.tail or request.view):
            raise prepared.refusal
        answered = request.public and prepared.refusal is not None  # by the mirror's own rows
        stub = result_text.stub(prepared.columns, result_text.NOTHING if request.explains else "")
        if answered:
            stub = request.plain
        elif request.view:
            stub = NOTHING
        raw = conversation.encode(f"{request.head} {stub} {request.tail}")
    except Error as error:
        yield from fail(conversation, error, request.offset, message.name)
        return
    previous = yield from conversation.statement(name)
    statement = Statement(request, prepared.types, prepared.columns, prepared.refusal)
    statement.parsed = conversation.replies.expect(b"P")
    yield SendToMirror(messages.Parse(message.name, raw, prepared.types).encode())
    if answered or request.explains:  # nothing is left for the engine
        conversation.end_statements(name, statement.parsed)
        return
    if name and previous is not None:
        yield from conversation.await_mirror(True)
        if statement.parsed.failed:  # the name is taken: what it stood for stays
            return
    conversation.statements[name] = statement


def bind(conversation: Conversation, body: bytes) -> Flow:
    """Handle Bind: the mirror checks the values, on the stub."""
    message = messages.Bind.decode(body)
    statement = yield from conversation.statement(message.statement.decode("utf-8", "replace"))
    conversation.portals.pop(message.portal, None)
    if statement is not None:
        try:
            yield from conversation.room(len(body))
        except Error as error:
            yield from fail(conversation, error)
            return
    elif message.statement in conversation.browses:
        yield from conversation.show_views("pg_", sync=False)
    bound = conversation.replies.expect(b"B")
    conversation.unnamed = conversation.unnamed if message.portal else bound
    if statement is not None:
        conversation.portals[message.portal] = Portal(statement, message, len(body), bound)
    yield SendToMirror(frame(b"B", body))


def execute(conversation: Conversation, body: bytes) -> Flow:
    """Handle Execute: here the engine runs."""
    name, limit = messages.read_execute(body)
    if not name and not conversation.has_unnamed:
        yield from fail(conversation, _no_portal())
        return
    portal = conversation.portals.get(name)
    if portal is not None and not portal.ran:
        yield from conversation.await_mirror(True)
        if conversation.replies.failed:
            return
        if not conversation.is_open(portal):
            portal = None  # the mirror says why
    if portal is None or portal.ran:
        conversation.dirty = conversation.forwarded = True
        conversation.replies.expect(b"E")
        yield SendToMirror(frame(b"E", body))
        return
    yield from _run(conversation, name, portal, limit)


def _no_portal() -> DataError:
    """Return the error for a portal without a name that no Bind has made.

    The mirror is not asked: PostgreSQL 18 may crash where it runs one that a failed Query left.
    """
    return DataError('portal "" does not exist', sqlstate="34000")


def _run(conversation: Conversation, name: bytes, portal: Portal, limit: int) -> Flow:
    """Run the engine, and replace the stub's portal by one with the rows."""
    statement = portal.statement
    request = statement.request
    unread = yield from conversation.read_settings(sync=False)
    if unread:
        yield SendToClient(unread)
        return
    settings = dict(conversation.settings)
    bound = parameters.Bound(request.text)
    try:
        if portal.bind.values:
            values = portal.bind, statement.types, conversation.encoding
            bound = yield RunInThread(
                lambda: conversation.engine.work(tasks.bound, request.text, *values)
            )
        if statement.refusal is not None:
            if not (
                yield RunInThread(lambda: conversation.engine.work(tasks.gives_no_row, bound.text))
            ):
                yield from fail(conversation, statement.refusal, request.offset)
                return
            raw = conversation.encode(
                f"{request.head} {result_text.stub(statement.columns, result_text.NOTHING)}"
            )
        else:
            columns = yield RunInThread(
                lambda: conversation.engine.describe(request.dataset, bound.text, settings)
            )
            if columns != statement.columns:
                raise NotSupportedError("cached plan must not change result type")
            unfit = yield from conversation.try_out(request, columns, request.offset, False)
            if unfit:
                yield SendToClient(unfit)
                return
            result = yield from conversation.run_on_engine(request, bound.text)
            raw = yield from conversation.rows(request, result, columns)
    except Error as error:
        if error.position is not None:
            error.position = bound.original(error.position)
        yield from fail(conversation, error, request.offset)
        return
    expect = conversation.replies.expect
    data = messages.Parse(ROWS, raw, ()).encode() + messages.close(b"P", name)
    data += messages.Bind(name, ROWS, (), (), portal.bind.results).encode()
    data += messages.close(b"S", ROWS) + messages.execute(name, limit)
    for kind in (b"P", b"C", b"B", b"C"):
        expect(kind, hide=True)
    expect(b"E", tag=request.tag.encode() if request.tag and not request.head else None)
    portal.ran = True
    yield SendToMirror(data)


def describe(conversation: Conversation, body: bytes) -> Flow:
    """Handle Describe: the mirror describes the stub."""
    if messages.read_target(body, "DESCRIBE") == (b"P", b"") and not conversation.has_unnamed:
        yield from fail(conversation, _no_portal())
        return
    conversation.replies.expect(b"D")
    yield SendToMirror(frame(b"D", body))


def close(conversation: Conversation, body: bytes) -> Flow:
    """Handle Close."""
    what, name = messages.read_target(body, "CLOSE")
    expected = conversation.replies.expect(b"C")
    if what == b"S":
        conversation.end_statements(name.decode("utf-8", "replace"), expected)
    else:
        conversation.portals.pop(name, None)
    yield SendToMirror(frame(b"C", body))


def sync(conversation: Conversation, body: bytes) -> Flow:
    """Handle Sync."""
    conversation.dirty = conversation.dirty or conversation.forwarded
    conversation.forwarded = False
    conversation.replies.expect(b"S")
    yield SendToMirror(frame(b"S", body))


def fail(conversation: Conversation, error: Error, offset: int = 0, name: bytes = FAILED) -> Flow:
    """Fail on both sides: the mirror gets a statement that it cannot parse.

    A ``name`` is that of the Parse which fails: a failed Parse without one ends the unnamed
    statement, any other message leaves it.
    """
    conversation.replies.expect(b"P", error=conversation.report(error, offset))
    yield SendToMirror(messages.Parse(name, WRONG, ()).encode())
