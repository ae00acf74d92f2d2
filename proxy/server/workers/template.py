"""A template: a process that has imported all that statements need, and forks others of a kind.

What every kind does with a call is here too: a function and its arguments, a value or error back.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import pickle
import resource
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any

from proxy.errors import Error, InternalError, StatementTooComplexError
from proxy.server.workers import tasks
from proxy.sql.evaluator.worker import MESSAGE, receive
from proxy.sql.parse import deep_stack

PAGE = os.sysconf("SC_PAGE_SIZE")
QUICK = 0.1  # seconds after which a call lets others go first
NICE = 10  # how much so
SHARED = ("proxy.errors", tasks.__name__)  # modules of errors that the server knows
# What statements import where they first need it; a worker can open no file then.
LATER = ("duckdb", "numpy.fft", "numpy.ma", "numpy.random", "scipy.special")
DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


def resident() -> Callable[[], int]:
    """Return what tells how many bytes of memory this process has, once it can open no file."""
    memory = os.open("/proc/self/statm", os.O_RDONLY)
    return lambda: int(os.pread(memory, 100, 0).split()[1]) * PAGE


def limit_memory(more: int) -> None:
    """Let this process take so many bytes more than it has, for good, and leave no image of it."""
    with open("/proc/self/status") as status:
        taken = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmData"))
    for kind, limit in ((resource.RLIMIT_DATA, taken + more), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(kind, (limit, limit))


def answer(request: bytes | bytearray, buffers: list[pickle.PickleBuffer]) -> bytes:
    """Return the value of a call, pickled; what is large in it goes to ``buffers``."""
    function, arguments = pickle.loads(request)
    value = function(*arguments)
    head = pickle.dumps(("done", value), 5, buffer_callback=buffers.append)
    if len(head) + sum(len(buffer.raw()) for buffer in buffers) > MESSAGE:
        raise MemoryError
    return head


Told = tuple[type[Error], dict[str, Any]]  # the class of an error, and what it holds


def told(error: BaseException) -> Told:
    """Return what the server hears of an error."""
    if isinstance(error, Error):
        classes = type(error).__mro__
        kind = next(each for each in classes if each.__module__ in SHARED)
        apart = classes[: classes.index(kind)]  # which the server does not know
        ours = {name for each in apart for name in vars(each).get("__annotations__", ())}
        fields = {name: value for name, value in vars(error).items() if name not in ours}
        return kind, {**fields, "sqlstate": error.sqlstate}
    if isinstance(error, MemoryError):
        return told(StatementTooComplexError("the statement needs more memory than it may have"))
    if isinstance(error, RecursionError):
        return told(StatementTooComplexError("the statement is nested too deeply"))
    place = "".join(traceback.format_tb(error.__traceback__))  # no words, which may hold literals
    detail = f"{place}{type(error).__name__}"
    return told(InternalError("internal error of a worker", detail=detail))


def raised(told: Told) -> Error:
    """Return an error, on the side of the server."""
    kind, fields = told
    error = kind.__new__(kind)
    error.args = (fields["message"],)
    vars(error).update(fields)
    return error


def main(prepare: Callable[[Any], None], be: Callable[[socket.socket], None]) -> None:
    """Be the template: ``prepare``, and for each line that comes in fork a process to ``be``.

    It ends with the template, and its threads have room for deep recursion.
    """
    for number in (signal.SIGINT, signal.SIGTERM):  # the server decides
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    for name in LATER:
        importlib.import_module(name)
    control = socket.socket(fileno=int(sys.argv[1]))
    (setup,) = receive(control)
    prepare(pickle.loads(setup))
    while True:
        data, lines, _, _ = socket.recv_fds(control, 1, 1)
        if not data:
            os._exit(0)  # and with it those that it has forked
        child = os.fork()
        if not child:
            control.close()
            ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL)
            deep_stack.have_room()
            be(socket.socket(fileno=lines[0]))
        os.close(lines[0])
        handle = os.pidfd_open(child)
        socket.send_fds(control, [child.to_bytes(8)], [handle])
        os.close(handle)
