"""What may be spent: the key ``privacy``, and the caps of analysts and groups."""

from __future__ import annotations

import re
from fractions import Fraction

from proxy.domain import Attribute, Domain, Measure
from proxy.errors import PolicyError
from proxy.policy import keys
from proxy.policy.axes import listed
from proxy.policy.document import Item
from proxy.policy.faults import Unread
from proxy.policy.kinds import decimal, nearest
from proxy.policy.model import Analyst, CellBudget, Guard, HistorySize, Privacy, Unit, WarmUp
from proxy.policy.promise import HALF

CLAIM = re.compile(r"\s*COUNT\s*\(\s*\*\s*\)\s+BETWEEN\s+(\d[\d_]*)\s+AND\s+(\d[\d_]*)\s*", re.I)
NOTHING = Privacy(  # in the place of what could not be read
    Fraction(2**21), Unit(), (), (), Fraction(1), HistorySize(1, 1), {}, "topup", "shared"
)


def privacy(policy: Item, axes: Domain) -> Privacy:
    """Return what may be spent: no part more than the budget."""
    item, tried = policy.value["privacy"], policy.faults.tried
    budget = tried(_budget, item)
    cells, per = tried(item.get, "cells") or [], tried(item.get, "per") or {}
    of_cells = [tried(_cell_budget, cell, budget) for cell in cells]
    of_periods = {period: tried(_part, part, budget) for period, part in per.items()}
    day, week = of_periods.get("day"), of_periods.get("week")
    if day is not None and week is not None and day > week:
        per["day"].report("more than in a week")
    floor = tried(_part, item.value["floor"], budget) if "floor" in item.value else None
    floor = floor or (budget or Fraction(0)) / 10_000
    first = tried(item.get, "warm_up") or ()
    warm = [tried(_warm_up, each, policy, axes, budget) for each in first]
    found: set[tuple[frozenset[str], str | None]] = set()
    for wanted, each in zip(warm, first, strict=True):
        if wanted is not None:
            key = frozenset(wanted.attributes), wanted.measure
            if key in found:  # init would measure the first alone
                each.value["attributes"].report("the same cells are there twice")
            found.add(key)
    guards = [tried(_guard, guard, policy, floor) for guard in tried(item.get, "guards") or ()]
    return Privacy(
        budget=budget or NOTHING.budget,
        unit=tried(_unit, item, axes) or Unit(),
        cells=tuple(cell for cell in of_cells if cell is not None),
        guards=tuple(guard for guard in guards if guard is not None),
        floor=floor,
        history_size=tried(_history_size, item) or NOTHING.history_size,
        per={period: part for period, part in of_periods.items() if part is not None},
        strategy=tried(item.get, "strategy") or NOTHING.strategy,
        history=tried(item.get, "history") or NOTHING.history,
        warm_up=tuple(w for w in warm if w is not None),
    )


def _warm_up(item: Item, policy: Item, axes: Domain, budget: Fraction | None) -> WarmUp:
    """Return what is measured first, of attributes and measures that there are."""
    tried = policy.faults.tried
    names = tried(_groups, item.value["attributes"], policy)
    alpha = tried(_part, item.value["alpha"], budget)
    measure = item.get("measure")
    if measure is not None and measure not in axes.measure:
        near = nearest(measure, axes.measure)
        item.value["measure"].report(f"no measure {measure}{near}")
    if names is None or alpha is None:
        raise Unread
    return WarmUp(names, alpha, item.get("strategy"), measure)


def _budget(item: Item) -> Fraction:
    """Return the budget of a cell."""
    budget: Fraction = item.get("budget")
    if budget * 2**40 < 1:
        raise item.value["budget"].error("less than the smallest charge, 2^-40")
    return budget


def _part(item: Item, budget: Fraction | None) -> Fraction:
    """Return a part of the budget, where that is known."""
    part: Fraction = item.value
    if budget is not None and part > budget:
        raise item.error(f"{decimal(part)} is more than the budget {decimal(budget)}")
    return part


def _cell_budget(cell: Item, budget: Fraction | None) -> CellBudget:
    """Return the smaller budget of some cells."""
    part = cell.faults.tried(_part, cell.value["budget"], budget)
    return CellBudget(cell.get("where"), part or Fraction(0), cell.line)


def _history_size(item: Item) -> HistorySize:
    """Return the limits on the size of histories."""
    if "history_size" not in item.value:
        default = {key.name: key.default for key in keys.HISTORY_SIZE.keys}["total"]
        return HistorySize(default, default)
    size = item.value["history_size"]
    total = size.get("total")
    analyst = size.get("analyst") or total
    if analyst > total:
        raise size.value["analyst"].error(f"{analyst} is more than total, {total}")
    return HistorySize(total, analyst)


def _unit(privacy: Item, axes: Domain) -> Unit:
    """Return the privacy unit; its column is no attribute, for the cube would show who is in it."""
    item = privacy.value["unit"]
    if item.value == "row":
        return Unit()
    column = item.value["column"]
    quoted = '"' + column.value.replace('"', '""') + '"'
    columns: list[Attribute | Measure] = [*axes.attributes, *axes.measures]
    for axis in columns:
        if column.value.lower() == axis.name.lower() or axis.source == quoted:
            raise column.error(
                f"{column.value} is the attribute or measure {axis.name}; whom a row belongs to "
                "cannot be queried"
            )
    return Unit(column.value, item.get("max_rows"), item.get("seed"))


def _guard(item: Item, policy: Item, floor: Fraction) -> Guard:
    """Return a guard on groups of attributes."""
    tried = policy.faults.tried
    names = tried(_groups, item.value["for_each"], policy)
    confidence = tried(_confidence, item.value["confidence"])
    low, high = _claim(item.value["claim"])
    if names is None or confidence is None:
        raise Unread
    guard = Guard(low, high, names, confidence, item.line)
    tried(_sensible_guard, guard, item.value["claim"], policy.get("max_records"), floor)
    return guard


def _claim(claim: Item) -> tuple[int, int]:
    """Return the least and the largest count of a claim."""
    match = CLAIM.fullmatch(claim.value)
    if not match:
        raise claim.error(
            f"'{claim.value}' is not allowed; expected COUNT(*) BETWEEN low AND high, with whole "
            "numbers"
        )
    low, high = (int(end) for end in match.groups())
    if low > high:
        raise claim.error(f"BETWEEN low AND high, low ≤ high; got {low} and {high}")
    return low, high


def _groups(item: Item, policy: Item) -> tuple[str, ...]:
    """Return attributes that there are, each once."""
    known, names = policy.get("attributes"), []
    for each in item.value:
        if each.value not in known:
            each.report(f"no attribute {each.value}{nearest(each.value, known)}")
        elif each.value in names:
            each.report(f"{each.value} is there twice")
        names.append(each.value)
    return tuple(names)


def _confidence(confidence: Item) -> Fraction:
    """Return how certain anybody may become of a claim."""
    if confidence.value < HALF:
        raise PolicyError(
            f"{decimal(confidence.value)} is less than 0.5: the claim would be uncertain before "
            "anything was answered",
            file=confidence.file,
            line=confidence.line,
            key=confidence.key,
            hint="it is a confidence, not a delta: for 95% write 0.95",
        )
    value: Fraction = confidence.value
    return value


def analysts(item: Item, within: Privacy) -> dict[str, dict[str, Analyst]]:
    """Return caps of analysts and groups; those of own histories fit the budget together."""
    left = within.budget
    read: dict[str, dict[str, Analyst]] = {"analysts": {}, "groups": {}}
    for kind, made in read.items():
        for name, entry in listed(item, kind).items():
            found = entry.faults.tried(_analyst, entry, within)
            if found is None:
                continue
            made[name] = found
            if found.history == "own" and found.budget is not None:
                passed, left = left < 0, left - found.budget
                if left < 0 and not passed:
                    entry.value["budget"].report(
                        "the budgets of own histories together pass the budget "
                        f"{decimal(within.budget)} by {decimal(-left)}"
                    )
    return read


def _analyst(entry: Item, within: Privacy) -> Analyst:
    """Return what one analyst, or one group, may spend."""
    history = entry.get("history") or within.history
    cap = entry.get("budget")
    if history == "own" and cap is None:
        raise entry.error("history: own needs a budget, which is set aside for it")
    if cap is not None and cap > within.budget:
        raise entry.value["budget"].error(
            f"{decimal(cap)} is more than the budget {decimal(within.budget)}"
        )
    return Analyst(cap, entry.get("spend"), history)


def _sensible_guard(guard: Guard, claim: Item, records: int, floor: Fraction) -> None:
    """Refuse a claim that is decided beforehand, or that stops everything."""
    if guard.low > records or (guard.low == 0 and guard.high >= records):
        claim.report(
            f"no count is more than max_records, {records}: the claim is decided beforehand"
        )
    elif guard.cap < floor:
        claim.report(
            "the guard lets a cell pay less than privacy.floor, the least that a measurement "
            "costs: nothing could be measured"
        )
