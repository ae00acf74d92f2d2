"""The kinds of values that hold others: lists, mappings by name, and records of known keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from msgspec import Struct

from proxy.policy.document import Item, Scalar
from proxy.policy.kinds import NAME, Kind, attempt, name_fault, near_names, nearest


class Many(Kind, frozen=True):
    """A list."""

    of: Kind
    low: int = 1
    high: int | None = None

    @property
    def words(self) -> str:
        """What the list holds."""
        if self.low == self.high == 2:
            return f"a pair [low, high], each {self.of.words}"
        return f"{'a' if self.low else 'a possibly empty'} list [ … ] of {self.of.words}"

    def read(self, item: Item) -> Item:
        """Return the list of read items."""
        if not isinstance(item.value, list):
            raise self.wrong(item)
        if len(item.value) < self.low or (self.high is not None and len(item.value) > self.high):
            got = f"{len(item.value)} entries" if item.value else "an empty list"
            least = f" with at least {self.low}" if self.high is None else ""
            raise item.error(f"{got}; expected {self.words}{least}")
        return replace(item, value=[attempt(self.of, child) for child in item.value])

    def schema(self) -> dict[str, Any]:
        """Return an array."""
        high = {} if self.high is None else {"maxItems": self.high}
        return {"type": "array", "items": self.of.schema(), "minItems": self.low} | high


class Named(Kind, frozen=True):
    """A mapping from names that the steward chooses."""

    of: Kind
    what: str  # what is named: "attribute"
    low: int = 0

    @property
    def words(self) -> str:
        """What is named."""
        return f"a mapping {{{self.what}: …}} to {self.of.words}"

    def read(self, item: Item) -> Item:
        """Return the mapping of read items."""
        if not isinstance(item.value, dict):
            raise self.wrong(item)
        if len(item.value) < self.low:
            raise item.error(f"no {self.what} is named; at least {self.low} is needed")
        read = {name: attempt(self.of, child) for name, child in item.value.items()}
        for name, child in item.value.items():
            if fault := name_fault(name):
                error = child.error(fault)
                error.hint = f"name the {self.what} in 1 to 63 bytes, in one line"
                item.faults.add(error)
                read[name] = child.unread()
        return replace(item, value=read)

    def schema(self) -> dict[str, Any]:
        """Return an object with free names."""
        low = {"minProperties": self.low} if self.low else {}
        return {
            "type": "object",
            "propertyNames": {"pattern": f"^{NAME}$"},
            "additionalProperties": self.of.schema(),
        } | low


class Key(Struct, frozen=True):
    """A line of the table of keys."""

    name: str
    kind: Kind
    help: str
    required: bool = False
    default: Any = None  # what `kind.read` would give
    otherwise: str | None = None  # the default in words, where it is computed


class Record(Kind, frozen=True):
    """A mapping with known keys."""

    keys: tuple[Key, ...]
    one_of: tuple[str, ...] = ()  # of these keys one is there, and no other

    @property
    def words(self) -> str:
        """The keys."""
        return "{" + ", ".join(f"{key.name}: …" for key in self.keys) + "}"

    def read(self, item: Item) -> Item:
        """Return the mapping of read items, with defaults filled in."""
        if isinstance(item.value, Scalar) and item.value.tag == "null":
            item = replace(item, value={})
        if not isinstance(item.value, dict):
            raise self.wrong(item)
        names = [key.name for key in self.keys]
        meant: dict[str, Item] = {}  # keys that misspelt ones may stand for: they are not missing
        for name, child in item.value.items():
            if name not in names:
                near = nearest(name, names)
                allowed = ", ".join(names)
                child.report(f"unknown key{near}; allowed: {allowed}")
                meant |= dict.fromkeys(near_names(name, names), child.unread())
        read = {}
        for key in self.keys:
            where = f"{item.key}.{key.name}" if item.key else key.name
            if key.name in item.value:
                read[key.name] = attempt(key.kind, item.value[key.name])
            elif key.name in meant:
                read[key.name] = meant[key.name]
            elif key.required:
                absent = replace(item, value=None, key=where)
                absent.report(f"missing; expected {key.kind.words}")
                read[key.name] = absent.unread()
            elif key.default is not None:
                read[key.name] = replace(item, value=key.default, key=where)
        there = [name for name in self.one_of if name in read]
        if self.one_of and not there:
            kind = next(key.kind for key in self.keys if key.name == self.one_of[0])
            where = f"{item.key}.{self.one_of[0]}" if item.key else self.one_of[0]
            others = ", or ".join(self.one_of[1:])
            raise replace(item, key=where).error(f"missing; expected {kind.words}, or {others}")
        if len(there) > 1:
            raise read[there[1]].error(f"{there[0]} is there too; keep one of the two")
        return replace(item, value=read)

    def schema(self) -> dict[str, Any]:
        """Return an object with its keys."""
        properties = {}
        for key in self.keys:
            default = {} if key.default is None else {"default": key.default}
            properties[key.name] = {"description": key.help} | key.kind.schema() | default
        required = [key.name for key in self.keys if key.required]
        return {"type": "object", "properties": properties, "additionalProperties": False} | (
            ({"required": required} if required else {})
            | ({"oneOf": [{"required": [name]} for name in self.one_of]} if self.one_of else {})
        )


class Either(Kind, frozen=True):
    """A kind for each form: scalar, list or mapping."""

    kinds: tuple[Kind, ...]

    @property
    def words(self) -> str:
        """All the forms."""
        return ", or ".join(kind.words for kind in self.kinds)

    def read(self, item: Item) -> Item:
        """Return what the kind of the item's form reads."""
        for kind in self.kinds:
            forms = {Record: dict, Named: dict, Many: list}
            if isinstance(item.value, forms.get(type(kind), Scalar)):
                return kind.read(item)
        raise self.wrong(item)

    def schema(self) -> dict[str, Any]:
        """Return the alternatives."""
        return {"anyOf": [kind.schema() for kind in self.kinds]}
