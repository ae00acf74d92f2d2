"""Where inside the bins of an axis an expression has to be tried to know that it is constant.

An expression that only compares the axis with constants changes at these and nowhere else; one that
looks at the calendar, at the beginnings of days.  Invariant: between two points that are tried, the
expression does not change.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from sqlglot import exp

from proxy.domain import Attribute, Value
from proxy.errors import NotSupportedError
from proxy.sql import types
from proxy.sql.compile.columns import Axis
from proxy.sql.expression import intervals
from proxy.sql.expression.date_templates import unit as date_unit
from proxy.sql.parse.dialects import ToChar
from proxy.sql.parse.tree import COMPARISONS, find_all, has

ENUMERABLE = 2**17  # values in the bins of an axis, up to which all are tried


def compared_axes(node: exp.Expr) -> list[tuple[Axis, list[exp.Expr]]]:
    """Return the axes that are compared with constants, and the constants."""
    pairs = []
    holding: dict[int, set[int]] = {}  # of a comparison, its operands that read an axis
    for axis in find_all(node, Axis):
        top: exp.Expr = axis
        while isinstance(top.parent, exp.Paren) and top is not node:
            top = top.parent
        parent = top.parent
        if (
            parent is not None
            and top is not node
            and isinstance(parent, (*COMPARISONS, exp.Between, exp.In, exp.Is))
        ):
            if id(parent) not in holding:
                children = parent.iter_expressions()
                holding[id(parent)] = {id(child) for child in children if has(child, Axis)}
            if holding[id(parent)] == {id(top)}:
                others = [child for child in parent.iter_expressions() if child is not top]
                pairs.append((axis, others))
    return pairs


def calendar(node: exp.Expr, axis: int) -> list[str]:
    """Return the units of the calendar by which an expression looks at an axis."""
    units = []
    for use in find_all(node, Axis):
        parent = use.parent
        if int(use.this) != axis or use is node:
            continue
        if isinstance(parent, ToChar) and parent.args["format"].is_string:
            unit = date_unit(parent.args["format"].name)
            units += [unit] if unit != "second" else []
        elif isinstance(parent, exp.DateBin) and parent.expression is use:
            units += _stride(parent)
        elif isinstance(parent, exp.Cast) and parent.args["to"].is_type("date"):
            units.append("day")
        elif isinstance(parent, exp.TimestampTrunc | exp.Extract):
            name = parent.this if isinstance(parent, exp.Extract) else parent.args["unit"]
            unit = name.name.lower()
            if unit in ("hour", "minute"):
                units.append(unit)
            elif unit not in ("second", "epoch", "milliseconds", "microseconds"):
                units.append("day")
    return units


def _stride(node: exp.DateBin) -> list[str]:
    """Return the unit of the calendar at which the strides of date_bin begin, if there is one."""
    stride, origin = intervals.constant(node.this), node.args.get("zone")
    while isinstance(origin, exp.Cast):
        origin = origin.this
    if stride is None or not (isinstance(origin, exp.Literal) and origin.is_string):
        return []
    moment = types.read(origin.name, "timestamp")
    assert isinstance(moment, datetime.datetime)
    size = stride.days * intervals.DAY + stride.micros
    past = (moment - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)
    for unit, step in STEPS.items():
        if size % (step * intervals.SECOND) == 0 == past % (step * intervals.SECOND):
            return [unit]
    return []


STEPS = {"day": 86_400, "hour": 3600, "minute": 60}


def boundaries(attribute: Attribute, unit: str) -> list[Value]:
    """Return the beginnings of days, hours or minutes within the bins of a timestamp axis.

    Raises:
        NotSupportedError: there are too many.
    """
    edges: Any = attribute.edges
    step = STEPS[unit]
    low, high = edges[0], edges[-1]
    if (high - low).total_seconds() / step > ENUMERABLE:
        raise NotSupportedError(f"{attribute.name} has too many {unit}s to look at each")
    start = low.replace(hour=0, minute=0, second=0, microsecond=0)
    count = int((high - start).total_seconds() // step) + 1
    return [start + datetime.timedelta(seconds=step * i) for i in range(count)]


def edges_for(attribute: Attribute, value: Value) -> tuple[Value, ...]:
    """Return the edges of an axis, comparable with a value."""
    edges = attribute.edges or ()
    if isinstance(value, datetime.datetime) and attribute.type == "date":
        midnight = datetime.time()
        return tuple(datetime.datetime.combine(e, midnight) for e in edges)  # type: ignore[arg-type]
    return edges


def points_between(attribute: Attribute, constants: Sequence[Value]) -> tuple[Value, ...]:
    """Return the edges, the constants inside the bins, and a value between each two of them."""
    edges: list[Any] = list(attribute.edges or ())
    marks = set(edges)
    for constant in constants:
        if isinstance(edges[0], int):
            marks |= {math.floor(constant), math.ceil(constant)}  # type: ignore[arg-type]
        elif isinstance(constant, datetime.datetime) and attribute.type == "date":
            marks |= {constant.date(), constant.date() + datetime.timedelta(days=1)}
        else:
            marks.add(constant)
    inner = sorted(mark for mark in marks if edges[0] <= mark <= edges[-1])
    points = set(inner)
    for low, high in pairwise(inner):
        points.add(low + (high - low) // 2 if isinstance(low, int) else low + (high - low) / 2)
    return tuple(sorted(point for point in points if point < edges[-1]))
