"""Numbers that nothing reads are neither measured nor paid for, and nothing else changes."""

from contextlib import closing

import pytest

from proxy.errors import UndefinedColumnError
from tests.small import Small
from tests.sql.survey import plain, program, run

INNER = "SELECT region, COUNT(*) AS n, SUM(wage) AS w, AVG(age), MAX(score) AS m FROM survey"
GROUPED = f"{INNER} GROUP BY region"
READ = [  # a statement, and how many numbers it needs
    (f"SELECT t.n FROM ({GROUPED}) t", 1),
    (f"SELECT region FROM ({GROUPED}) t", 0),
    (f"SELECT COUNT(*) AS c FROM ({GROUPED}) t", 0),
    (f"SELECT * FROM ({GROUPED}) t", 4),
    (f"SELECT t.* FROM ({GROUPED}) t", 4),
    (f"SELECT n FROM ({GROUPED} ORDER BY w LIMIT 2) t", 2),
    (f"SELECT n FROM ({GROUPED} ORDER BY 3 DESC LIMIT 2) t", 2),
    (f"SELECT n FROM ({GROUPED} ORDER BY SUM(wage) LIMIT 2) t", 2),
    (f"SELECT n FROM ({GROUPED} HAVING SUM(wage) > 5) t", 2),
    (f"SELECT n FROM ({GROUPED}) t WHERE w > 5", 2),
    (f"SELECT n FROM ({GROUPED}) t ORDER BY avg", 2),
    (f"SELECT SUM(n) OVER (ORDER BY w) AS s FROM ({GROUPED}) t", 2),
    (f"WITH t AS ({GROUPED}) SELECT region, n FROM t", 1),
    (f"WITH t AS ({GROUPED}) SELECT a.n, b.w FROM t a JOIN t b USING (region)", 2),
    (f"WITH t AS ({GROUPED}), u AS (SELECT * FROM t) SELECT n FROM u", 4),
    (f"SELECT x.n FROM ({GROUPED}) AS x(r, n, w) ORDER BY r", 4),
    (f"SELECT t.n FROM ({INNER.replace('region, ', '')}) t", 1),
    ("SELECT COUNT(*) AS c FROM (SELECT COUNT(*) AS n, SUM(age) AS s FROM survey) t", 1),
    ("SELECT DISTINCT r FROM (SELECT DISTINCT region AS r, COUNT(*) AS n FROM survey"
     " GROUP BY region) t", 1),
    ('SELECT "N" FROM (SELECT region, COUNT(*) AS n, SUM(age) AS "N" FROM survey'
     " GROUP BY region) t", 1),
    ("SELECT n FROM (SELECT region, COUNT(*) AS n, SUM(COUNT(*)) OVER () AS all_ FROM survey"
     " GROUP BY region) t", 1),
]  # fmt: skip


@pytest.mark.parametrize("text, count", READ)
def test_what_is_not_read_is_not_measured(postgres, text, count):
    """
    In subqueries and WITH; the rows are PostgreSQL's all the same.
    """
    assert sum(len(release.numbers) for release in program(text).releases) == count
    mine = [tuple(map(plain, row)) for row in run(text).rows]
    theirs = [tuple(map(plain, row)) for row in postgres.query(text, raw=True)[1]]
    assert len(mine) == len(theirs)
    for one, two in zip(sorted(mine, key=str), sorted(theirs, key=str), strict=True):
        assert one == pytest.approx(two)


def test_what_is_not_read_is_checked_all_the_same():
    """
    As in PostgreSQL, a column that is not there is an error wherever it is written.
    """
    with pytest.raises(UndefinedColumnError):
        run("SELECT n FROM (SELECT COUNT(*) AS n, SUM(nonsense) AS s FROM survey) t")


def test_every_number_is_looked_at_where_empty_groups_are_hidden():
    """
    Whether a group is shown depends on its numbers, so that none may be left out.
    """
    text = f"SELECT region FROM ({GROUPED}) t"
    hidden = program(text, settings={"privacy.hide_empty": "on"})
    assert sum(len(release.numbers) for release in hidden.releases) == 4


def test_of_a_view_only_what_is_read_is_paid(tmp_path):
    """
    Views of views too; the whole, where all of it is read.
    """
    small = Small(tmp_path)
    small.data((1, "a", 5), (2, "b", 7))
    with closing(small.made()) as engine:
        session = engine.session()
        inner = "SELECT town, COUNT(*) AS n, COUNT(*) FILTER (WHERE age > 1) AS m FROM people"
        session.execute(f"CREATE TEMP VIEW v AS {inner} GROUP BY town")
        session.execute("CREATE TEMP VIEW w AS SELECT town, n AS k FROM v")
        session.execute("CREATE TEMP VIEW x AS SELECT * FROM v")
        texts = {
            *(("SELECT town, n FROM v", 2), ("SELECT k FROM w", 2), ("SELECT COUNT(*) FROM v", 0)),
            *(("SELECT town, n, m FROM v", 4), ("SELECT * FROM v", 4), ("SELECT n FROM x", 4)),
        }
        for text, count in texts:
            rows = session.execute(f"EXPLAIN UTILITY {text} WITH UTILITY (90, 0.1)").rows
            assert len(rows) == count, text
