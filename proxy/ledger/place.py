"""Where a dataset's ledger is: a file of its state folder, or a PostgreSQL that the policy names.

What it takes to make, open, restore and look at a ledger is asked here, whichever it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxy.ledger import probe
from proxy.ledger.restore import Restored, restore
from proxy.ledger.sqlite import SQLiteLedger
from proxy.ledger.stored import StoredLedger


@dataclass(frozen=True)
class Place(ABC):
    """Where a ledger is, and where its anchor."""

    dataset: str
    path: Path  # of the ledger's file, where it is one; in the state folder
    anchor: Path

    @abstractmethod
    def exists(self) -> bool:
        """Whether there is a ledger.

        Raises:
            OperationalError: its server cannot be reached.
        """

    @abstractmethod
    def open(self) -> StoredLedger:
        """Open the ledger.

        Raises:
            StateError: it is missing, of another dataset, or of a newer proxy.
            IntegrityError: it is behind its anchor, or the chain is broken at its head.
        """

    @abstractmethod
    def require_none(self) -> None:
        """Refuse to begin a ledger where there is one, or was one.

        Raises:
            StateError: there is a ledger already, or something that it has left.
        """

    @abstractmethod
    def create(self, begin: Mapping[str, Any]) -> None:
        """Make a new ledger, of which ``Beginning`` says more: a full budget.

        Raises:
            StateError: there is a ledger already, or there was one.
        """

    def joins(self) -> bool:
        """Whether a new state folder would follow a ledger that other proxies use already."""
        return False

    def join(self) -> None:
        """Let a new state folder follow the ledger from now on.

        Raises:
            StateError: the folder has something of another state.
        """
        raise NotImplementedError

    @abstractmethod
    def restore(self, backup: Path, **how: Any) -> Restored:
        """Put a backup in the place of the ledger, as ``restore.restore`` does."""

    @abstractmethod
    def lost(self) -> str:
        """Return why a ledger cannot be read any more, in words that name no file."""

    @abstractmethod
    def unwritable(self, ledger: str) -> str | None:
        """Return why nothing can be charged to a ledger, in words that name no file; None: it can.

        The write lock is taken on a connection of its own, and given back.
        """


class FilePlace(Place):
    """A file of the state folder."""

    def exists(self) -> bool:
        """Whether there is a ledger."""
        return self.path.exists()

    def open(self) -> StoredLedger:
        """Open the ledger."""
        return SQLiteLedger.open(self.path, dataset=self.dataset, anchor=self.anchor)

    def require_none(self) -> None:
        """Refuse to begin a ledger where there is one, or was one."""
        SQLiteLedger.require_none(self.path, self.anchor)

    def create(self, begin: Mapping[str, Any]) -> None:
        """Make a new ledger."""
        SQLiteLedger.create(self.path, dataset=self.dataset, anchor=self.anchor, **begin).close()

    def restore(self, backup: Path, **how: Any) -> Restored:
        """Put a backup in the place of the ledger."""
        return restore(self.path, backup, dataset=self.dataset, anchor=self.anchor, **how)

    def lost(self) -> str:
        """Return why a ledger cannot be read any more."""
        return probe.lost(self.path)

    def unwritable(self, ledger: str) -> str | None:
        """Return why nothing can be charged to a ledger."""
        return probe.unwritable(self.path, self.anchor, ledger)
