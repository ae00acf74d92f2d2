"""PEP 249 at the Python door, over an engine that only records what it is asked."""

import datetime
import sys
import time
from types import ModuleType, SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import proxy
from proxy import dbapi
from proxy.errors import InsufficientBudgetError, UtilityError

TYPES = (
    "bigint",
    "integer",
    "text",
    "boolean",
    "numeric",
    "date",
    "timestamp",
    "double precision",
)
EXCEPTIONS = (
    "Warning",
    "Error",
    "InterfaceError",
    "DatabaseError",
    "DataError",
    "OperationalError",
    "IntegrityError",
    "InternalError",
    "ProgrammingError",
    "NotSupportedError",
)


ROWS = (("south", 8760), ("west", 6262), ("midwest", -1))


def result(rows=ROWS, columns=("region", "n"), **more):
    """An engine's result, one answer in each row."""
    types = ("text", "bigint")
    values = {
        "columns": tuple(
            SimpleNamespace(name=n, type=t) for n, t in zip(columns, types, strict=False)
        ),
        "rows": list(rows),
        "answers": [[f"answer {i}"] for i, _ in enumerate(rows)],
        "cost": 0.06,
        "left": 0.94,
        "notices": ("2 numbers were free",),
        "tag": f"SELECT {len(rows)}",
    }
    return SimpleNamespace(**values | more)


SET = {"rows": (), "columns": (), "cost": 0.0, "notices": (), "tag": "SET"}


class FakeEngine:
    """Answers every statement with the next of ``results``; an exception is raised."""

    in_transaction = False

    def __init__(self, *results):
        self.results = list(results) or [result()]
        self.asked = []
        self.closed = 0

    def session(self, **options):
        self.options = options
        if options.get("utility") == (0, 0):
            raise UtilityError("half_width must be positive")
        return self

    def execute(self, text, parameters=None):
        self.asked.append((text, parameters))
        answer = self.results.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self):
        self.closed += 1


def cursor_after(*results):
    """A cursor that has executed one statement."""
    return dbapi.Connection(FakeEngine(*results)).cursor().execute("SELECT")


def test_the_module_names_what_pep_249_asks():
    """
    The three globals, with the values that clients test for.
    """
    assert (proxy.apilevel, proxy.threadsafety, proxy.paramstyle) == ("2.0", 1, "pyformat")
    assert all(hasattr(proxy, name) for name in proxy.__all__)


def test_the_exceptions_form_the_tree_of_pep_249_on_module_and_connection():
    """
    Error and Warning are Exceptions; six classes below DatabaseError; the connection has all ten.
    """
    assert proxy.Warning.__bases__ == proxy.Error.__bases__ == (Exception,)
    assert proxy.InterfaceError.__bases__ == proxy.DatabaseError.__bases__ == (proxy.Error,)
    for name in EXCEPTIONS[4:]:
        assert getattr(proxy, name).__bases__ == (proxy.DatabaseError,)
    connection = dbapi.Connection(FakeEngine())
    for name in EXCEPTIONS:
        assert getattr(connection, name) is getattr(proxy, name)


def test_connect_opens_the_engine_and_its_session(monkeypatch):
    """
    Policy and state go to the engine; user, utility and dialect to the session.
    """
    engine = FakeEngine()
    opened = []
    module = ModuleType("proxy.engine")
    module.Engine = SimpleNamespace(open=lambda *args: opened.append(args) or engine)
    monkeypatch.setitem(sys.modules, "proxy.engine", module)

    proxy.connect("p.yaml", state="s", utility=(50, 0.05), user="alice", dialect="duckdb").close()
    assert engine.options == {"user": "alice", "utility": (50, 0.05), "dialect": "duckdb"}
    proxy.connect("q.yaml")

    assert opened == [("p.yaml", "s"), ("q.yaml", None)]
    assert engine.options == {"user": None, "utility": None, "dialect": "postgres"}
    with pytest.raises(UtilityError):
        proxy.connect("p.yaml", utility=(0, 0))
    assert engine.closed == 3, "session and engine of the first, engine of the refused"


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_the_url_of_a_server_is_no_file(scheme):
    """
    A URL means a running proxy; where none listens, that is what the error says.
    """
    with pytest.raises(proxy.OperationalError, match="connection"):
        proxy.connect(f"{scheme}://alice@127.0.0.1:1/cps1988")


def test_a_cursor_describes_its_result():
    """
    Seven fields a column; rows, tag and what the proxy adds to PEP 249.
    """
    cursor = cursor_after()

    assert cursor.description == [
        ("region", "text", None, None, None, None, None),
        ("n", "bigint", None, None, None, None, None),
    ]
    assert (cursor.rowcount, cursor.statusmessage) == (3, "SELECT 3")
    assert cursor.answers == [["answer 0"], ["answer 1"], ["answer 2"]]
    assert (cursor.cost, cursor.left, cursor.notices) == (0.06, 0.94, ("2 numbers were free",))


def test_fetching_by_hand():
    """
    One, then arraysize, then as many as asked, then the rest, then nothing.
    """
    rows = [(i,) for i in range(7)]
    cursor = cursor_after(result(rows))

    assert cursor.arraysize == 1
    assert cursor.fetchone() == (0,)
    assert cursor.fetchmany() == [(1,)]
    cursor.arraysize = 2
    assert cursor.fetchmany() == [(2,), (3,)]
    assert cursor.fetchmany(0) == cursor.fetchmany(-1) == []
    assert cursor.fetchmany(size=1) == [(4,)]
    assert cursor.fetchall() == [(5,), (6,)]
    assert (cursor.fetchone(), cursor.fetchmany(9), cursor.fetchall()) == (None, [], [])
    assert cursor.rowcount == 7


fetches = st.one_of(st.just("one"), st.just("next"), st.integers(0, 4))


@given(st.integers(0, 12), st.lists(fetches, max_size=8))
def test_however_fetched_each_row_comes_once_and_in_order(count, plan):
    """
    Any mix of fetchone, iteration and fetchmany, ended by fetchall, is the list of rows.
    """
    rows = [(i,) for i in range(count)]
    cursor = cursor_after(result(rows))
    fetched = []
    for step in plan:
        if step == "one":
            fetched += [row for row in [cursor.fetchone()] if row]
        elif step == "next":
            fetched += [row for row in [next(iter(cursor), None)] if row]
        else:
            fetched += cursor.fetchmany(step)
    assert fetched + cursor.fetchall() == rows


def test_iteration_gives_the_rows_that_are_left():
    """
    ``for row in cursor`` goes on where fetchone stopped.
    """
    cursor = cursor_after()
    cursor.fetchone()
    assert list(cursor) == [("west", 6262), ("midwest", -1)]


def test_a_statement_without_rows():
    """
    After SET there is no description, no row count, and nothing to fetch.
    """
    cursor = cursor_after(result(**SET))

    assert (cursor.description, cursor.rowcount, cursor.statusmessage) == (None, -1, "SET")
    assert (cursor.answers, cursor.cost) == ([], 0.0)
    for fetch in (cursor.fetchone, cursor.fetchmany, cursor.fetchall):
        with pytest.raises(proxy.ProgrammingError, match="no rows to fetch"):
            fetch()


def test_before_and_after_a_failed_statement_there_is_no_result():
    """
    An old result does not survive the statement that failed after it.
    """
    refusal = InsufficientBudgetError("no", requested=0.5, spent=0.9, left=0.1)
    cursor = dbapi.Connection(FakeEngine(result(), refusal, result(), result(), refusal)).cursor()

    def assert_empty():
        assert (cursor.description, cursor.rowcount, cursor.statusmessage) == (None, -1, None)
        assert (cursor.answers, cursor.cost, cursor.left, cursor.notices) == ([], None, None, ())
        with pytest.raises(proxy.ProgrammingError):
            cursor.fetchone()

    assert_empty()
    cursor.execute("SELECT 1")
    with pytest.raises(proxy.OperationalError):
        cursor.execute("SELECT 2")
    assert_empty()
    cursor.execute("SELECT 3")
    with pytest.raises(proxy.OperationalError):
        cursor.executemany("SELECT %(x)s", [{"x": 1}, {"x": 2}])
    assert_empty()


def test_a_new_statement_starts_at_its_first_row():
    """
    The position belongs to the result, not to the cursor.
    """
    cursor = cursor_after(result(), result([("east", 1)]))
    cursor.fetchall()
    assert cursor.execute("SELECT").fetchall() == [("east", 1)]


def test_parameters_reach_the_engine_as_they_are():
    """
    No parameters is None, not an empty mapping, since only with some does % mean anything.
    """
    engine = FakeEngine(result(), result(), result())
    cursor = dbapi.Connection(engine).cursor()
    cursor.execute("SELECT '100%'")
    cursor.execute("SELECT %(a)s", {"a": "x'y"})
    cursor.execute("SELECT '100%%'", {})

    assert engine.asked == [
        ("SELECT '100%'", None),
        ("SELECT %(a)s", {"a": "x'y"}),
        ("SELECT '100%%'", {}),
    ]


def test_executemany_keeps_every_result_for_nextset():
    """
    What was paid for is not thrown away; each result is read from its first row.
    """
    engine = FakeEngine(result([("a", 1), ("b", 2)]), result([("c", 3)], cost=0.5))
    cursor = dbapi.Connection(engine).cursor()
    cursor.executemany("SELECT %(x)s", iter([{"x": 1}, {"x": 2}]))

    assert cursor.fetchone() == ("a", 1)
    assert cursor.nextset() is True
    assert (cursor.fetchall(), cursor.cost) == ([("c", 3)], 0.5)
    assert cursor.nextset() is None
    assert cursor.description is None
    assert [parameters for _, parameters in engine.asked] == [{"x": 1}, {"x": 2}]


def test_connection_execute_is_a_cursor_in_one_step():
    """
    Each call has a cursor of its own, of this connection.
    """
    connection = dbapi.Connection(FakeEngine(result(), result()))
    first, second = connection.execute("SELECT 1"), connection.execute("SELECT 2", {"a": 1})
    assert first is not second
    assert first.connection is second.connection is connection
    assert second.fetchone() == ("south", 8760)


def test_commit_rollback_and_sizes_do_nothing():
    """
    They are there; without a BEGIN there is nothing to end.
    """
    cursor = cursor_after()
    cursor.setinputsizes([10])
    cursor.setoutputsize(10)
    cursor.setoutputsize(10, 0)
    cursor.connection.commit()
    cursor.connection.rollback()
    assert cursor.rowcount == 3


def test_a_closed_cursor_says_so():
    """
    Every use raises InterfaceError; closing again does not.
    """
    cursor = cursor_after()
    with cursor as same:
        assert same is cursor
    cursor.close()
    uses = (
        lambda: cursor.execute("SELECT"),
        lambda: cursor.executemany("SELECT", [{}]),
        cursor.fetchone,
        cursor.fetchmany,
        cursor.fetchall,
        cursor.nextset,
        cursor.__enter__,
        lambda: next(iter(cursor)),
    )
    for use in uses:
        with pytest.raises(proxy.InterfaceError, match="cursor is closed"):
            use()
    assert cursor.connection.execute, "the connection lives on"


def test_a_closed_connection_closes_engine_session_and_cursors():
    """
    Once, however often close is called; every later use raises InterfaceError.
    """
    engine = FakeEngine()
    with dbapi.Connection(engine) as connection:
        cursor = connection.cursor()
        assert not connection.closed
    connection.close()
    assert connection.closed
    assert engine.closed == 2, "the session and the engine"
    uses = (
        connection.cursor,
        connection.commit,
        connection.rollback,
        connection.__enter__,
        lambda: connection.execute("SELECT"),
        lambda: cursor.execute("SELECT"),
        cursor.fetchall,
    )
    for use in uses:
        with pytest.raises(proxy.InterfaceError, match="connection is closed"):
            use()
    assert engine.asked == []


def test_every_type_code_is_equal_to_one_type_object():
    """
    PEP 249's five kinds part the types that the engine announces.
    """
    kinds = (proxy.STRING, proxy.NUMBER, proxy.DATETIME, proxy.BINARY, proxy.ROWID)
    assert [[kind == code for kind in kinds].count(True) for code in TYPES] == [1] * len(TYPES)
    assert "bigint" == proxy.NUMBER != proxy.STRING
    assert dbapi.TypeObject("text") == proxy.STRING
    assert proxy.STRING != 25
    assert repr(proxy.DATETIME) == "TypeObject('date', 'timestamp')"


def test_constructors():
    """
    The classes of the standard library; ticks are read in local time.
    """
    assert proxy.Date(1988, 3, 1) == datetime.date(1988, 3, 1)
    assert proxy.Timestamp(1988, 3, 1, 2) == datetime.datetime(1988, 3, 1, 2)
    assert proxy.Time(1, 2, 3) == datetime.time(1, 2, 3)
    assert proxy.Binary(b"x") == b"x"
    local = datetime.datetime(*time.localtime(573_000_000)[:6])
    assert proxy.DateFromTicks(573_000_000) == local.date()
    assert proxy.TimeFromTicks(573_000_000) == local.time()
    assert proxy.TimestampFromTicks(573_000_000) == local
