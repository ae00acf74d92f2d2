"""The strategy of a policy: what is measured in the place of what is asked for.

``pieces`` measures the cells of a question's scope, ``hierarchy`` trees over its long ordered axes;
``auto`` measures the bases that were chosen last for the requests so far, a line of the ledger.
None of them looks at data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from proxy.domain import Domain
from proxy.inference.family import Family
from proxy.inference.plan import PlannedMeasurement, Strategy
from proxy.inference.query import LinearQuery, Term, sum_part
from proxy.inference.strategies.bases import Base, Bases, Pieces
from proxy.policy import Policy, WarmUp
from proxy.sql.compile.release_point import space

CHOSEN = "strategy"  # the kind of the audit line that says what was chosen
ORDERED = ("integer", "decimal", "date", "timestamp")


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
        name = chosen["strategy"] if chosen else "topup"
        if name == "marginals":
            assert chosen is not None
            bases = [base_of(each, policy) for each in chosen["bases"]]
            return Bases(bases, whole, pieces(policy), no_dearer=True)
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
    """Return in words why a strategy was chosen."""
    name, simulated = chosen["strategy"], chosen["simulated"]
    others = [
        f"{other} {each['alpha']:.4g} for {each['answered']:,}"
        for other, each in simulated.items()
        if other != name
    ]
    mine = simulated[name]
    return (
        f"strategy auto is {name}: of {mine['asked']:,} requests it would answer "
        f"{mine['answered']:,} for {mine['alpha']:.4g}; {', '.join(others)}"
    )


def base_of(described: Mapping[str, Any], policy: Policy) -> Base:
    """Return a base from its description, in names."""
    domain, shape = policy.domain, space(policy.domain)
    parts = {_part(name, domain): Term(scale) for name, scale in described["of"].items()}
    whole = LinearQuery.of(shape, Fraction(described["grid"]), parts)
    axes = [domain.axis[name] for name in described["axes"]]
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


def _part(name: str, domain: Domain) -> int:
    """Return the part of a query that has a name."""
    parts = range(1 + 2 * len(domain.measures))
    return next(part for part in parts if _name(part, domain) == name)


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
