"""Attributes and measures: from items of the policy to the axes and sums of the cube.

A domain is finite, declared and public: its values come from the policy or from a public file that
it names, never from the data.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

from proxy.domain import Attribute, Domain, Measure, Value
from proxy.policy.document import Item
from proxy.policy.faults import Unread
from proxy.policy.kinds import INT64, decimal, nearest
from proxy.policy.values import MAX_CELLS, column, inferred, typed

RECORDS = "max_records"
MAX_CUBE = 2**62  # of all: a cell's number fits a BIGINT
FORMS = ("range", "edges", "values", "from")
ORDERED = ("integer", "decimal", "date", "timestamp")


def domain(policy: Item, folder: Path) -> Domain:
    """Return the domain of a policy, whose relative paths begin at ``folder``.

    Columns that cannot be made are left out, and their faults noted: a key is missing, contradicts
    another, or makes a cube that is too large.
    """
    attributes, measures = listed(policy, "attributes"), listed(policy, "measures")
    tried = policy.faults.tried
    axes = [tried(_attribute, name, item, policy, folder) for name, item in attributes.items()]
    sums = [tried(_measure, name, item, policy) for name, item in measures.items()]
    _distinct([*names(attributes), *measures.items()])
    built = Domain(
        tuple(axis for axis in axes if axis is not None),
        tuple(measure for measure in sums if measure is not None),
    )
    if built.cells > MAX_CUBE:
        policy.value["attributes"].report(
            f"the cube would have {Decimal(built.cells):.2e} cells, at most 2^62 can be numbered; "
            "use fewer or coarser attributes"
        )
    return built


def listed(policy: Item, key: str) -> dict[str, Item]:
    """Return a mapping of the policy by name; nothing where it could not be read."""
    return policy.faults.tried(policy.get, key) or {}


def period_start(day: datetime.date, grain: str) -> datetime.date:
    """Return the first day of the day's week (Monday), month, quarter or year."""
    match grain:
        case "day":
            return day
        case "week":
            return day - datetime.timedelta(days=day.weekday())
        case "month":
            return day.replace(day=1)
        case "quarter":
            return day.replace(month=day.month - (day.month - 1) % 3, day=1)
        case _:
            return day.replace(month=1, day=1)


def next_start(start: datetime.date, grain: str) -> datetime.date:
    """Return the first day of the next period; ``start`` is the first of its own."""
    longest = {"day": 1, "week": 7, "month": 31, "quarter": 92, "year": 366}[grain]
    return period_start(start + datetime.timedelta(days=longest), grain)


def names(attributes: dict[str, Item]) -> Iterator[tuple[str, Item]]:
    """Yield the names of attributes and of their levels."""
    for name, item in attributes.items():
        yield name, item
        yield from (item.faults.tried(item.get, "levels") or {}).items()


def _distinct(columns: list[tuple[str, Item]]) -> None:
    """Refuse two columns whose names differ in case only."""
    seen: dict[str, Item] = {}
    for name, item in columns:
        first = seen.setdefault(name.lower(), item)
        if first is not item:
            item.report(
                f"the name is taken by {first.key} in line {first.line}; names of attributes, "
                "levels and measures differ in more than case"
            )


def source(name: str, item: Item) -> str:
    """Return the SQL expression over the source's columns."""
    if item.get("column") and item.get("expression"):
        item.value["expression"].report("column is there too; keep one of the two")
    column = (item.get("column") or name).replace('"', '""')
    return item.get("expression") or f'"{column}"'


def _measure(name: str, item: Item, policy: Item) -> Measure:
    """Return one measure."""
    clip, quantum = item.value["clip"], item.get("quantum")
    low, high = (end.value for end in clip.value)
    for end in clip.value:
        if end.value % quantum:
            near = round(end.value / quantum) * quantum
            end.report(
                f"{decimal(end.value)} is not a multiple of the quantum {decimal(quantum)}; the "
                f"nearest is {decimal(near)}"
            )
    if low >= high:
        raise clip.error(f"the pair is [low, high], low < high; got {_pair(low, high)}")
    largest = max(abs(low), abs(high)) / quantum * (policy.faults.tried(policy.get, RECORDS) or 1)
    if largest > INT64:
        raise clip.error(
            "the sum of max_records such values may pass 2^63 quanta; use a coarser quantum (about "
            f"{float(quantum * largest / INT64):.1g}) or a narrower clip"
        )
    return Measure(name, low, high, quantum, _rule("nulls", item, policy), source(name, item))


def _rule(key: str, item: Item, policy: Item) -> str:
    """Return what a column does with a value, as it says or else the policy."""
    rule: str | None = item.get(key) or policy.faults.tried(policy.get, key)
    return rule or "group"


def _attribute(name: str, item: Item, policy: Item, folder: Path) -> Attribute:
    """Return one axis."""
    kind, values, edges = _cells(item, folder)
    outside = _rule("outside", item, policy)
    values_listed = "values" in item.value or kind == "boolean"
    if outside == "clamp" and values_listed:
        item.value.get("outside", item).report(
            "outside: clamp needs range, edges or from/to; for a list of values use group, drop or "
            "error"
        )
    if edges is None and "cut" in item.value:
        item.value["cut"].report(
            "each cell is one value, no predicate can cut it; leave cut out, or use edges or a bin"
        )
    return Attribute(
        name,
        kind,
        values,
        edges,
        _rule("nulls", item, policy),
        outside,
        item.get("cut") or "refuse",
        source(name, item),
        _levels(item, kind, values),
    )


Cells = tuple[str, tuple[Value, ...], tuple[Value, ...] | None]  # type, values, edges


def _cells(item: Item, folder: Path) -> Cells:
    """Return the type, values and edges that an attribute declares."""
    forms = [form for form in FORMS if form in item.value]
    kind = item.get("type")
    if len(forms) > 1:
        raise item.value[forms[1]].error(f"{forms[0]} is there too; one of them is the domain")
    for key, other in (("to", "from"), ("from", "to"), ("bin", "from")):
        if key in item.value and other not in item.value:
            raise item.value[key].error(f"{key} needs {other} beside it")
    if not forms and kind == "boolean":
        return kind, (False, True), None
    if not forms:
        raise item.error(
            "no domain; expected one of range: [low, high], edges: […], values: […], or from: and "
            "to: with dates"
        )
    match forms[0]:
        case "range":
            return _range(item, kind)
        case "edges":
            return _edges(item, kind)
        case "values":
            return _listed(item, kind, folder)
        case _:
            return _dates(item, kind)


def _range(item: Item, kind: str | None) -> Cells:
    """Return one cell for each integer."""
    pair = item.value["range"]
    low, high = (end.value for end in pair.value)
    if kind not in (None, "integer"):
        item.value["type"].report(f"range is for integers; {kind} needs edges, values or from/to")
    if low > high:
        raise pair.error(f"the pair is [low, high], low ≤ high; got {_pair(low, high)}")
    _bound(pair, high - low + 1)
    return "integer", tuple(range(low, high + 1)), None


def _edges(item: Item, kind: str | None) -> Cells:
    """Return bins between strictly increasing edges."""
    edges = item.value["edges"]
    tags = {edge.value.tag for edge in edges.value}
    kind = kind or ("date" if tags == {"timestamp"} else inferred(edges.value))
    if kind not in ORDERED:
        raise edges.error(f"edges are of type {', '.join(ORDERED)}; {kind} needs values")
    read = tuple(typed(edge, kind) for edge in edges.value)
    for (before, after), edge in zip(pairwise(read), edges.value[1:], strict=True):
        if not before < after:  # type: ignore[operator]  # of one ordered type
            raise edge.error(f"edges increase strictly; {after} follows {before}")
    _bound(edges, len(read) - 1)
    return kind, read[:-1], read


def _listed(item: Item, kind: str | None, folder: Path) -> Cells:
    """Return one cell for each value of a list or of a public file's column."""
    values = item.value["values"]
    if isinstance(values.value, dict):
        kind = kind or "text"
        read = column(values, kind, folder)
        _bound(values, len(read))
        return kind, read, None
    stated = kind is not None
    kind = kind or inferred(values.value)
    seen: dict[Value, Item] = {}
    read_all = True
    for each in values.value:
        if not stated and each.value.tag in ("bool", "timestamp"):
            say = "boolean" if each.value.tag == "bool" else "date"
            each.report(f"{each.value.trap}, or say type: {say}")
            read_all = False
        elif (found := item.faults.tried(typed, each, kind)) is None:
            read_all = False
        elif found in seen:
            each.report(f"{each.value} is there twice")
        else:
            seen[found] = each
    if not read_all:
        raise Unread
    _bound(values, len(seen))
    return kind, tuple(seen), None


def _dates(item: Item, kind: str | None) -> Cells:
    """Return one cell for each period from one date to another; days of dates are exact."""
    kind = kind or "date"
    if kind not in ("date", "timestamp"):
        item.value["type"].report(f"from/to are for date and timestamp, not {kind}")
        kind = "date"
    grain = item.get("bin") or "day"
    first, last = item.get("from"), item.get("to")
    if last < first:
        raise item.value["to"].error(f"{last} lies before {first}")
    if last.year == datetime.MAXYEAR or first.year == datetime.MINYEAR:
        raise item.value["to"].error(f"years from {datetime.MINYEAR + 1} to {datetime.MAXYEAR - 1}")
    end = last + datetime.timedelta(days=1)
    if (start := period_start(first, grain)) != first:
        item.value["from"].report(
            f"not the first day of a {grain}; nearest are {start} and {next_start(start, grain)}"
        )
    if (start := period_start(end, grain)) != end:
        day = datetime.timedelta(days=1)
        item.value["to"].report(
            f"not the last day of a {grain}; nearest are {start - day} and "
            f"{next_start(start, grain) - day}"
        )
    days = [first]
    while days[-1] < end:
        days.append(next_start(days[-1], grain))
    edges: list[Value] = list(days)
    if kind == "timestamp":
        edges = [datetime.datetime.combine(day, datetime.time()) for day in days]
    exact = kind == "date" and grain == "day"
    return kind, tuple(edges[:-1]), None if exact else tuple(edges)


def _levels(item: Item, kind: str, values: tuple[Value, ...]) -> Any:
    """Return the coarser columns: each a partition of the values."""
    if "levels" not in item.value:
        return None
    made = {
        level: item.faults.tried(_level, labels, kind, values)
        for level, labels in item.value["levels"].value.items()
    }
    if None in made.values():
        raise Unread
    return made


def _level(labels: Item, kind: str, values: tuple[Value, ...]) -> dict[str, tuple[Value, ...]]:
    """Return the labels of one level, each with its values."""
    known = set(values)
    owner: dict[Value, str] = {}
    read_all = True
    for label, members in labels.value.items():
        for member in members.value:
            value = labels.faults.tried(typed, member, kind)
            read_all &= value in known
            if value is None:
                continue
            if value not in known:
                near = nearest(str(value), [str(v) for v in values[:1000]])
                member.report(f"{member.value} is no value of the attribute{near}")
            elif value in owner:
                member.report(f"{member.value} is under {owner[value]} too")
            else:
                owner[value] = label
    if not read_all:
        raise Unread
    if missing := [str(value) for value in values if value not in owner]:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise labels.error(f"no label has {', '.join(missing[:3])}{more}")
    return {
        label: tuple(value for value, at in owner.items() if at == label) for label in labels.value
    }


def _bound(item: Item, cells: int) -> None:
    """Refuse an axis that is too long."""
    if cells > MAX_CELLS:
        raise item.error(f"{cells:,} cells; an attribute has at most {MAX_CELLS:,}: use edges")


def _pair(low: int | Fraction, high: int | Fraction) -> str:
    """Return a pair as it was written."""
    return f"[{decimal(low)}, {decimal(high)}]"
