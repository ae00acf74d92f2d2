"""A server of the clients' own, so that what they ask is not yet known where a charge is tested."""

from tests.conftest import server

__all__ = ["server"]
