"""Protected rows joined with a public table: each record with the rows that its columns choose.

What a record finds there is an expression of its axes.  Where it finds several rows, it counts
once for each: they are branches, and the coefficients add up.  Invariant: the rows that are kept,
and how often, follow from the text, the public table and the record itself; so no join keeps a row
of the public table for which there is no record.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace
from sqlglot import exp

from proxy.errors import NotSupportedError, ProgrammingError, StatementTooComplexError
from proxy.sql.bind.names import Names
from proxy.sql.bind.protected_rows import ColumnResolver
from proxy.sql.bind.relations import ProtectedRows, Relation
from proxy.sql.bind.union_all import MAX_BRANCHES
from proxy.sql.compile.columns import PerBranch, Public, at_branch, repeat_branches
from proxy.sql.expression.typed import TypedSql
from proxy.sql.parse.identifiers import name_of
from proxy.sql.parse.tree import flat, position

Pair = tuple[exp.Expr, TypedSql]  # an expression of the record, and the column it equals


def join_public(
    resolver: ColumnResolver,
    protected: ProtectedRows,
    table: tuple[str, Relation],
    join: exp.Expr,
    where: exp.Expr | None,
    *,
    first: bool = False,
) -> ProtectedRows:
    """Return protected rows with the columns of a public table, which stands ``first`` in FROM.

    The key is what ON or USING says, or, of a table after a comma, equalities in WHERE.

    Raises:
        NotSupportedError: the join would need to know which records there are.
    """
    name, relation = table
    outer = _outer(join, relation, first)
    public = Names({name: relation.columns})
    pairs, rest = _pairs(resolver, public, join, where)
    if outer and (rest or not pairs):
        raise NotSupportedError(
            "an outer JOIN of protected rows takes equalities with columns of the public table",
            hint="write ON a = b AND c = d, and other conditions of the public table in a subquery",
            position=position(rest[0] if rest else join),
        )
    matches = _Matches(relation, pairs)
    most, alike = _repetitions(resolver, matches)
    _require_few(protected.branches * most, name, join)

    def each(meanings: Sequence[exp.Expr]) -> exp.Expr:
        """Return one meaning for each matching row, as branches."""
        if most == 1:
            return meanings[0]
        parts = [at_branch(node, k) for k in range(protected.branches) for node in meanings]
        return PerBranch(expressions=[part.copy() for part in parts])

    columns = [
        (own, repeat_branches(matches.one(typed), most) if same else each(matches.all(typed, most)))
        for (own, typed), same in zip(relation.columns, alike, strict=True)
    ]
    kept = [exp.true() if outer and not j else matches.more_than(j) for j in range(most)]
    mine: dict[str, Sequence[tuple[str, exp.Expr]]] = {
        table: [(column, repeat_branches(meaning, most)) for column, meaning in listed]
        for table, listed in protected.names.tables.items()
    }
    names = Names(
        {name: columns, **mine} if first else {**mine, name: columns},
        {column: repeat_branches(node, most) for column, node in protected.names.merged.items()},
    )
    for identifier in join.args.get("using") or ():
        whole = Names(mine, names.merged).find(exp.Column(this=identifier.copy()))
        names.merged[name_of(identifier)] = whole or dict(columns)[name_of(identifier)]
    conditions = [repeat_branches(condition, most) for condition in protected.where]
    branches = protected.branches * most
    rows = ProtectedRows(names, (*conditions, each(kept)), branches, protected.unit)
    more = ColumnResolver(resolver.binding, rows, resolver.scope)
    return replace(rows, where=(*rows.where, *(more.resolve(part) for part in rest)))


def _require_few(branches: int, name: str, join: exp.Expr) -> None:
    """Refuse a join with too many matches for one record."""
    if branches > MAX_BRANCHES:
        raise StatementTooComplexError(
            f"a record meets {branches:,} rows of {name}; {MAX_BRANCHES} are allowed",
            hint="join by a key of the public table, or aggregate it first",
            position=position(join),
        )


class _Matches(Struct, frozen=True):
    """The rows of a public table that a record is joined with."""

    relation: Relation
    pairs: Sequence[Pair]

    @property
    def order(self) -> str:
        """A total order of these rows, up to equal ones."""
        return ", ".join(typed.sql for _, typed in self.relation.columns)

    def _lookup(self, sql: str, kind: str) -> exp.Expr:
        text = f"SELECT {sql} FROM {self.relation.text}"
        if not self.pairs:
            return Public(meaning=(f"({text})", kind))
        keys = tuple((typed.sql, typed.type) for _, typed in self.pairs)
        operands = [operand.copy() for operand, _ in self.pairs]
        return Public(meaning=(text, kind), expressions=operands, keys=keys)

    def one(self, typed: TypedSql) -> exp.Expr:
        """Return a column with one value in all matching rows."""
        return self._lookup(f"any_value({typed.sql})", typed.type)

    def all(self, typed: TypedSql, most: int) -> list[exp.Expr]:
        """Return a column in each matching row."""
        listed = f"list({typed.sql} ORDER BY {self.order})"
        return [self._lookup(f"{listed}[{j + 1}]", typed.type) for j in range(most)]

    def more_than(self, count: int) -> exp.Expr:
        """Return whether more than ``count`` rows match."""
        return exp.GT(this=self._lookup("count(*)", "bigint"), expression=exp.Literal.number(count))


def _outer(join: exp.Expr, relation: Relation, first: bool) -> bool:
    """Return whether records without a match are kept: an outer join.

    Raises:
        NotSupportedError: what is kept of the public table would depend on the records.
    """
    if not relation.public:
        raise NotSupportedError(
            "protected rows are not joined with a result",
            hint="aggregate the dataset in a subquery first, then join the two results",
            position=position(join),
        )
    side, kind = join.args.get("side") or "", join.args.get("kind") or ""
    allowed = {"this", "side", "kind", "on", "using"}
    odd = any(value and arg not in allowed for arg, value in join.args.items())
    if odd or kind not in ("", "INNER", "OUTER", "CROSS"):
        raise NotSupportedError(
            "this JOIN of protected rows is not supported",
            hint="write JOIN public_table ON a = b, or USING (a); or WHERE a IN (SELECT ...)",
            position=position(join),
        )
    if side not in ("", "RIGHT" if first else "LEFT"):
        raise NotSupportedError(
            f"{side} JOIN keeps rows of the public table for which there is no record, and "
            "which these are is not shown",
            hint="use INNER JOIN, since a GROUP BY lists what the domain declares, also where "
            "there is no record; or aggregate in a subquery, and join the table with that result",
            position=position(join),
        )
    return bool(side)


def _repetitions(resolver: ColumnResolver, matches: _Matches) -> tuple[int, list[bool]]:
    """Return the most rows of one key, and for each column whether a key determines it."""
    keys = [typed.sql for _, typed in matches.pairs]
    not_null = " AND ".join(f"{key} IS NOT NULL" for key in keys) or "TRUE"
    same = [
        f"count(DISTINCT {typed.sql}) <= 1 AND count({typed.sql}) IN (0, count(*)) AS u{i}"
        for i, (_, typed) in enumerate(matches.relation.columns)
    ]
    selected = ", ".join(["count(*) AS n", *same])
    inner = f"SELECT {selected} FROM {matches.relation.text} WHERE {not_null}"
    inner += f" GROUP BY {', '.join(keys)}" if keys else ""
    outer = ["max(n)", *(f"bool_and(u{i})" for i in range(len(same)))]
    ((most, *alike),) = resolver.binding.evaluator.rows(
        f"SELECT {', '.join(outer)} FROM ({inner})", {}
    )
    return max(most or 0, 1), [value is not False for value in alike]


def _pairs(
    resolver: ColumnResolver, public: Names[TypedSql], join: exp.Expr, where: exp.Expr | None
) -> tuple[list[Pair], list[exp.Expr]]:
    """Return the key of the join, and the other conditions of ON."""
    pairs: list[Pair] = []
    for identifier in join.args.get("using") or ():
        column = exp.Column(this=identifier.copy())
        typed = public.find(column)
        if typed is None:
            raise public.unknown(column)
        pairs.append((resolver.resolve(column), typed))
    on, rest = join.args.get("on"), []
    comma = on is None and not pairs
    for part in _parts(where if comma else on):
        key = _key_of(part, public, resolver)
        if key is None:
            rest.append(part)
            continue
        operand, named = key
        typed = public.find(named)
        if typed is None:
            raise public.unknown(named)
        try:
            pairs.append((resolver.resolve(operand), typed))
        except ProgrammingError:  # of a table that comes later
            if not comma:
                raise
    return pairs, [] if comma else rest


def _parts(node: exp.Expr | None) -> list[exp.Expr]:
    """Return the conditions that are joined by AND."""
    while isinstance(node, exp.Paren):
        node = node.this
    if node is None:
        return []
    return flat(node) if isinstance(node, exp.And) else [node]


def _key_of(
    node: exp.Expr, public: Names[TypedSql], resolver: ColumnResolver
) -> tuple[exp.Expr, exp.Expr] | None:
    """Return the two sides of record expression = public column, if a condition is of that form."""
    if not isinstance(node, exp.EQ):
        return None
    sides = [node.this, node.expression]
    mine = [_columns(side, public, resolver) for side in sides]
    for k in (0, 1):
        if isinstance(sides[k], exp.Column) and mine[k] and not mine[1 - k]:
            return sides[1 - k], sides[k]
    return None


def _columns(node: exp.Expr, public: Names[TypedSql], resolver: ColumnResolver) -> list[exp.Expr]:
    """Return the columns of an expression that are the public table's."""
    return [
        column
        for column in node.find_all(exp.Column)
        if (
            name_of(column.args["table"]) in public.tables
            if column.args.get("table")
            else public.find(column) is not None and resolver.names.find(column) is None
        )
    ]
