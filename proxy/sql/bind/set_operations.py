"""UNION, INTERSECT and EXCEPT of bound queries; and VALUES."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace
from sqlglot import exp

from proxy.errors import SQLSyntaxError
from proxy.sql import types
from proxy.sql.bind.binding import Binding
from proxy.sql.bind.names import Names
from proxy.sql.bind.relations import BoundQuery, Output, Scope, beside_all, with_key
from proxy.sql.bind.render import first_of
from proxy.sql.bind.results import ResultExpressions
from proxy.sql.expression import intervals
from proxy.sql.expression.faces import shown
from proxy.sql.expression.forms import of as form_of
from proxy.sql.expression.typed import NULL, Form, TypedSql, coerce, hidden, widest
from proxy.sql.parse.tree import position


def set_operation(node: exp.Expr, sides: Sequence[BoundQuery]) -> BoundQuery:
    """Return UNION, INTERSECT or EXCEPT of two queries.

    Raises:
        SQLSyntaxError, TypeMismatchError: their columns do not match.
    """
    word = node.key.upper()  # UNION, INTERSECT or EXCEPT
    widths = [len(side.outputs) for side in sides]
    if widths[0] != widths[1]:
        raise SQLSyntaxError(
            f"each {word} query must have the same number of columns", position=position(node)
        )
    literals = [_literals(side) for side in (node.this, node.expression)]
    kinds = []
    for i in range(widths[0]):
        pairs = zip(sides, literals, strict=True)
        given = ["unknown" if i in each else s.outputs[i].typed.type for s, each in pairs]
        kinds.append(types.common([*given], word) if set(given) != {"unknown"} else "text")
    sides = [_converted(s, each, kinds) for s, each in zip(sides, literals, strict=True)]
    everything = not node.args.get("distinct")
    plain = word == "UNION"  # only its rows are each a row of one side
    traced = [
        plain and bool(one.typed.provenance or two.typed.provenance)
        for one, two in zip(sides[0].outputs, sides[1].outputs, strict=True)
    ]
    merged = _merged(sides, plain)
    texts = [
        _side(side, kinds, traced) + (_beside_side(side, k, kinds, merged) if plain else "")
        for k, side in enumerate(sides)
    ]
    texts = [f"{text} FROM ({side.sql})" for text, side in zip(texts, sides, strict=True)]
    columns = [f"c{i}" for i in range(len(kinds))]
    text = f"({texts[0]}) {word}{' ALL' if everything or plain else ''} ({texts[1]})"
    outputs = tuple(
        Output(
            one.name,
            TypedSql(
                f"c{i}", kind, numbers=one.typed.numbers | two.typed.numbers,
                width=max(one.typed.width, two.typed.width),
                scale=widest([coerce(o.typed, kind) for o in (one, two)]),
                provenance=f"s{i}" if provenance else None,
                chance=column.chance, form=column.form, partial=column.partial,
            ),
        )
        for i, (one, two, kind, provenance, column) in enumerate(
            zip(sides[0].outputs, sides[1].outputs, kinds, traced, merged, strict=True)
        )
    )  # fmt: skip
    if plain and not everything:
        picked = [f"min(s{i}) AS s{i}" for i, s in enumerate(traced) if s]
        listed = ", ".join(columns)
        first = first_of(outputs)
        text = f"SELECT {', '.join([*columns, *picked])}{first} FROM ({text}) GROUP BY {listed}"
    if not plain:  # a row is not of one side
        text = f"SELECT *{beside_all(outputs, f'hash({chr(44).join(columns)})')} FROM ({text})"
    declared = next((side.declared for side in sides if side.declared), "")
    return BoundQuery(text, outputs, declared=declared)


def _literals(side: exp.Expr) -> dict[int, TypedSql]:
    """Return the quoted literals and NULLs in the list of one side, by their places.

    As in PostgreSQL they have no type yet, unless DISTINCT or ORDER BY has given them one.
    """
    while isinstance(side, exp.Subquery) and not side.args.get("order"):
        side = side.this
    given = not isinstance(side, exp.Select) or side.args.get("distinct") or side.args.get("order")
    if given or any(item.is_star for item in side.expressions):
        return {}
    found = {}
    for i, item in enumerate(side.expressions):
        while isinstance(item, exp.Alias | exp.Paren):
            item = item.this
        if isinstance(item, exp.Null):
            found[i] = NULL
        elif isinstance(item, exp.Literal) and item.is_string:
            found[i] = TypedSql(types.literal("text", item.name), "unknown", literal=item.name)
    return found


def _as(literal: TypedSql, kind: str) -> TypedSql:
    """Return a literal as a value of a type."""
    span = kind == "interval" and literal.literal is not None
    return intervals.read(literal.literal or "").typed if span else coerce(literal, kind)


def _converted(
    side: BoundQuery, literals: Mapping[int, TypedSql], kinds: Sequence[str]
) -> BoundQuery:
    """Return one side with its literals as values of the types of their columns."""
    values = {i: _as(typed, kinds[i]) for i, typed in literals.items() if kinds[i] != "text"}
    if not values:
        return side
    texts = ", ".join(f"{value.sql} AS c{i}" for i, value in values.items())
    outputs = list(side.outputs)
    for i, value in values.items():
        outputs[i] = replace(outputs[i], typed=replace(value, sql=f"c{i}", literal=None))
    sql = f"SELECT * REPLACE ({texts}) FROM ({side.sql})"
    return replace(side, sql=sql, outputs=tuple(outputs))


def _merged(sides: Sequence[BoundQuery], plain: bool) -> list[TypedSql]:
    """Return, for each column, how noise moves it, and the form that both sides have."""
    merged = []
    for pair in zip(*(side.outputs for side in sides), strict=True):
        one, two = (output.typed for output in pair)
        mixed = one.partial or two.partial or bool(one.provenance) != bool(two.provenance)
        moved = replace(one, chance=max(one.chance, two.chance), form=None, partial=mixed)
        first, second = (form_of(output.typed) for output in pair)
        if plain and moved.chance and first and second and _shape(first) == _shape(second):
            moved = replace(moved, form=first)
        merged.append(moved if plain else hidden(moved))
    return merged


def _shape(form: Form) -> tuple[object, ...]:
    return form.kind, len(form.parts), form.steps


def _side(side: BoundQuery, kinds: Sequence[str], traced: Sequence[bool]) -> str:
    columns, provenances = [], []
    for i, (output, kind) in enumerate(zip(side.outputs, kinds, strict=True)):
        columns.append(f"{coerce(TypedSql(f'c{i}', output.typed.type), kind).sql} AS c{i}")
        if traced[i]:
            provenance = f"s{i}" if output.typed.provenance else "CAST(NULL AS BIGINT)"
            provenances.append(f"{provenance} AS s{i}")
    return f"SELECT {', '.join([*columns, *provenances])}"


def _beside_side(
    side: BoundQuery, number: int, kinds: Sequence[str], merged: Sequence[TypedSql]
) -> str:
    """Return what stands beside the columns of one side of a UNION."""
    key = ", ".join(f"c{i}" for i in range(len(kinds))) if side.public else "k"
    texts = []
    for i, (output, kind, column) in enumerate(zip(side.outputs, kinds, merged, strict=True)):
        if column.chance:
            name = f"d{i}" if output.typed.chance else f"c{i}"
            texts.append(f"{coerce(TypedSql(name, output.typed.type), kind).sql} AS d{i}")
            if column.form and output.typed.chance:
                texts += [f"f{i}_{k}" for k in range(len(column.form.parts))]
            elif column.form and (form := form_of(replace(output.typed, sql=f"c{i}"))):
                texts += [f"{part} AS f{i}_{k}" for k, part in enumerate(form.parts)]
    return with_key(f"hash({number}, {key})", texts)


def values(binding: Binding, node: exp.Expr, scope: Scope) -> BoundQuery:
    """Return VALUES as a query.

    Raises:
        SQLSyntaxError: its lists differ in length.
    """
    lowering = ResultExpressions(binding, Names(), scope)
    rows = [[lowering.lower(item) for item in row.expressions] for row in node.expressions]
    if len({len(row) for row in rows}) != 1:
        raise SQLSyntaxError("VALUES lists must all be the same length")
    kinds = [types.common([row[i].type for row in rows], "VALUES") for i in range(len(rows[0]))]
    kinds = ["text" if kind == "unknown" else kind for kind in kinds]
    texts = [
        f"({', '.join(coerce(v, kind).sql for v, kind in zip(row, kinds, strict=True))})"
        for row in rows
    ]
    names = ", ".join(f"c{i}" for i in range(len(kinds)))
    text = f"SELECT * FROM (VALUES {', '.join(texts)}) AS v({names})"
    widths = [max(row[i].width for row in rows) for i in range(len(kinds))]
    scales = [widest([coerce(row[i], kind) for row in rows]) for i, kind in enumerate(kinds)]
    outputs = [
        Output(f"column{i + 1}", TypedSql(f"c{i}", kind, width=widths[i], scale=scales[i]))
        for i, kind in enumerate(kinds)
    ]
    moved = [max(row[i].chance for row in rows) for i in range(len(kinds))]
    outputs = [
        replace(o, typed=hidden(replace(o.typed, chance=chance)))
        for o, chance in zip(outputs, moved, strict=True)
    ]
    key = beside_all(outputs, f"hash({names})")
    return BoundQuery(shown(text.replace("*", f"*{key}", 1)), tuple(outputs))
