"""Colours of a statement while it is typed."""

from __future__ import annotations

from collections.abc import Callable

from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.formatted_text.utils import split_lines
from prompt_toolkit.lexers import Lexer
from prompt_toolkit.styles import Style

from proxy.cli.interactive.catalog import functions
from proxy.cli.interactive.completion import KEYWORDS
from proxy.cli.interactive.lexemes import Lexeme, lexemes

PRIVACY = {"UTILITY", "PERCENT", "COST"}  # the words of the clause that no other database has
STYLE = Style.from_dict(
    {
        "sql.keyword": "bold ansiblue",
        "sql.privacy": "bold ansimagenta",
        "sql.function": "ansicyan",
        "sql.text": "ansigreen",
        "sql.number": "ansiyellow",
        "sql.comment": "italic ansibrightblack",
        "sql.command": "bold",
    }
)
KINDS = {"text": "text", "dollar": "text", "number": "number", "comment": "comment"}


class SQLLexer(Lexer):
    """Gives each word its style."""

    def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
        """Return a function from a line's number to its styled words."""
        if document.text.lstrip().startswith("\\"):
            name, space, rest = document.text.partition(" ")
            fragments: StyleAndTextTuples = [("class:sql.command", name), ("", space)]
            fragments += [(style(each), each.text) for each in lexemes(rest)]
        else:
            fragments = [(style(each), each.text) for each in lexemes(document.text)]
        lines = list(split_lines(fragments))

        def line(number: int) -> StyleAndTextTuples:
            return lines[number] if number < len(lines) else []

        return line


def style(lexeme: Lexeme) -> str:
    """Return the style of a word."""
    word = lexeme.text.upper()
    if lexeme.kind == "comment" and "UTILITY" in word:
        return "class:sql.privacy"  # a hint, which means the same as the clause
    if lexeme.kind == "word":
        kind = "keyword" if word in KEYWORDS else "function" if word in functions() else ""
        kind = "privacy" if word in PRIVACY else kind
    else:
        kind = KINDS.get(lexeme.kind, "")
    return f"class:sql.{kind}" if kind else ""
