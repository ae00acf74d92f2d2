"""UNION, INTERSECT and EXCEPT of bound queries; and VALUES."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from proxy.errors import SQLSyntaxError
from proxy.sql import types
from proxy.sql.bind.binding import Binding
from proxy.sql.bind.names import Names
from proxy.sql.bind.relations import BoundQuery, Output, Scope
from proxy.sql.bind.results import ResultExpressions
from proxy.sql.expression.typed import TypedSql, coerce, widest
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
    kinds = [
        types.common([one.typed.type, two.typed.type], word)
        for one, two in zip(sides[0].outputs, sides[1].outputs, strict=True)
    ]
    everything = not node.args.get("distinct")
    plain = word == "UNION"  # only its rows are each a row of one side
    traced = [
        plain and bool(one.typed.provenance or two.typed.provenance)
        for one, two in zip(sides[0].outputs, sides[1].outputs, strict=True)
    ]
    texts = [_side(side, kinds, traced) for side in sides]
    columns = [f"c{i}" for i in range(len(kinds))]
    text = f"({texts[0]}) {word}{' ALL' if everything or plain else ''} ({texts[1]})"
    if plain and not everything:
        picked = [f"min(s{i}) AS s{i}" for i, s in enumerate(traced) if s]
        listed = ", ".join(columns)
        text = f"SELECT {', '.join([*columns, *picked])} FROM ({text}) GROUP BY {listed}"
    outputs = tuple(
        Output(
            one.name,
            TypedSql(
                f"c{i}", kind, numbers=one.typed.numbers | two.typed.numbers,
                width=max(one.typed.width, two.typed.width),
                scale=widest([coerce(o.typed, kind) for o in (one, two)]),
                provenance=f"s{i}" if provenance else None,
            ),
        )
        for i, (one, two, kind, provenance) in enumerate(
            zip(sides[0].outputs, sides[1].outputs, kinds, traced, strict=True)
        )
    )  # fmt: skip
    return BoundQuery(text, outputs)


def _side(side: BoundQuery, kinds: Sequence[str], traced: Sequence[bool]) -> str:
    columns, provenances = [], []
    for i, (output, kind) in enumerate(zip(side.outputs, kinds, strict=True)):
        columns.append(f"{coerce(TypedSql(f'c{i}', output.typed.type), kind).sql} AS c{i}")
        if traced[i]:
            provenance = f"s{i}" if output.typed.provenance else "CAST(NULL AS BIGINT)"
            provenances.append(f"{provenance} AS s{i}")
    return f"SELECT {', '.join([*columns, *provenances])} FROM ({side.sql})"


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
    return BoundQuery(text, tuple(outputs))
