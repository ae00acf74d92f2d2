"""The backend of a console for one's own machine: engines in this process, and a token to enter.

It is no boundary against the person who runs it, who has the data; the token keeps out the other
users of the machine, and the pages that their browser visits.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from proxy.console.backend import Credentials, Dataset, Session
from proxy.engine import Engine
from proxy.errors import InsufficientPrivilegeError
from proxy.policy import Policy
from proxy.privileges import Privileges


class Opened(Struct, frozen=True):
    """A dataset whose engine is in this process."""

    policy: Policy
    state: Path | None

    @property
    def name(self) -> str:
        """Its name."""
        return self.policy.dataset


class Embedded:
    """Engines of policies, for whoever has the token."""

    passwords = False

    def __init__(self, policies: Sequence[str | Path], state: Path | None = None) -> None:
        """Open the engines.

        Raises:
            PolicyError, StateError: one cannot be opened.
        """
        self.token = secrets.token_urlsafe(24)
        self._state = state
        self._engines: dict[str, Engine] = {}
        for each in policies:
            engine = Engine.open(each, state)
            self._engines[engine.policy.dataset] = engine

    async def login(self, credentials: Credentials) -> None:
        """Let in whoever has the token."""
        if not self.valid(credentials):
            raise InsufficientPrivilegeError(
                "the token is not that of this console; the terminal shows the whole address"
            )

    def valid(self, credentials: Credentials) -> bool:
        """Return whether the token is right."""
        return secrets.compare_digest(credentials.password.encode(), self.token.encode())

    def datasets(self, user: str) -> Mapping[str, Dataset]:
        """Return all datasets."""
        return {n: Opened(engine.policy, self._state) for n, engine in self._engines.items()}

    def privileges(self, user: str, dataset: str) -> Privileges:
        """Return those of whoever runs the process."""
        return self._engines[dataset].privileges("")

    def address(self, user: str, dataset: str, host: str) -> str:
        """Return the policy's file."""
        return str(self._engines[dataset].policy.path.absolute())

    async def connect(self, credentials: Credentials, dataset: str) -> Session:
        """Return an embedded session."""
        return self._engines[dataset].session()

    async def leave(self, credentials: Credentials) -> None:
        """Do nothing: a session holds nothing."""

    async def renew(self, dataset: str) -> None:
        """Open the engine again, under the policy that was applied."""
        old = self._engines[dataset]
        self._engines[dataset] = await asyncio.to_thread(Engine.open, old.policy.path, self._state)
        await asyncio.to_thread(old.close)

    def close(self) -> None:
        """Close the engines."""
        for engine in self._engines.values():
            engine.close()
