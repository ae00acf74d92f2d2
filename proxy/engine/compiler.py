"""Where the texts of statements are read: in this process, or in workers of a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from proxy.policy import Policy
from proxy.sql.evaluator.evaluator import Evaluator
from proxy.sql.program import Command, Program
from proxy.sql.statement import ProgramKey, compile_key


class Compiler(Protocol):
    """Reads statements of one dataset, and runs their outer SQL.

    There are ``LocalCompiler`` and the server's ``RemoteCompiler``.
    """

    def compile(self, key: ProgramKey) -> Program | Command:
        """Return what a statement means; the same object for the same statement, while kept."""

    def rows(self, sql: str, parameters: dict[str, object]) -> Sequence[tuple[Any, ...]]:
        """Return the rows of a statement's outer SQL on released numbers."""


class LocalCompiler:
    """Reads statements in this process, over an evaluator."""

    def __init__(self, policy: Policy, evaluator: Evaluator) -> None:
        self._policy = policy
        self._evaluator = evaluator
        self.rows = evaluator.rows

    def compile(self, key: ProgramKey) -> Program | Command:
        """Return what a statement means."""
        return compile_key(key, self._policy, self._evaluator)
