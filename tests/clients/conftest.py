"""One server for the clients."""

from tests.server.conftest import server

__all__ = ["server"]
