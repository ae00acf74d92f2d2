"""What an edit of a policy changes, key by key, and the files and databases that it names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from proxy.policy import document, keys
from proxy.policy.document import Item, Scalar
from proxy.policy.faults import Unread
from proxy.policy.kinds import Kind, Secret
from proxy.policy.table import Either, Many, Named, Record


class Edit(NamedTuple):
    """A key that has another value; None where it is not there."""

    key: str
    line: int | None  # in the new text
    before: str | None
    after: str | None


def edits(path: Path, before: str, after: str) -> list[Edit]:
    """Return what differs between two texts of a policy, in the order of keys.

    Raises:
        PolicyError: one of them is no mapping in YAML.
    """
    old, new = (dict(_flat(document.read(path, text))) for text in (before, after))
    found = []
    for key in [*new, *(key for key in old if key not in new)]:
        was, now = old.get(key), new.get(key)
        if (was and was[1]) != (now and now[1]):
            found.append(Edit(key, now and now[0], was and was[1], now and now[1]))
    return found


def resources(path: Path, text: str) -> dict[str, Item]:
    """Return where a policy names a file, a folder or a database of the machine, by key."""
    return {item.key: item for item in _named(keys.POLICY, document.read(path, text))}


def _flat(item: Item) -> Iterator[tuple[str, tuple[int, str]]]:
    """Yield each key below an item with its line and its value as text."""
    try:
        value = item.value
    except Unread:
        return
    if isinstance(value, dict) and value:
        for each in value.values():
            yield from _flat(each)
    elif isinstance(value, list) and any(isinstance(each.value, dict | list) for each in value):
        for each in value:
            yield from _flat(each)
    else:
        yield item.key, (item.line, _said(item))


def _said(item: Item) -> str:
    """Return a scalar, or a list of scalars, as text."""
    if isinstance(item.value, Scalar):
        return item.value.text
    return "[" + ", ".join(each.value.text for each in item.value or ()) + "]"


def _named(kind: Kind, item: Item) -> Iterator[Item]:
    """Yield the scalars of a kind that names what is on the machine."""
    try:
        value = item.value
    except Unread:
        return
    if isinstance(kind, Either):
        for each in kind.kinds:
            yield from _named(each, item)
    elif isinstance(kind, Record) and isinstance(value, dict):
        for key in kind.keys:
            if key.name in value:
                yield from _named(key.kind, value[key.name])
    elif isinstance(kind, Named) and isinstance(value, dict):
        for each in value.values():
            yield from _named(kind.of, each)
    elif isinstance(kind, Many) and isinstance(value, list):
        for each in value:
            yield from _named(kind.of, each)
    elif (kind is keys.PATH or kind is keys.LEDGER or isinstance(kind, Secret)) and isinstance(
        value, Scalar
    ):
        yield item
