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
    if isinstance(item, exp.Alias):
        return name_of(item.args["alias"])
    while isinstance(item, exp.Paren | exp.Filter | exp.Window | exp.WithinGroup):
        item = item.this
    if "name" in item.meta:
        return str(item.meta["name"])
    if isinstance(item, exp.Cast):
        inner = item.this
        while isinstance(inner, exp.Paren | exp.Cast):
            inner = inner.this
        name = output_name(inner, text)
        return name if name != "?column?" else _type_name(item)
    if isinstance(item, exp.Column):
        return name_of(item.this)
    if isinstance(item, exp.Case):
        inner = output_name(item.args["default"], text) if item.args.get("default") else "case"
        return inner if isinstance(item.args.get("default"), exp.Column) else "case"
    if isinstance(item, exp.Subquery) and isinstance(item.this, exp.Select):
        return output_name(item.this.expressions[0], text)
    if isinstance(item, exp.Exists):
        return "exists"
    if isinstance(item, exp.Func) and "start" in item.meta:
        written = text[item.meta["start"] : item.meta["end"] + 1]
        return written.translate(FOLD) if written.isidentifier() else "?column?"
    if isinstance(item, exp.Trim):
        side = str(item.args.get("position"))
        return {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(side, "btrim")
    return UNWRITTEN.get(type(item), "?column?")


def _type_name(node: exp.Expr) -> str:
    """Return PostgreSQL's internal name of the type of a cast."""
    name = str(getattr(node.args["to"].this, "value", "")).upper()
    return TYPES.get(name, name.lower()) or "?column?"


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
