"""Identifiers by PostgreSQL's rules: folding, quoting, and the names of output columns."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from sqlglot import exp

from proxy.policy.promise import FOLD

WORDS = (  # of PostgreSQL that are no names without quotes
    "all analyse analyze and any array as asc asymmetric authorization binary both case cast check "
    "collate collation column concurrently constraint create cross current_catalog current_date "
    "current_role current_schema current_time current_timestamp current_user default deferrable "
    "desc distinct do else end except false fetch for foreign freeze from full grant group having "
    "ilike in initially inner intersect into is isnull join lateral leading left like limit "
    "localtime localtimestamp natural not notnull null offset on only or order outer overlaps "
    "placing primary references returning right select session_user similar some symmetric "
    "system_user table tablesample then to trailing true union unique user using variadic verbose "
    "when where window with"
)


RESERVED = frozenset(WORDS.split())


def name_of(identifier: exp.Expr) -> str:
    """Return the name of an identifier: unquoted ones fold to lower case."""
    text = identifier.name
    return text if identifier.args.get("quoted") else text.translate(FOLD)


def quoted(name: str) -> str:
    """Return a name, quoted if necessary."""
    plain = name.isidentifier() and name.translate(FOLD) == name and name not in RESERVED
    return name if plain else '"' + name.replace('"', '""') + '"'


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return a hint with names similar to an unknown one."""
    known = list(dict.fromkeys(known))
    folded = {other.lower(): other for other in known}
    near = difflib.get_close_matches(name.lower(), folded, 3, 0.6)
    if near:
        return f"did you mean {' or '.join(quoted(folded[other]) for other in near)}?"
    return f"there are {', '.join(map(quoted, known))}" if 0 < len(known) <= 20 else None


def output_name(item: exp.Expr, text: str) -> str:
    """Return PostgreSQL's name for an output column; ``text`` is the statement."""
    return _named(item, text)[0] or "?column?"


def _named(item: exp.Expr, text: str) -> tuple[str, bool]:
    """Return a name, if there is any, and whether it goes before that of a type or of CASE."""
    if isinstance(item, exp.Alias):
        return name_of(item.args["alias"]), True
    while isinstance(item, exp.Paren | exp.Filter | exp.Window | exp.WithinGroup | exp.Collate):
        item = item.this
    if "name" in item.meta:
        return str(item.meta["name"]), True
    if isinstance(item, exp.Cast | exp.Interval):
        name, strong = _named(item.this, text) if isinstance(item, exp.Cast) else ("", False)
        return (name, True) if strong else (_type_name(item), False)
    if isinstance(item, exp.Column):
        return name_of(item.this), True
    if isinstance(item, exp.Case):
        last = item.args.get("default")
        name, strong = _named(last, text) if last is not None else ("", False)
        return (name, True) if strong else ("case", False)
    if isinstance(item, exp.Subquery) and isinstance(item.this, exp.Select):
        return output_name(item.this.expressions[0], text), True
    if isinstance(item, exp.Exists):
        return "exists", True
    if isinstance(item, exp.Array):
        return "array", True
    if isinstance(item, exp.Func) and "start" in item.meta:
        written = text[item.meta["start"] : item.meta["end"] + 1]
        return (written.translate(FOLD) if written.isidentifier() else ""), True
    if isinstance(item, exp.Trim):
        side = str(item.args.get("position"))
        return {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(side, "btrim"), True
    return UNWRITTEN.get(type(item), ""), type(item) in UNWRITTEN


def _type_name(node: exp.Expr) -> str:
    """Return PostgreSQL's internal name of the type of a cast."""
    if isinstance(node, exp.Interval) or "type" in node.meta:
        return str(node.meta.get("type", "interval"))
    name = str(getattr(node.args["to"].this, "value", "")).upper()
    return TYPES.get(name, name.lower())


TYPES = {
    "INT": "int4",
    "BIGINT": "int8",
    "SMALLINT": "int2",
    "DOUBLE": "float8",
    "FLOAT": "float4",
    "DECIMAL": "numeric",
    "BOOLEAN": "bool",
}


UNWRITTEN: dict[type[exp.Expr], str] = {
    exp.Coalesce: "coalesce",
    exp.Nullif: "nullif",
    exp.Greatest: "greatest",
    exp.Least: "least",
    exp.Extract: "extract",
    exp.Substring: "substring",
    exp.StrPosition: "position",
    exp.CurrentDate: "current_date",
    exp.CurrentTimestamp: "now",
    exp.Ceil: "ceil",
    exp.Floor: "floor",
    exp.Initcap: "initcap",
}
