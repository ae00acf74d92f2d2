"""The files of a source: one, or all that a pattern such as ``orders/**/*.parquet`` finds.

Folders named ``key=value`` below the pattern's own are columns too, as text.  All files are of one
kind; a column that some of them lack is NULL there.  A file that a pattern finds by several names,
being linked to, is read once, by a name that is no link where it has one.
"""

from __future__ import annotations

import glob
import hashlib
import hmac
import os
import time
from functools import cached_property
from pathlib import Path

from msgspec import Struct

from proxy.errors import SourceError
from proxy.files import special
from proxy.policy.lakes import HINT, in_lake, lake

PATTERN = "*?["
TICK, COARSE = 0.05, 2.0  # seconds between times that a file system tells apart, at most
Identity = tuple[int, int]
State = tuple[tuple[str, tuple[int, ...]], ...]


class FileSet(Struct, frozen=True, dict=True):
    """The files at a path, in the order of their names."""

    path: Path
    files: tuple[Path, ...]

    @classmethod
    def at(cls, path: Path) -> FileSet:
        """Return what is at a path now.

        Raises:
            SourceError: there is nothing, or they are of a table whose log says which count.
        """
        if (what := special(path)) is not None:
            raise SourceError(
                f"{path} is {what}, and no file", hint="see source.path in the policy"
            )
        found = files_at(path)
        parts = [each for each in found if each.suffix.lower() == ".parquet" or each.is_dir()]
        if (table := lake(parts)) is not None:
            raise SourceError(in_lake(*table), hint=HINT)
        if not found and several(path):
            raise SourceError(f"no file is like {path}", hint="see source.path in the policy")
        return cls(path, found or (path,))

    @property
    def partitioned(self) -> bool:
        """Whether names of folders are columns."""
        root = len(self.path.parts)
        if several(self.path):
            root = next(i for i, part in enumerate(self.path.parts) if set(part) & set(PATTERN))
        return any("=" in part for file in self.files for part in file.parts[root:-1])

    @cached_property
    def kind(self) -> str:
        """What the files are, by their first bytes: csv, csv.gz, parquet or database.

        Raises:
            SourceError: one cannot be read, or they are of several kinds.
        """
        kinds = {_kind(file) for file in self.files}
        if len(kinds) > 1 or ("database" in kinds and several(self.path)):
            raise SourceError(f"the files that are like {self.path} are of several kinds")
        return kinds.pop()

    def state(self) -> State:
        """Return what changes whenever one of the files is written to, from now on."""
        return tuple((str(file), _state(file)) for file in self.files)

    def fingerprint(self, key: bytes) -> str:
        """Return the HMAC-SHA-256 of the files' bytes, and where there are several their names."""
        digest = hmac.new(key, digestmod=hashlib.sha256)
        for file in self.files:
            if several(self.path):
                head = f"{os.path.relpath(file, self.path.parent)}\0{file.stat().st_size}\0"
                digest.update(head.encode())
            with file.open("rb") as opened:
                while block := opened.read(2**20):
                    digest.update(block)
        return digest.hexdigest()


def files_at(path: Path) -> tuple[Path, ...]:
    """Return the files at a path, none where there is nothing."""
    if not several(path):
        return (path,) if path.exists() else ()
    matches = map(Path, glob.iglob(str(path), recursive=True))
    found: dict[Identity, Path] = {}
    for each in sorted(set(filter(Path.is_file, matches)), key=_rank):
        found.setdefault(identity(each), each)
    return tuple(sorted(found.values()))


def identity(path: Path) -> Identity:
    """Return what is the same of all names of a file: its device and inode."""
    found = path.stat()
    return found.st_dev, found.st_ino


def _rank(path: Path) -> tuple[int, Path]:
    """Return how many links are in a path, and then its place by name."""
    return sum(each.is_symlink() for each in (path, *path.parents)), path


def several(path: Path) -> bool:
    """Whether a path is a pattern, and not the name of a file."""
    return bool(set(str(path)) & set(PATTERN)) and not path.exists()


def _kind(path: Path) -> str:
    try:
        with path.open("rb") as file:
            start = file.read(12)
    except FileNotFoundError:
        raise SourceError(f"{path} does not exist", hint="see source.path in the policy") from None
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}") from None
    if start[8:12] == b"DUCK":
        return "database"
    if start[:4] == b"PAR1":
        return "parquet"
    return "csv.gz" if start[:2] == b"\x1f\x8b" else "csv"


def _state(path: Path) -> tuple[int, ...]:
    while True:
        found = path.stat()
        tick = COARSE if found.st_ctime_ns % 10**9 == 0 else TICK
        if not 0 <= (left := found.st_ctime + tick - time.time()) <= tick:
            return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
        time.sleep(left)  # a write in the same tick would leave the time as it is
