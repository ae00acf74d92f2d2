"""Other states over the same source: a dataset under another name is the same people again.

So is one of the same name whose state is looked for in another folder than before.

Every budget holds for itself, so what two states over one source spend adds up.  A state says of
its source: where each policy that was ever in force reads it, and, under a key of its own, the
fingerprint of what its cube holds, so that a copy of a file elsewhere is found too.  Of the files
of a pattern or a folder one is enough, and a view is the tables that it is made of.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import proxy.cube
from proxy.cube.sources.file_set import FileSet, Identity, files_at, identity, several
from proxy.errors import Error
from proxy.files import no_room, read
from proxy.ledger.anchor import FileAnchor
from proxy.ledger.connections import Connections
from proxy.ledger.notes import NAME
from proxy.ledger.sqlite import remains
from proxy.ledger.stored import Pool
from proxy.ledger.transaction import SQLReader
from proxy.policy import Policy
from proxy.policy.sources import DATABASES
from proxy.protection import upgraded
from proxy.state import anchor_path, elsewhere, key_path, ledger_path, usual

WAIT = 5.0  # seconds for another process's lock
VIEWED = ("duckdb", "postgres")  # engines whose views are read
PARTS = "**/*.parquet"  # of a folder

Source = Mapping[str, Any]  # of a protection


def twins(policy: Policy, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the datasets whose states, but for a folder's, are or may be over a policy's source.

    Each with what says so, in words.  States are looked for beside the folder, wherever the policy
    may have had its own, and beside the source.
    """
    for other in _states(policy, folder):
        path = ledger_path(other)
        try:
            if path.exists():
                yield from _twin(policy, other, Connections(path, WAIT))
            elif (other / NAME).exists():
                yield from _elsewhere(policy, other)
            elif remains(path, anchor_path(other)):
                yield other.name, f"the ledger in {other} is gone, so its source is not known"
        except PermissionError:
            continue  # somebody else's, perhaps no state
        except Error as error:
            if why := no_room(folder.parent):
                raise why from None
            yield other.name, f"what its source is cannot be read: {error.message}"


def _states(policy: Policy, folder: Path) -> Iterator[Path]:
    """Yield the folders that may be other states, each once."""
    source = policy.source.path
    bases = [folder.parent, *elsewhere(policy)]
    if source is not None:
        bases.append(source.parent / usual(policy).name)
    seen = {folder.resolve()}
    for base in bases:
        inside: list[Path] = []
        with suppress(OSError):
            inside = sorted(each for each in base.iterdir() if each.is_dir())
        for other in inside:
            if (real := other.resolve()) not in seen:
                seen.add(real)
                yield other


def _elsewhere(policy: Policy, other: Path) -> Iterator[tuple[str, str]]:
    """Yield the dataset of a state whose ledger is in PostgreSQL, unless it is over other data.

    It is looked for where the policy has its own.
    """
    name, seen = unquote(other.name), FileAnchor(anchor_path(other)).read()
    if policy.ledger is not None:
        from proxy.ledger.postgres import PostgresPlace, sessions

        place = PostgresPlace(name, ledger_path(other), anchor_path(other), policy.ledger)
        mark = place.mark()
        if seen and mark is not None and mark.ledger == seen[0].ledger:
            if name == policy.dataset:
                return  # it follows the policy's own ledger
            yield from _twin(policy, other, sessions(policy.ledger, name, WAIT))
            return
    yield (
        name,
        f"the ledger of {other} is in a PostgreSQL that the policy does not name, so its "
        "source is not known",
    )


def _twin(policy: Policy, other: Path, connections: Pool) -> Iterator[tuple[str, str]]:
    """Yield the dataset of a state, if it is over a policy's source."""
    try:
        with connections.use() as connection:
            reads = SQLReader(connection)
            _, dataset, _ = reads.identity()
            known = [upgraded(each.protection)["source"] for each in reads.protections()]
            built = reads.snapshot().fingerprint
    finally:
        connections.close()
    now = policy.protection()["source"]
    bases = policy.path.parent, other.parent.parent  # from which a path may have been meant
    places = [_placed(source, base) for source in known for base in bases]
    here = _placed(now, policy.path.parent)
    if any(same_place(here, place) for place in places) or _made_of_one(policy, here, places):
        yield dataset, f"{other} is over the same source"
    elif _comparable(policy, now, known) and built == _fingerprint(policy, key_path(other), built):
        yield dataset, f"{other} is over a copy of the same source"
    elif (file := _copied(here, places, key_path(other), built)) is not None:
        yield dataset, f"{other} is over a copy of the same source: {file}"
    elif dataset == policy.dataset and other.parent in elsewhere(policy):
        yield dataset, f"{other} is a state of {dataset} already"


def _fingerprint(policy: Policy, key: Path, built: str) -> str:
    """Return the fingerprint of a policy's source under the key of another state, after its name.

    A state without a key was never built from what can be compared.
    """
    name = built.partition(":")[0]
    return f"{name}:{proxy.cube.fingerprint(policy, read(key))}" if key.exists() else ""


def same_place(one: Source, two: Source) -> bool:
    """Whether two sources may have records in common, by where they are read.

    Two tables of one database have none; a query may read any table.  A PostgreSQL has many
    addresses: databases of one name count as the same, whatever their hosts.
    """
    if one["path"] and two["path"]:
        shared = files_of(one).keys() & files_of(two).keys()
        if not shared and one["path"] != two["path"]:
            return False
    elif (one["engine"], one["path"]) != (two["engine"], two["path"]):
        return False
    names = [_database(source) for source in (one, two)]
    apart = None not in names and names[0] != names[1]
    tables = {_table(source) for source in (one, two) if not source["query"]}
    return not apart and len(tables) < 2


def _placed(source: Source, base: Path) -> Source:
    """Return a source whose path is seen from a folder, with its whole path."""
    path = source["path"]
    return dict(source) | {"path": path and os.path.normpath(base / path)}


def files_of(source: Source) -> dict[Identity, Path]:
    """Return the files that are at a source's path now."""
    if not source["path"]:
        return {}
    path = Path(source["path"])
    return {identity(file): file for file in files_at(path / PARTS if path.is_dir() else path)}


def _made_of_one(policy: Policy, here: Source, places: Iterable[Source]) -> bool:
    """Whether a policy's table, or view, and another's of its database are made of one table."""
    if here["engine"] not in VIEWED or here["table"] is None:
        return False
    others = {
        place["table"]
        for place in places
        if place["table"] and same_place({**here, "table": None}, {**place, "table": None})
    }
    if not others:
        return False
    read = proxy.cube.tables_read(policy, {here["table"], *others})
    return any(read[here["table"]] & read[other] for other in others)


def _copied(here: Source, places: Iterable[Source], key: Path, built: str) -> Path | None:
    """Return a file of a source that is a copy of what another state has read, or of one of these.

    Other tables of databases have other people, whose files may be copies.
    """
    if str(here["path"] or "").lower().endswith(DATABASES):
        return None
    files = files_of(here).values()
    sizes = {file.stat().st_size for file in files}
    others = [file for place in places for file in files_of(place).values()]
    theirs = {_hash(file) for file in others if file.stat().st_size in sizes}
    secret, own = read(key) if key.exists() else None, built.partition(":")[2]
    for file in files:
        if theirs and _hash(file) in theirs:
            return file
        if secret is not None and FileSet(file, (file,)).fingerprint(secret) == own:
            return file
    return None


def _hash(file: Path) -> bytes:
    """Return the SHA-256 of a file."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").digest()


def _table(source: Source) -> str:
    """Return the name of a source's table, in one case and without the schema that is meant."""
    table = (source["table"] or "").lower()
    if source["engine"] == "sqlalchemy":  # with that which the URL means
        url = urlsplit(source.get("dsn") or "")
        if not re.match("(mysql|mariadb)", url.scheme):  # whose home nobody knows
            return table.rpartition(".")[2]
        return table if "." in table else f"{url.path.strip('/').lower()}.{table}"
    home = {"postgres": "public.", "spark": "default."}.get(source["engine"], "main.")
    return table.removeprefix(home)


def _database(source: Source) -> str | None:
    """Return the name of a source's database; None where it is not said, or with the table."""
    if source["engine"] == "sqlalchemy":
        url = urlsplit(source.get("dsn") or "")
        return unquote(url.path) if url.scheme == "sqlite" else None
    from psycopg import ProgrammingError  # which takes long to import, and few have one
    from psycopg.conninfo import conninfo_to_dict

    try:
        return str(conninfo_to_dict(source.get("dsn") or "").get("dbname") or "") or None
    except ProgrammingError:
        return None


def _comparable(policy: Policy, now: Source, known: list[Source]) -> bool:
    """Whether equal records would have equal fingerprints: of one table or query, or all files."""
    path = policy.source.path
    if policy.source.engine != "duckdb" or path is None:
        return False
    texts = [(source["table"], source["query"]) for source in (now, known[-1])]
    return texts[0] == texts[1] if str(path).lower().endswith(DATABASES) else several(path)
