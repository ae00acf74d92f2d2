"""The compiler of a server: workers read the texts, and programs are shared by all sessions."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from proxy.policy import Policy
from proxy.server.workers import tasks
from proxy.server.workers.cache import Cache
from proxy.sql.evaluator.evaluator import bytes_of
from proxy.sql.evaluator.worker import unpack_column
from proxy.sql.program import Command, Program
from proxy.sql.statement import ProgramKey, may_cache


class RemoteCompiler:
    """Reads the statements of one dataset in workers."""

    def __init__(self, policy: Policy, programs: Cache, call: Callable[..., Any]) -> None:
        self._policy = policy
        self._programs = programs
        self._call = call  # a function of ``tasks``, in the worker of the step

    def compile(self, key: ProgramKey) -> Program | Command:
        """Return what a statement means."""
        program = self.known(key)
        if program is None:
            began = time.monotonic()
            program = self._call(tasks.compiled, key)
            self.keep(key, program, time.monotonic() - began)
        return program

    def known(self, key: ProgramKey) -> Program | Command | None:
        """Return what a statement means, if that is kept."""
        program: Program | Command | None = self._programs.get(key)
        return program

    def keep(self, key: ProgramKey, program: Program | Command, cost: float) -> None:
        """Keep what a statement means, which took so many seconds to find out."""
        if may_cache(program):
            self._programs.put(key, program, bytes_of(program) + len(key.text), cost)

    def rows(self, sql: str, parameters: dict[str, object]) -> Sequence[tuple[Any, ...]]:
        """Return the rows of a statement's outer SQL on released numbers."""
        columns = self._call(tasks.rows, self._policy.key, sql, parameters)
        return list(zip(*(unpack_column(*column) for column in columns), strict=True))
