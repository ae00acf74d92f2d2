"""Saved queries: a name and a text, of each user, in a file of the dataset's state folder.

They hold what their user typed, as secret as that; the file is for the owner of the state alone.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from msgspec import Struct

import proxy.files as files
from proxy.errors import NotSupportedError, StateError

NAME = "console.sqlite"
MOST, LONGEST, NAME_LIMIT = 200, 100_000, 120  # queries of a user; characters of one, of its name
TABLE = (
    "CREATE TABLE IF NOT EXISTS saved (user TEXT NOT NULL, name TEXT NOT NULL, "
    "statement TEXT NOT NULL, PRIMARY KEY (user, name)) WITHOUT ROWID"
)


class Saved(Struct, frozen=True):
    """A query under a name."""

    name: str
    statement: str


class NameTakenError(NotSupportedError):
    """Another query has the name."""


class SavedQueries:
    """The saved queries of one user in one dataset."""

    def __init__(self, folder: Path, user: str) -> None:
        self._path, self._user = folder / NAME, user

    def all(self) -> list[Saved]:
        """Return them by name.

        Raises:
            StateError: the file cannot be read.
        """
        if not self._path.exists():
            return []
        with self._open() as connection:
            rows = connection.execute(
                "SELECT name, statement FROM saved WHERE user = ? ORDER BY lower(name), name",
                (self._user,),
            )
            return [Saved(*row) for row in rows]

    def save(self, name: str, statement: str, replace: bool = False) -> None:
        """Save a query; in the place of one of the same name, if it is to ``replace`` it.

        Raises:
            NameTakenError: another has the name, and is not to be replaced.
            NotSupportedError: it has no name or no text, or there are too many, or it is too long.
            StateError: the file cannot be written.
        """
        name = " ".join(name.split())
        if not name or not statement.strip():
            raise NotSupportedError("a saved query needs a name and a text")
        if len(name) > NAME_LIMIT or len(statement) > LONGEST:
            raise NotSupportedError(
                f"a name has at most {NAME_LIMIT} characters, a query {LONGEST:,}"
            )
        with self._open() as connection:
            known = dict(connection.execute(*self._known()))
            if not replace and known.get(name, statement) != statement:
                raise NameTakenError(f'another saved query has the name "{name}"')
            if name not in known and len(known) >= MOST:
                raise NotSupportedError(
                    f"there are {MOST} saved queries already", hint="delete one of them"
                )
            connection.execute(
                "INSERT OR REPLACE INTO saved VALUES (?, ?, ?)", (self._user, name, statement)
            )

    def delete(self, name: str) -> None:
        """Delete a query, if there is one of that name.

        Raises:
            StateError: the file cannot be written.
        """
        with self._open() as connection:
            connection.execute("DELETE FROM saved WHERE user = ? AND name = ?", (self._user, name))

    def _known(self) -> tuple[str, tuple[str]]:
        return "SELECT name, statement FROM saved WHERE user = ?", (self._user,)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with suppress(FileExistsError):
                os.close(files.create(self._path))
            with closing(sqlite3.connect(self._path, timeout=5)) as connection, connection:
                connection.execute(TABLE)
                yield connection
        except (OSError, sqlite3.Error) as error:
            raise StateError(
                f"saved queries cannot be kept in {NAME} of the state folder ({error})"
            ) from None
