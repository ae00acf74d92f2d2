"""Whether the server can do what it is for: by dataset, and by part.

    policy   the dataset is served, as its file says
    ledger   it could be charged now: its write lock can be had
    cube     it is there, whole, and that of the current snapshot
    disk     the state's file system has room
    mirror   every PostgreSQL that has the dataset takes connections

What is not well is named by its part, with no value, file or text of an error.  Probes have
threads of their own and bounded time; a probe that hangs is not begun again until it ends.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

from proxy.engine import Engine
from proxy.errors import Error, IntegrityError, PolicyError
from proxy.server.metrics import Metrics
from proxy.server.registry import Registry, fits, opened, policies, users_beside
from proxy.state import ledger_place, state_folder
from proxy.steward import loaded, open_cube

PARTS = ("policy", "ledger", "cube", "disk", "mirror")
OK = "ok"
BEFORE = "served as it was before"  # well enough to answer
FRESH = 1.0  # seconds for which what was found is not asked again
PATIENCE = 3.0  # seconds for all probes
ROOM = 64 << 20  # bytes that a disk must have left
INODES = 64

Parts = Mapping[str, str]  # what each part is: "ok", or what is wrong with it


class Health:
    """What can be said of a server's datasets; looked up once for all who ask in a second."""

    def __init__(self, registry: Registry, metrics: Metrics, room: int = ROOM) -> None:
        self._registry, self._metrics, self._room = registry, metrics, room
        self._pool = ThreadPoolExecutor(4, "health")
        self._probes: dict[
            tuple[str, str], asyncio.Future[str]
        ] = {}  # by dataset and part: under way
        self._look: asyncio.Task[dict[str, Parts]] | None = None
        self._began = 0.0

    async def datasets(self) -> Mapping[str, Parts]:
        """Return each dataset's parts, as they were found within the last second."""
        old = time.monotonic() - self._began > FRESH
        if self._look is None or (self._look.done() and old):
            self._began = time.monotonic()
            self._look = asyncio.ensure_future(self._ask())
        return await asyncio.shield(self._look)

    async def unwell(self) -> str | None:
        """Return which parts are not well, naming no dataset: anybody may ask.  None: none."""
        datasets = await self.datasets()
        wrong = [
            part for part in PARTS if any(parts.get(part, OK) != OK for parts in datasets.values())
        ]
        return f"not well: {', '.join(wrong)}" if wrong else None

    def close(self) -> None:
        """Begin no more probes."""
        if self._look is not None:
            self._look.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _ask(self) -> dict[str, Parts]:
        current = self._registry.current
        instances = self._registry.instances()
        answers = asyncio.gather(*(each.mirror.address.answers(PATIENCE) for each in instances))
        engines = dict(current.engines)
        found = await self._probe(engines)
        up = dict(zip(instances, await answers, strict=True))
        self._metrics.mirrors_up.set(sum(up.values()))
        changed = {each.dataset for each in current.broken}
        datasets: dict[str, Parts] = {}
        for name in engines:
            policy = BEFORE if name in changed or self._registry.stale else OK
            mine = [up[each] for each in instances if name in each.mirror.datasets]
            mirror = OK if all(mine) else "it has ended, or timed out"
            datasets[name] = {"policy": policy, **found[name], "mirror": mirror}
        for name in sorted(changed - set(engines)):
            datasets[name] = {"policy": "it is not served"}
        self._metrics.show_parts(datasets)
        return datasets

    async def _probe(self, engines: Mapping[str, Engine]) -> dict[str, dict[str, str]]:
        """Return what the files of each dataset are found to be; bounded in time."""
        kinds: dict[str, Callable[[Engine], str]] = {
            "ledger": self._ledger,
            "cube": self._cube,
            "disk": self._disk,
        }
        loop = asyncio.get_running_loop()
        asked = [(name, part) for name in engines for part in kinds]
        for name, part in asked:
            probe = self._probes.get((name, part))
            if probe is None or probe.done():
                self._probes[name, part] = loop.run_in_executor(
                    self._pool, kinds[part], engines[name]
                )
        waited = [self._probes[each] for each in asked]
        if waited:
            await asyncio.wait(waited, timeout=PATIENCE)
        found: dict[str, dict[str, str]] = {name: {} for name in engines}
        for name, part in asked:
            probe = self._probes[name, part]
            if not probe.done():
                found[name][part] = "it timed out"
            else:
                found[name][part] = "it cannot be read" if probe.exception() else probe.result()
        for gone in {each for each, probe in self._probes.items() if probe.done()} - set(asked):
            del self._probes[gone]
        return found

    def _ledger(self, engine: Engine) -> str:
        place = ledger_place(engine.policy, state_folder(engine.policy, self._registry.state))
        try:
            engine.ledger.sequence()
        except Error:  # then nothing opens what is there: SQLite could take another's log with it
            return place.lost()
        return place.unwritable(engine.ledger.id) or OK

    def _cube(self, engine: Engine) -> str:
        try:
            snapshot = engine.ledger.snapshot()
        except Error:
            return "it is not known without the ledger"
        folder = state_folder(engine.policy, self._registry.state)
        try:
            open_cube(engine.policy, folder, engine.ledger.id, snapshot)
        except IntegrityError:
            return "it is damaged"
        except Error:
            return "it is not there, or another one"
        return OK

    def _disk(self, engine: Engine) -> str:
        found = os.statvfs(state_folder(engine.policy, self._registry.state))
        if found.f_bavail * found.f_frsize < self._room:
            return f"it has less than {self._room >> 20:,} MB left"
        if found.f_files and found.f_favail < INODES:
            return "it has no room for new files"
        return OK


def ready(datasets: Mapping[str, Parts]) -> bool:
    """Whether every dataset can be asked: what is served as it was before can be."""
    return all(state in (OK, BEFORE) for parts in datasets.values() for state in parts.values())


def notify(state: str) -> None:
    """Tell systemd, where it asked to be told (sd_notify); it does not matter who else hears."""
    if not (path := os.environ.get("NOTIFY_SOCKET")):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.connect(f"\0{path[1:]}" if path.startswith("@") else path)
        channel.send(state.encode())


def problems(named: Sequence[str | Path], state: Path | None) -> list[str]:
    """Return what is wrong with the policies and users in these files, as a start would find it."""
    faults: list[str] = []
    engines: dict[str, Engine] = {}
    with ExitStack() as closing:
        paths = policies(named)
        try:
            users_beside(paths[0].absolute())
        except Error as error:
            faults += _words(error)
        for path in paths:
            try:
                loaded(path.absolute(), source=False)  # it finds more at once
                engine = opened(path.absolute(), state, sandbox=False)
                closing.callback(engine.close)
                fits(engine, engines)
                engines[engine.policy.dataset] = engine
            except Error as error:
                faults += _words(error)
    return list(dict.fromkeys(faults))


def _words(error: Error) -> Iterator[str]:
    """Yield what is wrong, and what to do about it."""
    for each in (error, *(error.others if isinstance(error, PolicyError) else ())):
        yield f"{each.message} ({each.hint})" if each.hint else each.message
