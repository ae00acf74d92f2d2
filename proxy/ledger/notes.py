"""Free statements: for each process one append-only file of JSON lines, with its own hash chain.

A statement that costs nothing (inferred, refused, explained) needs no write lock.  Its line is
written at once, so that the death of the process loses none; only a failure of the machine can
lose the lines since the last sync, which comes with the first line after a second, with the next
charge, and at the end.  The next charge of the same process chains the file's last hash into the
ledger: from then on no line of the file can be changed or left out unseen.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple

import proxy.files as files
from proxy.errors import OperationalError, StateError
from proxy.ledger.anchor import sync, sync_folder

_json = json.JSONEncoder(separators=(",", ":")).encode

PERIOD = 1.0  # seconds between syncs
LONGEST = 10_000  # characters of a statement: it pays nothing for the disk that it takes
FOLDER = "notes/"  # begins the names of these files in a backup
NAME = "proxy.id"  # the file of a state that has its proxy's name, where several share a ledger


class Note(Struct, frozen=True):
    """One free statement."""

    time: int  # microseconds since 1970, UTC
    kind: str
    user: str
    statement: str
    detail: Mapping[str, Any]


def cut(statement: str) -> str:
    """Return what is kept of a statement: all, or its beginning, its length and its SHA-256."""
    if len(statement) <= LONGEST:
        return statement
    digest = sha256(statement.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{statement[:LONGEST]} … ({len(statement):,} characters, SHA-256 {digest})"


class Notes:
    """The file of one process, made at its first line."""

    def __init__(self, folder: Path, prefix: str = "") -> None:
        self.folder = folder
        self._prefix = prefix  # of the names of files, where other proxies have theirs elsewhere
        self.forked()

    def forked(self) -> None:
        """Begin anew in a child process: the parent's file is the parent's."""
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._file: int | None = None
        when = time.strftime("%Y%m%dT%H%M%S")
        self._name = f"{self._prefix}{when}-{os.getpid()}-{token_hex(4)}.jsonl"
        self._count = self._chained = self._synced = 0
        self._hash = first(self._name)
        self._due = time.monotonic() + PERIOD

    def write(self, note: Note) -> None:
        """Append a line."""
        with self._lock:
            body = _json(astuple(note)).encode()
            with self._faults():
                self._append(body)
                if time.monotonic() >= self._due:
                    self._sync()
                self._require()

    def head(self) -> list[object] | None:
        """Return [file, lines, hash] for the next charge, None where it would say nothing new."""
        with self._lock:
            if self._count == self._chained:
                return None
            with self._faults():
                self._sync()
            return [self._name, self._count, self._hash.hex()]

    def chained(self, head: list[object]) -> None:
        """Remember that a committed line holds this head."""
        with self._lock:
            if head[0] == self._name:
                self._chained = max(self._chained, int(str(head[1])))

    def close(self) -> None:
        """Sync and close the file."""
        with self._lock:
            if self._file is not None:
                self._sync()
                os.close(self._file)
                self._begin()

    def contents(self) -> dict[str, bytes]:
        """Return what the files of every process hold, by ``FOLDER/name``."""
        return {FOLDER + path.name: files.read(path) for path in paths(self.folder)}

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._begin()  # what follows a torn line would be lost with it
            if isinstance(error, PermissionError):
                raise files.denied(self.folder / self._name) from None
            raise files.full(self.folder, error) or OperationalError(
                f"{self.folder}: the audit file cannot be written: {error.strerror}"
            ) from error

    def _append(self, body: bytes) -> None:
        if self._file is None:
            self._file = self._create()
        self._hash = sha256(self._hash + body).digest()
        line = b"[%s,%s]\n" % (body, json.dumps(self._hash.hex()).encode())
        while line:
            line = line[os.write(self._file, line) :]
        self._count += 1

    def _require(self) -> None:
        """Refuse to go on with a file that is no longer the one at its path."""
        assert self._file is not None
        path = f"{self.folder}/{self._name}"
        try:
            if os.path.samestat(os.fstat(self._file), os.stat(path)):
                return
        except FileNotFoundError:
            pass
        os.close(self._file)
        self._begin()
        raise StateError(
            f"{path} was deleted, moved or replaced while it was in use; nothing was told",
            hint="put it back, and connect again",
        )

    def _sync(self) -> None:
        if self._file is not None and self._synced < self._count:
            sync(self._file)
            self._synced = self._count
        self._due = time.monotonic() + PERIOD

    def _create(self) -> int:
        files.make_folder(self.folder)
        file = files.create(self.folder / self._name, flags=os.O_APPEND | os.O_EXCL)
        sync_folder(self.folder)
        return file


def first(name: str) -> bytes:
    """Return the hash before a file's first line."""
    return sha256(name.encode()).digest()


def paths(folder: Path) -> list[Path]:
    """Return the files of a folder, by name; none where there is no folder.

    Raises:
        OperationalError: we may not look into it.
    """
    try:
        with files.opening(folder):
            return sorted(path for path in folder.iterdir() if path.suffix == ".jsonl")
    except FileNotFoundError:
        return []


def read(path: Path) -> Iterator[tuple[Note, str] | None]:
    """Yield each line with its hash, then None if a line does not follow from the one before.

    A last line without its end was cut by a crash before anything relied on it, and is left out.
    """
    previous = first(path.name)
    for line in files.read(path).split(b"\n")[:-1]:
        body, _, _ = line[1:].rpartition(b",")
        previous = sha256(previous + body).digest()
        if line != b"[%s,%s]" % (body, json.dumps(previous.hex()).encode()):
            yield None
            return
        try:
            yield Note(*json.loads(body)), previous.hex()
        except (ValueError, TypeError):
            yield None
            return


def put_back(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write the files of a backup into a folder; one that is there and longer stays."""
    for name, content in contents.items():
        path = folder / Path(name.removeprefix(FOLDER)).name
        if path.exists() and path.stat().st_size >= len(content):
            continue
        files.make_folder(folder)
        files.replace(path, content)
        sync_folder(folder)
