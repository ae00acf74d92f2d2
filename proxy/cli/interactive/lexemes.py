"""The words of a text that may be unfinished, as somebody types it, and where statements end."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

LEXEME = re.compile(
    r"""(?P<space>\s+)
    |(?P<comment>--[^\n]*|/\*)
    |(?P<text>[eE]'(?:[^'\\]|''|\\.)*(?:'|\\?\Z)|'(?:[^']|'')*(?:'|\Z))
    |(?P<dollar>(?P<tag>\$(?:[^\W\d]\w*)?\$).*?(?:(?P=tag)|\Z))
    |(?P<name>"(?:[^"]|"")*(?:"|\Z))
    |(?P<number>\d[\d_]*\.?\d*(?:[eE][-+]?\d+)?|\.\d+)
    |(?P<word>[^\W\d][\w$]*)
    |(?P<mark><>|!=|<=|>=|::|\|\||.)""",
    re.VERBOSE | re.DOTALL,
)
SILENT = ("space", "comment")


class Lexeme(Struct, frozen=True):
    """A word: its kind is a group of ``LEXEME``; what has no end yet is not ``closed``."""

    kind: str
    text: str
    start: int
    closed: bool = True

    @property
    def end(self) -> int:
        """The place behind it."""
        return self.start + len(self.text)


def lexemes(text: str) -> Iterator[Lexeme]:
    """Yield the words of a text, spaces and comments too; together they are the text."""
    at = 0
    while at < len(text):
        match = LEXEME.match(text, at)
        assert match is not None  # the last group takes any character
        kind = "text" if match["dollar"] else match.lastgroup or "mark"
        end, closed = match.end(), True
        if match[0] == "/*":
            end, closed = _comment(text, at)
        elif kind == "comment":
            closed = end < len(text)  # what is typed next belongs to it
        elif kind in ("text", "name"):
            opening = match["tag"] or (
                '"' if kind == "name" else match[0][: match[0].find("'") + 1]
            )
            closed = _closed(match[0], opening)
        yield Lexeme(kind, text[at:end], at, closed)
        at = end


def _comment(text: str, at: int) -> tuple[int, bool]:
    """Return where a comment ends, which may have others inside, and whether it does."""
    depth = 0
    for match in re.compile(r"/\*|\*/").finditer(text, at):
        depth += 1 if match[0] == "/*" else -1
        if depth == 0:
            return match.end(), True
    return len(text), False


def _closed(quoted: str, opening: str) -> bool:
    """Return whether what begins with a quote ends with it."""
    quote = opening[-1] if opening[-1] != "$" else opening
    body = quoted[len(opening) :]
    if opening[0] in "eE":
        body = re.sub(r"\\.", "", body, flags=re.DOTALL)
    if quote in ("'", '"'):
        body = body.replace(quote * 2, "")
    return body.endswith(quote)


def spoken(text: str) -> list[Lexeme]:
    """Return the words of a text that mean something."""
    return [lexeme for lexeme in lexemes(text) if lexeme.kind not in SILENT]


def entries(text: str, whole: bool = True) -> tuple[list[str], str]:
    r"""Return the statements and backslash commands of a text, and what has no end yet.

    A statement ends with a semicolon, which is left out; a command is a line that begins with a
    backslash where a statement could begin.  Of a ``whole`` text the end is that of the last.
    """
    found: list[str] = []
    start = 0
    while True:
        command = _command(text, start)
        end = command.end() if command else _semicolon(text, start)
        if end is None or (command and end == len(text) and not whole):
            break
        found.append((command["line"] if command else text[start : end - 1]).strip())
        start = end
    rest = text[start:]
    if whole and spoken(rest):
        found.append(rest.strip())
        rest = ""
    return [each for each in found if spoken(each)], rest


def _command(text: str, start: int) -> re.Match[str] | None:
    return re.compile(r"\s*(?P<line>\\[^\n]*)(?:\n|\Z)").match(text, start)


def _semicolon(text: str, start: int) -> int | None:
    """Return the place behind the next semicolon that ends a statement."""
    for lexeme in lexemes(text[start:]):
        if lexeme.text == ";" and lexeme.kind == "mark":
            return start + lexeme.end
    return None


def complete(text: str) -> bool:
    r"""Return whether Enter ends what was typed: nothing, a command, or statements with a ``;``."""
    line = text.strip()
    if not line or line.startswith("\\") or line.lower() in ("quit", "exit"):
        return True
    rest = lexemes(entries(text, whole=False)[1])
    return all(each.kind in SILENT and (each.closed or each.text[0] == "-") for each in rest)
