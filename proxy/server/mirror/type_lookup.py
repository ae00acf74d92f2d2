"""What types the parameters and columns of a statement have, as the mirror says it."""

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


class Describer:
    """Asks the mirror what types the parameters of a statement have; runs nothing."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._lock = threading.Lock()
        self._connection: psycopg.Connection | None = None

    def types(self, text: str, declared: tuple[int, ...], views: Views) -> tuple[int, ...] | None:
        """Return the types of the parameters, as far as they are not declared; None: it is wrong.

        ``views`` are those that the text may name.

        Raises:
            psycopg.OperationalError: the mirror is gone.
        """
        with self._lock:
            told = self._described(text, declared, views)
            if told is None:
                return None
            return tuple(told.param_type(i) for i in range(told.nparams))

    def columns(self, text: str, types: tuple[int, ...], views: Views) -> tuple[Column, ...] | None:
        """Return the columns of a query with parameters of these types; None: it is wrong."""
        with self._lock:
            told = self._described(text, types, views)
        if told is None:
            return None
        every = range(told.nfields)
        kinds = self.names(tuple(told.ftype(i) for i in every))
        return tuple(Column((told.fname(i) or b"").decode(), kinds[i]) for i in every)

    def _described(self, text: str, declared: tuple[int, ...], views: Views) -> PGresult | None:
        for _ in range(2):
            wire = self._open().pgconn
            if views:
                wire.exec_(f"BEGIN; {shown(views)}".encode())
            done = wire.prepare(b"", text.encode(), list(declared))
            told = wire.describe_prepared(b"")
            if views:
                wire.exec_(b"ROLLBACK")
            if done.status == ExecStatus.COMMAND_OK:
                return told
            if wire.status == ConnStatus.OK:
                break  # else it has ended since it was last used, and is made again
        return None

    def oids(self, listed: str) -> tuple[int, ...]:
        """Return the types in a list of names; 0 for what is none."""
        names = [name.strip() for name in listed.split(",")]
        return tuple(
            int(oid) for (oid,) in self._rows("SELECT coalesce(to_regtype(n)::oid, 0)", names)
        )

    def names(self, oids: tuple[int, ...]) -> list[str]:
        """Return the names of types."""
        return [str(name) for (name,) in self._rows("SELECT format_type(n::oid, NULL)", oids)]

    def _rows(self, select: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        texts = [str(value) for value in values]
        query = f"{select} FROM unnest(%s::text[]) WITH ORDINALITY AS t(n, i) ORDER BY i".encode()
        with self._lock:
            try:
                return list(self._open().execute(query, [texts]))
            except psycopg.OperationalError:  # it has ended since it was last used
                return list(self._open().execute(query, [texts]))

    def _open(self) -> psycopg.Connection:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self._conninfo, autocommit=True)
        return self._connection

    def close(self) -> None:
        """Close the connection; the next question makes another."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
