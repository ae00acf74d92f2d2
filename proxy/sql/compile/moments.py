"""A scalar expression of axes and measures as what it adds to the unknowns of the cube.

Σ over records of  e = a + b · m  (a, b expressions of axes, m a measure) is  Σ_cells a · (records)
+ Σ_cells b · (sum of m).  Where m is NULL so is e: then a multiplies the records in which m is
present.  An axis may be NULL too: ``guards`` are the expressions of axes whose NULL makes the whole
NULL, and there every coefficient is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct, field
from msgspec.structs import replace
from sqlglot import exp

from proxy.domain import Domain
from proxy.errors import NotSupportedError
from proxy.inference.query import COUNT, present_part, sum_part
from proxy.sql import types
from proxy.sql.compile.columns import Axis, MeasureColumn, Public
from proxy.sql.compile.domain_lowering import KnownLowering, MeasureLowering
from proxy.sql.parse.tree import find_all, has, nodes, position


class Moments(Struct, frozen=True):
    """Part of the cube -> its coefficient; ``presence``: the measure whose NULL makes it NULL."""

    parts: dict[int, exp.Expr]
    presence: int | None = None
    settled: bool = False  # made of branches with presences of their own
    measures: frozenset[int] = field(default_factory=frozenset)
    guards: tuple[exp.Expr, ...] = ()


def has_measure(node: exp.Expr) -> bool:
    """Return whether an expression reads a measure."""
    return has(node, MeasureColumn)


class _Reader:
    """One expression over a domain: what is known of its parts, worked out once for all."""

    def __init__(self, node: exp.Expr, domain: Domain, typing: KnownLowering | None = None) -> None:
        self.domain = domain
        self._node = node  # kept alive, so that no other has an id of its parts
        self._typing = typing or KnownLowering(MeasureLowering(domain))
        self._measured: set[int] = set()
        for each in reversed(nodes(node)):
            inside = any(id(child) in self._measured for child in each.iter_expressions())
            if inside or isinstance(each, MeasureColumn):
                self._measured.add(id(each))

    def measured(self, node: exp.Expr) -> bool:
        """Return whether a part reads a measure."""
        return id(node) in self._measured

    def kind(self, node: exp.Expr) -> str:
        """Return the type of a part."""
        return self._typing.lower(node).type

    def exact(self, node: exp.Expr) -> bool:
        """Return whether a number beside 0, in a CASE, would be of the type that it is of."""
        typed = self._typing.lower(node)
        decimal = typed.type == "numeric" and typed.scale is not None
        return decimal or typed.type in (*types.INTEGERS, *types.FLOATS)


def moments(node: exp.Expr, domain: Domain, typing: KnownLowering) -> Moments:
    """Return what an expression, whose parts have types by ``typing``, adds to each part.

    Raises:
        NotSupportedError: it is not linear in the measures.
    """
    reader = _Reader(node, domain, typing)
    if not reader.measured(node) and reader.exact(node):
        return Moments({COUNT: node})  # its NULL adds nothing as it stands
    return _moments(node, reader)


def _moments(node: exp.Expr, reader: _Reader) -> Moments:
    domain = reader.domain
    if not reader.measured(node):
        return Moments({COUNT: node}, guards=_guards(domain, node))
    rule = RULES.get(type(node))
    terms = rule(node, reader) if rule else None
    if terms is None:
        name = domain.measures[_first(node)].name
        raise NotSupportedError(
            f"this is not a linear function of the measure {name} that the cube can add up",
            hint=f"a measure may be multiplied by an expression of attributes, as in SUM({name} * "
            "CASE WHEN ... THEN 1 ELSE 0 END), and chosen by CASE; add sums instead of summing "
            "sums of measures that may be NULL: SUM(a) + SUM(b)",
            position=position(node),
        )
    return terms


def settle(terms: Moments) -> dict[int, exp.Expr]:
    """Return the coefficients with those of records moved to where the measure is present."""
    parts = terms.parts
    if terms.presence is not None and COUNT in parts:
        rest = {part: node for part, node in parts.items() if part != COUNT}
        part, here = present_part(terms.presence), parts[COUNT]
        parts = rest | {part: _sum(rest[part], here) if part in rest else here}
    if not terms.guards:
        return parts
    nothing = exp.or_(*(_is_null(guard) for guard in terms.guards))
    zero = exp.Literal.number(0)  # of a sum, NULL is nothing
    return {part: _case_of([(nothing, zero)], node) for part, node in parts.items()}


def _case_of(branches: Iterable[tuple[exp.Expr, exp.Expr]], last: exp.Expr) -> exp.Case:
    """Return CASE of copies of conditions and values."""
    ifs = [exp.If(this=when.copy(), true=then.copy()) for when, then in branches]
    return exp.Case(ifs=ifs, default=last.copy())


def present(node: exp.Expr, domain: Domain) -> dict[int, exp.Expr]:
    """Return what COUNT(expression) adds to each part: conditions."""
    return _present(node, _Reader(node, domain))


def _present(node: exp.Expr, reader: _Reader) -> dict[int, exp.Expr]:
    inner = _bare(node)
    if isinstance(inner, exp.Case) and reader.measured(node):
        return _branches(inner, reader, lambda n: _as_numbers(_present(n, reader)))
    terms = _moments(node, reader)
    if isinstance(inner, exp.Coalesce) and not _may_be_null(inner.expressions[0], reader.domain):
        return {COUNT: exp.true()}
    if terms.settled:
        raise NotSupportedError(
            "COUNT, and so AVG, of this expression of a measure is not known: in which records it "
            "is NULL is not in the cube",
            hint="divide the sum by the records that are meant: SUM(x) / COUNT(*), or "
            "SUM(x) / COUNT(*) FILTER (WHERE ...)",
            position=position(node),
        )
    part = COUNT if terms.presence is None else present_part(terms.presence)
    guards = [*terms.guards, *terms.parts.values()]
    return {part: exp.and_(*(exp.Not(this=_is_null(guard)) for guard in guards))}


def _as_numbers(parts: dict[int, exp.Expr]) -> dict[int, exp.Expr]:
    return {
        part: _case_of([(node, exp.Literal.number(1))], exp.Literal.number(0))
        if not isinstance(node, exp.Case)
        else node
        for part, node in parts.items()
    }


def _is_null(node: exp.Expr) -> exp.Expr:
    return exp.Is(this=_paren(node), expression=exp.Null())


def _may_be_null(node: exp.Expr, domain: Domain) -> bool:
    """Return whether an expression of axes has no value for some cell."""
    parts = nodes(node)
    if any(isinstance(part, exp.Case | exp.Nullif | exp.Null | Public) for part in parts):
        return True
    axes = {int(part.this) for part in parts if isinstance(part, Axis)}
    return any(domain.attributes[axis].null for axis in axes)


def _guards(domain: Domain, *nodes: exp.Expr) -> tuple[exp.Expr, ...]:
    return tuple(node for node in nodes if _may_be_null(node, domain))


def _first(node: exp.Expr) -> int:
    column = node.find(MeasureColumn)
    return int(column.this) if column else 0


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _paren(node: exp.Expr) -> exp.Expr:
    """Return a copy in brackets; of what was made here, and is in nothing yet, the node itself."""
    made = node._meta is not None and node._meta.pop(MADE, False)
    return exp.Paren(this=node if made else node.copy())


def _made(node: exp.Expr) -> exp.Expr:
    """Return a node of parts of its own: a chain of sums would be copied at each of its links."""
    node.meta[MADE] = True
    return node


MADE = "made"


def _sum(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    return _made(exp.Add(this=_paren(left), expression=_paren(right)))


def _measure(node: exp.Expr, reader: _Reader) -> Moments:
    index = int(node.this)
    presence = index if reader.domain.measures[index].nullable else None
    parts: dict[int, exp.Expr] = {sum_part(index): exp.Literal.number(1)}
    return Moments(parts, presence, measures=frozenset([index]))


def _inner(node: exp.Expr, reader: _Reader) -> Moments:
    return _moments(node.this, reader)


def _each(terms: Moments, change: Callable[[exp.Expr], exp.Expr], *guards: exp.Expr) -> Moments:
    parts = {part: change(node) for part, node in terms.parts.items()}
    return replace(terms, parts=parts, guards=(*terms.guards, *guards))


def _cast(node: exp.Expr, reader: _Reader) -> Moments | None:
    target = node.args["to"]
    if target.expressions or not target.is_type("double", "float", "decimal"):
        kinds = types.INTEGERS
        before, after = reader.kind(node.this), reader.kind(node)
        if target.expressions or before not in kinds or after not in kinds[kinds.index(before) :]:
            return None  # it rounds, or may be out of range
    return _moments(node.this, reader)


def _negative(node: exp.Expr, reader: _Reader) -> Moments:
    return _each(_moments(node.this, reader), lambda n: _made(exp.Neg(this=_paren(n))))


def _product(node: exp.Expr, reader: _Reader) -> Moments | None:
    left, right = node.this, node.expression
    if isinstance(node, exp.Div):
        if reader.measured(right):
            return None
        if reader.kind(node) in types.INTEGERS:
            raise NotSupportedError(
                "whole numbers are divided without remainder, which a sum of them cannot tell",
                hint="divide the sum, SUM(a) / 2, or by a number with decimals, SUM(a / 2.0)",
                position=position(node),
            )
        divisor = exp.Cast(this=_paren(right), to=exp.DataType.build("double"))
        return _each(
            _moments(left, reader),
            lambda n: _made(exp.Div(this=_paren(n), expression=divisor.copy())),
            *_guards(reader.domain, right),
        )
    if reader.measured(left) and reader.measured(right):
        return None
    one, factor = (left, right) if reader.measured(left) else (right, left)
    return _each(
        _moments(one, reader),
        lambda n: _made(exp.Mul(this=_paren(n), expression=_paren(factor))),
        *_guards(reader.domain, factor),
    )


def _addition(node: exp.Expr, reader: _Reader) -> Moments | None:
    left, right = _moments(node.this, reader), _moments(node.expression, reader)
    if isinstance(node, exp.Sub):
        right = _each(right, lambda n: _made(exp.Neg(this=_paren(n))))
    kinds = {p for p in (left.presence, right.presence) if p is not None}
    measures = left.measures | right.measures
    if (kinds and len(measures) > 1) or left.settled or right.settled:
        return None  # NULL where either is: the cube does not know in which records both are there
    parts = dict(left.parts)
    for part, node in right.parts.items():
        parts[part] = _sum(parts[part], node) if part in parts else node
    guards = (*left.guards, *right.guards)
    return Moments(parts, next(iter(kinds), None), measures=measures, guards=guards)


def _branches(
    node: exp.Expr, reader: _Reader, parts_of: Callable[[exp.Expr], dict[int, exp.Expr]]
) -> dict[int, exp.Expr]:
    """Return CASE of coefficients, part by part."""
    conditions = [branch.this for branch in node.args["ifs"]]
    if node.this is not None:
        conditions = [exp.EQ(this=node.this.copy(), expression=c.copy()) for c in conditions]
    if any(reader.measured(condition) for condition in conditions):
        raise NotSupportedError(
            "a measure cannot be compared: its single values are not in the cube",
            position=position(node),
        )
    values = [parts_of(branch.args["true"]) for branch in node.args["ifs"]]
    last = parts_of(node.args.get("default") or exp.Null())
    parts: dict[int, exp.Expr] = {}
    for part in {part for by_part in (*values, last) for part in by_part}:
        amounts = [by_part.get(part, exp.Literal.number(0)) for by_part in values]
        branches = zip(conditions, amounts, strict=True)
        parts[part] = _case_of(branches, last.get(part, exp.Literal.number(0)))
    return parts


def _case(node: exp.Expr, reader: _Reader) -> Moments:
    # every branch is settled by itself: it may be NULL for a measure of its own
    measures = frozenset(int(column.this) for column in find_all(node, MeasureColumn))
    nullable = any(reader.domain.measures[index].nullable for index in measures)
    nothing: dict[int, exp.Expr] = {}
    parts = _branches(
        node,
        reader,
        lambda n: nothing if isinstance(_bare(n), exp.Null) else settle(_moments(n, reader)),
    )
    return Moments(parts, None, settled=nullable or len(parts) > 1, measures=measures)


def _coalesce(node: exp.Expr, reader: _Reader) -> Moments | None:
    if len(node.expressions) != 1 or reader.measured(node.expressions[0]):
        return None
    column, other = _bare(node.this), node.expressions[0]
    if not isinstance(column, MeasureColumn):
        return None
    terms = _measure(column, reader)
    if terms.presence is None:
        return terms
    missing = exp.Neg(this=_paren(other))
    parts = terms.parts | {COUNT: other, present_part(terms.presence): missing}
    return Moments(parts, None, settled=True, measures=terms.measures)  # other NULL: adds nothing


RULES: dict[type[exp.Expr], Callable[[exp.Expr, _Reader], Moments | None]] = {
    MeasureColumn: _measure,
    exp.Paren: _inner,
    exp.Cast: _cast,
    exp.Neg: _negative,
    exp.Mul: _product,
    exp.Div: _product,
    exp.Add: _addition,
    exp.Sub: _addition,
    exp.Case: _case,
    exp.Coalesce: _coalesce,
}
