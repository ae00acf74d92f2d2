"""A YAML text as items that know their line, with what YAML would silently misread refused.

Nothing is converted here: a scalar keeps its text, so that 0.1 can become exactly 1/10, and only
``kinds`` decides what it should be.  Anchors and aliases work, within limits on depth and size;
merge keys, tags of programming languages and duplicate keys do not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from proxy.errors import PolicyError
from proxy.policy.faults import Faults, Unread

MAX_BYTES = 1_000_000
MAX_DEPTH = 32
MAX_REPEATED = 50_000  # items that aliases repeat
TAG = "tag:yaml.org,2002:"
SCALARS = ("str", "int", "float", "bool", "null", "timestamp", "merge", "value")
LOOKS_NUMERIC = re.compile(r"[-+]?(\d[\d_]*\.?[\d_]*|\.\d+)([eE][-+]?\d+)?|0o[0-7]+|0x[0-9a-fA-F]+")


@dataclass(frozen=True)
class Item:
    """A value of the document: a Scalar, a list of Items, a dict of Items, or what kinds read."""

    value: Any
    line: int
    key: str  # privacy.cells[0].budget
    file: str
    faults: Faults = field(repr=False, compare=False)

    def error(self, message: str) -> PolicyError:
        """Return the error that this item is wrong."""
        return _fault(message, self.file, self.line, self.key)

    def report(self, message: str) -> None:
        """Note that this item is wrong, and go on."""
        self.faults.add(self.error(message))

    def unread(self) -> Item:
        """Return what stands in the place of this item when it cannot be read."""
        return _Unread(None, self.line, self.key, self.file, self.faults)

    def get(self, name: str) -> Any:
        """Return the value under a key of a mapping; None where it is absent."""
        return self.value[name].value if name in self.value else None


class _Unread(Item):
    """An item without a value, for a fault that has been noted."""

    def __getattribute__(self, name: str) -> Any:
        if name == "value":
            raise Unread
        return super().__getattribute__(name)


class Scalar(NamedTuple):
    """A scalar as written, and the type that YAML 1.1 gives it."""

    text: str
    tag: str  # str | int | float | bool | null | timestamp | …
    plain: bool  # not quoted

    @property
    def trap(self) -> str | None:
        """Why this is not the text it may look like, and what to write; None if it is text."""
        quoted = "'" + f"{self}".replace("'", "''") + "'"
        if self.tag == "null":
            return f"{self.text or 'an empty value'} is read as null; for the text write {quoted}"
        if self.tag == "str" and not (self.plain and LOOKS_NUMERIC.fullmatch(self.text)):
            return None
        read = {"bool": "a boolean", "timestamp": "a date", "merge": "a merge key"}
        what = self.number_trap or f"{self} is read as {read.get(self.tag, 'a number')}"
        return f"{what}; for the text write {quoted}"

    @property
    def number_trap(self) -> str | None:
        """How YAML reads this number otherwise than people do; None if it does not."""
        digits = self.text.replace("_", "").lstrip("+-")
        if self.tag == "int" and re.fullmatch("0[0-7]{1,20}", digits):
            return f"{self} is read as the octal number {int(digits, 8)}"
        if self.tag == "int" and re.fullmatch("0(?:b[01]{1,64}|x[0-9a-fA-F]{1,16})", digits):
            return f"{self} is read as the number {int(digits, 0)}"
        if self.tag in ("int", "float") and ":" in digits:
            return f"{self} is read as a number to base 60"
        if self.tag == "str" and self.plain and re.fullmatch(r"0\d+", digits):
            return f"{self} has a leading zero"
        if self.tag == "str" and self.plain and "e" in digits.lower():
            return f"{self} is text to some readers of YAML and a number to others"
        return None

    def __str__(self) -> str:
        shown = self.text if len(self.text) <= 40 else self.text[:37] + "..."
        shown = " ".join(shown.split())
        return shown if self.plain else f"'{shown}'"


def _fault(message: str, file: str, line: int, key: str) -> PolicyError:
    """Return an error in one line, whatever line breaks the policy's own words have."""
    words, key = (" ".join(text.split()) for text in (message, key))
    return PolicyError(words, file=file, line=line, key=key or None)


class _Loader(yaml.SafeLoader):
    """The safe loader, which refuses to nest until Python's stack ends."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose one node, unless it lies too deep."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]  # PyYAML's
            raise yaml.MarkedYAMLError(
                problem=f"nested more than {MAX_DEPTH} levels deep", problem_mark=mark
            )
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def read(path: Path, text: str | None = None) -> Item:
    """Return the mapping in a YAML file, or in a text that is to be in it; its faults are begun.

    Raises:
        PolicyError: the file is not there, too large, not UTF-8, not YAML, or not a mapping.
    """
    file = str(path)
    try:
        data = _data(path, file) if text is None else text.encode("utf-8", "surrogatepass")
        return _read(data, file)
    except PolicyError as error:
        error.hint = error.hint or "more can be said of the file once this is put right"
        raise


def text_of(path: Path) -> str:
    """Return the text of a YAML file, without a mark of its byte order.

    Raises:
        PolicyError: the file is not there, too large, or not UTF-8.
    """
    return _text(_data(path, str(path)), str(path))


def compose(path: Path, text: str) -> yaml.Node | None:
    """Return the nodes of a text that is, or is to be, in a YAML file.

    Raises:
        PolicyError: it is not YAML.
    """
    return _compose(text, str(path))


def _read(data: bytes, file: str) -> Item:
    """Return the mapping in the bytes of a file."""
    root = _compose(_text(data, file), file)
    if root is None:
        raise PolicyError("the file is empty; a mapping of keys is expected", file=file, line=1)
    if not isinstance(root, yaml.MappingNode):
        line = root.start_mark.line + 1
        raise PolicyError("not a mapping; `key: value` lines are expected", file=file, line=line)
    return _Walk(file).item(root, 1, "", 0)


def _data(path: Path, file: str) -> bytes:
    """Return what is in a file, as far as it may be."""
    try:
        with path.open("rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except IsADirectoryError:
        raise PolicyError("this is a directory; name the YAML file in it", file=file) from None
    except FileNotFoundError:
        raise PolicyError("there is no such file", file=file) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise PolicyError(f"the file cannot be read: {reason}", file=file) from None


def _text(data: bytes, file: str) -> str:
    """Return the text of a file, of a bounded size."""
    if len(data) > MAX_BYTES:
        raise PolicyError(
            f"the file is larger than {MAX_BYTES:,} bytes; long lists of values go "
            "to a CSV file: values: {path: …, column: …}",
            file=file,
            line=1,
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise PolicyError("not UTF-8 text; save the file as UTF-8", file=file, line=line) from None


def _compose(text: str, file: str) -> yaml.Node | None:
    """Return the YAML node graph of a text; PyYAML's own errors get our form."""
    loader = None
    try:
        loader = _Loader(text)
        return loader.get_single_node()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        message = f"the character U+{ord(text[error.position]):04X} is not allowed in YAML"
        raise PolicyError(message, file=file, line=line) from None
    except (ValueError, OverflowError):  # PyYAML's, of "\UFFFFFFFF"
        line = loader.line + 1 if loader else 1
        raise PolicyError("an escape that is no character", file=file, line=line) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = min(mark.line, max(text.count("\n", 0, len(text.rstrip())), 0)) + 1 if mark else 1
        problem = " ".join(f"{error.problem or error.context}".split())
        if r"'\t'" in problem:
            problem = "a tab; YAML indents with spaces"
        elif "single document" in f"{error.context}":
            problem = "a second document begins (---); a file holds one"
        elif "undefined alias" in problem:
            problem = "an alias to nothing; text that begins with * is quoted"
        raise PolicyError(f"not YAML: {problem}", file=file, line=line) from None


def _scalar(node: yaml.ScalarNode) -> Scalar:
    """Return a node's text and type; "=", which has a type of its own, is text."""
    tag = node.tag.removeprefix(TAG)
    return Scalar(node.value, "str" if tag == "value" else tag, node.style is None)


class _Walk:
    """One walk over the node graph; it counts what aliases would multiply."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.faults = Faults(file)
        self.seen: set[int] = set()
        self.repeated = 0
        self.over = False  # past a limit: nothing more is walked

    def item(self, node: yaml.Node, line: int, key: str, depth: int) -> Item:
        """Return a node and all below it."""
        self.repeated += id(node) in self.seen
        self.seen.add(id(node))
        if depth > MAX_DEPTH or self.repeated > MAX_REPEATED:
            self.over, top = True, re.split(r"[.\[]", key)[0]
            raise self._error(node, top, "aliases (*name) expand to too much; write less with them")
        value: object
        if isinstance(node, yaml.ScalarNode) and node.tag.removeprefix(TAG) in SCALARS:
            value = _scalar(node)
            if any("\ud800" <= character <= "\udfff" for character in value.text):
                raise self._error(node, "", "an escape that is no character: half of a pair")
        elif isinstance(node, yaml.SequenceNode) and node.tag == TAG + "seq":
            value = [
                self._child(child, child.start_mark.line + 1, f"{key}[{i}]", depth + 1)
                for i, child in enumerate(node.value)
            ]
        elif isinstance(node, yaml.MappingNode) and node.tag == TAG + "map":
            value = self._mapping(node, key, depth)
        else:
            raise self._error(node, key, "tags are not allowed; text that begins with ! is quoted")
        return Item(value, line, key, self.file, self.faults)

    def _child(self, node: yaml.Node, line: int, key: str, depth: int) -> Item:
        """Return a node inside another; where it is wrong, that is noted."""
        try:
            return self.item(node, line, key, depth)
        except PolicyError as error:
            if self.over:
                raise
            self.faults.add(error)
        return Item(None, line, key, self.file, self.faults).unread()

    def _mapping(self, node: yaml.MappingNode, key: str, depth: int) -> dict[str, Item]:
        """Return the items of a mapping by name; each bears the line of its key."""
        items: dict[str, Item] = {}
        for name_node, child in node.value:
            if not isinstance(name_node, yaml.ScalarNode):
                raise self._error(name_node, key, "a key is one word, not a list or a mapping")
            line = name_node.start_mark.line + 1
            name = self.item(name_node, line, key, depth + 1).value
            path = f"{key}.{name.text}" if key else name.text
            if name.tag == "merge":
                raise self._error(name_node, path, "merge keys are not read; write the keys out")
            if name.text in items:
                first = items[name.text].line
                fault = f"the key is there twice, first in line {first}"
                self.faults.add(self._error(name_node, path, fault))
                continue
            items[name.text] = self._child(child, line, path, depth + 1)
            if name.trap:
                self.faults.add(self._error(name_node, path, name.trap))
                items[name.text] = items[name.text].unread()
        return items

    def _error(self, node: yaml.Node, key: str, message: str) -> PolicyError:
        """Return the error that a node is wrong."""
        return _fault(message, self.file, node.start_mark.line + 1, key)
