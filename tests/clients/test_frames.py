"""Clients that read whole answers into frames, with their default settings: by COPY in binary, and
ibis by temporary views.
"""

import datetime
import decimal

import pytest

from tests.server.serving import NAMES, password

OPTIONS = "?options=-c%20privacy.utility%3D900%2C0.05"
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # pandas 3, of its callers
QUERY = (
    "SELECT region, COUNT(*) AS n, SUM(wage) AS w, DATE '2020-02-29' AS d, 5 AS i, 1.50 AS x, "
    "TIMESTAMP '2020-02-29 01:02:03.5' AS s, true AS b, 2.5::float8 AS f, NULL::integer AS z "
    "FROM cps1988 GROUP BY region ORDER BY region"
)
MOMENT = datetime.datetime(2020, 2, 29, 1, 2, 3, 500_000)
FIXED = {"d": MOMENT.date(), "i": 5, "s": MOMENT, "b": True, "f": 2.5, "z": None}


@pytest.fixture(scope="module")
def url(server):
    return server.url()


def check(rows):
    """Check the rows of the query, as dictionaries of Python's values."""
    assert [row["region"] for row in rows] == NAMES
    for row in rows:
        assert type(row["n"]) is int
        assert type(row["w"]) is float
        assert {name: row[name] for name in FIXED} == FIXED
        assert decimal.Decimal(row["x"]) == decimal.Decimal("1.50")


@pytest.mark.parametrize("protocol", ["binary", "csv", "cursor", "simple"])
def test_connectorx(url, protocol):
    """
    ConnectorX asks for the types and copies; each of its protocols gives the types announced.
    """
    connectorx = pytest.importorskip("connectorx")
    table = connectorx.read_sql(url, QUERY, protocol=protocol, return_type="arrow")
    check(table.to_pylist())


@pytest.mark.slow
def test_connectorx_by_default(url):
    """
    ``read_sql`` as it stands gives a frame of pandas; parts, a probe and a refusal are as they are.
    """
    connectorx = pytest.importorskip("connectorx")
    frame = connectorx.read_sql(url, QUERY)
    assert list(frame["region"]) == NAMES
    assert [str(frame[name].dtype) for name in ("n", "w")] == ["Int64", "float64"]
    parts = "SELECT education, COUNT(*) AS n FROM cps1988 GROUP BY education"
    parted = connectorx.read_sql(url, parts, partition_on="education", partition_num=3)
    assert sorted(parted["education"]) == list(range(19))
    none = connectorx.read_sql(url, "SELECT region, COUNT(*) FROM cps1988 GROUP BY 1 LIMIT 0")
    assert list(none.columns) == ["region", "count"]
    assert len(none) == 0
    with pytest.raises(RuntimeError, match="only aggregates"):
        connectorx.read_sql(url, "SELECT * FROM cps1988")


@pytest.mark.parametrize("engine", ["connectorx", "adbc"])
def test_polars(url, engine):
    """
    ``read_database_uri`` of polars, with either of its engines.
    """
    polars = pytest.importorskip("polars")
    pytest.importorskip("connectorx" if engine == "connectorx" else "adbc_driver_postgresql")
    frame = polars.read_database_uri(QUERY, url, engine=engine)
    assert dict(frame.schema)["n"] == polars.Int64
    if engine == "adbc":  # a numeric is a text there
        frame = frame.with_columns(frame["x"].ext.storage() if hasattr(frame["x"], "ext") else [])
    check(frame.to_dicts())
    count = polars.read_database_uri("SELECT COUNT(*) AS n FROM cps1988", url, engine=engine)
    assert count["n"].to_list()[0] > 20_000


def test_adbc(url):
    """
    ADBC copies what has no parameters, and asks for the rest; both give the types announced.
    """
    dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi")
    with dbapi.connect(url + OPTIONS) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) AS n FROM cps1988")
        assert cursor.fetchone()[0] > 20_000
    with dbapi.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(QUERY)
        check(cursor.fetch_arrow_table().to_pylist())
        cursor.execute("SELECT COUNT(*) AS n FROM cps1988 WHERE region = $1", ("west",))
        assert cursor.fetchone()[0] > 4_000
        assert connection.adbc_get_table_schema("cps1988").field("wage").type == "double"
        with pytest.raises(dbapi.Error, match="only aggregates"):
            cursor.execute("SELECT * FROM cps1988")


def test_pandas_over_adbc(url):
    """
    ``read_sql`` of pandas takes an ADBC connection.
    """
    pandas = pytest.importorskip("pandas")
    dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi")
    with dbapi.connect(url) as connection:
        frame = pandas.read_sql(QUERY, connection)
        assert list(frame["region"]) == NAMES
        assert [str(frame[name].dtype) for name in ("n", "w", "b")] == ["int64", "float64", "bool"]


@pytest.fixture
def ibis(server):
    ibis = pytest.importorskip("ibis")
    connected = ibis.postgres.connect(
        host=server.host,
        port=server.port,
        user="alice",
        password=password("alice"),
        database="cps1988",
    )
    yield connected
    connected.disconnect()


def test_ibis_sql(ibis):
    """
    ``con.sql`` learns the types from a temporary view; what is built on it is answered.
    """
    asked = ibis.sql("SELECT region, COUNT(*) AS n, SUM(wage) AS w FROM cps1988 GROUP BY region")
    assert [str(kind) for kind in asked.schema().types] == ["string", "int64", "float64"]
    assert sorted(asked.execute()["region"]) == NAMES
    top = asked.filter(asked.n > 100).order_by(asked.region).mutate(mean=asked.w / asked.n).limit(2)
    assert list(top.execute()["region"]) == NAMES[:2]
    assert top.to_pyarrow().num_rows == 2
    assert ibis.sql("/*+ UTILITY(400, 0.05) */ SELECT COUNT(*) AS n FROM cps1988").execute().size


def test_ibis_tables(ibis):
    """
    ``con.table``, expressions and ``table.sql`` over it; a view made by hand is a table too.
    """
    people = ibis.table("cps1988")
    assert str(people.schema()["wage"]) == "float64"
    grouped = people.group_by("region").aggregate(n=people.count(), w=people.wage.sum())
    assert list(grouped.order_by("region").execute()["region"]) == NAMES
    assert people.filter(people.education > 12).count().execute() > 10_000
    text = "SELECT region, COUNT(*) AS n FROM {} GROUP BY region ORDER BY region"
    assert list(people.sql(text.format("cps1988")).execute()["region"]) == NAMES
    assert list(people.alias("them").sql(text.format("them")).execute()["region"]) == NAMES
    ibis.raw_sql("CREATE TEMP VIEW by_region AS " + text.format("cps1988"))
    assert ibis.list_tables() == ["by_region", "cps1988"]
    assert ibis.table("by_region").n.sum().execute() > 20_000


def test_ibis_is_refused_rows(ibis):
    """
    Rows are refused when they, or the types of a query for them, are asked for; nothing breaks.
    """
    import psycopg

    for ask in (
        lambda: ibis.table("cps1988").head(3).execute(),
        lambda: ibis.sql("SELECT * FROM cps1988"),
    ):
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="only aggregates"):
            ask()
    assert ibis.table("cps1988").count().execute() > 20_000
