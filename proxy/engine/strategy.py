"""The strategy of a policy: what is measured in the place of what is asked for.

``pieces`` measures the cells of a question's scope, ``hierarchy`` trees over its long ordered axes;
``auto`` measures the bases that were chosen last for the requests so far, a line of the ledger.
None of them looks at data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from typing import Any

from proxy.domain import Domain
from proxy.inference.family import Family
from proxy.inference.plan import PlannedMeasurement, Strategy
from proxy.inference.query import LinearQuery, Term, sum_part
from proxy.inference.strategies.bases import DEARER, MAX_ROWS, Base, Bases, Pieces
from proxy.policy import Policy, WarmUp
from proxy.sql.compile.release_point import space

CHOSEN = "strategy"  # the kind of the audit line that says what was chosen
WARM_UP = "warm_up: "  # how the lines of what was measured first begin, as no statement does
ORDERED = ("integer", "decimal", "date", "timestamp")
STRANGE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def pieces(policy: Policy, *, trees: bool = False) -> Pieces:
    """Return what makes bases of what is asked."""
    domain = policy.domain
    return Pieces(
        policy.max_records,
        [measure.quantum for measure in domain.measures],
        [attribute.type in ORDERED for attribute in domain.attributes],
        trees,
    )


def strategy_of(policy: Policy, chosen: Mapping[str, Any] | None = None) -> Strategy | None:
    """Return the strategy of a policy; of ``auto`` what was ``chosen``, the detail of a line."""
    name, whole = policy.privacy.strategy, policy.partition is None
    if name == "auto":
        name = str(chosen.get("strategy")) if chosen else "topup"
        if chosen is None or name == "marginals":
            bases = list(_still_there(chosen.get("bases"), policy)) if chosen else []
            return Bases(bases, whole, pieces(policy), most=1.0 if chosen else DEARER)
    if name in ("pieces", "hierarchy"):
        return Bases((), whole, pieces(policy, trees=name == "hierarchy"))
    return None


def warm(wanted: WarmUp, policy: Policy) -> Base:
    """Return what is to be measured first, with its level."""
    domain = policy.domain
    part = 0 if wanted.measure is None else sum_part(domain.measure[wanted.measure])
    unit = Fraction(1) if not part else domain.measures[part // 2].quantum
    whole = LinearQuery.of(space(domain), unit, {part: Term(1)})
    axes = [domain.axis[name] for name in wanted.attributes]
    base = pieces(policy, trees=wanted.strategy == "hierarchy").base(whole, axes)
    base.level = float(wanted.alpha)
    return base


def why(chosen: Mapping[str, Any]) -> str:
    """Return in words why a strategy was chosen; nothing, where the line does not say."""
    with suppress(*STRANGE):
        name, simulated = chosen["strategy"], chosen["simulated"]
        others = [
            f"{other} {float(each['alpha']):.4g} for {int(each['answered']):,}"
            for other, each in simulated.items()
            if other != name
        ]
        mine = simulated[name]
        return (
            f"strategy auto is {name}: of {int(mine['asked']):,} requests it would answer "
            f"{int(mine['answered']):,} for {float(mine['alpha']):.4g}; {', '.join(others)}"
        )
    return ""


def _still_there(described: Any, policy: Policy) -> Iterator[Base]:
    """Yield the bases that a policy still has: attributes and measures come, go and grow.

    What is no description is passed over too: no statement needs a base.
    """
    for each in described if isinstance(described, list) else ():
        with suppress(*STRANGE):
            yield base_of(each, policy)


def base_of(described: Mapping[str, Any], policy: Policy) -> Base:
    """Return a base from its description, in names.

    Raises:
        KeyError: the policy has no such attribute or measure.
        ValueError: it is none, or has too many cells.
    """
    domain, shape = policy.domain, space(policy.domain)
    named = {_name(part, domain): part for part in range(1 + 2 * len(domain.measures))}
    parts = {named[name]: Term.of(scale, ()) for name, scale in described["of"].items()}
    grid, axes = Fraction(described["grid"]), {domain.axis[name] for name in described["axes"]}
    if grid <= 0 or not any(parts.values()) or shape.cells(axes) > MAX_ROWS:
        raise ValueError("no base")
    whole = LinearQuery.of(shape, grid, parts)
    base = pieces(policy, trees=described["tree"]).base(whole, axes)
    base.level = float(described["alpha"])
    return base


def description(base: Base, domain: Domain) -> dict[str, Any]:
    """Return a base in names, as JSON."""
    (query,) = {family.query for family in base.families}
    return {
        "axes": [domain.attributes[axis].name for axis in sorted(base.scope)],
        "of": {_name(part, domain): term.scale for part, term in query.parts.items()},
        "grid": str(query.grid),
        "tree": len(base.families) > 1,
        "alpha": base.level,
    }


def _name(part: int, domain: Domain) -> str:
    """Return the name of a part of a query."""
    if not part:
        return "COUNT(*)"
    name = domain.measures[(part - 1) // 2].name
    return f"SUM({name})" if part % 2 else f"COUNT({name})"


def told(planned: Sequence[PlannedMeasurement], domain: Domain) -> list[str]:
    """Return in words what is measured in the place of what was asked for."""
    return list(dict.fromkeys(_told(each, domain) for each in planned if each.piece))


def _told(planned: PlannedMeasurement, domain: Domain) -> str:
    family = planned.family
    names = " × ".join(domain.attributes[axis].name for axis in sorted(family.scope)) or "the total"
    of = " and ".join(_name(part, domain) for part in family.query.parts)
    rows = f"{of} of {names} ({_counted(family)})"
    alpha = family.sensitivity / planned.scale
    if planned.before is None:
        return f"{rows} is measured, at {alpha:.4g} a cell, for this and later statements"
    before = family.sensitivity / planned.before
    return f"{rows} is measured more exactly, at {alpha:.4g} a cell rather than {before:.4g}"


def _counted(family: Family) -> str:
    return f"{family.rows:,} numbers" if family.rows > 1 else "one number"
