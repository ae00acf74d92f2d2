"""Simple queries: a message with one statement, or several, each to the one who can answer it."""

from __future__ import annotations

import re
from dataclasses import replace

from proxy.errors import Error
from proxy.server.mirror.mirror import quoted
from proxy.server.session import parameters, result_text, routing
from proxy.server.session.conversation import (
    WRONG,
    Conversation,
    Do,
    Flow,
    Send,
    Statement,
    Tell,
    worked,
)
from proxy.server.session.routing import Ask, Decision, Execute, Forget, Forward, Refuse
from proxy.server.wire import messages
from proxy.server.wire.frames import frame
from proxy.server.wire.replies import Expected

# Columns of catalogs by the names that they had before PostgreSQL 17, as psql 15 and 16 ask for.
RENAMED = re.compile(rb"\b(d\.dat|c\.coll)iculocale\b")
RENAMED_IN = 17


def query(talk: Conversation, body: bytes) -> Flow:
    """Handle a Query message."""
    raw = _renamed(talk, messages.read_query(body))
    try:
        text = talk.decode(raw)
    except Error as error:
        yield from _send(talk, WRONG, error=talk.report(error))
        return
    pieces, plans = yield from worked(lambda: _plans(talk, text), len(text) > routing.LONG)
    if all(
        isinstance(plan, Forward) and plan.text == piece
        for (plan, _), (piece, _) in zip(plans, pieces, strict=True)
    ) and not (talk.views.datasets and len(plans) == 1):
        yield from forward(talk, raw)
    elif len(plans) == 1:
        decision, offset = plans[0]
        yield from _one(talk, decision, offset, last=True)
    else:
        yield from _several(talk, plans, [piece for piece, _ in pieces])


def _renamed(talk: Conversation, raw: bytes) -> bytes:
    r"""Return the text with the names that the mirror's catalogs have, for psql's \l and \dO."""
    version = re.match(rb"\d+", talk.replies.parameters.get(b"server_version", b""))
    if version is None or int(version[0]) < RENAMED_IN or b"pg_catalog.pg_" not in raw:
        return raw
    return RENAMED.sub(rb"\1locale   ", raw)  # as long, so that an error's position stays right


def _plans(
    talk: Conversation, text: str
) -> tuple[list[tuple[str, int]], list[tuple[Decision, int]]]:
    """Return the statements of a text, and what to do with each."""
    pieces = routing.split(text) if ";" in text else [(text, 0)]
    return pieces, [(talk.decide(piece), offset) for piece, offset in pieces]


def resolved(talk: Conversation, decision: Decision) -> Decision:
    """Turn EXECUTE of a statement of the engine's into that statement with its arguments."""
    if not isinstance(decision, Execute):
        return decision
    statement = talk.statements.get(decision.name)
    if statement is None or len(decision.arguments) != len(statement.types):
        return Forward(decision.text)
    literals = [f"({argument})" for argument in decision.arguments]
    ask = statement.ask
    text, bare = (parameters.fill(each, literals).text for each in (ask.text, ask.plain))
    return replace(ask, text=text, plain=bare, head="", offset=0, tag=None, prepares=None)


def forward(talk: Conversation, raw: bytes) -> Flow:
    """Leave a message to the mirror."""
    talk.dirty = True
    yield from _send(talk, raw)


def _several(talk: Conversation, plans: list[tuple[Decision, int]], pieces: list[str]) -> Flow:
    """Handle statement after statement, in one transaction, as PostgreSQL does."""
    words = {routing.first_word(piece) for piece in pieces}
    yield from talk.settle(False)
    wrap = talk.replies.status == b"I" and not words & routing.CONTROL
    if wrap:
        begun = yield from _send(talk, b"BEGIN", hide=True)
        yield from talk.settle(False)
        if begun.failed:  # cancelled, and the client has been told
            yield Tell(frame(b"Z", talk.replies.status))
            return
    failed = False
    for decision, offset in plans:
        failed = yield from _one(talk, decision, offset, last=False)
        if failed:
            break
    if wrap:
        yield from _send(talk, b"ROLLBACK" if failed else b"COMMIT", hide=True)
        talk.released = 0.0
        talk.dirty = True
        yield from talk.settle(False)
    yield Tell(frame(b"Z", talk.replies.status))


def _one(talk: Conversation, decision: Decision, offset: int, last: bool) -> Flow:
    """Handle one statement; return whether it failed."""
    if isinstance(decision, Execute):  # of what one before it may have prepared
        decision = yield from worked(lambda: resolved(talk, decision), bool(talk.statements))
    if isinstance(decision, Refuse):
        return (yield from fail(talk, decision.error, offset, last))
    if isinstance(decision, Ask):
        return (yield from _ask(talk, decision, offset, last))
    if isinstance(decision, Forget):
        talk.forget(decision.name)
    word = routing.first_word(decision.text)
    shown = word in routing.QUERY and (yield from talk.show_views(decision.text, sync=True))
    talk.dirty = True
    how = {"hide_end": shown or not last, "shift": offset}
    expected = yield from _send(talk, talk.encode(decision.text), **how)
    if shown:
        yield from _send(talk, b"COMMIT", hide=True)
        yield from talk.settle(False)
        if last:
            yield Tell(frame(b"Z", talk.replies.status))
    elif not last:
        yield from talk.settle(False)
    return expected.failed


def _ask(talk: Conversation, ask: Ask, offset: int, last: bool) -> Flow:
    yield from talk.settle(False)
    if talk.replies.status == b"E":  # the mirror says so
        expected = yield from _send(talk, b"SELECT 1", hide_end=not last)
        yield from talk.settle(False)
        return expected.failed
    unread = yield from talk.read_settings(sync=True)
    if unread:
        yield from _send(talk, WRONG, error=unread, hide_end=not last)
        yield from talk.settle(False)
        return True
    offset += ask.offset
    settings = dict(talk.settings)
    if ask.prepares is not None:
        return (yield from _prepare(talk, ask, offset, last))
    if ask.explains:
        return (yield from _explain(talk, ask, offset, last))
    try:
        columns = yield Do(lambda: talk.desk.describe(ask.dataset, ask.text, settings))
    except Error as error:
        if ask.tail or ask.view:
            return (yield from fail(talk, error, offset, last))
        return (yield from _refused(talk, ask, error, offset, last))
    try:
        unfit = (yield from talk.tried(ask, columns, offset, True)) if ask.tail else None
        if unfit:
            yield from _send(talk, WRONG, error=unfit, hide_end=not last)
            yield from talk.settle(False)
            return True
        result = yield from talk.ask(ask, ask.text)
        data = yield from talk.rows(ask, result, columns)
    except Error as error:
        return (yield from fail(talk, error, offset, last))
    tag = ask.tag.encode() if ask.tag and not ask.head else None
    expected = yield from _send(talk, data, hide_end=not last, tag=tag)
    yield from talk.settle(False)
    return expected.failed


def _refused(talk: Conversation, ask: Ask, error: Error, offset: int, last: bool) -> Flow:
    """Handle what the engine refuses: a probe has no row, and public rows are the mirror's too."""
    text = ask.plain
    if not ask.public:
        columns = yield Do(lambda: talk.desk.probe(ask.text, ask.plain))
        if columns is None:
            return (yield from fail(talk, error, offset, last))
        text = result_text.stub(columns, result_text.NOTHING)
    how = {"error": talk.report(error, offset), "hide_end": not last}
    expected = yield from _send(talk, talk.encode(f"{ask.head} {text}"), **how)
    yield from talk.settle(False)
    return expected.failed


def _explain(talk: Conversation, ask: Ask, offset: int, last: bool) -> Flow:
    """EXPLAIN: the plan of a query with the same columns, which reads nothing."""
    settings = dict(talk.settings)
    try:
        found = yield Do(lambda: talk.desk.prepare(ask.dataset, ask.text, ask.plain, (), settings))
    except Error as error:
        return (yield from fail(talk, error, offset, last))
    text = f"{ask.head} {result_text.stub(found.columns, result_text.NOTHING)}"
    expected = yield from _send(talk, talk.encode(text), hide_end=not last)
    yield from talk.settle(False)
    return expected.failed


def _prepare(talk: Conversation, ask: Ask, offset: int, last: bool) -> Flow:
    """PREPARE: the mirror keeps a stub under the name, with the types of the parameters."""
    settings = dict(talk.settings)
    name, declared = ask.prepares or ("", "")
    try:
        yield from talk.room(len(ask.text))
        found, names = yield Do(
            lambda: talk.desk.prepare_sql(ask.dataset, ask.text, ask.plain, declared, settings)
        )
    except Error as error:
        return (yield from fail(talk, error, offset, last))
    listed = f" ({', '.join(names)})" if names else ""
    text = f"PREPARE {quoted(name)}{listed} AS {result_text.stub(found.columns)}"
    expected = yield from _send(talk, talk.encode(text), hide_end=not last)
    yield from talk.settle(False)
    if not expected.failed:
        plain = replace(ask, head="", tag=None, prepares=None)
        talk.statements[name] = Statement(plain, found.types, found.columns, found.refusal)
    return expected.failed


def fail(talk: Conversation, error: Error, offset: int = 0, last: bool = True) -> Flow:
    """End a statement with an error of ours, on both sides."""
    how = {"error": talk.report(error, offset), "hide_end": not last}
    yield from _send(talk, WRONG, **how)
    yield from talk.settle(False)
    return True


def _send(talk: Conversation, text: bytes, **how: object) -> Flow:
    """Send a query to the mirror; return the reply to come."""
    expected: Expected = talk.replies.expect(b"Q", **how)
    yield Send(messages.query(text))
    return expected
