"""The template: a process that has imported all that statements need, and forks workers.

A worker reads the texts of clients: it routes, parses, binds and compiles them over the public
domain, and runs their outer SQL on released numbers.  It is killed where a statement is cancelled
or takes too long, and replaced where it has grown, so its memory goes back.  Invariants: a worker
holds policies, public tables and texts, never a row, a noisy answer that was not released, or a
key; it can open no file and start no process, and what it may take of memory has a bound.
"""

from __future__ import annotations

import contextlib
import ctypes
import encodings
import gc
import importlib
import os
import pickle
import pkgutil
import resource
import signal
import socket
import sys
import threading
import traceback
from types import ModuleType

import sqlglot

import proxy.sql
from proxy.errors import Error, InternalError, StatementTooComplexError
from proxy.server.workers import tasks
from proxy.sql.evaluator.worker import MESSAGE, receive, send
from proxy.sql.parse import deep_stack

MEMORY = 1 << 30  # bytes that a worker may take for its statements
PAGE = os.sysconf("SC_PAGE_SIZE")
SHARED = ("proxy.errors", tasks.__name__)  # modules of errors that the server knows
NO_FILES = 1  # RLIMIT_NOFILE: what is open stays open
DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


def _import_all(package: ModuleType) -> None:
    """Import what is imported when first needed: a worker can open no file."""
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError):  # what is for another system
                importlib.import_module(module.name)


def serve(line: socket.socket) -> None:
    """Answer calls until the other side is gone: a function and its arguments, a value back."""
    memory = os.open("/proc/self/statm", os.O_RDONLY)
    tasks.open_evaluators()
    _limit()
    while True:
        (request,) = receive(line)
        buffers: list[pickle.PickleBuffer] = []
        try:
            head = _answer(bytes(request), buffers)
        except BaseException as error:
            buffers.clear()
            head = pickle.dumps(("error", _told(error)))
            del error
        del request
        resident = int(os.pread(memory, 100, 0).split()[1]) * PAGE
        send(line, [resident.to_bytes(8), head, *(buffer.raw() for buffer in buffers)])
        del head, buffers


def _answer(request: bytes, buffers: list[pickle.PickleBuffer]) -> bytes:
    function, arguments = pickle.loads(request)
    value = function(*arguments)
    head = pickle.dumps(("done", value), 5, buffer_callback=buffers.append)
    if len(head) + sum(len(buffer.raw()) for buffer in buffers) > MESSAGE:
        raise MemoryError
    return head


def _told(error: BaseException) -> Error:
    """Return what the server hears of an error."""
    if isinstance(error, Error):
        kind = next(each for each in type(error).__mro__ if each.__module__ in SHARED)
        told: Error = kind(error.message)
        vars(told).update(vars(error), sqlstate=error.sqlstate)
        return told
    if isinstance(error, MemoryError):
        return StatementTooComplexError("the statement needs more memory than it may have")
    if isinstance(error, RecursionError):
        return StatementTooComplexError("the statement is nested too deeply")
    place = "".join(traceback.format_tb(error.__traceback__))  # no words, which may hold literals
    return InternalError("internal error of a worker", detail=f"{place}{type(error).__name__}")


def _limit() -> None:
    """Give up what a worker needs no more, for good."""
    with open("/proc/self/status") as status:
        taken = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmData"))
    limits = {"DATA": taken + MEMORY, "CORE": 0, "FSIZE": 0, "NOFILE": NO_FILES, "NPROC": 0}
    for name, limit in limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (limit, limit))


def _be_worker(line: socket.socket) -> None:
    """Serve in a thread that has room for deep recursion; end with the line."""
    ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL)
    deep_stack.have_room()
    thread = threading.Thread(target=serve, args=[line], daemon=True)
    with contextlib.suppress(BaseException):
        thread.start()
        thread.join()
    os._exit(0)


def main() -> None:
    """Be the template: fork a worker for each line that comes in."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the server decides
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for workers
    importlib.import_module("_strptime")
    for package in (encodings, sqlglot, proxy.sql):
        _import_all(package)
    control = socket.socket(fileno=int(sys.argv[1]))
    (setup,) = receive(control)
    tasks.prepare(pickle.loads(setup))
    gc.freeze()
    while True:
        data, lines, _, _ = socket.recv_fds(control, 1, 1)
        if not data:
            os._exit(0)  # and with it its workers
        child = os.fork()
        if not child:
            control.close()
            _be_worker(socket.socket(fileno=lines[0]))
        os.close(lines[0])
        handle = os.pidfd_open(child)
        socket.send_fds(control, [child.to_bytes(8)], [handle])
        os.close(handle)


if __name__ == "__main__":
    main()
