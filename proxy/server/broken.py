"""A policy that cannot be served, and what may mend it."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from proxy.errors import Error
from proxy.policy import Policy
from proxy.policy import load as load_policy
from proxy.state import ledger_path, ledger_place, state_folder


class Broken(Struct, frozen=True):
    """A policy that cannot be served, or not as it is now."""

    path: Path
    dataset: str
    folder: Path | None  # of its state, where so much can be read
    policy: Policy | None = None

    @classmethod
    def of(cls, path: Path, state: Path | None) -> Broken:
        """Return what can be said of a policy that is broken."""
        try:
            policy = load_policy(path)
        except Error:
            with suppress(OSError):
                text = path.read_text("utf-8", "replace")
                if named := re.search(r"^dataset:[ \t]*([^\s#]+)", text, re.MULTILINE):
                    return cls(path, named[1].strip("\"'"), None)
            return cls(path, path.stem, None)
        return cls(path, policy.dataset, state_folder(policy, state), policy)

    def state(self) -> list[Path]:
        """Return the files that may mend it when they change."""
        if self.folder is None:
            return []
        return [ledger_path(self.folder), *sorted(self.folder.glob("cube-*"))]

    def ledger(self) -> bool:
        """Whether its ledger is there and can be reached, which may mend it too."""
        if self.policy is None or self.folder is None:
            return False
        try:
            return ledger_place(self.policy, self.folder).exists()
        except Error:
            return False
