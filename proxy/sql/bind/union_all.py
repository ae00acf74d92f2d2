"""UNION ALL of protected rows: one record may make a row in each of its branches.

An aggregate of them is the sum of its branches: the coefficients add up, and with them what one
record adds.  A column that is not the same in all branches is a ``PerBranch`` node.
Invariant: its expressions are as many as the rows have branches, of one type, and hold no other.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from proxy.errors import NotSupportedError, SQLSyntaxError, StatementTooComplexError
from proxy.sql import types
from proxy.sql.bind.binding import Binding
from proxy.sql.bind.names import Names
from proxy.sql.bind.relations import BoundQuery, ProtectedRows
from proxy.sql.compile.columns import PerBranch, at_branch
from proxy.sql.parse.tree import position

MAX_BRANCHES = 64


def union_all(
    binding: Binding, parts: Sequence[ProtectedRows | BoundQuery], node: exp.Expr
) -> ProtectedRows:
    """Return the rows of UNION ALL.

    Raises:
        NotSupportedError: it is another operation, or not all of it are protected rows.
        SQLSyntaxError, TypeMismatchError: the columns do not match.
    """
    rows = [part for part in parts if isinstance(part, ProtectedRows)]
    if not isinstance(node, exp.Union) or node.args.get("distinct") or len(rows) < len(parts):
        raise NotSupportedError(
            "protected rows are put together by UNION ALL, and with protected rows only",
            hint="write UNION ALL, or aggregate in each part of the "
            f"{node.key.upper()} instead of around it",
            position=position(node.this),
        )
    if node.args.get("limit") or node.args.get("offset"):
        raise NotSupportedError(
            "LIMIT and OFFSET choose among results, not among protected rows",
            position=position(node),
        )
    columns = [part.names.tables[""] for part in rows]
    if len({len(each) for each in columns}) != 1:
        raise SQLSyntaxError(
            "each UNION query must have the same number of columns", position=position(node)
        )
    leaves = [(part, k) for part in rows for k in range(part.branches)]
    if len(leaves) > MAX_BRANCHES:
        raise StatementTooComplexError(f"UNION ALL has more than {MAX_BRANCHES} parts of rows")
    named = []
    for i, (name, _) in enumerate(columns[0]):
        meanings = [at_branch(part.names.tables[""][i][1], k) for part, k in leaves]
        named.append((name, _per_branch(_alike(binding, meanings))))
    wheres = [[at_branch(each, k) for each in part.where] or [exp.true()] for part, k in leaves]
    conditions = [exp.and_(*each) for each in wheres]
    where = (_per_branch(conditions),)
    return ProtectedRows(Names({"": named}), where, len(leaves), rows[0].unit)


def _alike(binding: Binding, meanings: Sequence[exp.Expr]) -> list[exp.Expr]:
    """Return the meanings of a column, cast to their common type."""
    kinds = [binding.coefficients.kind(meaning) for meaning in meanings]
    kind = types.common(kinds, "UNION")
    target = exp.DataType.build("text" if kind == "unknown" else kind, dialect="postgres")
    return [
        meaning if one == kind else exp.Cast(this=exp.Paren(this=meaning), to=target.copy())
        for meaning, one in zip(meanings, kinds, strict=True)
    ]


def _per_branch(meanings: Sequence[exp.Expr]) -> exp.Expr:
    same = all(meaning == meanings[0] for meaning in meanings)
    return meanings[0] if same else PerBranch(expressions=[m.copy() for m in meanings])
