"""A server's templates of workers without waiting for their imports, for tests of something else.

A template is forked from a process that has made the imports of its kind, and only these.  It is
otherwise as the server starts it: ``main`` of the kind, in a session of its own, with no line but
its own.  The server that tests share starts its templates itself.
"""

import atexit
import contextlib
import importlib
import os
import select
import signal
import socket
import subprocess
import sys
from functools import cache
from types import SimpleNamespace

from proxy.server.workers import pool, template
from proxy.sql.evaluator.sandbox import environment
from tests.server.forked import KINDS

NUMBER = 8  # bytes, of the id of a process


@cache
def lines():
    """Return for each kind a line to the process that forks its templates; more may have it."""
    return {kind: _started(kind) for kind in KINDS}


def _started(kind):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, kind, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            env=environment(),
            cwd="/",
        )

    def end():
        ours.close()
        process.kill()
        process.wait()

    atexit.register(end)
    return ours


@contextlib.contextmanager
def forked(lines):
    """Have the pools of this process fork their templates so."""
    real = pool.subprocess

    class Process(_Process):
        def __init__(self, command, *, pass_fds, **_):
            super().__init__(lines[command[-2]], *pass_fds)

    pool.subprocess = SimpleNamespace(Popen=Process, DEVNULL=real.DEVNULL)
    try:
        yield
    finally:
        pool.subprocess = real


class _Process:
    """What the pool uses of ``subprocess.Popen``."""

    def __init__(self, line, file):
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                socket.send_fds(line, [b"?"], [file, theirs.fileno()])
            data, (self._handle,), _, _ = socket.recv_fds(ours, NUMBER, 1)
        self.pid = int.from_bytes(data)
        self._poll = select.poll()
        self._poll.register(self._handle, select.POLLIN)
        self.returncode = None

    def __del__(self):
        with contextlib.suppress(AttributeError):
            os.close(self._handle)

    def poll(self):
        self.wait(0)
        return self.returncode

    def wait(self, timeout=None):
        if self._poll.poll(timeout if timeout is None else timeout * 1000):
            self.returncode = -signal.SIGKILL
        return self.returncode

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)


def _serve(line, real, prepare, be):
    """Fork a template for each message, in the place of being one."""
    for name in template.LATER:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        data, files, _, _ = socket.recv_fds(line, 1, 2)
        if not data:
            os._exit(0)
        child = os.fork()
        if not child:
            line.close()
            os.close(files[1])
            os.setsid()
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            os.close(null)
            sys.argv[1:] = [str(files[0])]
            real(prepare, be)
        handle = os.pidfd_open(child)
        os.close(files[0])
        with socket.socket(fileno=files[1]) as reply:
            socket.send_fds(reply, [child.to_bytes(NUMBER)], [handle])
        os.close(handle)


def main(kind, number):
    """Make the imports of a kind, and fork."""
    line, real = socket.socket(fileno=int(number)), template.main
    template.main = lambda prepare, be: _serve(line, real, prepare, be)
    importlib.import_module(kind).main()


if __name__ == "__main__":
    main(*sys.argv[1:])
