"""The extended protocol: Parse, Bind, Describe, Execute, Close, Sync, Flush.

A question to the engine is, for the mirror, a *stub*: a statement with its parameters and columns,
which raises when it is run.  The mirror describes it, and checks the values that are bound to it.
Only Execute asks the engine; then a portal with the rows takes the stub's place.
"""

from __future__ import annotations

from proxy.errors import Error, NotSupportedError
from proxy.server.mirror.temporary_views import CATALOG
from proxy.server.mirror.temporary_views import SETTING as VIEWS
from proxy.server.session import parameters, result_text, routing
from proxy.server.session.conversation import (
    WRONG,
    Conversation,
    Do,
    Flow,
    Portal,
    Send,
    Statement,
    Tell,
    worked,
)
from proxy.server.session.probe import gives_no_row
from proxy.server.session.routing import Ask, Forget, Refuse
from proxy.server.session.simple_query import resolved
from proxy.server.wire import messages
from proxy.server.wire.frames import frame

NOTHING = f"SET {VIEWS} = ''"  # the stub of what gives no rows
ROWS = b"privacy.rows"  # the statement that gives the rows, while a portal is made of it


def parse(talk: Conversation, body: bytes) -> Flow:
    """Handle Parse."""
    message = messages.Parse.decode(body)
    try:
        text = talk.decode(message.text)
        name = talk.decode(message.name)
    except Error as error:
        yield from fail(talk, error)
        return
    decision = yield from worked(
        lambda: resolved(talk, talk.decide(text)), len(text) > routing.LONG
    )
    if isinstance(decision, Refuse):
        yield from fail(talk, decision.error)
    elif isinstance(decision, Ask) and decision.prepares is None:
        yield from _parse_ask(talk, message, name, decision)
    elif isinstance(decision, Ask):
        hint = "send the query itself in Parse, or PREPARE in a simple query"
        yield from fail(
            talk, NotSupportedError("PREPARE inside of Parse is not supported", hint=hint)
        )
    else:
        if isinstance(decision, Forget):
            talk.forget(decision.name)
        if not name:
            talk.statements.pop(name, None)
        if CATALOG.search(text) and routing.first_word(text) in routing.QUERY:
            yield from talk.show_views(text, sync=False)
            talk.browses.add(message.name)
        else:
            talk.browses.discard(message.name)
        raw = message.text if isinstance(decision, Forget) else talk.encode(decision.text)
        talk.replies.expect(b"P")
        yield Send(messages.Parse(message.name, raw, message.types).encode())


def _parse_ask(talk: Conversation, message: messages.Parse, name: str, ask: Ask) -> Flow:
    yield from talk.settle(True)
    if talk.replies.failed:
        return
    unread = yield from talk.read_settings(sync=False)
    if unread:
        yield Tell(unread)
        return
    settings = dict(talk.settings)
    try:
        yield from talk.room(len(ask.text))
        found = yield Do(
            lambda: talk.desk.prepare(ask.dataset, ask.text, ask.plain, message.types, settings)
        )
        if found.refusal is not None and (ask.tail or ask.view):
            raise found.refusal
        answered = ask.public and found.refusal is not None  # by the mirror, which has the rows
        stub = result_text.stub(found.columns, result_text.NOTHING if ask.explains else "")
        if answered:
            stub = ask.plain
        elif ask.view:
            stub = NOTHING
        raw = talk.encode(f"{ask.head} {stub} {ask.tail}")
    except Error as error:
        yield from fail(talk, error, ask.offset)
        return
    known = talk.statements.get(name)
    statement = Statement(ask, found.types, found.columns, found.refusal)
    statement.made = talk.replies.expect(b"P")
    yield Send(messages.Parse(message.name, raw, found.types).encode())
    if answered or ask.explains:  # nothing is left to ask
        if not name:
            talk.statements.pop(name, None)
        return
    if name and known is not None and known.made is not None:
        yield from talk.settle(True)
        if statement.made.failed:  # the name is taken: what it stood for stays
            return
    talk.statements[name] = statement


def bind(talk: Conversation, body: bytes) -> Flow:
    """Handle Bind: the mirror checks the values, on the stub."""
    message = messages.Bind.decode(body)
    statement = talk.statements.get(message.statement.decode("utf-8", "replace"))
    talk.portals.pop(message.portal, None)
    if statement is not None and not (statement.made and statement.made.failed):
        try:
            yield from talk.room(len(body))
        except Error as error:
            yield from fail(talk, error)
            return
        talk.portals[message.portal] = Portal(statement, message, len(body), talk.syncs)
    if statement is None and message.statement in talk.browses:
        yield from talk.show_views("pg_", sync=False)
    talk.replies.expect(b"B")
    yield Send(frame(b"B", body))


def execute(talk: Conversation, body: bytes) -> Flow:
    """Handle Execute: here the engine is asked."""
    name, limit = messages.read_execute(body)
    portal = talk.portals.get(name)
    if portal is not None and not portal.ran:
        yield from talk.settle(True)
        if talk.replies.failed:
            return
        if portal.syncs != talk.syncs and talk.replies.status == b"I":
            portal = None  # it ended with its transaction: the mirror says so
    if portal is None or portal.ran:
        talk.dirty = talk.forwarded = True
        talk.replies.expect(b"E")
        yield Send(frame(b"E", body))
        return
    yield from _run(talk, name, portal, limit)


def _run(talk: Conversation, name: bytes, portal: Portal, limit: int) -> Flow:
    """Ask the engine, and put a portal with the rows in the place of the stub's."""
    statement = portal.statement
    ask = statement.ask
    unread = yield from talk.read_settings(sync=False)
    if unread:
        yield Tell(unread)
        return
    settings = dict(talk.settings)
    bound = parameters.Bound(ask.text)
    try:
        literals = parameters.literals(portal.bind, statement.types, talk.encoding)
        bound = yield from worked(
            lambda: parameters.fill(ask.text, literals),
            len(ask.text) + portal.size > routing.LONG,
        )
        if statement.refusal is not None:
            if not (yield Do(lambda: gives_no_row(bound.text))):
                yield from fail(talk, statement.refusal, ask.offset)
                return
            raw = talk.encode(
                f"{ask.head} {result_text.stub(statement.columns, result_text.NOTHING)}"
            )
        else:
            columns = yield Do(lambda: talk.desk.describe(ask.dataset, bound.text, settings))
            if columns != statement.columns:
                raise NotSupportedError("cached plan must not change result type")
            unfit = (yield from talk.tried(ask, columns, ask.offset, False)) if ask.tail else None
            if unfit:
                yield Tell(unfit)
                return
            result = yield from talk.ask(ask, bound.text)
            raw = yield from talk.rows(ask, result, columns)
    except Error as error:
        if error.position is not None:
            error.position = bound.original(error.position)
        yield from fail(talk, error, ask.offset)
        return
    expect = talk.replies.expect
    data = messages.Parse(ROWS, raw, ()).encode() + messages.close(b"P", name)
    data += messages.Bind(name, ROWS, (), (), portal.bind.results).encode()
    data += messages.close(b"S", ROWS) + messages.execute(name, limit)
    for kind in (b"P", b"C", b"B", b"C"):
        expect(kind, hide=True)
    expect(b"E", tag=ask.tag.encode() if ask.tag and not ask.head else None)
    portal.ran = True
    yield Send(data)


def describe(talk: Conversation, body: bytes) -> Flow:
    """Handle Describe: the mirror describes the stub."""
    messages.read_target(body, "DESCRIBE")
    talk.replies.expect(b"D")
    yield Send(frame(b"D", body))


def close(talk: Conversation, body: bytes) -> Flow:
    """Handle Close."""
    what, name = messages.read_target(body, "CLOSE")
    if what == b"S":
        talk.statements.pop(name.decode("utf-8", "replace"), None)
    else:
        talk.portals.pop(name, None)
    talk.replies.expect(b"C")
    yield Send(frame(b"C", body))


def sync(talk: Conversation, body: bytes) -> Flow:
    """Handle Sync."""
    talk.syncs += 1
    talk.dirty = talk.dirty or talk.forwarded
    talk.forwarded = False
    talk.replies.expect(b"S")
    yield Send(frame(b"S", body))


def fail(talk: Conversation, error: Error, offset: int = 0) -> Flow:
    """Fail on both sides: the mirror gets a statement that it cannot parse, under no name."""
    talk.replies.expect(b"P", error=talk.report(error, offset))
    yield Send(messages.Parse(b"", WRONG, ()).encode())
