"""The values of binding: protected rows, relations, bound queries, and their scope."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

from msgspec import Struct
from msgspec.structs import replace
from sqlglot import exp

from proxy.errors import NotSupportedError, ProgrammingError
from proxy.policy import Unit
from proxy.sql.bind.names import Names
from proxy.sql.expression.faces import beside, drawn, shown, twofold
from proxy.sql.expression.faces import key as row_key
from proxy.sql.expression.typed import Form, TypedSql
from proxy.sql.parse.identifiers import name_of
from proxy.sql.parse.tree import as_sql, position
from proxy.sql.program import Request


class ProtectedRows(Struct, frozen=True):
    """Rows of the protected dataset: the meaning of each column, and the conditions on the rows.

    With several ``branches``, of UNION ALL, they are the rows of each branch, one after the other.
    """

    names: Names[exp.Expr]
    where: tuple[exp.Expr, ...] = ()
    branches: int = 1
    unit: tuple[str, Unit] | None = None  # whose the rows are, and the table that would tell


class Relation(Struct, frozen=True):
    """A result, or a public table: an item of DuckDB's FROM, and its columns."""

    text: str
    columns: tuple[tuple[str, TypedSql], ...]
    public: bool = False  # reads public tables only: nothing is released
    key: str = ""  # DuckDB text that tells its rows apart, in the wide form of a statement
    declared: str = ""  # the notice that is due where its rows are counted


class Output(Struct, frozen=True):
    """A column of a bound query."""

    name: str
    typed: TypedSql


class BoundQuery(Struct, frozen=True):
    """A bound query: DuckDB text with columns c0, c1, ..., then the provenances s0, s1, ...

    In its wide form these are followed by k, which tells its rows apart, and for each column that
    noise moves by the same over drawn numbers, d0, d1, ..., and the parts of its form, f0_0, ....
    """

    sql: str
    outputs: tuple[Output, ...]
    probe: bool = False
    public: bool = False
    declared: str = ""  # the notice that is due where its rows, groups of the domain, are counted


@dataclass
class Cte:
    """A WITH query: bound when it is first read, and once if it is a result."""

    node: exp.Expr
    columns: Sequence[str]
    env: Env
    relation: Relation | None = None
    request: Request | None = None  # of a view with a hint

    @cached_property
    def meaning(self) -> str:
        """A digest of the query and of all that it may read."""
        env = sorted((name, cte.meaning) for name, cte in self.env.items())
        whole = repr((as_sql(self.node), self.columns, self.request, env))
        return blake2b(whole.encode(), digest_size=16).hexdigest()


Env = Mapping[str, Cte]


class Scope(Struct, frozen=True):
    """What a query sees: WITH queries, the utility request in force, columns of outer queries."""

    env: Env = {}
    request: Request | None = None
    outer: Names[TypedSql] | None = None
    beyond: Names[exp.Expr] | None = None  # columns outside of a subquery that cannot be read there

    def unreachable(self, node: exp.Expr) -> NotSupportedError | None:
        """Return the error for a column that is not of a query but of one around it, if it is."""
        name, table = name_of(node.this), node.args.get("table")
        for names in (self.outer, self.beyond):
            for each, columns in (names.tables if names else {}).items():
                if (table is None or name_of(table) == each) and name in dict(columns):
                    return _correlated(node)
        return None


def _correlated(node: exp.Expr) -> NotSupportedError:
    return NotSupportedError(
        f"a subquery cannot read {as_sql(node)} of the query around it here",
        hint="of a row of the dataset, EXISTS (SELECT 1 FROM x WHERE x.a = dataset.a) takes one "
        "equality; for more, join the table: FROM dataset JOIN x ON x.a = dataset.a AND x.b > "
        "dataset.b. A subquery over the dataset is grouped, and joined: JOIN (SELECT a, COUNT(*) "
        "AS n FROM dataset GROUP BY a) AS d ON d.a = x.a",
        position=position(node),
    )


def columns_of(name: str, outputs: Iterable[Output]) -> tuple[tuple[str, TypedSql], ...]:
    """Return the columns of a bound query as columns of a relation."""
    return tuple(
        (
            output.name,
            TypedSql(
                twofold(f"{name}.c{i}", f"{name}.d{i}") if output.typed.chance else f"{name}.c{i}",
                output.typed.type,
                numbers=output.typed.numbers,
                width=output.typed.width,
                scale=output.typed.scale,
                provenance=f"{name}.s{i}" if output.typed.provenance else None,
                chance=output.typed.chance,
                partial=output.typed.partial,
                form=_renamed(output.typed.form, f"{name}.f{i}"),
            ),
        )
        for i, output in enumerate(outputs)
    )


def _renamed(form: Form | None, name: str) -> Form | None:
    """Return the form of a column of a bound query."""
    if form is None:
        return None
    return replace(form, parts=tuple(f"{name}_{k}" for k in range(len(form.parts))))


def beside_columns(outputs: Sequence[Output]) -> tuple[str, ...]:
    """Return the names of what stands beside the columns of a bound query."""
    names = ["k"]
    for i, output in enumerate(outputs):
        if output.typed.chance:
            form = output.typed.form
            names += [f"d{i}", *(f"f{i}_{k}" for k in range(len(form.parts) if form else 0))]
    return tuple(names)


def beside_texts(outputs: Sequence[Output], key: str) -> list[str]:
    """Return what stands beside the columns of a bound query, in this order."""
    texts = [key]
    for output in outputs:
        if output.typed.chance:
            form = output.typed.form
            texts.append(drawn(output.typed.sql))
            if form:
                face = drawn if form.kind == "drawn" else shown
                texts += map(face, form.parts)
    return texts


def beside_all(outputs: Sequence[Output], key: str) -> str:
    """Return the columns that stand beside those of a bound query, with their names."""
    first, *rest = zip(beside_texts(outputs, key), beside_columns(outputs), strict=True)
    return with_key(first[0], [f"{text} AS {name}" for text, name in rest])


def with_key(key: str, columns: Iterable[str]) -> str:
    """Return the key of a row, and the other columns that stand beside those of a query."""
    return row_key(f", {key} AS k") + beside("".join(f", {column}" for column in columns))


def rename_columns(
    rows: ProtectedRows | Relation, names: Sequence[str], node: exp.Expr
) -> ProtectedRows | Relation:
    """Return a relation whose first columns have other names."""
    columns = rows.columns if isinstance(rows, Relation) else rows.names.tables[""]
    if len(names) > len(columns):
        raise ProgrammingError(
            f"{len(columns)} columns available but {len(names)} columns specified",
            position=position(node),
        )
    aliases = [*names, *(column for column, _ in columns[len(names) :])]
    if isinstance(rows, Relation):
        pairs = tuple((a, typed) for a, (_, typed) in zip(aliases, rows.columns, strict=True))
        return replace(rows, columns=pairs)
    inner = [(a, meaning) for a, (_, meaning) in zip(aliases, rows.names.tables[""], strict=True)]
    return replace(rows, names=Names({"": inner}))


def several_columns(node: exp.Expr) -> ProgrammingError | NotSupportedError:
    """Return the error for a subquery that stands for one value, or a list, and has several."""
    if isinstance(node.this, exp.Tuple):
        return NotSupportedError(
            "rows of values are looked up in rows that are written out, not in a subquery",
            hint="join it: JOIN (SELECT DISTINCT a, b FROM x) AS u ON u.a = a AND u.b = b; or "
            "write (a, b) IN ((1, 2), (3, 4))",
            position=position(node),
        )
    return ProgrammingError("subquery must return only one column", position=position(node))
