"""The types of a statement's parameters and columns, looked up in the mirror."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.pq import ConnStatus, ExecStatus
from psycopg.pq.abc import PGresult

from proxy.engine import Column
from proxy.server.mirror.temporary_views import shown
from proxy.sql.parse.views import Views


class TypeLookup:
    """Looks up types in one database of the mirror, by describing statements; none is run."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._lock = threading.Lock()
        self._connection: psycopg.Connection | None = None

    def types(self, text: str, declared: tuple[int, ...], views: Views) -> tuple[int, ...] | None:
        """Return the OIDs of a statement's parameters; None if the mirror refuses the statement.

        ``declared`` are those that the client gave, 0 for none; ``views`` may be named in it.

        Raises:
            psycopg.OperationalError: the mirror has ended.
        """
        with self._lock:
            description = self._describe(text, declared, views)
            if description is None:
                return None
            return tuple(description.param_type(i) for i in range(description.nparams))

    def columns(self, text: str, types: tuple[int, ...], views: Views) -> tuple[Column, ...] | None:
        """Return a query's columns, its parameters being of these types; None as in ``types``."""
        with self._lock:
            description = self._describe(text, types, views)
        if description is None:
            return None
        every = range(description.nfields)
        kinds = self.names(tuple(description.ftype(i) for i in every))
        return tuple(Column((description.fname(i) or b"").decode(), kinds[i]) for i in every)

    def _describe(self, text: str, declared: tuple[int, ...], views: Views) -> PGresult | None:
        for _ in range(2):
            wire = self._open().pgconn
            if views:
                wire.exec_(f"BEGIN; {shown(views)}".encode())
            prepared = wire.prepare(b"", text.encode(), list(declared))
            description = wire.describe_prepared(b"")
            if views:
                wire.exec_(b"ROLLBACK")
            if prepared.status == ExecStatus.COMMAND_OK:
                return description
            if wire.status == ConnStatus.OK:
                break  # else the connection ended since its last use: try once more
        return None

    def oids(self, names: Sequence[str]) -> tuple[int, ...]:
        """Return the OIDs of types by their names, with modifiers or not; 0 for an unknown name."""
        if not names:
            return ()
        return tuple(
            int(oid) for (oid,) in self._rows("SELECT coalesce(to_regtype(n)::oid, 0)", names)
        )

    def names(self, oids: tuple[int, ...]) -> list[str]:
        """Return the names of types by their OIDs."""
        return [str(name) for (name,) in self._rows("SELECT format_type(n::oid, NULL)", oids)]

    def _rows(self, select: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        texts = [str(value) for value in values]
        query = f"{select} FROM unnest(%s::text[]) WITH ORDINALITY AS t(n, i) ORDER BY i".encode()
        with self._lock:
            try:
                return list(self._open().execute(query, [texts]))
            except psycopg.OperationalError:  # it ended since its last use
                return list(self._open().execute(query, [texts]))

    def _open(self) -> psycopg.Connection:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self._conninfo, autocommit=True)
        return self._connection

    def close(self) -> None:
        """Close the connection; the next lookup opens another."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
