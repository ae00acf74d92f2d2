"""The SQLAlchemy dialect over an embedded policy: reflection, queries, pandas."""

import pytest

from tests.server import serving

sa = pytest.importorskip("sqlalchemy")


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    sa.dialects.registry.register("privacyproxy", "proxy.sqlalchemy_dialect", "PrivacyProxyDialect")
    folder = tmp_path_factory.mktemp("policy")
    serving.prepare(folder)
    url = f"privacyproxy:///{folder}/cps1988.yaml?state={folder}/state&utility=300,0.05"
    engine = sa.create_engine(url, pool_pre_ping=True)
    yield engine
    engine.dispose()


@pytest.fixture
def connection(engine):
    with engine.connect() as connection:
        yield connection


@pytest.fixture
def table(engine):
    return sa.Table("cps1988", sa.MetaData(), autoload_with=engine)


def test_the_policy_is_the_catalog(engine, table):
    """
    Reflection gives the dataset with the types of its attributes, levels and measures.
    """
    assert sa.inspect(engine).get_table_names() == ["cps1988"]
    assert sa.inspect(engine).get_schema_names() == ["public"]
    assert sa.inspect(engine).has_table("cps1988")
    assert not sa.inspect(engine).has_table("cps1989")
    kinds = {column.name: str(column.type) for column in table.columns}
    assert kinds == {
        "education": "INTEGER",
        "experience": "INTEGER",
        "ethnicity": "TEXT",
        "smsa": "TEXT",
        "region": "TEXT",
        "area": "TEXT",
        "parttime": "TEXT",
        "wage": "FLOAT",
    }
    assert "March 1988" in table.comment
    with pytest.raises(sa.exc.NoSuchTableError):
        sa.Table("cps1989", sa.MetaData(), autoload_with=engine)


def test_the_whole_catalog_is_reflected(engine):
    """
    ``MetaData.reflect`` and each question of an inspector; what is not there is an empty list.
    """
    metadata = sa.MetaData()
    metadata.reflect(engine)
    assert list(metadata.tables) == ["cps1988"]
    inspected = sa.inspect(engine)
    columns = inspected.get_columns("cps1988", schema="public")
    assert [column["comment"] for column in columns][-3:] == [
        "level of region",
        "attribute",
        "measure, clipped to [0, 2000]",
    ]
    assert inspected.get_pk_constraint("cps1988")["constrained_columns"] == []
    for question in (
        inspected.get_foreign_keys,
        inspected.get_indexes,
        inspected.get_unique_constraints,
        inspected.get_check_constraints,
    ):
        assert question("cps1988") == []
        with pytest.raises(sa.exc.NoSuchTableError):
            question("cps1989")
    assert inspected.get_view_names() == inspected.get_table_names(schema="other") == []
    assert inspected.default_schema_name == "public"


def test_a_transaction_is_the_connections(connection):
    """
    A BEGIN in text is ended by SQLAlchemy's rollback, and errors leave the connection usable.
    """
    show = sa.text("SHOW privacy.utility")
    before = connection.execute(show).scalar()
    connection.execute(sa.text("BEGIN"))
    connection.execute(sa.text("SET privacy.utility = '7, 0.5'"))
    with pytest.raises(sa.exc.ProgrammingError):
        connection.execute(sa.text("SELECT foo FROM cps1988"))
    connection.connection.rollback()
    assert connection.execute(show).scalar() == before


def test_making_a_table_is_refused(connection):
    """
    CREATE TABLE is written, sent, and refused.
    """
    made = sa.Table("t", sa.MetaData(), sa.Column("a", sa.Integer, primary_key=True))
    with pytest.raises(sa.exc.NotSupportedError, match="CREATE is not supported"):
        made.create(connection)


def test_expressions_become_sql(connection, table):
    """
    SELECTs built from expressions, with parameters, IN lists and LIMIT, equal the text.
    """
    built = (
        sa.select(table.c.region, sa.func.count().label("n"))
        .where(table.c.education >= 12, table.c.region.in_(["west", "south"]))
        .group_by(table.c.region)
        .order_by(table.c.region)
        .limit(5)
    )
    text = (
        "SELECT region, COUNT(*) AS n FROM cps1988 WHERE education >= 12 "
        "AND region IN ('west', 'south') GROUP BY region ORDER BY region LIMIT 5"
    )
    rows = connection.execute(built).fetchall()
    assert [row[0] for row in rows] == ["south", "west"]
    assert connection.execute(sa.text(text)).fetchall() == rows


def test_a_hint_says_how_good(connection, table):
    """
    A UTILITY hint goes before the columns of a SELECT.
    """
    wages = sa.select(sa.func.sum(table.c.wage)).prefix_with("/*+ UTILITY(500000, 0.05) */")
    assert isinstance(connection.execute(wages).scalar(), float)


def test_pandas_reads_it(connection):
    """
    ``read_sql`` gives a frame, per cent signs and all.
    """
    pandas = pytest.importorskip("pandas")
    if sa.__version__ < "2":
        pytest.skip("pandas takes SQLAlchemy 2 only")
    text = sa.text("SELECT region, COUNT(*) AS n FROM cps1988 WHERE region LIKE '%st' GROUP BY 1")
    frame = pandas.read_sql(text, connection)
    assert list(frame.columns) == ["region", "n"]
    assert set(frame["region"]) == {"midwest", "northeast", "west"}


@pytest.mark.parametrize("url", ["privacyproxy://", "privacyproxy:///x.yaml?utilty=1,2"])
def test_a_url_that_says_nothing_is_refused(url):
    """
    A URL without a policy, or with an option that there is not, says so.
    """
    with pytest.raises(sa.exc.ArgumentError):
        sa.create_engine(url).connect()
