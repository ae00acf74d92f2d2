"""What could come next in a statement: keywords, names, and the declared values of a column."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

from proxy.cli.interactive.catalog import SETTINGS, Catalog, Column, Table, functions
from proxy.cli.interactive.lexemes import Lexeme, entries, spoken
from proxy.cli.plain import printable
from proxy.sql.parse.identifiers import quoted

WORDS = (
    "SELECT FROM WHERE GROUP BY ORDER HAVING LIMIT OFFSET DISTINCT AS AND OR NOT IN BETWEEN LIKE "
    "ILIKE IS NULL TRUE FALSE CASE WHEN THEN ELSE END CAST FILTER OVER PARTITION ASC DESC NULLS "
    "FIRST LAST JOIN LEFT RIGHT FULL CROSS INNER ON USING UNION ALL EXCEPT INTERSECT WITH UTILITY "
    "PERCENT MAX COST RECURSIVE VALUES EXISTS ANY INTERVAL DATE TIMESTAMP ROLLUP CUBE GROUPING "
    "SETS WITHIN EXPLAIN SHOW SET RESET BUDGET HISTORY BEGIN COMMIT ROLLBACK SAVEPOINT CREATE "
    "TEMP VIEW DROP"
)
KEYWORDS = tuple(WORDS.split())
TABLES = ("FROM", "JOIN")  # what a table's name comes after
SETTING = ("SET", "RESET", "SHOW", "LOCAL")
COMPARISONS = {"=", "<>", "!=", "<", ">", "<=", ">=", "LIKE", "ILIKE", "BETWEEN"}
BETWEEN = COMPARISONS | {"(", ",", "[", "IN", "NOT", "AND", "ANY", "ARRAY"}  # column and value
MOST = 200  # completions that are offered
SHOWN = 60  # places of a value in the menu


class SQLCompleter(Completer):
    """Completes statements and backslash commands; ``commands`` are names and what they do."""

    def __init__(self, catalog: Catalog, commands: dict[str, str]) -> None:
        self._catalog, self._commands = catalog, commands
        self._paths = PathCompleter(expanduser=True)

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Yield what could stand at the cursor."""
        before = document.text_before_cursor
        begun = entries(before, whole=False)[1].lstrip()
        if begun.startswith("\\"):
            return self._of_command(begun, complete_event)
        whole = begun + document.text_after_cursor
        found = self._of_statement(begun, whole, complete_event.completion_requested)
        return islice(found, MOST)

    def _of_command(self, text: str, event: CompleteEvent) -> Iterator[Completion]:
        name, space, argument = text.partition(" ")
        if not space:
            for command, what in self._commands.items():
                if command.startswith(name):
                    yield Completion(command, -len(name), display_meta=what)
        elif name in ("\\i", "\\csv", "\\json"):
            yield from self._paths.get_completions(Document(argument), event)
        elif name == "\\d":
            yield from named(argument, [(t, "table") for t in self._catalog.tables])
        elif name in ("\\confirm", "\\timing", "\\x"):
            yield from named(argument, [("on", ""), ("off", "")])
        elif name in ("\\utility", "\\cost"):
            yield from named(argument, [("off", "")])
        elif name == "\\explain":
            yield from self._of_statement(argument.lstrip(), argument, event.completion_requested)

    def _of_statement(self, text: str, whole: str, requested: bool) -> Iterator[Completion]:
        words = spoken(text)
        last = words[-1] if words and words[-1].end == len(text) else None
        if last is not None and last.kind == "text" and not last.closed and last.text[0] == "'":
            yield from self._values(words[:-1], last.text, whole)
            return
        typed = last if last and (last.kind == "word" or not last.closed) else None
        behind = words[:-1] if typed else words
        begun = typed.text if typed else ""
        if len(behind) > 2 and behind[-1].text == "." and _word(behind[:-2]) in SETTING:
            inside = [name.removeprefix(f"{behind[-2].text.lower()}.") for name in SETTINGS]
            yield from named(begun, [(name, "setting") for name in inside])
        elif behind and behind[-1].text == ".":
            yield from self._inside(behind[:-1], begun, whole)
        elif _word(behind) in TABLES:
            yield from named(begun, [(name, "table") for name in self._catalog.tables])
        elif _word(behind) in SETTING and len(behind) <= 2:
            more = [("BUDGET", ""), ("HISTORY", "")] if _word(behind) == "SHOW" else []
            yield from named(begun, [*((name, "setting") for name in SETTINGS), *more])
        elif typed is None and _word(behind) in COMPARISONS:
            yield from self._values(behind, "", whole)
        elif begun or requested:
            if _word(behind) == "WITH":
                yield from named(begun, [("UTILITY", "keyword")])
            names = [(c.name, f"{t.name}, {c.type}") for t in self._used(whole) for c in t.columns]
            yield from named(begun, names)
            upper = not begun or begun.isupper()
            yield from words_of(begun, functions(), "function", upper)
            yield from words_of(begun, KEYWORDS, "keyword", upper)
            yield from named(begun, [(name, "table") for name in self._catalog.tables])

    def _used(self, text: str) -> Sequence[Table]:
        """Return the tables that a statement names; where it names none yet, all that are data."""
        names = {_plain(each) for each in spoken(text) if each.kind in ("word", "name")}
        tables = self._catalog.tables
        if used := [table for name, table in tables.items() if name in names]:
            return used
        return [table for name, table in tables.items() if not name.startswith("privacy.")]

    def _inside(self, behind: Sequence[Lexeme], begun: str, whole: str) -> Iterator[Completion]:
        """Yield what a name before a dot has inside: a schema's tables, a table's columns."""
        owner = _plain(behind[-1]) if behind else ""
        tables = self._catalog.tables
        inside = [name.partition(".")[2] for name in tables if name.startswith(f"{owner}.")]
        yield from named(begun, [(name, "table") for name in inside])
        chosen = [tables[owner]] if owner in tables else [] if inside else self._used(whole)
        yield from named(begun, [(c.name, c.type) for t in chosen for c in t.columns])

    def _values(self, behind: Sequence[Lexeme], begun: str, whole: str) -> Iterator[Completion]:
        """Yield the values that the nearest column before could have; ``begun`` has its quote."""
        column = self._compared(behind, whole)
        if column is None or column.type.startswith(("int", "small", "big", "num", "double")):
            return
        part = begun[1:].replace("''", "'").lower()
        values = self._catalog.values(column)
        folded = [(value, value.lower()) for value in values]
        starting = (value for value, low in folded if low.startswith(part))
        inside = (value for value, low in folded if part in low and not low.startswith(part))
        for value in (each for group in (starting, inside) for each in group):
            written = "'" + value.replace("'", "''") + "'"
            shown = printable(value, "")[:SHOWN]
            yield Completion(written, -len(begun), display=shown, display_meta=column.name)

    def _compared(self, behind: Sequence[Lexeme], whole: str) -> Column | None:
        """Return the column that is compared with what comes behind these words."""
        for word in reversed(behind):
            if word.kind in ("text", "number") or word.text.upper() in BETWEEN:
                continue
            if word.kind not in ("word", "name"):
                return None
            name = _plain(word)
            columns = [c for t in self._used(whole) for c in t.columns if c.name == name]
            return columns[0] if columns else None
        return None


def named(begun: str, names: Iterable[tuple[str, str]]) -> Iterator[Completion]:
    """Yield names that begin as somebody has begun, quoted where that is necessary."""
    part = begun.lstrip('"').replace('""', '"').lower()
    for name, what in dict(names).items():
        plain = re.fullmatch(r"privacy\.\w+", name)
        written = name if plain or name.isupper() or name in ("on", "off") else quoted(name)
        if begun.startswith('"'):
            written = '"' + name.replace('"', '""') + '"'
        if name.lower().startswith(part) and written != begun:
            shown = printable(written, "")
            yield Completion(written, -len(begun), display=shown, display_meta=printable(what, ""))


def words_of(begun: str, words: Iterable[str], what: str, upper: bool) -> Iterator[Completion]:
    """Yield words that mean something in SQL, in the case that somebody writes them."""
    for word in words:
        if word.startswith(begun.upper()) and word != begun.upper():
            yield Completion(word if upper else word.lower(), -len(begun), display_meta=what)


def _word(behind: Sequence[Lexeme]) -> str:
    return behind[-1].text.upper() if behind else ""


def _plain(word: Lexeme) -> str:
    """Return the name that a word is, folded unless it is quoted."""
    if word.kind == "name":
        return word.text.strip('"').replace('""', '"')
    return word.text.lower()
