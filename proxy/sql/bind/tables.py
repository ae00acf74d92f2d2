"""The tables that FROM may name: the protected dataset, public tables, the schema ``privacy``."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from proxy.domain import Attribute, Domain, Value
from proxy.errors import UndefinedTableError
from proxy.sql import privacy_schema
from proxy.sql.bind.binding import Binding
from proxy.sql.bind.names import Names
from proxy.sql.bind.relations import ProtectedRows, Relation
from proxy.sql.compile.columns import Axis, MeasureColumn
from proxy.sql.expression.typed import TypedSql
from proxy.sql.parse.identifiers import nearest
from proxy.sql.parse.tree import position


def dataset(domain: Domain) -> ProtectedRows:
    """Return all rows of the dataset: an axis or a measure for each column, and the levels."""
    columns: list[tuple[str, exp.Expr]] = []
    for index, attribute in enumerate(domain.attributes):
        columns.append((attribute.name, Axis(this=index)))
        for level, labels in (attribute.levels or {}).items():
            columns.append((level, _level(index, attribute, labels)))
    columns += [(m.name, MeasureColumn(this=i)) for i, m in enumerate(domain.measures)]
    return ProtectedRows(Names({"": columns}))


def _level(index: int, attribute: Attribute, labels: Mapping[str, tuple[Value, ...]]) -> exp.Expr:
    """Return a coarser column of an axis: CASE WHEN axis IN (members) THEN label ... END."""
    case = exp.Case()
    for label, members in labels.items():
        listed = [exp.convert(member) for member in members]
        case = case.when(exp.In(this=Axis(this=index), expressions=listed), exp.convert(label))
    return case


def public(binding: Binding, name: str) -> Relation:
    """Return a public table of the policy."""
    table, columns = binding.evaluator.public(name, binding.policy.public[name].path)
    alias = binding.fresh("t")
    typed = tuple(
        (column, TypedSql(f"{alias}.c{i}", kind, width=width))
        for i, (column, kind, width) in enumerate(columns)
    )
    return Relation(f"{table} AS {alias}", typed, public=True)


def system(binding: Binding, name: str, node: exp.Expr) -> Relation:
    """Return a relation of the schema ``privacy``.

    Raises:
        UndefinedTableError: it has none of this name.
    """
    if name not in privacy_schema.TABLES:
        raise UndefinedTableError(
            f'relation "privacy.{name}" does not exist',
            hint=nearest(name, privacy_schema.TABLES),
            position=position(node),
        )
    binding.systems[name] = privacy_schema.relation(name)
    alias = binding.fresh("t")
    typed = tuple(
        (column, TypedSql(f"{alias}.c{i}", kind))
        for i, (column, kind) in enumerate(privacy_schema.TABLES[name])
    )
    binding.reads_protected += 1
    return Relation(f"sys_{name} AS {alias}", typed)
