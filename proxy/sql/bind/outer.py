"""Expressions after aggregation: subqueries of results, and windows."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace
from sqlglot import exp

from proxy.errors import NotSupportedError, ProgrammingError
from proxy.sql import types
from proxy.sql.bind import declared_rows
from proxy.sql.bind.binding import Binding
from proxy.sql.bind.names import Names
from proxy.sql.bind.relations import BoundQuery, Scope, several_columns
from proxy.sql.expression import forms
from proxy.sql.expression.aggregates import (
    CALL,
    COLUMN,
    QUERY,
    WINDOW,
    WINDOWS,
    Contents,
    aggregate,
    coerce_result,
)
from proxy.sql.expression.aggregates import ordered as direction
from proxy.sql.expression.faces import twofold
from proxy.sql.expression.intervals import constant
from proxy.sql.expression.lowering import compared, signed
from proxy.sql.expression.rules import ExpressionLowering
from proxy.sql.expression.typed import Form, TypedSql, coerce, combine, hidden
from proxy.sql.parse.identifiers import name_of
from proxy.sql.parse.tree import position

CONSTANTS = 64  # expressions of a statement that are evaluated beforehand


class PostAggregate(ExpressionLowering):
    """The translation of expressions after aggregation, for subqueries of results and windows."""

    def __init__(self, binding: Binding, scope: Scope, windows: Sequence[exp.Expr] = ()) -> None:
        self.binding = binding
        self.scope = scope
        self.contents = Contents()
        self.windows = {name_of(window.this): window for window in windows}

    def visible(self) -> Names[TypedSql] | None:
        """Return the columns that a subquery sees from here."""
        return None

    def beyond(self) -> Names[exp.Expr] | None:
        """Return the columns that are here and that no subquery sees."""
        return None

    def special_case(self, node: exp.Expr) -> TypedSql | None:
        """Return the translation of a subquery or a window."""
        if isinstance(node, exp.Subquery):
            return self._scalar(node)
        if isinstance(node, exp.Exists):
            bound = self._subquery(node.this)
            declared_rows.tell(self.binding, bound.declared)
            text = f"(EXISTS ({bound.sql}))"
            return hidden(combine(text, "boolean", *(o.typed for o in bound.outputs)))
        if isinstance(node, exp.In) and node.args.get("query"):
            return self._member(node)
        if isinstance(node, exp.Window):
            return self._window(node)
        return self.constant(node)

    def constant(self, node: exp.Expr) -> TypedSql | None:
        """Return a constant expression, evaluated now: if it fails, it fails before any charge.

        Raises:
            DataError: it has no value.
        """
        if not isinstance(node, exp.Cast | exp.Binary | exp.Neg | exp.Func) or signed(node):
            return None
        if self.contents.has(node, COLUMN | QUERY | WINDOW | CALL):
            return None
        self.binding.constants += 1
        if self.binding.constants > CONSTANTS:
            return None
        coefficients = self.binding.coefficients
        typed = coefficients.lower(node)
        if not typed.axes:
            coefficients.evaluator.value(typed.sql)
        return typed

    def _subquery(self, node: exp.Expr) -> BoundQuery:
        beyond = self.beyond() or self.scope.beyond
        return self.binding.query(node, replace(self.scope, outer=self.visible(), beyond=beyond))

    def _one_column(
        self, node: exp.Expr, call: exp.Expr | None = None
    ) -> tuple[BoundQuery, TypedSql]:
        bound = self._subquery(node)
        if len(bound.outputs) != 1:
            raise several_columns(call or node)
        return bound, bound.outputs[0].typed

    def _scalar(self, node: exp.Expr) -> TypedSql:
        bound, typed = self._one_column(node)
        provenance = f"(SELECT s0 FROM ({bound.sql}))" if typed.provenance else None
        column = twofold("c0", "d0") if typed.chance else "c0"
        value = combine(
            f"(SELECT {column} FROM ({bound.sql}))", typed.type, typed, scale=typed.scale
        )
        form = typed.form
        if form and len(bound.sql) > forms.LONGEST:
            form = None
        if form:
            places = range(len(form.parts))
            parts = tuple(f"(SELECT f0_{k} FROM ({bound.sql}))" for k in places)
            form = replace(form, parts=parts)
        return replace(
            value, axes=frozenset(), provenance=provenance, chance=typed.chance, form=form
        )

    def _member(self, node: exp.Expr) -> TypedSql:
        bound, typed = self._one_column(node.args["query"], node)
        column = twofold("c0", "d0") if typed.chance else "c0"
        inner = TypedSql(column, typed.type, numbers=typed.numbers, chance=typed.chance)
        left, right = compared(self.lower(node.this), inner, "=")
        text = f"({left.sql} IN (SELECT {right.sql} FROM ({bound.sql})))"
        return combine(text, "boolean", left, right)

    # --- windows -----------------------------------------------------------------------------

    def _window(self, node: exp.Expr) -> TypedSql:
        named = node.args.get("alias")
        if named is not None:
            if name_of(named) not in self.windows:
                raise ProgrammingError(
                    f'window "{name_of(named)}" does not exist', position=position(node)
                )
            spec = self.windows[name_of(named)]
        else:
            spec = node
        if named is not None and _extended(node, spec):
            raise NotSupportedError(
                "a window that adds to another is not supported",
                hint="write all of it out: OVER (PARTITION BY ... ORDER BY ...)",
                position=position(node),
            )
        function, kind, values, form = self._windowed(node.this)
        arguments = list(values)
        pieces = []
        partition = [self.lower(item) for item in spec.args.get("partition_by") or ()]
        values += partition
        if partition:
            pieces.append(f"PARTITION BY {', '.join(p.sql for p in partition)}")
        order = spec.args.get("order")
        ordered = [(self.lower(item.this), item) for item in order.expressions] if order else []
        values += [typed for typed, _ in ordered]
        if ordered:
            if _by_time(spec.args.get("spec")):
                if len(ordered) != 1 or ordered[0][0].type not in types.TIMES:
                    raise NotSupportedError(
                        "a window as long as an interval is ordered by one date or timestamp",
                        position=position(node),
                    )
                ordered = [(coerce(typed, "timestamp"), item) for typed, item in ordered]
            pieces.append(f"ORDER BY {', '.join(direction(t.sql, item) for t, item in ordered)}")
        if spec.args.get("spec"):
            pieces.append(_frame(spec.args["spec"], [typed for typed, _ in ordered]))
        scale = values[0].scale if values else None
        window = f" OVER ({' '.join(pieces)})"
        value = combine(f"({function}{window})", kind, *values, scale=scale)
        chosen = any(typed.chance for typed in values[len(arguments) :])  # rows, by numbers
        if chosen:
            return coerce_result(value, function)
        parts = [v for v in arguments if v.chance]
        if parts and (form or not isinstance(node.this, tuple(WINDOWS))):
            value = forms.smooth(value, parts, forms.over(form, window))
        return coerce_result(value, function)

    def _windowed(self, node: exp.Expr) -> tuple[str, str, list[TypedSql], Form | None]:
        """Return the call, its type, its arguments and its form."""
        if type(node) in WINDOWS:
            name, kind = WINDOWS[type(node)]
            arguments = [
                self.lower(node.args[arg])
                for arg in ("this", "offset", "default")
                if isinstance(node.args.get(arg), exp.Expr)
            ]
            if kind is None and len(arguments) > 2:
                arguments[0], arguments[2] = unify_pair(arguments[0], arguments[2], name)
            text = f"{name}({', '.join(v.sql for v in arguments)})"
            form = None
            if kind is None and arguments[0].chance:
                form = forms.neighbour(name, arguments[0], arguments[1:])
            return text, kind or arguments[0].type, arguments, form
        inner = node.this if isinstance(node, exp.Filter) else node
        if isinstance(inner.this, exp.Distinct | exp.Order):
            word = "DISTINCT" if isinstance(inner.this, exp.Distinct) else "aggregate ORDER BY"
            raise NotSupportedError(
                f"{word} is not implemented for window functions", position=position(node)
            )
        call = aggregate(node, self.lower)
        return call.sql, call.type, [call], call.form


def unify_pair(one: TypedSql, two: TypedSql, place: str) -> tuple[TypedSql, TypedSql]:
    """Return two values as the type they have in common."""
    kind = types.common([one.type, two.type], place.upper())
    return coerce(one, kind), coerce(two, kind)


def _extended(node: exp.Expr, named: exp.Expr) -> bool:
    """Return whether a window adds to one with a name, or copies one that no other may copy."""
    copied = "partition_by" in node.args  # it is in brackets
    adds = any(node.args.get(arg) for arg in ("partition_by", "order", "spec"))
    return adds or named.args.get("alias") is not None or (copied and bool(named.args.get("spec")))


def _by_time(spec: exp.Expr | None) -> bool:
    """Return whether a frame is as long as an interval."""
    ends = [spec.args.get(name) for name in ("start", "end")] if spec is not None else []
    return any(
        isinstance(end, exp.Interval) or (isinstance(end, exp.Literal) and end.is_string)
        for end in ends
    )


def _frame(spec: exp.Expr, ordered: Sequence[TypedSql]) -> str:
    if spec.args.get("exclude"):
        raise NotSupportedError("EXCLUDE is not supported in a window")

    kind = str(spec.args.get("kind")).upper()

    def end(name: str) -> str:
        value, side = spec.args.get(name), spec.args.get(f"{name}_side") or ""
        if isinstance(value, exp.Literal) and value.is_string and kind == "RANGE":
            value = exp.cast(value, "interval")
        if isinstance(value, exp.Interval | exp.Cast) and kind == "RANGE" and len(ordered) == 1:
            span = constant(value)
            assert span is not None
            if min(span.months, span.days, span.micros) < 0:
                raise ProgrammingError("invalid preceding or following size in window function")
            return f"{span.typed.sql} {side}"
        if isinstance(value, exp.Literal) and value.name.isdigit():
            return f"{value.name} {side}"
        if value in ("UNBOUNDED", "CURRENT ROW"):
            return f"{value} {side}".strip()
        raise NotSupportedError(
            "a window frame takes whole numbers, UNBOUNDED or CURRENT ROW; RANGE an interval too"
        )

    if spec.args.get("end") is None:
        return f"{kind} {end('start')}"
    return f"{kind} BETWEEN {end('start')} AND {end('end')}"
