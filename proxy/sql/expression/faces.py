r"""Two faces of a text: an expression over the numbers that are shown, or over drawn ones.

A column of released numbers is written once, with both names; ``shown`` and ``drawn`` choose.  What
stands ``beside`` the columns of a query is there only in the ``wide`` form of a statement, the
``key`` of a row in its ``keyed`` form too.  Marks begin with NUL, which no text of PostgreSQL's may
contain: ``without_marks`` refuses it.
"""

from __future__ import annotations

from proxy.errors import DataError

MARK = "\0"


def twofold(shown: str, drawn: str) -> str:
    """Return a text with two faces, neither of which has two itself."""
    return f"{MARK}({shown}{MARK}|{drawn}{MARK})"


def shown(text: str) -> str:
    """Return a text over the numbers that are shown."""
    return _faced(text, True)


def drawn(text: str) -> str:
    """Return a text over numbers that are drawn."""
    return _faced(text, False)


def _faced(text: str, first: bool) -> str:
    if MARK not in text:
        return text
    head, *rest = text.split(MARK)
    pieces, kept = [head], True
    for piece in rest:
        sign, tail = piece[0], piece[1:]
        if sign in "(|)":
            kept = {"(": first, "|": not first, ")": True}[sign]
        else:
            pieces.append(MARK + sign)
        if kept:
            pieces.append(tail)
    return "".join(pieces)


def beside(text: str) -> str:
    """Return a text that is there only in the wide form of a statement."""
    return f"{MARK}[{text}{MARK}]"


def key(text: str) -> str:
    """Return a text that is there in the wide and in the keyed form of a statement."""
    return f"{MARK}<{text}{MARK}>"


def wide(text: str) -> str:
    """Return the text of a statement with all that stands beside its columns."""
    return _formed(text, "")


def keyed(text: str) -> str:
    """Return the text of a statement with the keys of its rows."""
    return _formed(text, "[")


def narrow(text: str) -> str:
    """Return the text of a statement without either."""
    return _formed(text, "[<")


def _formed(text: str, left_out: str) -> str:
    head, *rest = shown(text).split(MARK)
    pieces, opened = [head], []
    for piece in rest:
        if piece[0] in "[<":
            opened.append(piece[0] in left_out)
        else:
            opened.pop()
        if not any(opened):
            pieces.append(piece[1:])
    return "".join(pieces)


def without_marks(text: str) -> str:
    """Return a text of somebody's that has no mark.

    Raises:
        DataError: it has one.
    """
    if MARK in text:
        raise DataError('invalid byte sequence for encoding "UTF8": 0x00', sqlstate="22021")
    return text
