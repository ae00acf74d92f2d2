"""``python -m proxy`` without waiting for its imports: forked from a process that has made them.

Or ``main`` of another module.  Each command has a process of its own all the same, with its own
signals, files and environment.  The template forks a keeper for each, who forks the command, and
tells of its end.
"""

import atexit
import contextlib
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from contextlib import nullcontext
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SIZE = 4  # bytes, of the size of a message
NUMBER = 12  # characters, of a process or its status
KINDS = ("proxy.server.workers.worker", "proxy.server.workers.planner")


class Process:
    """A command that runs: what tests use of ``subprocess.Popen``."""

    def __init__(self, arguments, stdout, stderr, module="proxy", lines=()):
        """Start it in this process's environment; the two are descriptors.

        With ``lines``, those of ``templates``, it forks its templates by them.
        """
        self._line, theirs = socket.socketpair()
        with theirs:
            text = json.dumps([list(map(str, arguments)), dict(os.environ)]).encode()
            head = len(text).to_bytes(SIZE, "big")
            template = _template(module)
            more = [line.fileno() for line in lines]
            socket.send_fds(template, [head], [theirs.fileno(), stdout, stderr, *more])
            template.sendall(text)
        self.pid = int(self._line.recv(NUMBER))
        self.returncode = None

    def poll(self):
        if self.returncode is None and select.select([self._line], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout=None):
        if self.returncode is None:
            if not select.select([self._line], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("proxy", timeout)
            self.returncode = int(self._line.recv(NUMBER))
            self._line.close()
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # whose end is not told yet
                os.kill(self.pid, number)

    def terminate(self):
        self.send_signal(signal.SIGTERM)

    def kill(self):
        self.send_signal(signal.SIGKILL)


def run(*arguments):
    """Run ``python -m proxy`` to its end; return what ``subprocess.run`` does."""
    with open(os.memfd_create("out"), "w+") as out, open(os.memfd_create("err"), "w+") as err:
        code = Process(arguments, out.fileno(), err.fileno()).wait(120)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(arguments, code, out.read(), err.read())


def piped(module, *arguments):
    """Start ``main`` of a module; return the process and a file of what it prints."""
    ours, theirs = os.pipe()
    try:
        return Process(arguments, theirs, 2, module), open(ours)
    finally:
        os.close(theirs)


@cache
def _template(module):
    """Return a line to the process that forks this one's commands; it ends with it."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", __name__, str(theirs.fileno()), module]
    with theirs:
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
        )

    def end():
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _serve(line):
    """Fork a command for each message; return in each its arguments, environment and lines."""
    signal.signal(signal.SIGCHLD, _reap)
    while True:
        head, files, _, _ = socket.recv_fds(line, SIZE, 3 + len(KINDS))
        if not head:
            os._exit(0)
        wanted, text = int.from_bytes(head, "big"), b""
        while len(text) < wanted:
            text += line.recv(wanted - len(text))
        if os.fork() == 0:
            line.close()
            if _kept(*files):
                return *json.loads(text), [socket.socket(fileno=file) for file in files[3:]]
        for file in files:
            os.close(file)


def _reap(number, frame):
    """Wait for the keepers that have ended, so that their time counts as this process's."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _kept(told, out, err, *lines):
    """Return in the command; its keeper ends here."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    command = os.fork()
    if command == 0:
        os.close(told)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.close(out)
        os.close(err)
        return True
    for file in (out, err, *lines):
        os.close(file)
    os.write(told, str(command).ljust(NUMBER).encode())
    code = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
    os.write(told, str(code).ljust(NUMBER).encode())
    os._exit(0)


if __name__ == "__main__":
    line, name = int(sys.argv[1]), sys.argv[2]
    if name == "proxy":
        import proxy.cli
        import proxy.server.serve
        import proxy.steward  # noqa: F401
        from tests.server import templates
    else:
        module = importlib.import_module(name)

    arguments, environment, lines = _serve(socket.socket(fileno=line))
    os.environ.clear()
    os.environ.update(environment)
    if name == "proxy":
        sys.argv[1:] = arguments
        with templates.forked(dict(zip(KINDS, lines, strict=True))) if lines else nullcontext():
            runpy.run_module("proxy", run_name="__main__", alter_sys=True)
    else:
        module.main(*arguments)
