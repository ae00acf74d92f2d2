"""Strategies are chosen again as requests come in, in a process of its own, never on their path.

Of each dataset whose policy leaves the strategy open, ``privacy-proxy plan`` looks at the log once
an hour, if that has grown, and writes its choice into the ledger, which planners follow.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from asyncio.subprocess import DEVNULL, create_subprocess_exec
from collections.abc import Callable, Iterable
from contextlib import suppress

from proxy.engine import Engine

log = logging.getLogger("proxy.server")
EVERY = 3600.0  # seconds between two looks at the logs
GROWN = 20  # lines of the ledger without which there is nothing new to choose by
SECONDS = 60  # of the processor, that a choice may take
LOWEST = 19  # the niceness of who may wait


class Choosing:
    """The process that chooses, one dataset at a time."""

    def __init__(self, engines: Callable[[], Iterable[Engine]]) -> None:
        self._engines = engines
        self._looked: dict[str, int] = {}  # by ledger: its last line, when it was looked at

    async def watch(self) -> None:
        """Choose again and again, until cancelled."""
        while True:
            await asyncio.sleep(EVERY)
            await self.look()

    async def look(self) -> None:
        """Choose for each dataset whose log has grown."""
        for engine in list(self._engines()):
            if engine.policy.privacy.strategy != "auto" or engine.folder is None:
                continue
            try:
                sequence = await asyncio.to_thread(engine.ledger.sequence)
                if sequence - self._looked.get(engine.ledger.id, 0) >= GROWN:
                    await self._choose(engine)
                    self._looked[engine.ledger.id] = sequence
            except Exception as error:
                log.warning("no strategy chosen", extra={"reason": type(error).__name__})

    async def _choose(self, engine: Engine) -> None:
        """Run the command; it is killed with the server."""
        assert engine.folder is not None
        process = await create_subprocess_exec(
            sys.executable, "-m", "proxy", "plan", str(engine.policy.path),
            "--state", str(engine.folder.absolute().parent), "--log", "--adopt",
            "--seconds", str(SECONDS),
            stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL,
        )  # fmt: skip
        try:
            with suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, process.pid, LOWEST)
            status = await process.wait()
        except BaseException:
            process.kill()
            raise
        if status:
            log.warning("no strategy chosen", extra={"reason": f"exit status {status}"})
        else:
            log.info("strategy chosen", extra={"database": engine.policy.dataset})
