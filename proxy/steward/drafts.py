"""Files of cubes: where they are built, which are there, and what killed builds have left."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from proxy.errors import StateError
from proxy.state import cube_path

LEFT = ".*cube-*"


@contextmanager
def drafting(folder: Path, alone: bool = False) -> Iterator[Path]:
    """Yield a place for a cube that is built, which nobody clears away meanwhile.

    What killed builds have left is cleared away before.

    Raises:
        StateError: another build of the state is under way, where there may be one ``alone``.
    """
    draft = folder / f".cube-{token_hex(4)}.duckdb"
    clear(folder)
    with ExitStack() as stack:
        try:
            stack.enter_context(
                _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB if alone else fcntl.LOCK_SH)
            )
        except BlockingIOError:
            raise StateError(
                f"another process is making {folder}; nothing was changed", hint="wait for it"
            ) from None
        stack.callback(draft.unlink, missing_ok=True)
        yield draft


def clear(folder: Path) -> None:
    """Remove the leftovers of killed builds, unless one is under way: they hold private data."""
    if not any(folder.glob(LEFT)):
        return
    with suppress(OSError), _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB) as held:
        for leftover in folder.glob(LEFT) if held else ():
            if leftover.is_dir():
                shutil.rmtree(leftover, ignore_errors=True)
            else:
                leftover.unlink(missing_ok=True)


@contextmanager
def _locked(folder: Path, how: int) -> Iterator[bool]:
    """Hold the lock of a folder's builds, if its file system has locks; yield whether it has.

    Raises:
        BlockingIOError: somebody else holds it, and ``how`` says not to wait.
    """
    opened = os.open(folder, os.O_RDONLY)
    held = True
    try:
        try:
            fcntl.flock(opened, how)
        except BlockingIOError:
            raise
        except OSError:
            held = False
        yield held
    finally:
        os.close(opened)


def cubes(folder: Path) -> list[Path]:
    """Return the cubes that are there, of the oldest snapshot first."""
    return sorted(folder.glob("cube-*.duckdb"), key=lambda path: int(path.stem.split("-")[1]))


def only(folder: Path, snapshot: int) -> None:
    """Remove the cubes of other snapshots: they hold private data."""
    for path in cubes(folder):
        if path != cube_path(folder, snapshot):
            path.unlink(missing_ok=True)
