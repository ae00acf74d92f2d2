"""Names to meanings, by PostgreSQL's rules; and the statement to releases and the SQL around them.

Everything inside an aggregation over the protected dataset becomes numbers of a release point;
everything outside of it becomes DuckDB text over the relations r0, r1, ... of those numbers.
Invariant: DuckDB sees generated names only.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from sqlglot import exp

from proxy.domain import Attribute, Value
from proxy.errors import (
    GroupingError,
    NotSupportedError,
    ProgrammingError,
    TypeMismatchError,
    UndefinedColumnError,
    UndefinedTableError,
)
from proxy.policy import Policy
from proxy.sql import casts, types  # noqa: F401  # casts add rules
from proxy.sql.coefficients import Axis, Coefficients, DomainLowering, MeasureColumn
from proxy.sql.compile import Linear, Point
from proxy.sql.dialect import Utility, request
from proxy.sql.evaluate import Evaluator
from proxy.sql.groups import Key
from proxy.sql.program import Column, Request
from proxy.sql.scalar import Lowering, Typed, position

FOLD = str.maketrans({chr(c): chr(c + 32) for c in range(ord("A"), ord("Z") + 1)})


def name_of(identifier: exp.Expr) -> str:
    """Return the name that an identifier means: unquoted ones fold to lower case."""
    text = identifier.name
    return text if identifier.args.get("quoted") else text.translate(FOLD)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return a hint with the names that are near one that is not known."""
    known = list(known)
    folded = {other.lower(): other for other in known}
    near = difflib.get_close_matches(name.lower(), folded, 3, 0.6)
    shown = [quoted(folded[other]) for other in near]
    if shown:
        return f"did you mean {' or '.join(shown)}?"
    return f"there are {', '.join(map(quoted, known))}" if 0 < len(known) <= 20 else None


def quoted(name: str) -> str:
    """Return a name as it has to be written."""
    plain = name.isidentifier() and name.translate(FOLD) == name
    return name if plain else '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True)
class Rows:
    """Protected rows: what each column is in terms of axes and measures, and which rows."""

    alias: str
    columns: dict[str, exp.Expr]  # resolved
    where: tuple[exp.Expr, ...] = ()  # resolved


@dataclass(frozen=True)
class Output:
    """A column of a bound query."""

    name: str
    typed: Typed


@dataclass(frozen=True)
class Bound:
    """A bound query: DuckDB text whose columns are c0, c1, ..., then s0, s1, ... of some."""

    sql: str
    outputs: tuple[Output, ...]
    probe: bool = False


@dataclass
class Binder:
    """The binding of one statement."""

    policy: Policy
    evaluator: Evaluator
    points: list[Point] = field(default_factory=list)

    @property
    def coefficients(self) -> Coefficients:
        """Expressions over the policy's domain."""
        return Coefficients(self.policy.domain, self.evaluator)

    def query(self, node: exp.Expr, wanted: Request | None) -> Bound:
        """Return a bound query.

        Raises:
            NotSupportedError: it is of a form that is not known.
        """
        while isinstance(node, exp.Subquery) and not node.args.get("alias"):
            node = node.this
        if not isinstance(node, exp.Select):
            raise NotSupportedError(
                f"{node.key.upper()} is not supported here", position=position(node)
            )
        return Select(self, node, wanted).bind()

    def source(self, node: exp.Expr) -> Rows:
        """Return what FROM names.

        Raises:
            UndefinedTableError: nothing of that name.
        """
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            raise NotSupportedError(
                f"FROM takes the dataset {quoted(self.policy.dataset)}", position=position(node)
            )
        name = name_of(node.this)
        schema = node.args.get("db")
        if name != self.policy.dataset or (schema and name_of(schema) != "public"):
            shown = ".".join(name_of(p) for p in node.parts)
            raise UndefinedTableError(
                f'relation "{shown}" does not exist',
                hint=nearest(name, [self.policy.dataset]),
                position=position(node),
            )
        domain = self.policy.domain
        columns: dict[str, exp.Expr] = {
            a.name: Axis(this=i) for i, a in enumerate(domain.attributes)
        }
        columns |= {m.name: MeasureColumn(this=i) for i, m in enumerate(domain.measures)}
        for index, attribute in enumerate(domain.attributes):
            for level, labels in (attribute.levels or {}).items():
                columns[level] = _level(index, attribute, labels)
        alias = node.args.get("alias")
        return Rows(name_of(alias.this) if alias else name, columns)


def _level(index: int, attribute: Attribute, labels: Mapping[str, tuple[Value, ...]]) -> exp.Expr:
    """Return a coarser column of an axis: CASE WHEN axis IN (members) THEN label ... END."""
    case = exp.Case()
    for label, members in labels.items():
        listed = [exp.convert(member) for member in members]
        case = case.when(exp.In(this=Axis(this=index), expressions=listed), exp.convert(label))
    return case


class Select:
    """One SELECT over protected rows: its release point, and the text around it."""

    def __init__(self, binder: Binder, node: exp.Select, wanted: Request | None) -> None:
        self.binder = binder
        self.node = node
        self.wanted = wanted
        _known_clauses(node)
        source = node.args.get("from_")
        if source is None:
            raise NotSupportedError("a statement without FROM is not supported yet")
        self.rows = binder.source(source.this)
        self.inputs = Inputs(self.rows)

    def bind(self) -> Bound:
        """Return the bound query."""
        node = self.node
        if node.args.get("joins"):
            raise NotSupportedError("JOIN is not supported yet")
        where = node.args.get("where")
        conjuncts = (self.inputs.resolve(where.this),) if where else ()
        aggregated = bool(node.args.get("group") or node.args.get("having")) or any(
            item.find(exp.AggFunc) for item in node.expressions
        )
        if not aggregated:
            raise self._rows_refused()
        keys = self._keys()
        point = Point(
            f"r{len(self.binder.points)}", self.binder.coefficients, conjuncts, tuple(keys)
        )
        self.binder.points.append(point)
        point.filter  # noqa: B018  # what is wrong with WHERE is said before what follows it
        lowering = Grouped(self, point)
        outputs = []
        for item in node.expressions:
            outputs.append(Output(output_name(item), self._typed(lowering.lower(bare(item)))))
        return self._text(lowering, point, outputs)

    def _typed(self, value: Typed) -> Typed:
        if value.literal is not None or value.type == "unknown":
            text = value.sql if value.literal is not None else "CAST(NULL AS VARCHAR)"
            return replace(value, sql=text, type="text", literal=None)
        return value

    def _rows_refused(self) -> NotSupportedError:
        columns = [bare(item) for item in self.node.expressions]
        listed = ", ".join(
            item.sql(dialect="postgres") for item in columns if isinstance(item, exp.Column)
        )
        for item in columns:
            if not item.is_star:
                self.inputs.resolve(item)  # a name that does not exist is the first thing to say
        name = quoted(self.binder.policy.dataset)
        form = f"SELECT COUNT(*) FROM {name}"
        if listed and not any(item.is_star for item in columns):
            form = f"SELECT {listed}, COUNT(*) FROM {name} GROUP BY {listed}"
        return NotSupportedError(
            "the rows of a protected dataset are not shown, only aggregates of them",
            hint=f"ask for counts or sums, for example {form}",
            position=position(self.node.expressions[0]) if columns else None,
        )

    def _keys(self) -> list[Key]:
        group = self.node.args.get("group")
        if group is None:
            return []
        for arg, value in group.args.items():
            if arg != "expressions" and value:
                raise NotSupportedError(f"GROUP BY {arg.upper()} is not supported yet")
        keys: list[Key] = []
        for item in group.expressions:
            node = self._key(item)
            typed = self.binder.coefficients.lower(node)
            if typed.type == "unknown":
                raise GroupingError("GROUP BY a constant", position=position(item))
            if all(known.typed.sql != typed.sql for known in keys):
                name = output_name(item)
                keys.append(Key(name, node, typed))
        return keys

    def _key(self, item: exp.Expr) -> exp.Expr:
        """Return a grouping item resolved: an ordinal, a column, an alias, an expression."""
        outputs = self.node.expressions
        if isinstance(item, exp.Literal) and not item.is_string:
            at = int(item.name) if item.name.isdigit() else 0
            if not 1 <= at <= len(outputs):
                raise GroupingError(
                    f"GROUP BY position {item.name} is not in select list", position=position(item)
                )
            return self.inputs.resolve(bare(outputs[at - 1]))
        if isinstance(item, exp.Column) and not item.table:
            name = name_of(item.this)
            # PostgreSQL: in GROUP BY an input column goes before an output column
            if name not in self.rows.columns:
                for output in outputs:
                    if isinstance(output, exp.Alias) and name_of(output.args["alias"]) == name:
                        return self.inputs.resolve(bare(output))
        return self.inputs.resolve(item)

    def _text(self, lowering: Grouped, point: Point, outputs: Sequence[Output]) -> Bound:
        node = self.node
        having = node.args.get("having")
        kept = lowering.boolean(having.this, "HAVING").sql if having else None
        order = self._order(lowering, outputs)
        columns = [f"{output.typed.sql} AS c{i}" for i, output in enumerate(outputs)]
        columns += [
            f"{output.typed.shadow} AS s{i}"
            for i, output in enumerate(outputs)
            if output.typed.shadow
        ]
        text = f"SELECT {', '.join(columns)} FROM {point.name}"
        text += f" WHERE {kept}" if kept else ""
        text += f" ORDER BY {', '.join([*order, f'{point.name}.i'])}"
        limit, skip = (_whole(node, arg) for arg in ("limit", "offset"))
        text += f" LIMIT {limit}" if limit is not None else ""
        text += f" OFFSET {skip}" if skip is not None else ""
        return Bound(text, tuple(outputs), probe=limit == 0)

    def _order(self, lowering: Grouped, outputs: Sequence[Output]) -> list[str]:
        order = self.node.args.get("order")
        texts = []
        for item in order.expressions if order else ():
            typed = self._ordered(lowering, item.this, outputs)
            nulls = "FIRST" if item.args.get("nulls_first") else "LAST"
            texts.append(f"{typed.sql} {'DESC' if item.args.get('desc') else 'ASC'} NULLS {nulls}")
        return texts

    def _ordered(self, lowering: Grouped, node: exp.Expr, outputs: Sequence[Output]) -> Typed:
        """Return what to order by: an ordinal, an output column, an expression of the input."""
        if isinstance(node, exp.Literal):
            at = int(node.name) if node.name.isdigit() else 0
            if not 1 <= at <= len(outputs):
                raise ProgrammingError(
                    f"ORDER BY position {node.name} is not in select list", position=position(node)
                )
            return outputs[at - 1].typed
        if isinstance(node, exp.Column) and not node.table:
            # PostgreSQL: in ORDER BY an output column goes before an input column
            for output in outputs:
                if output.name == name_of(node.this):
                    return output.typed
        return lowering.lower(node)


def _known_clauses(node: exp.Select) -> None:
    known = {"expressions", "from_", "where", "group", "having", "order", "limit", "offset",
             "utility", "joins", "kind"}  # fmt: skip
    for arg, value in node.args.items():
        if value and arg not in known:
            raise NotSupportedError(f"{arg.strip('_').upper()} is not supported yet")


def _whole(node: exp.Select, arg: str) -> int | None:
    clause = node.args.get(arg)
    if clause is None:
        return None
    value = clause.args.get("expression") or clause.args.get("count")
    if isinstance(value, exp.Null) or (isinstance(value, exp.Column) and value.name == "ALL"):
        return None
    if not isinstance(value, exp.Literal) or not value.name.isdigit():
        raise TypeMismatchError(
            f"{arg.upper()} takes a whole number", position=position(value or clause)
        )
    return int(value.name)


def bare(item: exp.Expr) -> exp.Expr:
    """Return an item of a select list without its alias."""
    return item.this if isinstance(item, exp.Alias) else item


def output_name(item: exp.Expr) -> str:
    """Return the name that PostgreSQL gives to a column of a result."""
    if isinstance(item, exp.Alias):
        return name_of(item.args["alias"])
    while isinstance(item, exp.Paren | exp.Cast | exp.Filter):
        item = item.this
    if isinstance(item, exp.Column):
        return name_of(item.this)
    if isinstance(item, exp.Anonymous):
        return item.name.translate(FOLD)
    if isinstance(item, exp.Case):
        return "case"
    if isinstance(item, exp.Func) and not isinstance(item, exp.Connector):
        return item.sql_name().lower()
    return "?column?"


class Inputs:
    """The columns of FROM."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def resolve(self, node: exp.Expr) -> exp.Expr:
        """Return an expression with its columns replaced by what they are."""
        if isinstance(node, exp.Column):
            return self._column(node)
        copy = node.copy()
        for column in list(copy.find_all(exp.Column)):
            column.replace(self._column(column))
        return copy

    def _column(self, node: exp.Expr) -> exp.Expr:
        if isinstance(node.this, exp.Star):
            raise NotSupportedError("* is not supported here", position=position(node))
        table = node.args.get("table")
        if table and name_of(table) != self.rows.alias:
            raise UndefinedTableError(
                f'missing FROM-clause entry for table "{name_of(table)}"',
                hint=nearest(name_of(table), [self.rows.alias]),
                position=position(node),
            )
        name = name_of(node.this)
        known = self.rows.columns.get(name)
        if known is None:
            raise UndefinedColumnError(
                f'column "{name}" does not exist',
                hint=nearest(name, self.rows.columns),
                position=position(node),
            )
        copy = known.copy()
        if start := node.this.meta.get("start"):
            copy.meta["start"] = start
        return copy


class Grouped(Lowering):
    """Expressions outside the aggregates of a release point: over its groups and numbers."""

    def __init__(self, select: Select, point: Point) -> None:
        self.select = select
        self.point = point

    def before(self, node: exp.Expr) -> Typed | None:
        """Return a group column or a number, where a node is one."""
        linear = self._linear(node)
        if isinstance(linear, Linear):
            index = self.point.add(linear, node, self.select.wanted)
            kind = "bigint" if linear.counts else "double precision"
            text = f"{self.point.name}.n{index}"
            return Typed(text, kind, numbers=frozenset([index]), shadow=shadow(self.point, index))
        if node.find(exp.AggFunc, exp.Subquery) or not node.find(exp.Column):
            return None
        typed = DomainLowering(self.point.coefficients.domain).lower(
            self.select.inputs.resolve(node)
        )
        for index, key in enumerate(self.point.keys):
            if key.typed.sql == typed.sql:
                return Typed(f"{self.point.name}.g{index}", typed.type)
        return None

    def column(self, node: exp.Expr) -> Typed:
        """Refuse a column that is not grouped."""
        raise GroupingError(
            f'column "{name_of(node.this)}" must appear in the GROUP BY clause or be used in an '
            "aggregate function",
            position=position(node),
        )

    def _linear(self, node: exp.Expr) -> Linear | Fraction | None:
        """Return what a node is, if it is a linear combination of aggregates, or a constant."""
        if isinstance(node, exp.Paren):
            return self._linear(node.this)
        if isinstance(node, exp.Literal):
            return None if node.is_string else Fraction(node.name)
        if isinstance(node, exp.Neg):
            inner = self._linear(node.this)
            return None if inner is None else inner * Fraction(-1)
        if isinstance(node, exp.Filter | exp.AggFunc):
            return self._aggregate(node)
        if isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Div):
            left, right = self._linear(node.this), self._linear(node.expression)
            if left is None or right is None:
                return None
            return _combined(node, left, right, self.point)
        return None

    def _aggregate(self, node: exp.Expr) -> Linear:
        conditions = []
        if isinstance(node, exp.Filter):
            conditions = [self.select.inputs.resolve(node.expression.this)]
            node = node.this
        resolve = self.select.inputs.resolve
        if isinstance(node, exp.Count) and not isinstance(node.this, exp.Distinct):
            if node.expressions:
                raise NotSupportedError("COUNT takes one argument", position=position(node))
            if isinstance(node.this, exp.Star):
                return self.point.count(conditions)
            return self.point.count_of(resolve(node.this), conditions)
        if isinstance(node, exp.Sum) and not isinstance(node.this, exp.Distinct):
            return self.point.sum_of(resolve(node.this), conditions)
        shown = node.sql(dialect="postgres")
        raise NotSupportedError(
            f"{shown} is not a linear function of the counts",
            hint="COUNT and SUM are answered; other aggregates can be computed from them, for "
            "example AVG(x) as SUM(x) / COUNT(x)",
            position=position(node),
        )


def _combined(
    node: exp.Expr, left: Linear | Fraction, right: Linear | Fraction, point: Point
) -> Linear | Fraction | None:
    """Return the sum, difference, product or quotient of linear combinations, if it is one."""
    if isinstance(node, exp.Mul):
        if isinstance(left, Linear) and isinstance(right, Linear):
            return None
        return left * right if isinstance(right, Fraction) else right * left  # type: ignore[operator]
    if isinstance(node, exp.Div):
        if isinstance(right, Linear) or not right:
            return None
        whole = isinstance(left, Linear) and left.counts and right.denominator == 1
        if whole or isinstance(left, Fraction):
            return None  # PostgreSQL divides whole numbers without remainder: not linear
        return left * (1 / right)
    right = right * Fraction(-1) if isinstance(node, exp.Sub) else right
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return left + right
    zero = point.count() * Fraction(0)
    one, two = (
        replace(zero, shift=part, counts=part.denominator == 1)
        if isinstance(part, Fraction)
        else part
        for part in (left, right)
    )
    return one + two


def shadow(point: Point, number: int) -> str:
    """Return the text of the id of a number: release, number and row in one integer."""
    return f"(CAST({int(point.name[1:]) * 2**52 + number * 2**32} AS BIGINT) + {point.name}.i)"


def columns(outputs: Sequence[Output]) -> tuple[Column, ...]:
    """Return the columns of a result."""
    return tuple(Column(output.name, output.typed.type) for output in outputs)


def wanted(node: exp.Expr, hint: Request | None) -> Request | None:
    """Return the utility that a statement asks for."""
    clause = node.args.get("utility")
    if not isinstance(clause, Utility):
        return hint
    item = clause.expressions[0]
    return request(
        _number(item.this),
        _number(item.expression),
        bool(item.args.get("percent")),
        position=item.meta.get("start", -1) + 1 or None,
    )


def _number(node: exp.Expr) -> Fraction:
    if isinstance(node, exp.Neg):
        return -_number(node.this)
    if isinstance(node, exp.Paren):
        return _number(node.this)
    if isinstance(node, exp.Literal) and not node.is_string:
        return Fraction(node.name)
    raise TypeMismatchError(
        "a utility takes plain numbers: WITH UTILITY (50, 0.05)", position=position(node)
    )


__all__ = ["Binder", "Bound", "columns", "types", "wanted"]
