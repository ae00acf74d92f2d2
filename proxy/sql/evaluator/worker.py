"""The DuckDB of the evaluator, and the program of a child process that has one.

Invariant: no file, network, extension or setting is within its reach.  As a program this file is
all there is: it imports nothing of ours, so that it starts fast and knows nothing.  It answers the
calls that come over a line (its first argument, a socket), a message there, a message back; what
comes in at its standard input are the numbers of the calls that are to stop, and when that ends,
whatever has ended the parent, so does the child.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import duckdb

Array = NDArray[Any]

SETTINGS = """
    SET autoinstall_known_extensions = false; SET autoload_known_extensions = false;
    SET python_enable_replacements = false; SET memory_limit = '512MB'; SET TimeZone = 'UTC';
    SET temp_directory = ''; SET enable_external_access = false; SET lock_configuration = true;
"""
# What is imported when first needed, must be before no file can be opened any more.
WARMING = "SELECT 1, CAST(NULL AS INT), 'a', 1.5, TIMESTAMP '2000-01-01', INTERVAL 1 DAY"
MESSAGE = 1 << 29  # bytes of a message
AT_ONCE = 1 << 16  # bytes that are copied, so that they are sent at once
COUNT = struct.Struct("<I")
NUMBER = struct.Struct("<Q")
PACKED: dict[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "decimal": (Decimal, str, Decimal),
    "date": (date, date.toordinal, date.fromordinal),
    "datetime": (datetime, datetime.isoformat, datetime.fromisoformat),
}


class Database:
    """The DuckDB itself, made when first asked; no limit but those of DuckDB's own."""

    def __init__(self, connection: duckdb.DuckDBPyConnection | None = None) -> None:
        if connection is not None:
            vars(self)["_connection"] = connection

    @cached_property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        connection = _connected()
        connection.execute(SETTINGS)
        return connection

    @classmethod
    def several(cls, count: int) -> list[Database]:
        """Return databases that share one memory, each with tables of its own."""
        whole = _connected()
        apart = [whole.cursor() for _ in range(count)]
        for i, connection in enumerate(apart):
            connection.execute(f"CREATE SCHEMA own{i}; SET schema = 'own{i}'")
        whole.execute(SETTINGS)
        return [cls(connection) for connection in apart]

    def run(self, sql: str, parameters: Sequence[object]) -> None:
        """Make a table."""
        self._connection.execute(sql, list(parameters))

    def fetch(self, sql: str) -> tuple[list[Array], list[str]]:
        """Return the columns of a query, and their types."""
        result = self._connection.execute(sql)
        kinds = [str(column[1]) for column in result.description or []]
        return list(result.fetchnumpy().values()), kinds

    def rows(self, sql: str, parameters: Mapping[str, object], limit: int) -> list[tuple[Any, ...]]:
        """Return the first rows of a query."""
        result = self._connection.execute(sql, dict(parameters) or None)
        try:
            return result.fetchmany(limit)
        except OverflowError:  # no timedelta is as long
            import duckdb

            raise duckdb.OutOfRangeException("interval out of range") from None

    def interrupt(self) -> None:
        """Stop the call that runs."""
        if "_connection" in vars(self):
            self._connection.interrupt()

    def rest(self) -> None:
        """Do nothing: what runs this is to end."""

    def close(self) -> None:
        """Let go of it."""
        if "_connection" in vars(self):
            self._connection.close()


def _connected() -> duckdb.DuckDBPyConnection:
    import duckdb  # which who asks for nothing of it does not wait for

    connection = duckdb.connect(":memory:", config={"threads": 1})
    with contextlib.suppress(duckdb.Error):  # it is new in DuckDB 2
        connection.execute("SET async_threads = 0")
    return connection


# --- messages ------------------------------------------------------------------------------------


def send(line: socket.socket, parts: Sequence[bytes | memoryview]) -> None:
    """Send a message: how many parts, their sizes, the parts."""
    sizes = b"".join(NUMBER.pack(len(part)) for part in parts)
    head = COUNT.pack(len(parts)) + sizes
    if sum(map(len, parts)) < AT_ONCE:
        line.sendall(b"".join([head, *parts]))
        return
    line.sendall(head)
    for part in parts:
        line.sendall(part)


def receive(line: socket.socket, wait: Callable[[], None] | None = None) -> list[bytearray]:
    """Return the parts of a message; ``wait`` is called before each wait for bytes.

    Raises:
        EOFError: the other side is gone.
        ValueError: the message is too long.
    """
    (count,) = COUNT.unpack(_read(line, COUNT.size, wait))
    if count * NUMBER.size > MESSAGE:
        raise ValueError("too many parts")
    sizes = [size for (size,) in NUMBER.iter_unpack(_read(line, count * NUMBER.size, wait))]
    if sum(sizes) > MESSAGE:
        raise ValueError("too many bytes")
    return [_read(line, size, wait) for size in sizes]


def _read(line: socket.socket, size: int, wait: Callable[[], None] | None) -> bytearray:
    data = bytearray(size)
    rest = memoryview(data)
    while rest:
        if wait is not None:
            wait()
        try:
            count = line.recv_into(rest)
        except TimeoutError:
            continue
        if not count:
            raise EOFError
        rest = rest[count:]
    return data


def pack_array(array: Array) -> tuple[str, object, object, list[object] | None]:
    """Return a column as it is sent: type, data and mask; of objects, their places in a list."""
    data, mask, values = np.ma.getdata(array), np.ma.getmask(array), None
    if data.dtype == object:
        places: dict[object, int] = {}
        each = (places.setdefault(value, len(places)) for value in data.tolist())
        data, values = np.fromiter(each, np.int32, len(data)), list(places)
    hidden = None if mask is np.ma.nomask else _bytes(np.asarray(mask))
    return data.dtype.str, _bytes(data), hidden, values


def _bytes(array: Array) -> pickle.PickleBuffer:
    return pickle.PickleBuffer(np.ascontiguousarray(array).view(np.uint8).data)


def unpack_array(
    dtype: str, data: bytearray, mask: bytearray | None, values: list[object] | None
) -> Array:
    """Return the column that was sent."""
    kind = np.dtype(dtype)
    found: Array = np.ndarray(len(data) // kind.itemsize, kind, data)
    if values is not None:
        known = np.empty(len(values), dtype=object)
        known[:] = values
        found = known[found]
    return found if mask is None else np.ma.MaskedArray(found, np.ndarray(len(mask), bool, mask))


def pack_column(values: Sequence[object]) -> tuple[str, list[object]]:
    """Return a column of rows as it is sent: what pickles slowly as numbers or text."""
    kinds = set(map(type, values)) - {type(None)}
    for name, (kind, pack, _) in PACKED.items():
        if kinds == {kind}:
            return name, [None if value is None else pack(value) for value in values]
    return "", list(values)


def unpack_column(name: str, values: list[Any]) -> list[Any]:
    """Return the column that was sent."""
    if not name:
        return values
    unpack = PACKED[name][2]
    return [None if value is None else unpack(value) for value in values]


# --- the child -----------------------------------------------------------------------------------


class _Service:
    """What the child does: one call after the other, until its parent is gone."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._database = Database()
        self._database.rows(WARMING, {}, 1)
        self._database.fetch(WARMING)
        self._done = 0  # the last call that ended

    def listen(self) -> None:
        """Stop the calls whose numbers come in; end at once when no more can come."""
        number = 0
        try:
            while True:
                goes_on = self._done < number  # or has not begun yet
                if goes_on:
                    self._database.interrupt()
                if select.select([0], [], [], 0.02 if goes_on else None)[0]:
                    (number,) = NUMBER.unpack(os.read(0, NUMBER.size))
        finally:
            os._exit(1)

    def serve(self) -> None:
        """Answer calls."""
        while True:
            (request,) = receive(self._line)
            buffers: list[pickle.PickleBuffer] = []
            try:
                head = self._answer(*pickle.loads(request), buffers=buffers)
            except Exception as error:
                buffers.clear()
                head = pickle.dumps((type(error).__name__, str(error)))
            self._done += 1
            send(self._line, [head, *(buffer.raw() for buffer in buffers)])

    def _answer(self, what: str, *arguments: Any, buffers: list[pickle.PickleBuffer]) -> bytes:
        """Return the reply to a call, its large parts apart."""
        value: object = None
        if what == "run":
            self._database.run(*arguments)
        elif what == "fetch":
            columns, kinds = self._database.fetch(*arguments)
            value = [pack_array(column) for column in columns], kinds
        elif what == "rows":
            rows = self._database.rows(*arguments)
            value = [pack_column(column) for column in zip(*rows, strict=True)]
        head = pickle.dumps(("done", value), 5, buffer_callback=buffers.append)
        if len(head) + sum(len(buffer.raw()) for buffer in buffers) > MESSAGE:
            raise MemoryError("the result is too large")
        return head


def _limit(memory: int) -> None:
    """Give up what the child needs no more, for good: memory, files, sockets, processes."""
    import resource

    limits = {"AS": memory, "CORE": 0, "FSIZE": 0, "NOFILE": 1, "NPROC": 0}
    for name, limit in limits.items():
        with contextlib.suppress(AttributeError, OSError, ValueError):  # not everywhere
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (limit, limit))


def main() -> None:
    """Be the child."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the parent decides
        signal.signal(number, signal.SIG_IGN)
    service = _Service(socket.socket(fileno=int(sys.argv[1])))
    threading.Thread(target=service.listen, daemon=True).start()
    _limit(int(sys.argv[2]))
    try:
        service.serve()
    finally:
        os._exit(0)  # the thread that listens may be in the database


if __name__ == "__main__":
    main()
