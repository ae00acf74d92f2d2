"""The statement to releases and the SQL around them: FROM, WITH, UNION; ``select`` does SELECT.

Everything inside an aggregation over the protected dataset becomes numbers of a release point;
everything outside of it becomes DuckDB text over the relations r0, r1, ... of those numbers.
Invariant: DuckDB sees generated names only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from sqlglot import exp

from proxy.domain import Attribute, Value
from proxy.errors import (
    NotSupportedError,
    StatementTooComplexError,
    UndefinedColumnError,
    UndefinedTableError,
)
from proxy.policy import Policy
from proxy.sql import privacy_schema, types
from proxy.sql.bind.names import Names
from proxy.sql.bind.relations import (
    Bound,
    Context,
    Cte,
    Env,
    Output,
    Protected,
    Relation,
    columns_of,
    renamed,
)
from proxy.sql.bind.render import modified
from proxy.sql.bind.select import WORDS, Select
from proxy.sql.bind.set_operations import set_operation, values
from proxy.sql.bind.union_all import united
from proxy.sql.compile.coefficients import Coefficients
from proxy.sql.compile.columns import Axis, Branched, MeasureColumn, Public, pick
from proxy.sql.compile.groups import Key
from proxy.sql.compile.release_point import NUMBERS, Point
from proxy.sql.evaluator.evaluator import Evaluator
from proxy.sql.expression.typed import Typed
from proxy.sql.parse.identifiers import name_of, nearest
from proxy.sql.parse.tree import conjuncts, position, worded
from proxy.sql.parse.utility_clause import Utility, requests
from proxy.sql.parse.views import SCHEMA as TEMPORARY
from proxy.sql.program import Derived, Request

MAX_POINTS = 200


@dataclass
class Binder:
    """The binding of one statement."""

    policy: Policy
    evaluator: Evaluator
    text: str
    points: list[Point] = field(default_factory=list)
    withs: list[str] = field(default_factory=list)  # definitions that the statement needs
    systems: dict[str, str] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)
    derived: list[Derived] = field(default_factory=list)
    hide_empty: bool = False
    taint: int = 0  # how often something that is not public has been met
    count: int = 0  # of the relations that have a name
    constants: int = 0  # of the expressions of these that were tried

    @cached_property
    def coefficients(self) -> Coefficients:
        """Expressions over the policy's domain."""
        return Coefficients(self.policy.domain, self.evaluator, self.notices)

    def add(
        self, where: tuple[exp.Expr, ...], keys: Sequence[Key], grouped: bool, branches: int
    ) -> Point:
        """Return a new release point.

        Raises:
            StatementTooComplexError: there are too many.
        """
        if len(self.points) == MAX_POINTS:
            raise StatementTooComplexError(f"the statement has more than {MAX_POINTS} aggregations")
        point = Point(len(self.points), self.coefficients, where, tuple(keys), grouped, branches)
        self.points.append(point)
        self.taint += 1
        return point

    def never(self, where: Iterable[exp.Expr]) -> bool:
        """Return whether a condition among these is false whatever the rows are."""
        parts = [part for conjunct in where for part in conjuncts(conjunct)]
        fixed = [p for p in parts if not p.find(Axis, MeasureColumn, Public, Branched)]
        return any(not self.coefficients.indicator(p, "WHERE").array.any() for p in fixed)

    def kind_of(self, node: exp.Expr) -> Typed:
        """Return a column of protected rows as one that holds nothing."""
        node = pick(node, 0)
        kind = self.coefficients.kind(node)
        kind = "text" if kind == "unknown" else kind
        return Typed(types.literal(kind, None), kind)

    def fresh(self, letter: str) -> str:
        """Return a name that is not yet used."""
        self.count += 1
        return f"{letter}{self.count}"

    # --- queries -----------------------------------------------------------------------------

    def query(self, node: exp.Expr, context: Context) -> Bound:
        """Return a bound query.

        Raises:
            NotSupportedError: it is of a form that is not known.
        """
        found = self._found(node, context, False)
        assert isinstance(found, Bound)
        return found

    def _found(self, node: exp.Expr, context: Context, rows: bool) -> Protected | Bound:
        """Return a bound query, or, where ``rows`` may be, the protected rows that it selects."""
        before = self.taint
        clause = node.args.get("utility")
        named: Mapping[str, Request] = {}
        if isinstance(clause, Utility):
            request, named = requests(clause)
            context = replace(context, wanted=request or context.wanted)
        if node.args.get("with_"):
            context = replace(context, env=self._with(node.args["with_"], context))
        if isinstance(node, exp.Subquery):
            tail = any(node.args.get(arg) for arg in ("order", "limit", "offset"))
            found = self._found(node.this, context, rows and not tail)
            if isinstance(found, Protected):
                return found
            bound = modified(found, node) if tail else found
        elif isinstance(node, exp.Select):
            select = Select(self, node, context)
            if rows and select.shows_rows:
                return select.rows()
            bound = select.bind()
        elif isinstance(node, exp.SetOperation):
            sides = [self._found(side, context, rows) for side in (node.this, node.expression)]
            bounds = [side for side in sides if isinstance(side, Bound)]
            if len(bounds) < len(sides):
                return united(self, sides, node)
            bound = modified(set_operation(node, bounds), node)
        elif isinstance(node, exp.Values):
            bound = values(self, node, context)
        else:
            raise NotSupportedError(
                f"{node.key.upper()} is not supported here", position=position(node)
            )
        for name, request in named.items():
            self._request(bound, name, request, clause)
        return replace(bound, public=self.taint == before)

    def _request(self, bound: Bound, name: str, request: Request, clause: exp.Expr | None) -> None:
        """Give the numbers of a named output their own request."""
        found = [output for output in bound.outputs if output.name == name]
        if not found:
            raise UndefinedColumnError(
                f'WITH UTILITY names the column "{name}", which is not in the select list',
                hint=nearest(name, [output.name for output in bound.outputs]),
                position=position(clause),
            )
        for number in {number for output in found for number in output.typed.numbers}:
            numbers = self.points[number // NUMBERS].numbers
            numbers[number % NUMBERS] = replace(numbers[number % NUMBERS], utility=request)

    def _with(self, node: exp.Expr, context: Context) -> Env:
        if node.args.get("recursive"):
            raise NotSupportedError("WITH RECURSIVE is not supported", position=position(node))
        env = dict(context.env)
        for item in node.expressions:
            alias = item.args["alias"]
            names = [name_of(column) for column in alias.args.get("columns") or ()]
            env[name_of(alias.this)] = Cte(item.this, names, dict(env))
        return env

    # --- what FROM names ---------------------------------------------------------------------

    def source(self, node: exp.Expr, context: Context) -> tuple[str, Protected | Relation]:
        """Return the name and the meaning of an item of FROM."""
        allowed = {"this", "alias", "db", "catalog", "expressions"}
        extra = [arg for arg, value in node.args.items() if value and arg not in allowed]
        if extra and isinstance(node, exp.Table | exp.Subquery) and "with_" not in extra:
            raise NotSupportedError(
                f"{WORDS.get(extra[0], extra[0].strip('_').upper())} is not supported in FROM",
                position=position(node),
            )
        alias = node.args.get("alias")
        names = [name_of(column) for column in alias.args.get("columns") or ()] if alias else []
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            name = name_of(alias.this) if alias and alias.this else name_of(node.this)
            found = self._table(node, context)
        elif isinstance(node, exp.Subquery | exp.Values):
            name = name_of(alias.this) if alias and alias.this else f"unnamed_{self.count}"
            inner = node.this if isinstance(node, exp.Subquery) else node
            found = self._inner(inner, context)
        else:
            raise NotSupportedError(
                f"FROM takes tables and subqueries, not {worded(node)[:60]}",
                position=position(node),
            )
        return name, renamed(found, names, node) if names else found

    def _inner(self, node: exp.Expr, context: Context) -> Protected | Relation:
        """Return what a subquery of FROM is: rows of the dataset, or a result."""
        found = self._found(node, context, True)
        return found if isinstance(found, Protected) else self.relation(found)

    def relation(self, bound: Bound) -> Relation:
        """Return a result as an item of FROM."""
        name = self.fresh("t")
        return Relation(f"({bound.sql}) AS {name}", columns_of(name, bound.outputs), bound.public)

    def _table(self, node: exp.Expr, context: Context) -> Protected | Relation:
        name, schema = name_of(node.this), node.args.get("db")
        if (schema is None or name_of(schema) == TEMPORARY) and name in context.env:
            return self._cte(context.env[name], context)
        if schema is not None and name_of(schema) == "privacy":
            return self._system(name, node)
        if schema is None or name_of(schema) == "public":
            if name == self.policy.dataset:
                return self._dataset()
            if name in self.policy.public:
                return self._public(name)
        shown = f"{name_of(schema)}.{name}" if schema is not None else name
        raise UndefinedTableError(
            f'relation "{shown}" does not exist',
            hint=nearest(name, [self.policy.dataset, *self.policy.public, *context.env]),
            position=position(node),
        )

    def _cte(self, cte: Cte, context: Context) -> Protected | Relation:
        if cte.relation is None:
            wanted = cte.wanted or context.wanted
            inner = replace(context, env=cte.env, wanted=wanted, outer=None)
            found = self._inner(cte.node, inner)
            if isinstance(found, Protected):
                return renamed(found, cte.columns, cte.node) if cte.columns else found
            name = self.fresh("w")
            shadows = [typed.shadow for _, typed in found.columns]
            picked = [f"{typed.sql} AS c{i}" for i, (_, typed) in enumerate(found.columns)]
            picked += [f"{shadow} AS s{i}" for i, shadow in enumerate(shadows) if shadow]
            self.withs.append(f"{name} AS (SELECT {', '.join(picked)} FROM {found.text})")
            cte.relation = Relation(name, found.columns, found.public)
        self.taint += not cte.relation.public
        name = self.fresh("t")
        outputs = [Output(column, typed) for column, typed in cte.relation.columns]
        relation = Relation(
            f"{cte.relation.text} AS {name}", columns_of(name, outputs), cte.relation.public
        )
        return renamed(relation, cte.columns, cte.node) if cte.columns else relation

    def _dataset(self) -> Protected:
        domain = self.policy.domain
        columns: list[tuple[str, exp.Expr]] = []
        for index, attribute in enumerate(domain.attributes):
            columns.append((attribute.name, Axis(this=index)))
            for level, labels in (attribute.levels or {}).items():
                columns.append((level, _level(index, attribute, labels)))
        columns += [(m.name, MeasureColumn(this=i)) for i, m in enumerate(domain.measures)]
        return Protected(Names({"": columns}))

    def _public(self, name: str) -> Relation:
        table, columns = self.evaluator.public(name, self.policy.public[name].path)
        alias = self.fresh("t")
        found = tuple(
            (column, Typed(f"{alias}.c{i}", kind, width=width))
            for i, (column, kind, width) in enumerate(columns)
        )
        return Relation(f"{table} AS {alias}", found, public=True)

    def _system(self, name: str, node: exp.Expr) -> Relation:
        if name not in privacy_schema.TABLES:
            raise UndefinedTableError(
                f'relation "privacy.{name}" does not exist',
                hint=nearest(name, privacy_schema.TABLES),
                position=position(node),
            )
        self.systems[name] = privacy_schema.relation(name)
        alias = self.fresh("t")
        found = tuple(
            (column, Typed(f"{alias}.c{i}", kind))
            for i, (column, kind) in enumerate(privacy_schema.TABLES[name])
        )
        self.taint += 1
        return Relation(f"sys_{name} AS {alias}", found)


def _level(index: int, attribute: Attribute, labels: Mapping[str, tuple[Value, ...]]) -> exp.Expr:
    """Return a coarser column of an axis: CASE WHEN axis IN (members) THEN label ... END."""
    case = exp.Case()
    for label, members in labels.items():
        listed = [exp.convert(member) for member in members]
        case = case.when(exp.In(this=Axis(this=index), expressions=listed), exp.convert(label))
    return case
