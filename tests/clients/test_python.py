"""Python's drivers and what is built on them, as their users use them, against a server."""

import asyncio
import datetime
import decimal

import pytest

from tests.server.serving import COUNT, NAMES, REGIONS, password

PARAMETERS = {  # of every common type: the text of the condition, and the value
    "integer": ("education >= {}", 12),
    "text": ("region = {}", "west"),
    "float": ("education > {}", 11.5),
    "numeric": ("education > {}", decimal.Decimal("11.5")),
    "boolean": ("(education > 11) = {}", True),
    "null": ("region = {}", None),
}


def where(condition, mark):
    return f"SELECT COUNT(*) FROM cps1988 WHERE {condition.format(mark)} WITH UTILITY (900, 0.05)"


def address(server):
    return {"host": server.host, "port": server.port, "user": "alice", "database": "cps1988"}


@pytest.mark.parametrize("kind", PARAMETERS)
def test_psycopg2(server, kind):
    """
    psycopg2 writes parameters into the text; rows, types and errors come back.
    """
    psycopg2 = pytest.importorskip("psycopg2")
    connection = psycopg2.connect(**address(server), password=password("alice"))
    with connection, connection.cursor() as cursor:
        condition, value = PARAMETERS[kind]
        cursor.execute(where(condition, "%s"), (value,))
        ((count,),) = cursor.fetchall()
        assert isinstance(count, int)
        cursor.execute(REGIONS)
        assert [row[0] for row in cursor.fetchall()] == NAMES
        assert [column.type_code for column in cursor.description] == [25, 20]
    with connection, connection.cursor() as cursor:
        with pytest.raises(psycopg2.errors.FeatureNotSupported):
            cursor.execute("SELECT * FROM cps1988")
        connection.rollback()
    with connection, connection.cursor("named") as cursor:
        cursor.itersize = 3
        cursor.execute(REGIONS)
        assert [row[0] for row in cursor] == NAMES
    assert "privacy: " in connection.notices[-1]
    connection.close()


def test_asyncpg(server):
    """
    Asyncpg prepares everything, in binary, with types it asks for; cursors and transactions work.
    """
    asyncpg = pytest.importorskip("asyncpg")

    async def use():
        connection = await asyncpg.connect(**address(server), password=password("alice"))
        said = []
        connection.add_log_listener(lambda _, message: said.append(message.message))
        for condition, value in PARAMETERS.values():
            if isinstance(value, float | decimal.Decimal):
                condition = condition.format("{}::float8")
                value = float(value)
            assert isinstance(await connection.fetchval(where(condition, "$1"), value), int)
        listed = where("education = ANY({}::int[])", "$1")
        assert isinstance(await connection.fetchval(listed, [1, 2]), int)
        rows = await connection.fetch(REGIONS)
        assert [row["region"] for row in rows] == NAMES
        async with connection.transaction():
            found = [row["region"] async for row in connection.cursor(REGIONS, prefetch=3)]
        assert found == NAMES
        with pytest.raises(asyncpg.FeatureNotSupportedError, match="only aggregates"):
            await connection.fetch("SELECT * FROM cps1988")
        statement = await connection.prepare(where("education = {}", "$1"))
        assert [p.name for p in statement.get_parameters()] == ["int4"]
        assert [a.type.name for a in statement.get_attributes()] == ["int8"]
        await connection.execute(f"SET privacy.answers = on; {COUNT}")
        assert any(message.startswith("privacy: ") for message in said)
        await connection.close()

    asyncio.run(use())


def test_pg8000(server):
    """
    pg8000 leaves the types of parameters to the server.
    """
    dbapi = pytest.importorskip("pg8000.dbapi")
    connection = dbapi.connect(**address(server), password=password("alice"))
    cursor = connection.cursor()
    for condition, value in PARAMETERS.values():
        mark = "%s::float8" if isinstance(value, float | decimal.Decimal) else "%s"
        cursor.execute(where(condition, mark), (value,))
        assert isinstance(cursor.fetchone()[0], int)
    cursor.execute(REGIONS)
    assert [row[0] for row in cursor.fetchall()] == NAMES
    with pytest.raises(dbapi.DatabaseError, match="0A000"):
        cursor.execute("SELECT * FROM cps1988")
    connection.rollback()
    assert any(b"privacy: " in notice[b"M"] for notice in connection.notices)
    connection.close()


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2", "pg8000", "asyncpg"])
def test_sqlalchemy(server, driver):
    """
    The stock dialects reflect, and their expressions are answered.
    """
    sa = pytest.importorskip("sqlalchemy")
    pytest.importorskip(driver)
    if driver == "psycopg" and sa.__version__ < "2":
        pytest.skip("SQLAlchemy 1.4 has no dialect for psycopg 3")
    if driver == "asyncpg":
        pytest.importorskip("greenlet")
        from sqlalchemy.ext.asyncio import create_async_engine

        async def use():
            engine = create_async_engine(url(sa, server, driver))
            async with engine.connect() as connection:
                await connection.run_sync(lambda c: expressions(sa, c))
            await engine.dispose()

        asyncio.run(use())
        return
    engine = sa.create_engine(url(sa, server, driver), pool_pre_ping=True)
    with engine.connect() as connection:
        expressions(sa, connection)
    engine.dispose()


def url(sa, server, driver):
    return sa.engine.URL.create(
        f"postgresql+{driver}", "alice", password("alice"), server.host, server.port, "cps1988"
    )


def expressions(sa, connection):
    inspected = sa.inspect(connection)
    assert inspected.get_table_names() == ["cps1988"]
    assert "privacy" in inspected.get_schema_names()
    assert inspected.get_pk_constraint("cps1988")["constrained_columns"] == []
    assert inspected.get_foreign_keys("cps1988") == inspected.get_indexes("cps1988") == []
    table = sa.Table("cps1988", sa.MetaData(), autoload_with=connection)
    assert str(table.c.education.type) == "INTEGER"
    built = (
        sa.select(table.c.region, sa.func.count().label("n"))
        .where(table.c.education >= 12, table.c.region.in_(["west", "south"]))
        .group_by(table.c.region)
        .order_by(sa.desc("n"))
        .limit(10)
        .prefix_with("/*+ UTILITY(900, 0.05) */")
    )
    assert {row.region for row in connection.execute(built)} == {"west", "south"}
    with pytest.raises(sa.exc.DBAPIError):
        connection.execute(sa.select(table)).fetchall()


def test_pandas(server):
    """
    ``read_sql`` of pandas, over SQLAlchemy, gives a frame with the types announced.
    """
    sa = pytest.importorskip("sqlalchemy")
    pandas = pytest.importorskip("pandas")
    if sa.__version__ < "2":
        pytest.skip("pandas takes SQLAlchemy 2 only")
    engine = sa.create_engine(url(sa, server, "psycopg"))
    with engine.connect() as connection:
        frame = pandas.read_sql(sa.text(REGIONS), connection)
        assert list(frame["region"]) == NAMES
        assert frame["n"].dtype == "int64"
        text = "SELECT COUNT(*) AS n FROM cps1988 WHERE region = :r WITH UTILITY (900, 0.05)"
        assert len(pandas.read_sql(sa.text(text), connection, params={"r": "west"})) == 1
    engine.dispose()


def test_dates_of_python(server):
    """
    A date as a parameter is a date, whatever the driver declares.
    """
    psycopg = pytest.importorskip("psycopg")
    day = datetime.date(2020, 2, 29)
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        text = "SELECT COUNT(*), %s::date AS d FROM cps1988 WITH UTILITY (900, 0.05)"
        assert connection.execute(text, [day]).fetchone()[1] == day
