"""The simple protocol: a Query with one statement or several, each routed by itself."""

from __future__ import annotations

import re

from msgspec.structs import replace

from proxy.errors import Error
from proxy.server.mirror.mirror import quoted
from proxy.server.session import result_text
from proxy.server.session.conversation import (
    WRONG,
    Conversation,
    Flow,
    RunInThread,
    SendToClient,
    SendToMirror,
    Statement,
)
from proxy.server.statements import routing
from proxy.server.statements.routing import (
    Deallocate,
    Decision,
    ExecutePrepared,
    Reject,
    ToEngine,
    ToMirror,
)
from proxy.server.wire import messages
from proxy.server.wire.frames import frame
from proxy.server.wire.replies import Expected

# Columns of catalogs by the names that they had before PostgreSQL 17, as psql 15 and 16 ask for.
RENAMED = re.compile(rb"\b(d\.dat|c\.coll)iculocale\b")
RENAMED_IN = 17


def query(conversation: Conversation, body: bytes) -> Flow:
    """Handle a Query message."""
    conversation.unnamed = None  # its place is taken
    conversation.portals.pop(b"", None)
    raw = _renamed(conversation, messages.read_query(body))
    try:
        text = conversation.decode(raw)
    except Error as error:
        yield from _send(conversation, WRONG, error=conversation.report(error))
        return
    plan = yield from conversation.route(text, several=True)
    if all(isinstance(to, ToMirror) and to.text == piece for piece, _, to in plan) and not (
        conversation.views.datasets and len(plan) == 1
    ):
        yield from forward(conversation, raw)
    elif len(plan) == 1:
        _, offset, decision = plan[0]
        yield from _one(conversation, decision, offset, last=True)
    else:
        yield from _several(conversation, plan)


def _renamed(conversation: Conversation, raw: bytes) -> bytes:
    r"""Return the text with the names that the mirror's catalogs have, for psql's \l and \dO."""
    version = re.match(rb"\d+", conversation.replies.parameters.get(b"server_version", b""))
    if version is None or int(version[0]) < RENAMED_IN or b"pg_catalog.pg_" not in raw:
        return raw
    return RENAMED.sub(rb"\1locale   ", raw)  # as long, so that an error's position stays right


def resolved(conversation: Conversation, decision: Decision) -> Flow:
    """Replace EXECUTE of an engine statement by that statement with its arguments."""
    if not isinstance(decision, ExecutePrepared):
        return decision
    if decision.name in conversation.statements:
        yield from conversation.await_mirror(True)
    statement = yield from conversation.statement(decision.name)
    if statement is None or len(decision.arguments) != len(statement.types):
        return ToMirror(decision.text)
    request, arguments, types = statement.request, decision.arguments, statement.types
    try:
        text, bare = yield RunInThread(
            lambda: conversation.engine.filled([request.text, request.plain], arguments, types)
        )
    except Error as error:
        error.position = None  # in an argument
        return Reject(error)
    return replace(request, text=text, plain=bare, head="", offset=0, tag=None, prepares=None)


def forward(conversation: Conversation, raw: bytes) -> Flow:
    """Forward a message to the mirror."""
    conversation.dirty = True
    yield from _send(conversation, raw)


def _several(conversation: Conversation, plan: list[tuple[str, int, Decision]]) -> Flow:
    """Handle statement after statement, in one transaction, as PostgreSQL does."""
    words = {routing.first_word(piece) for piece, _, _ in plan}
    yield from conversation.await_mirror(False)
    wrap = conversation.replies.status == b"I" and not words & routing.CONTROL
    if wrap:
        begun = yield from _send(conversation, b"BEGIN", hide=True)
        yield from conversation.await_mirror(False)
        if begun.failed:  # cancelled, and the client has been told
            yield SendToClient(frame(b"Z", conversation.replies.status))
            return
    failed = False
    for _, offset, decision in plan:
        try:
            failed = yield from _one(conversation, decision, offset, last=False)
        except Error as error:
            failed = yield from fail(conversation, error, offset, last=False)
        if failed:
            break
    if wrap:
        yield from _send(conversation, b"ROLLBACK" if failed else b"COMMIT", hide=True)
        conversation.released = 0.0
        conversation.dirty = True
        yield from conversation.await_mirror(False)
    yield SendToClient(frame(b"Z", conversation.replies.status))


def _one(conversation: Conversation, decision: Decision, offset: int, last: bool) -> Flow:
    """Handle one statement; return whether it failed."""
    decision = yield from resolved(conversation, decision)
    if isinstance(decision, Reject):
        return (yield from fail(conversation, decision.error, offset, last))
    if isinstance(decision, ToEngine):
        return (yield from _to_engine(conversation, decision, offset, last))
    word = routing.first_word(decision.text)
    shown = word in routing.QUERY and (yield from conversation.show_views(decision.text, sync=True))
    conversation.dirty = True
    how = {"hide_end": shown or not last, "shift": offset}
    expected = yield from _send(conversation, conversation.encode(decision.text), **how)
    if isinstance(decision, Deallocate):
        conversation.end_statements(decision.name, expected)
    if shown:
        yield from _send(conversation, b"COMMIT", hide=True)
        yield from conversation.await_mirror(False)
        if last:
            yield SendToClient(frame(b"Z", conversation.replies.status))
    elif not last:
        yield from conversation.await_mirror(False)
    return expected.failed


def _to_engine(conversation: Conversation, request: ToEngine, offset: int, last: bool) -> Flow:
    yield from conversation.await_mirror(False)
    if conversation.replies.status == b"E":  # the mirror says so
        expected = yield from _send(conversation, b"SELECT 1", hide_end=not last)
        yield from conversation.await_mirror(False)
        return expected.failed
    unread = yield from conversation.read_settings(sync=True)
    if unread:
        yield from _send(conversation, WRONG, error=unread, hide_end=not last)
        yield from conversation.await_mirror(False)
        return True
    offset += request.offset
    settings = dict(conversation.settings)
    if request.prepares is not None:
        return (yield from _prepare(conversation, request, offset, last))
    if request.explains:
        return (yield from _explain(conversation, request, offset, last))
    try:
        of = request.dataset, request.text, settings
        ran = conversation.ran_of(request)
        columns = ran.columns if ran else conversation.engine.known_columns(*of)
        if columns is None:
            columns = yield RunInThread(lambda: conversation.engine.describe(*of))
    except Error as error:
        if request.tail or request.view:
            return (yield from fail(conversation, error, offset, last))
        return (yield from _rejected(conversation, request, error, offset, last))
    try:
        unfit = yield from conversation.try_out(request, columns, offset, True)
        if unfit:
            yield from _send(conversation, WRONG, error=unfit, hide_end=not last)
            yield from conversation.await_mirror(False)
            return True
        result = yield from conversation.run_on_engine(request, request.text)
        data = yield from conversation.rows(request, result, columns)
    except Error as error:
        return (yield from fail(conversation, error, offset, last))
    tag = request.tag.encode() if request.tag and not request.head else None
    expected = yield from _send(conversation, data, hide_end=not last, tag=tag)
    yield from conversation.await_mirror(False)
    return expected.failed


def _rejected(
    conversation: Conversation, request: ToEngine, error: Error, offset: int, last: bool
) -> Flow:
    """Handle what the engine refuses: the mirror answers probes, and queries of public tables."""
    text = request.plain
    if not request.public:
        columns = yield RunInThread(lambda: conversation.engine.probe(request.text, request.plain))
        if columns is None:
            return (yield from fail(conversation, error, offset, last))
        text = result_text.stub(columns, result_text.NOTHING)
    how = {"error": conversation.report(error, offset), "hide_end": not last}
    expected = yield from _send(conversation, conversation.encode(f"{request.head} {text}"), **how)
    yield from conversation.await_mirror(False)
    return expected.failed


def _explain(conversation: Conversation, request: ToEngine, offset: int, last: bool) -> Flow:
    """EXPLAIN: the plan of a query with the same columns, which reads nothing."""
    settings = dict(conversation.settings)
    try:
        prepared = yield RunInThread(
            lambda: conversation.engine.prepare(
                request.dataset, request.text, request.plain, (), settings
            )
        )
    except Error as error:
        return (yield from fail(conversation, error, offset, last))
    text = f"{request.head} {result_text.stub(prepared.columns, result_text.NOTHING)}"
    expected = yield from _send(conversation, conversation.encode(text), hide_end=not last)
    yield from conversation.await_mirror(False)
    return expected.failed


def _prepare(conversation: Conversation, request: ToEngine, offset: int, last: bool) -> Flow:
    """PREPARE: the mirror keeps a stub under the name, with the types of the parameters."""
    settings = dict(conversation.settings)
    name, declared = request.prepares or ("", "")
    try:
        yield from conversation.room(len(request.text))
        prepared, names = yield RunInThread(
            lambda: conversation.engine.prepare_sql(
                request.dataset, request.text, request.plain, declared, settings
            )
        )
    except Error as error:
        return (yield from fail(conversation, error, offset, last))
    listed = f" ({', '.join(names)})" if names else ""
    text = f"PREPARE {quoted(name)}{listed} AS {result_text.stub(prepared.columns)}"
    expected = yield from _send(conversation, conversation.encode(text), hide_end=not last)
    yield from conversation.await_mirror(False)
    if not expected.failed:
        plain = replace(request, head="", tag=None, prepares=None)
        conversation.statements[name] = Statement(
            plain, prepared.types, prepared.columns, prepared.refusal
        )
    return expected.failed


def fail(conversation: Conversation, error: Error, offset: int = 0, last: bool = True) -> Flow:
    """Fail a statement with an error of ours, on both sides."""
    how = {"error": conversation.report(error, offset), "hide_end": not last}
    yield from _send(conversation, WRONG, **how)
    yield from conversation.await_mirror(False)
    return True


def _send(conversation: Conversation, text: bytes, **how: object) -> Flow:
    """Send a query to the mirror; return its expected reply."""
    expected: Expected = conversation.replies.expect(b"Q", **how)
    yield SendToMirror(messages.query(text))
    return expected
