"""The planners' template, and a planner: a process that plans, measures and infers.

It holds the histories of every dataset that is served, and reads ledgers and cubes as any process
of the proxy does; programs, privileges and settings come from the server, which never plans.  One
statement runs at a time, in a thread of its own, and is cancelled through the same line; if it does
not stop, the server ends the process, and with it whatever memory it took.  A planner that ends
at whatever moment leaves what is in the ledger, as any process does.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import math
import os
import pickle
import queue
import select
import socket
import threading
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from hashlib import blake2b
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from proxy.engine.allowances import Allowance
from proxy.engine.answered import Answered
from proxy.engine.asker import Asker
from proxy.engine.bill import Bill
from proxy.engine.planner import Explained, LocalPlanner, Setup
from proxy.engine.reports import BudgetReport
from proxy.errors import Error
from proxy.policy import Users
from proxy.privileges import Privileges, privileges_of
from proxy.server.workers import tasks, template
from proxy.server.workers.template import NICE, QUICK
from proxy.settings import Settings
from proxy.sql.compile.release_point import space
from proxy.sql.evaluator.worker import receive, send
from proxy.sql.program import Number, Program

MEMORY = 2 << 30  # bytes that a planner may take beside what it begins with, and the cubes
CELL = 64  # bytes that a cell of a cube may take
MAX_CUBE = 1 << 30  # cells
LOST = 1 << 60  # bytes that no process may have: it is not used again

KEPT, KEPT_BYTES = 256, 32 << 20  # programs, whose numbers are then prepared already


class Who(Struct, frozen=True):
    """An asker on the way to a planner; ``users`` only where the planner has others."""

    user: str
    users: Users | None
    settings: Settings
    bill: Bill | None
    known: bool = False  # whether the planner has these users


class Kept:
    """The last programs that were sent to a planner, by digest: both sides keep the same."""

    def __init__(self) -> None:
        self._programs: dict[bytes, tuple[int, Program | None]] = {}  # None: on the other side
        self._bytes = 0

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._programs

    def get(self, digest: bytes) -> Program | None:
        """Return a program, if it is kept."""
        kept = self._programs.get(digest)
        return kept[1] if kept else None

    def put(self, digest: bytes, size: int, program: Program | None = None) -> None:
        """Keep a new program; where there are too many, forget the oldest."""
        if size > KEPT_BYTES:
            return
        self._programs[digest] = size, program
        self._bytes += size
        while len(self._programs) > KEPT or self._bytes > KEPT_BYTES:
            size, _ = self._programs.pop(next(iter(self._programs)))
            self._bytes -= size


class Packed(Struct, frozen=True):
    """A program on its way: no bytes where the other side has it."""

    digest: bytes
    data: bytes = b""


@dataclass
class _Running:
    """The call that runs."""

    number: int
    asker: Asker | None = None
    canceled: bool = False

    def cancel(self) -> None:
        self.canceled = True
        if self.asker is not None:
            self.asker.cancel()


_setups: dict[str, Setup] = {}  # by the key of the policy
_begun: dict[str, LocalPlanner] = {}  # whose histories the template has read
_planners: dict[str, LocalPlanner] = {}  # with a ledger of this process
_users: dict[str, Users | None] = {}  # the users files that came last
_programs = Kept()
_running = _Running(0)


# --- what the server calls -----------------------------------------------------------------------


def who(asker: Asker) -> Who:
    """Return what a planner has to know of an asker, on the side of the server."""
    settings = copy(asker.settings)
    settings.views = {}  # which the program has in it
    return Who(asker.user, asker.users, settings, asker.bill)


def packed(program: Program, there: Kept) -> Packed:
    """Return a program for a planner that keeps these, on the side of the server."""
    data = pickle.dumps(program, 5)
    digest = blake2b(data, digest_size=16).digest()
    if digest in there:
        return Packed(digest)
    there.put(digest, len(data))
    return Packed(digest, data)


def answered(key: str, sent: Packed, who: Who, spend: bool) -> Answered:
    """Return every number of a program, without what the server has or does not need."""
    program = _unpacked(sent)
    told = _planner(key).answered(program, _asker(key, who), spend)
    whole = bool(program.derived or program.traces or told.sources is not None)
    bare = [
        replace(each, number=cast(Number, None), estimators=each.estimators if whole else ())
        for each in told.inference.outcomes
    ]
    return replace(
        told, inference=replace(told.inference, outcomes=bare), bill=told.bill.continued()
    )


def explained(key: str, sent: Packed, who: Who) -> Explained:
    """Return the cost that each number of a program would have."""
    program = _unpacked(sent)
    return _planner(key).explained(program, _asker(key, who))


def budget(key: str, privileges: Privileges) -> BudgetReport:
    """Return every budget of the history that serves a user."""
    return _planner(key).budget(privileges)


def left(key: str, privileges: Privileges) -> Allowance:
    """Return the limit with the least left, of all that bind a user."""
    return _planner(key).left(privileges)


def left_in_cells(key: str, privileges: Privileges) -> float:
    """Return the alpha left in that cell of the user's history which has least left."""
    return _planner(key).left_in_cells(privileges)


def _unpacked(sent: Packed) -> Program:
    program = _programs.get(sent.digest)
    if program is None:
        program = pickle.loads(sent.data)
        _programs.put(sent.digest, len(sent.data), program)
    return program


def _planner(key: str) -> LocalPlanner:
    if key not in _planners:
        if key not in _setups:
            raise tasks.StaleError("the policy has changed meanwhile", hint="try again")
        _planners[key] = _setups[key].open(_begun.get(key))
    return _planners[key]


def _asker(key: str, who: Who) -> Asker:
    policy = _setups[key].policy
    if not who.known:
        _users[key] = who.users
    privileges = privileges_of(policy, _users[key], who.user)
    asker = Asker(policy, who.user, _users[key], privileges, who.settings)
    asker.bill = who.bill
    _running.asker = asker
    if _running.canceled:
        asker.cancel()
    return asker


# --- the process ---------------------------------------------------------------------------------


class _Runner:
    """The thread that makes the calls, one after the other: a new one would cost each its stack."""

    def __init__(self, line: socket.socket, resident: Callable[[], int]) -> None:
        self._line, self._resident = line, resident
        self._calls: queue.SimpleQueue[bytearray | None] = queue.SimpleQueue()
        self.busy = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def call(self, request: bytearray) -> None:
        """Make a call, when the one before is answered."""
        self.busy = True
        self._calls.put(request)

    def step_back(self) -> None:
        """Let quicker ones go first, for good: it ends with the call that it makes."""
        self._calls.put(None)
        assert self._thread.native_id
        with contextlib.suppress(OSError):  # it has ended: the priority is the thread's own
            os.setpriority(os.PRIO_PROCESS, self._thread.native_id, NICE)

    def _run(self) -> None:
        while (request := self._calls.get()) is not None:
            self._answer(request)
            del request

    def _answer(self, request: bytearray) -> None:
        """Answer one call; end the process where that fails, so that nobody waits for it."""
        buffers: list[pickle.PickleBuffer] = []
        lost = True
        try:
            try:
                head = template.answer(request, buffers)
                lost = False
            except BaseException as error:
                buffers.clear()
                lost = isinstance(error, MemoryError | RecursionError)  # in the midst of what?
                head = pickle.dumps(("error", template.told(error)))
                del error
            size = LOST if lost else self._resident()
            self.busy = False
            send(self._line, [size.to_bytes(8), head, *(buffer.raw() for buffer in buffers)])
        except BaseException:
            lost = True
        if lost:
            os._exit(1)


def serve(line: socket.socket) -> None:
    """Run a call at a time, until the other side is gone; the line brings cancellations beside."""
    global _running
    resident = template.resident()
    poll = select.poll()
    poll.register(line.fileno(), select.POLLIN)
    runner = _Runner(line, resident)
    while True:
        if runner.busy and not poll.poll(QUICK * 1000) and runner.busy:
            runner.step_back()
            runner = _Runner(line, resident)
        number, *request = receive(line)
        if not request:
            if int.from_bytes(number) == _running.number:
                _running.cancel()
            continue
        _running = _Running(int.from_bytes(number))
        runner.call(request.pop())


def _be_planner(line: socket.socket) -> None:
    """Serve until the line ends; what the ledgers were told is on the disk by then."""
    cells = [math.prod(space(setup.policy.domain).sizes) for setup in _setups.values()]
    template.limit_memory(MEMORY + CELL * sum(min(each, MAX_CUBE) for each in cells))
    for key in _setups:  # what the first statement would wait for
        with contextlib.suppress(Error, OSError):
            _planner(key)
    with contextlib.suppress(BaseException):
        serve(line)
    for planner in _planners.values():
        with contextlib.suppress(BaseException):
            planner.ledger.close()
    os._exit(0)


def _prepare(setups: Sequence[tuple[str, Setup]]) -> None:
    """Read the shared histories: planners begin with them, and share their memory."""
    _setups.update(setups)
    for key, setup in setups:
        with contextlib.suppress(Exception):  # whoever asks is told
            begun = setup.open()
            try:
                begun.left_in_cells(privileges_of(setup.policy, setup.users, ""))
            finally:
                begun.ledger.close()
            _begun[key] = begun
    gc.freeze()


def main() -> None:
    """Be the template of planners."""
    for name in ("goals.averages", "goals.quantiles", "goals.linear"):
        importlib.import_module(f"proxy.engine.{name}")
    importlib.import_module("proxy.inference.families.system")
    template.main(_prepare, _be_planner)


if __name__ == "__main__":  # ``pickle`` finds what is called under the module's own name
    importlib.import_module("proxy.server.workers.planner").main()
