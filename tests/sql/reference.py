"""PostgreSQL, the reference for what a statement means: a private server on the raw records."""

from contextlib import contextmanager
from pathlib import Path

from tests.cluster import Cluster
from tests.sql.survey import COLUMNS, records, shown


class Reference:
    """A running server with the table ``survey``: as it is shown, bins by their lower edge, and
    in schema ``raw`` as it is.
    """

    def __init__(self, folder):
        self._cluster = Cluster(folder, durable=False)
        self.dsn = self._cluster.url
        self.connection = self.connect()
        self._load()

    def connect(self):
        """Return a connection of one's own."""
        return self._cluster.connect()

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

    @contextmanager
    def cursor(self, raw=False):
        """A cursor; ``raw`` where no binned column is shown.  The connection is left as it was."""
        with self.connection.cursor() as cursor:
            cursor.execute(f"SET search_path = {'raw' if raw else 'public'}")
            try:
                yield cursor
            finally:
                self.connection.execute("RESET search_path")

    def query(self, text, raw=False):
        """The names of the columns, and the rows; ``raw`` where no binned column is shown."""
        with self.cursor(raw) as cursor:
            cursor.execute(text)
            return [column.name for column in cursor.description], cursor.fetchall()

    def close(self):
        """Stop the server."""
        self.connection.close()
        self._cluster.stop()
