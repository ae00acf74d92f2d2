"""Aggregates that are not linear, derived from the noisy counts of each value.

MIN, MAX, COUNT(DISTINCT), BOOL_AND, BOOL_OR, MODE, medians, percentiles and variances of an
expression of exact axes come from one more release: the counts by that expression.  The first five
look only at values that are present, P(count ≥ 1) being at least the confidence asked for.
Here is the SQL; their intervals are the mathematics of ``inference.derived``, which
``engine.functions.derived`` applies to a result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace
from sqlglot import exp

from proxy.domain import Attribute
from proxy.errors import NotSupportedError
from proxy.sql import types
from proxy.sql.bind.binding import Binding
from proxy.sql.bind.protected_rows import ColumnResolver
from proxy.sql.compile.columns import Axis
from proxy.sql.compile.groups import Key
from proxy.sql.compile.moments import has_measure
from proxy.sql.compile.release_point import ReleasePoint
from proxy.sql.expression import forms
from proxy.sql.expression.aggregates import SPREADS, fraction, only_argument, sole
from proxy.sql.expression.guards import numeric
from proxy.sql.expression.typed import HIDDEN, TypedSql, coerce
from proxy.sql.parse.identifiers import name_of
from proxy.sql.parse.tree import as_sql, position
from proxy.sql.program import Companion, Derived, Quantile, Request
from proxy.sql.provenance import DERIVED, pack

DOUBLE = "double precision"
BINNED = ("integer", "decimal")  # types of bins that are numbers


class Marginal(Struct, frozen=True):
    """The relation of the counts of each value ``v``, by group, and their number."""

    name: str
    kind: str  # the type of v
    number: tuple[int, int]  # its release point, and its index there
    scale: int | None = None  # of v
    quantile: Quantile | None = None  # that it is of


class Marginals(Struct, frozen=True):
    """The counts by value beside one aggregation, each defined on first use."""

    binding: Binding
    resolver: ColumnResolver
    points: Sequence[ReleasePoint]  # of the aggregation, one for each grouping set
    keys: Sequence[Key]
    relation: str
    request: Request | None
    marginals: dict[tuple[str, ...], Marginal] = {}

    def aggregate(self, node: exp.Expr, call: exp.Expr, conditions: list[exp.Expr]) -> TypedSql:
        """Return an aggregate of the values of an expression; ``call`` is the node without FILTER.

        Raises:
            NotSupportedError: it cannot be computed from counts.
        """
        shown = as_sql(node)
        rule = _rule(call)
        if rule is None:
            raise _refused(node)
        resolved = self._argument(node, call)
        if len(self.points) > 1:
            raise NotSupportedError(
                f"{shown} is not known with several grouping sets",
                position=position(node),
            )
        lower = self.binding.coefficients.lower
        typed = lower(resolved)
        typed = coerce(typed, "text") if typed.type == "unknown" else typed
        edges, whole = self._bins(resolved)
        # one of texts or dates has no half-width: it is asked for by the counts of the values
        quantile = self._quantile(call, edges) if typed.type in types.NUMBERS else None
        key = (typed.sql, str(quantile), *(lower(condition).sql for condition in conditions))
        if key not in self.marginals:
            self.marginals[key] = self._marginal(
                node, Key("value", resolved, typed, shown), conditions, quantile
            )
        marginal = self.marginals[key]
        text, kind, aggregate, *detail = rule(marginal)
        same = [f"q.g{i} IS NOT DISTINCT FROM {self.relation}.g{i}" for i in range(len(self.keys))]
        where = f" WHERE {' AND '.join(same)}" if same else ""
        attributes = self.binding.policy.domain.attributes
        binned = [attributes[axis] for axis in typed.axes if attributes[axis].edges]
        known = (edges and aggregate != "mode") or not binned  # else the values may be any
        exact = aggregate and known and (marginal.kind in types.NUMBERS or aggregate == "distinct")
        counts, number = marginal.number
        part = detail[0] if detail else ""
        discrete = quantile is not None and quantile.discrete
        derived = Derived(
            shown, self.relation, f"r{counts}", number, aggregate, part, discrete, edges, whole
        )
        self._announce_bins(shown, aggregate, binned)
        provenance = self._provenance(derived) if exact else None
        return TypedSql(
            f"(SELECT {text} FROM {marginal.name} AS q{where})",
            kind,
            numbers=frozenset([marginal.number]),
            provenance=provenance,
            scale=types.QUOTIENT if type(call) in SPREADS else marginal.scale,
            chance=HIDDEN,
            form=forms.number(provenance) if provenance else None,
        )

    def _bins(self, resolved: exp.Expr) -> tuple[tuple[float, ...], bool]:
        """Return the edges of a column of bins that are numbers, and whether its values are whole;
        no edges of anything else.
        """
        if isinstance(resolved, Axis):
            (axis,) = self.binding.coefficients.lower(resolved).axes
            attribute = self.binding.policy.domain.attributes[axis]
            if attribute.edges and attribute.type in BINNED:
                edges = tuple(float(str(each)) for each in attribute.edges)
                return edges, attribute.type == "integer"
        return (), False

    def _quantile(self, call: exp.Expr, edges: tuple[float, ...]) -> Quantile | None:
        """Return the quantile that a call is, if it is one."""
        argument = call.this if isinstance(call, exp.Median) else None
        part, discrete = "0.5", False
        if isinstance(call, exp.WithinGroup) and isinstance(
            call.this, exp.PercentileCont | exp.PercentileDisc
        ):
            argument, part = sole(call).this, fraction(call.this.this)
            discrete = isinstance(call.this, exp.PercentileDisc)
        if not isinstance(argument, exp.Expr):
            return None
        column = name_of(argument.this) if isinstance(argument, exp.Column) else ""
        return Quantile(part, discrete, column, edges)

    def _announce_bins(self, shown: str, aggregate: str, binned: Sequence[Attribute]) -> None:
        """Add the notice of what it costs that values within a bin are not known."""
        for attribute in binned if aggregate else ():
            if attribute.type not in BINNED:
                continue
            edges = [float(str(edge)) for edge in attribute.edges or ()]
            widest = max(high - low for low, high in pairwise(edges))
            what = {
                "spread": "is of the lower edges of the bins: what values differ by within a bin, "
                "up to its width, is not in it",
                "percentile": "is as if the values lay evenly within each bin, and no nearer than "
                "its bin",
                "min": "is the lower edge of its bin: the value may be any within it",
                "max": "is the lower edge of its bin: the value may be any within it",
                "distinct": "counts bins: how many values lie within one is not known",
                "mode": "is the lower edge of the bin of most records: the most frequent value may "
                "lie in another",
            }[aggregate]
            self.binding.notices.append(
                f"{shown} {what} (the widest of {attribute.name} is {widest:g})"
            )

    def _argument(self, node: exp.Expr, call: exp.Expr) -> exp.Expr:
        """Return the expression whose values are aggregated, resolved to axes."""
        argument = sole(call).this if isinstance(call, exp.WithinGroup) else only_argument(call)
        if isinstance(argument, exp.Distinct) and len(argument.expressions) == 1:
            argument = argument.expressions[0]
        if not isinstance(argument, exp.Expr):
            raise _refused(node)
        resolved = self.resolver.resolve(argument)
        if has_measure(resolved):
            raise NotSupportedError(
                f"{as_sql(node)} needs single values of a measure, and the cube has only its sums",
                hint="SUM, AVG and COUNT of a measure are answered; declare it as an attribute "
                "with edges to see how it is distributed",
                position=position(node),
            )
        return resolved

    def _provenance(self, derived: Derived) -> str:
        """Return the provenance of a derived aggregate."""
        listed = self.binding.derived
        if derived not in listed:
            listed.append(derived)
        return pack(DERIVED, listed.index(derived), self.relation)

    def _marginal(
        self, node: exp.Expr, value: Key, conditions: list[exp.Expr], quantile: Quantile | None
    ) -> Marginal:
        """Return the counts by value and group, as one more release point."""
        base = self.points[0]
        point = self.binding.add(
            (*base.where, *conditions), (*base.keys, value), True, base.branches
        )
        label = as_sql(node) if quantile else f"COUNT(*) by {as_sql(node)}"
        number = point.add(point.count(), node, self.request, label)
        companion = point.companion(number, Companion("present"))
        point.numbers[number] = replace(point.numbers[number], quantile=quantile)
        width = len(base.keys)
        groups = [f"g{i}" for i in range(width)]
        by = f"PARTITION BY {', '.join(groups)}" if groups else ""
        counted = f"CASE WHEN n{number}x{companion} AND n{number} > 0 THEN n{number} ELSE 0 END"
        if quantile is not None:  # of sums, which noise moves less than what may be there
            counted = f"n{number}"
        columns = [*groups, f"g{width} AS v", f"n{number} AS n", f"n{number}x{companion} AS p"]
        inner = (
            f"SELECT {', '.join(columns)}, {counted} AS w FROM {point.name} "
            f"WHERE g{width} IS NOT NULL"
        )
        name = self.binding.fresh("m")
        self.binding.withs.append(
            f"{name} AS (SELECT *, sum(w) OVER ({by} ORDER BY v) AS cum, "
            f"sum(w) OVER ({by}) AS tot, max(w) OVER ({by}) AS top FROM ({inner}))"
        )
        return Marginal(name, value.typed.type, (point.index, number), value.typed.scale, quantile)


Rule = Callable[[Marginal], tuple[str, ...]]


def _rule(node: exp.Expr) -> Rule | None:
    """Return how an aggregate is computed from a marginal q: text, type, kind, and detail."""
    if isinstance(node, exp.Count) and isinstance(node.this, exp.Distinct):
        return lambda _: ("count(*) FILTER (WHERE q.p)", "bigint", "distinct")
    if isinstance(node, exp.Min | exp.Max):
        name = "min" if isinstance(node, exp.Min) else "max"
        return lambda m: (f"{name}(q.v) FILTER (WHERE q.p)", m.kind, name)
    if isinstance(node, exp.LogicalOr | exp.LogicalAnd):
        name = "bool_or" if isinstance(node, exp.LogicalOr) else "bool_and"
        return lambda m: _logical(m, name)
    if isinstance(node, exp.Median):
        return lambda m: _percentile(m, "0.5")
    if type(node) in SPREADS:
        return lambda m: _spread(m, SPREADS[type(node)])
    if isinstance(node, exp.WithinGroup):
        inner = node.this
        if sole(node).args.get("desc"):
            return None
        if isinstance(inner, exp.Mode):
            return lambda m: ("min(q.v) FILTER (WHERE q.w = q.top AND q.top > 0)", m.kind, "mode")
        if isinstance(inner, exp.PercentileCont):
            part = fraction(inner.this)
            return lambda m: _percentile(m, part)
        if isinstance(inner, exp.PercentileDisc):
            part = fraction(inner.this)
            return lambda m: (
                _in_bins(m) or f"min(q.v) FILTER (WHERE q.cum >= {part} * q.tot)",
                m.kind,
                "percentile",
                part,
            )
    return None


def _in_bins(marginal: Marginal) -> str:
    """Return a quantile of bins, as if the values lay evenly within each; else nothing."""
    quantile = marginal.quantile
    if quantile is None or not quantile.edges:
        return ""
    highs = " ".join(f"WHEN {low!r} THEN {high!r}" for low, high in pairwise(quantile.edges))
    low, place = "CAST(q.v AS DOUBLE)", f"{quantile.part} * q.tot"
    share = (
        f"CASE WHEN q.w > 0 THEN least(greatest(({place} - (q.cum - q.w)) / q.w, 0), 1) ELSE 0 END"
    )
    text = f"{low} + (CASE {low} {highs} END - {low}) * {share}"
    text = f"min({text}) FILTER (WHERE q.cum >= {place})"
    if quantile.discrete and marginal.kind in types.INTEGERS:
        text = f"CAST(floor({text}) AS {types.DUCKDB[marginal.kind]})"
    return text


def _logical(marginal: Marginal, name: str) -> tuple[str, ...]:
    if marginal.kind != "boolean":
        raise NotSupportedError(f"{name} takes a condition, not type {marginal.kind}")
    return f"{name}(q.v) FILTER (WHERE q.p)", "boolean", ""


def _numeric(marginal: Marginal, name: str) -> None:
    if marginal.kind not in types.NUMBERS:
        raise NotSupportedError(f"{name} takes a number, not type {marginal.kind}")


def _percentile(marginal: Marginal, part: str) -> tuple[str, ...]:
    """Return a percentile between the two values around its place."""
    _numeric(marginal, "a percentile")
    place = f"({part} * (q.tot - 1))"
    if text := _in_bins(marginal):
        return text, DOUBLE, "percentile", part
    low, high = (
        f"CAST(min(q.v) FILTER (WHERE q.cum > {f}({place})) AS DOUBLE)" for f in ("floor", "ceil")
    )
    at = f"max({place} - floor({place}))"
    return f"{low} + ({high} - {low}) * {at}", DOUBLE, "percentile", part


def _spread(marginal: Marginal, name: str) -> tuple[str, ...]:
    """Return a variance or standard deviation, NULL where there are too few records."""
    _numeric(marginal, name)
    value = "CAST(q.v AS DOUBLE)"
    n, one, two = "sum(q.n)", f"sum(q.n * {value})", f"sum(q.n * {value} * {value})"
    below = f"({n} - 1)" if name.endswith("samp") else n
    text = f"greatest({two} - {one} * {one} / {n}, 0) / {below}"
    text = f"sqrt({text})" if name.startswith("stddev") else text
    text = f"CASE WHEN {below} > 0 THEN {text} END"
    kind = types.of_mean(marginal.kind)
    return (numeric(text).sql if kind == "numeric" else text), kind, "spread", name


def _refused(node: exp.Expr) -> NotSupportedError:
    order = node.expression if isinstance(node, exp.WithinGroup) else None
    falls = order is not None and any(item.args.get("desc") for item in order.expressions)
    descending = ": it is with ORDER BY ... ASC" if falls else ""
    return NotSupportedError(
        f"{as_sql(node)} is not a function of counts and sums that is known{descending}",
        hint="COUNT, SUM and AVG are answered with an interval; COUNT(DISTINCT), MIN, MAX, "
        "BOOL_AND, BOOL_OR, MEDIAN, percentiles, MODE, VARIANCE and STDDEV are derived from counts",
        position=position(node),
    )
