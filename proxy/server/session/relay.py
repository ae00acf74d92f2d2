"""One client's session: its two transports, and the state machine between them.

Client messages are handled one after the other; the mirror's go to the client as they come.  The
engine runs in worker threads, and is cancelled when the client disconnects, sends a cancel request,
or has waited too long.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import closing
from typing import Any

from proxy.errors import Error, InternalError
from proxy.server.limits import Limits
from proxy.server.session.conversation import (
    AwaitMirror,
    Conversation,
    Flow,
    RunInThread,
    SendToClient,
    SendToMirror,
    Step,
)
from proxy.server.session.dispatch import handle
from proxy.server.wire.frames import SHORT_KINDS, FrameError
from proxy.server.wire.messages import Report, fields
from proxy.server.wire.replies import flush
from proxy.server.wire.transport import ConnectionClosed, Transport
from proxy.server.workers.turns import Turns

log = logging.getLogger(__name__)
TIMEOUT = "canceling statement due to statement timeout"
REQUEST = "canceling statement due to user request"
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


class Relay:
    """A session, from login to the end."""

    def __init__(
        self,
        client: Transport,
        mirror: Transport,
        conversation: Conversation,
        limits: Limits,
        user: str,
        turns: Turns,
        threads: Executor,
        cancel_mirror: Callable[[], asyncio.Task[None]],
    ) -> None:
        self.conversation = conversation
        self._client = client
        self._mirror = mirror
        self._limits = limits
        self._user = user
        self._turns = turns
        self._threads = threads
        self._turn: asyncio.Future[None] | None = None  # that is waited for
        self._began = 0.0  # when the message that is handled came
        self._handles = False  # a message
        self._late = False  # the mirror was told to stop what takes too long
        self._cancel_mirror = cancel_mirror
        self._settled = asyncio.Event()
        self.engine_runs = False
        self.calls = 0  # of the engine
        self.stopping = False  # what runs is the last
        self.waits_since: float | None = None  # when the wait for the mirror began
        self.on_reply: Callable[[str | None], None] = lambda _: None  # SQLSTATE; None: it is ready
        for transport in (client, mirror):
            transport.closed.add_done_callback(lambda _: self._settled.set())
        mirror.closed.add_done_callback(lambda _: self._mirror_gone())
        client.frames.limit = mirror.frames.limit = limits.message
        client.frames.short = SHORT_KINDS  # at a longer one the mirror would end without a word
        mirror.on_message, mirror.on_rows = self._mirrored, self._mirrored_rows
        client.on_writable = lambda writable: mirror.pause(not writable)

    @property
    def busy(self) -> bool:
        """Whether a statement runs, or is being sent."""
        conversation = self.conversation
        return self.engine_runs or conversation.in_series or not conversation.replies.settled

    async def run(self) -> None:
        """Handle messages until one side closes."""
        try:
            while True:
                kind, body = await self._client.get()
                if kind == b"X":
                    return
                if self.stopping and not self.conversation.in_series:
                    await self._wait_settled()
                    self.stop()
                    return
                self.conversation.engine.begin()
                self._began, self._handles = time.monotonic(), True
                with closing(handle(self.conversation, kind, body)) as flow:
                    await self._drive(flow)
                self._handles = False
        except (ConnectionClosed, FrameError) as error:
            broken = error if isinstance(error, FrameError) else self._client.broken
            if broken is not None:
                self._fatal(broken.sqlstate, f"protocol violation: {broken}")
        finally:
            self.conversation.engine.cancel("the client has gone")
            if not self.conversation.replies.settled:
                self._cancel_mirror()

    def _mirror_gone(self) -> None:
        """Close the session with the mirror; tell the client why, unless the mirror has."""
        if self._mirror.broken is not None:
            self._fatal(self._mirror.broken.sqlstate, f"a row is too long: {self._mirror.broken}")
        elif not self.conversation.ended:
            self._fatal("57P02", "terminating connection because the server behind it has ended")
        self._client.close()

    async def _drive(self, flow: Flow) -> None:
        """Carry out a flow's steps."""
        value: Any = None
        error: Error | None = None
        while True:
            try:
                step: Step = flow.send(value) if error is None else flow.throw(error)
            except StopIteration:
                return
            value = error = None
            match step:
                case SendToMirror(data):
                    self._sent()
                    self._mirror.write(data)
                    await self._mirror.drain()
                case SendToClient(data):
                    self._write(data)
                    await self._client.drain()
                case AwaitMirror(with_flush):
                    if with_flush:
                        self._mirror.write(flush())
                    await self._wait_settled()
                case RunInThread(call, stoppable):
                    try:
                        value = await self._work(call, stoppable)
                    except Error as raised:
                        error = raised

    # --- the mirror ------------------------------------------------------------------------------

    def _mirrored(self, kind: bytes, body: bytes) -> None:
        if kind == b"E" and self._late:
            self._late, body = False, body.replace(REQUEST.encode(), TIMEOUT.encode())
        self._write(self.conversation.mirrored(kind, body))
        if self.conversation.replies.settled:
            self.waits_since = None
            self._settled.set()
        elif self.waits_since is not None and kind in b"CZIsTDHdc":
            self.waits_since = time.monotonic()  # it works on

    def _mirrored_rows(self, rows: bytes) -> None:
        self._client.write(self.conversation.mirrored_rows(rows))
        if self.waits_since is not None:
            self.waits_since = time.monotonic()

    def _write(self, data: bytes) -> None:
        self._client.write(data)
        if data[:1] == b"E":
            self.on_reply(fields(data[5:]).get("C", b"").decode("ascii", "replace"))
        elif data[:1] == b"Z":
            self.on_reply(None)

    def _sent(self) -> None:
        if self.waits_since is None and not self.conversation.replies.settled:
            self.waits_since = time.monotonic()

    async def _wait_settled(self) -> None:
        while not self.conversation.replies.settled:
            if self._mirror.closed.done() or self._client.closed.done():
                raise ConnectionClosed
            self._settled.clear()
            await self._settled.wait()

    # --- the engine ------------------------------------------------------------------------------

    async def _work(self, call: Callable[[], Any], stoppable: bool) -> Any:
        """Make a call in a thread, in the user's turn; raise the reason if it is stopped."""
        self.engine_runs = True
        self.calls += 1
        loop = asyncio.get_running_loop()
        work: asyncio.Future[Any]
        if not stoppable:
            work = loop.run_in_executor(self._threads, call)
        elif self._turns.took(self._user):
            work = self._step(call)
        else:
            work = asyncio.ensure_future(self._in_turn(call))
        try:
            left = self._began + self._seconds() - time.monotonic()
            await asyncio.wait(
                {work, self._client.closed}, timeout=left, return_when=asyncio.FIRST_COMPLETED
            )
            if not work.done() and stoppable:
                self._stop(REQUEST if self._client.closed.done() else TIMEOUT)
            return await work
        except Error:
            raise
        except Exception:
            log.exception("internal error")
            raise InternalError(
                "internal error of the proxy", hint="its log says more; please report it"
            ) from None
        finally:
            self.engine_runs = False
            if self._client.closed.done():
                raise ConnectionClosed

    async def _in_turn(self, call: Callable[[], Any]) -> Any:
        """Make a call in a thread, once it is the user's turn."""
        self._turn = asyncio.ensure_future(self._turns.take(self._user))
        try:
            await self._turn
        except asyncio.CancelledError:
            self.conversation.engine.check_canceled()
            raise
        finally:
            self._turn = None
        return await self._step(call)

    def _step(self, call: Callable[[], Any]) -> asyncio.Future[Any]:
        """Make a call in a thread, and give the turn back that was taken for it."""
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._threads, self.conversation.engine.step, call)
        work.add_done_callback(lambda _: self._turns.release(self._user))
        return work

    def _stop(self, reason: str) -> None:
        """Stop the work for the message that is handled, and all that would follow."""
        self.conversation.engine.cancel(reason)
        if self._turn is not None:
            self._turn.cancel()

    def _seconds(self) -> float:
        """Return a statement's time limit: the server's, or the client's if that is less.

        The client's is not known while it may have been changed.
        """
        known = {} if self.conversation.dirty else self.conversation.settings
        match = re.fullmatch(r"(\d+)(us|ms|s|min|h|d)?", known.get("statement_timeout", ""))
        wish = int(match[1]) * UNITS[match[2] or "ms"] if match else 0.0
        return min(wish or self._limits.seconds, self._limits.seconds)

    # --- from outside ----------------------------------------------------------------------------

    def cancel(self) -> asyncio.Task[None] | None:
        """Cancel the statement that runs, at the client's request; return what tells the mirror."""
        if self._handles:
            self._stop(REQUEST)
        if self.engine_runs or self.conversation.replies.settled:
            return None
        return self._cancel_mirror()

    def check_time(self, now: float) -> None:
        """Cancel a statement of the mirror that exceeds the server's limit; at last, disconnect."""
        if self.waits_since is None or self.engine_runs:
            return
        over = now - self.waits_since - self._limits.seconds
        if over > 10:
            self._client.abort()
        elif over > 1:
            self._late = True
            self._cancel_mirror()

    def stop(self) -> None:
        """End the session: the server stops."""
        self._fatal("57P01", "terminating connection due to administrator command")
        self._client.close()

    def _fatal(self, sqlstate: str, message: str) -> None:
        self._client.write(Report("FATAL", sqlstate, message).encode(self.conversation.encoding))
