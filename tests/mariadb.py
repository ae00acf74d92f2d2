"""A MariaDB of the tests' own, where its binaries are installed, on a port of 127.0.0.1.

As root it runs as another user, who may read what the tests' folders hold.
"""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

NOBODY = 65534
ZONEINFO = Path("/usr/share/zoneinfo")  # of the system: that of PyPI lacks what MariaDB reads
ZONES = ("Asia/Tokyo", "America/New_York", "Europe/Paris", "UTC")


WRONG = ("Europe/Berlin", "Asia/Tokyo")  # a zone of which the server has other rules


def binaries():
    """The server, what makes its folder, and what reads zones; None where one is missing."""
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/bin"))
    names = ("mariadbd", "mariadb-install-db", "mariadb-tzinfo-to-sql")
    found = [shutil.which(name, path=path) for name in names]
    return found if all(found) and (ZONEINFO / ZONES[0]).exists() else None


class Server:
    """A server in a folder, which can be stopped, at once too, and started again."""

    user = "reader"

    def __init__(self, folder):
        self._folder = folder
        self._server, install, self._zones = binaries()
        self._user = {"user": NOBODY, "group": NOBODY} if os.getuid() == 0 else {}
        if self._user:
            os.chown(folder, NOBODY, NOBODY)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        subprocess.run(
            [install, "--no-defaults", f"--datadir={folder / 'data'}", "--skip-test-db",
             "--auth-root-authentication-method=normal"],
            check=True, capture_output=True, cwd=folder, **self._user,
        )  # fmt: skip
        self.start()
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE USER {self.user}@'127.0.0.1' IDENTIFIED BY 'a secret'")
            cursor.execute(f"GRANT SELECT ON *.* TO {self.user}@'127.0.0.1'")
            self._name_zones(cursor)

    def _name_zones(self, cursor):
        """Let the server know some time zones, as its administrator would."""
        cursor.execute("USE mysql")
        for zone, of in (*zip(ZONES, ZONES, strict=True), WRONG):
            file = ZONEINFO / of
            made = subprocess.run([self._zones, file, zone], check=True, capture_output=True)
            for statement in made.stdout.decode().split(";\n"):
                if statement.strip().startswith(("INSERT", "SET @")):
                    cursor.execute(statement)

    def url(self, database, user=None):
        """The URL of a database."""
        return f"mysql+pymysql://{user or self.user}@127.0.0.1:{self.port}/{database}"

    def start(self):
        """Start it, and wait until it can be asked."""
        (self._folder / "s").unlink(missing_ok=True)
        self._process = subprocess.Popen(
            [self._server, "--no-defaults", f"--datadir={self._folder / 'data'}",
             f"--port={self.port}", "--bind-address=127.0.0.1", "--skip-name-resolve",
             f"--socket={self._folder / 's'}", f"--pid-file={self._folder / 'pid'}",
             "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=64M",
             "--character-set-server=utf8mb4", "--collation-server=utf8mb4_general_ci"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self._folder, **self._user,
        )  # fmt: skip
        for _ in range(1200):
            if (self._folder / "s").exists():
                return self.connect().close()
            time.sleep(0.05)
        raise TimeoutError("MariaDB did not start")

    def stop(self):
        """Stop it at once, as a machine that fails would."""
        self._process.kill()
        self._process.wait(60)

    def connect(self):
        """Return a connection of an administrator's."""
        import pymysql

        return pymysql.connect(
            unix_socket=str(self._folder / "s"), user="root", charset="utf8mb4", autocommit=True,
            init_command="SET time_zone = '+00:00'",
        )  # fmt: skip


@contextmanager
def running():
    """A server for the length of a block; the test is skipped where there is none."""
    pytest.importorskip("pymysql")
    if binaries() is None:
        pytest.skip("needs mariadb-server, and tzdata")
    # pytest's own folders may be read by one user only, and as root the server is another
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        server = Server(Path(folder))
        try:
            yield server
        finally:
            server.stop()
