"""What the console stands on: who may enter, which datasets they see, and sessions to ask in.

The console itself has no way to the data.  A session is the user's own, as any client's: in a
server it is a connection over the wire, through the same workers, queues, limits and notices; on
one's own machine it is an embedded one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from proxy.engine import Result
from proxy.policy import Policy
from proxy.privileges import Privileges


class Dataset(Protocol):
    """A dataset that is served."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def policy(self) -> Policy:
        """The policy in force."""

    @property
    def state(self) -> Path | None:
        """The folder of states, if one was named."""


class Credentials(Struct, frozen=True, eq=False):
    """Who enters from where, once; nothing here is logged."""

    user: str
    password: str
    address: str

    def __repr__(self) -> str:
        return f"Credentials({self.user!r}, from {self.address!r})"


class Session(Protocol):
    """One user's statements in one dataset; its methods block."""

    def execute(self, text: str) -> Result:
        """Run one statement."""

    def cancel(self) -> None:
        """Stop the running statement, from another thread."""

    def close(self) -> None:
        """End the session."""


class Backend(Protocol):
    """``Embedded`` for one's own machine, or a server's ``ConsoleDoor``."""

    passwords: bool  # whether users log in by name and password; else by the address with a token

    async def login(self, credentials: Credentials) -> None:
        """Let a user in.

        Raises:
            Error: it is not their password, or too many were tried.
        """

    def valid(self, credentials: Credentials) -> bool:
        """Return whether a user who was let in still would be."""

    def datasets(self, user: str) -> Mapping[str, Dataset]:
        """Return the datasets that a user may see, by name."""

    def privileges(self, user: str, dataset: str) -> Privileges:
        """Return what a user may do, see and spend in a dataset.

        Raises:
            Error: the dataset is not open to the user.
        """

    def address(self, user: str, dataset: str, host: str) -> str:
        """Return what a user's program connects to; their browser finds the console at ``host``."""

    async def connect(self, credentials: Credentials, dataset: str) -> Session:
        """Return a new session of a user.

        Raises:
            Error: the user is no longer let in, or there are too many sessions.
        """

    async def leave(self, credentials: Credentials) -> None:
        """Forget a user's way in, once their sessions are closed."""

    async def renew(self, dataset: str) -> None:
        """Take over a policy that was applied."""
