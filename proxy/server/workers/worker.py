"""The workers' template, and a worker: a process that reads the texts of clients.

It routes, parses, binds and compiles them over the public domain, and runs their outer SQL on
released numbers.  It is killed where a statement is cancelled or takes too long, and replaced where
it has grown, so its memory goes back.  Invariants: a worker holds policies, public tables and
texts, never a row, a noisy answer that was not released, or a key; it can open no file and start no
process, and what it may take of memory has a bound.
"""

from __future__ import annotations

import contextlib
import encodings
import gc
import importlib
import os
import pickle
import pkgutil
import resource
import socket
import threading
from collections.abc import Iterable
from types import ModuleType

import sqlglot

import proxy.sql
from proxy.server.workers import tasks, template
from proxy.sql.evaluator.worker import receive, send

MEMORY = 600 << 20  # bytes that a worker may take for its statements
NO_FILES = 1  # RLIMIT_NOFILE: what is open stays open


def _import_all(package: ModuleType) -> None:
    """Import what is imported when first needed: a worker can open no file."""
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError):  # what is for another system
                importlib.import_module(module.name)


def serve(line: socket.socket) -> None:
    """Answer calls until the other side is gone: a function and its arguments, a value back."""
    resident = template.resident()
    tasks.open_evaluators()
    _limit()
    while True:
        (request,) = receive(line)
        buffers: list[pickle.PickleBuffer] = []
        try:
            head = template.answer(bytes(request), buffers)
        except BaseException as error:
            buffers.clear()
            head = pickle.dumps(("error", template.told(error)))
            del error
        del request
        send(line, [resident().to_bytes(8), head, *(buffer.raw() for buffer in buffers)])
        del head, buffers


def _limit() -> None:
    """Give up what a worker needs no more, for good."""
    template.limit_memory(MEMORY)
    for name, limit in {"FSIZE": 0, "NOFILE": NO_FILES, "NPROC": 0}.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (limit, limit))


def _be_worker(line: socket.socket) -> None:
    """Serve in a thread that has room for deep recursion; end with the line."""
    thread = threading.Thread(target=serve, args=[line], daemon=True)
    with contextlib.suppress(BaseException):
        thread.start()
        thread.join()
    os._exit(0)


def main() -> None:
    """Be the template of workers."""
    importlib.import_module("_strptime")
    for package in (encodings, sqlglot, proxy.sql):
        _import_all(package)
    template.main(_prepare, _be_worker)


def _prepare(datasets: Iterable[tasks.Dataset]) -> None:
    tasks.prepare(datasets)
    gc.freeze()


if __name__ == "__main__":
    main()
