"""Re-hashing a whole ledger: what does not agree, in words.

Walks the audit log from the first line, and compares each row with the hash in the last line that
covers it, and each file of free statements with the heads that charges chained.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from proxy.errors import Error, IntegrityError
from proxy.ledger import notes as files
from proxy.ledger.chain import Line, amounts, parsed, row_hash
from proxy.ledger.record import decode, unpack
from proxy.ledger.transaction import (
    DOMAIN,
    MEASUREMENT,
    POLICY,
    SNAPSHOT,
    Connection,
    SQLReader,
)

PAGE = 1000
TABLES = {
    "measurements": MEASUREMENT,
    "snapshots": SNAPSHOT,
    "policies": POLICY,
    "domains": DOMAIN,
}

Covers = dict[tuple[str, int], str]  # (table, id) -> hash
Heads = dict[str, dict[int, str]]  # file -> number of lines -> hash


def verify(connection: Connection, folder: Path | None, own: str = "") -> list[str]:
    """Return the problems of a ledger and of its free statements, where a folder is given.

    The connection shows one state, however long it takes.  Files whose names do not begin with
    ``own`` may lie with another proxy.
    """
    covers: Covers = {}
    heads: Heads = {}
    problems = list(_chain(SQLReader(connection), covers, heads))
    problems += _rows(connection, covers)
    return problems + list(_files(folder, heads, own) if folder else [])


def _chain(reader: SQLReader, covers: Covers, heads: Heads) -> Iterator[str]:
    previous, last = reader.genesis(), 0
    while page := reader.lines(last, PAGE):
        for line, digest in page:
            if line.sequence != last + 1 and not _restored(line, last):
                yield f"audit line {line.sequence}: lines are missing before it"
            if line.hash(previous) != digest:
                yield f"audit line {line.sequence}: it, or one before it, was changed"
            previous, last = digest, line.sequence
            try:
                for table, id, covered in json.loads(line.covers):
                    covers[table, id] = covered
                if line.notes is not None:
                    file, count, head = json.loads(line.notes)
                    heads.setdefault(file, {})[count] = head
                if line.kind == "restore":  # files that its backup did not have, as it says
                    for file in parsed(line.detail).get("notes_lost", ()):
                        heads.pop(file, None)
                parsed(line.detail)
                amounts(line.spent)
            except (ValueError, TypeError, RecursionError, IntegrityError):
                yield f"audit line {line.sequence}: it is damaged"
    if not last:
        yield "the audit log is empty"


def _restored(line: Line, last: int) -> bool:
    """Whether a jump in the numbers is that of a restored backup."""
    if line.kind != "restore":
        return False
    try:
        gap = parsed(line.detail)
    except IntegrityError:
        return False
    return (gap.get("backup"), gap.get("anchor")) == (last, line.sequence - 1)


def _rows(connection: Connection, covers: Covers) -> Iterator[str]:
    for table, columns in TABLES.items():
        for id, *fields, digest in pages(connection, table, columns):
            covered = covers.pop((table, id), None)
            if row_hash(table, columns, fields) != digest:
                yield f"{table} {id}: the row was changed"
            elif covered is None:
                yield f"{table} {id}: no audit line knows the row"
            elif covered != digest.hex():
                yield f"{table} {id}: the row is not what its audit line covers"
            elif table == "measurements":
                yield from _decodes(id, fields[4], fields[5])
    for table, id in covers:
        yield f"{table} {id}: the row is missing"


def pages(connection: Connection, table: str, columns: str, key: str = "id") -> Iterator[Any]:
    """Yield the rows of a table by their key, which comes first; no more than a page in memory."""
    wanted = ", ".join(dict.fromkeys([key, *columns.split(", ")]))
    rows = f"SELECT {wanted} FROM {table} WHERE {key} >= ? ORDER BY {key} LIMIT ?"
    begin = -(2**63)
    while begin < 2**63 and (page := connection.execute(rows, (begin, PAGE)).fetchall()):
        yield from page
        begin = page[-1][0] + 1


def _decodes(id: int, family: bytes, answers: bytes) -> Iterator[str]:
    try:
        if decode(family).rows != len(unpack(answers)):
            yield f"measurements {id}: not one answer for each row"
    except IntegrityError as error:
        yield f"measurements {id}: {error.message}"


def _files(folder: Path, heads: Heads, own: str) -> Iterator[str]:
    try:
        found = files.paths(folder)
    except Error as error:
        yield error.message
        return
    for path in found:
        chained = heads.pop(path.name, {})
        try:
            lines = list(files.read(path))
        except Error as error:
            yield error.message
            continue
        if None in lines:
            yield f"{path.name}: line {lines.index(None) + 1} was changed"
        for count, head in chained.items():
            line = lines[count - 1] if count <= len(lines) else None
            if line is None or line[1] != head:
                yield f"{path.name}: it does not hold the {count} lines that were chained"
    for name in heads:
        if name.startswith(own):
            yield f"{name}: the file is missing"
