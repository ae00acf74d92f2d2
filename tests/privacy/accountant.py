"""What every record has lost by all measurements that were ever drawn, and what it was promised.

A loss is Σ |Δ answer| / scale, Δ by brute force: a record is taken out of the rows of the build,
and the scale is what the sampler was asked for.  No account of the proxy is read.
"""

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from proxy.inference.query import COUNT
from tests.privacy.documents import written

SLACK = 1e-9


class Violation(AssertionError):
    """Somebody lost more than was ever promised, or the proxy failed otherwise."""

    def __init__(self, kind, text):
        super().__init__(text)
        self.kind = kind


def moves(family, codes, quanta):
    """Return the row of a family that a record is in, and how far it moves its answer."""
    label = int(family.labels[tuple(codes[axis] for axis in family.axes)])
    if label < 0:
        return None
    total = 0
    for part, term in family.query.parts.items():
        product = term.scale
        for factor in term.factors:
            product *= int(factor.array[tuple(codes[axis] for axis in factor.axes)])
        if part == COUNT:
            total += product
        elif (value := quanta[(part - 1) // 2]) is not None:
            total += product * (value if part % 2 else 1)
    return label, total


def distance(family, one, two):
    """Return Σ |difference| of the exact answers over two lists of records."""
    sums = Counter()
    for sign, records in ((1, one), (-1, two)):
        for _, codes, quanta in records:
            if found := moves(family, codes, quanta):
                sums[found[0]] += sign * found[1]
    return sum(map(abs, sums.values()))


@dataclass
class Account:
    """What was lost under one ledger, and what its policies promised."""

    accepted: list = field(default_factory=list)  # of Force, since the last weaker one
    rows: Counter = field(default_factory=Counter)  # row -> lost, were it taken out
    parts: Counter = field(default_factory=Counter)  # row -> lost by its own part in the answers
    units: Counter = field(default_factory=Counter)  # (column, unit) -> lost
    users: dict = field(default_factory=lambda: defaultdict(Counter))  # user -> row -> lost
    own: dict = field(default_factory=lambda: defaultdict(Counter))  # history -> row -> lost
    backup: tuple | None = None  # the file, what was accepted then, whether it is still good
    measured: int = 0

    def accept(self, force, weaker=False):
        """Take note of what is in force; from a weaker one on, only that binds."""
        for rule in force.privacy.get("cells", []):
            if "current_date" in re.sub(r"--[^\n]*", "", rule["where"]):
                raise Violation(
                    "clock", "a condition reads the clock: its cells move by themselves"
                )
        if weaker:
            if self.accepted and self.accepted[-1].unit != force.unit:
                self.units.clear()  # what units lost while rows were protected, nobody promised;
                # nor that the row that stands in for one of its unit would cost it nothing
                self.rows = Counter(self.parts)
            self.accepted = [force]
        elif not self.accepted or self.accepted[-1].key != force.key:
            self.accepted.append(force)

    def measure(self, family, scale, build, user):
        """Add up what a measurement cost everybody, and compare it with the promises."""
        self.measured += 1
        kept = build.kept()
        lost, parts, units = Counter(), Counter(), Counter()
        for raw, codes, quanta in kept:
            if found := moves(family, codes, quanta):
                parts[raw["id"]] = abs(found[1]) / scale
        if build.force.unit is None:
            lost = Counter(parts)
        else:
            column = build.force.unit
            for raw, _, _ in kept:
                beside = build.kept(lambda row, gone=raw: row["id"] == gone["id"])
                lost[raw["id"]] = distance(family, kept, beside) / scale
            for unit in {raw[column] for raw, _, _ in kept}:
                beside = [record for record in kept if record[0][column] != unit]
                units[column, unit] = distance(family, kept, beside) / scale
        self.rows.update(lost)
        self.parts.update(parts)
        self.units.update(units)
        self.users[user].update(parts)
        if (history := self.accepted[-1].history(user)) != "shared":
            self.own[history].update(parts)
        self._check(build, lost, parts, units, user)

    def _check(self, build, lost, parts, units, user):
        """Compare those that this measurement cost something."""
        raws = {raw["id"]: raw for raw in build.rows}
        for force in self.accepted:
            charged, paid = (parts, self.parts) if force.unit else (lost, self.rows)
            for row, more in charged.items():
                if more and paid[row] > force.limit(raws[row]) + SLACK:
                    self._violated("row", row, paid[row], force.limit(raws[row]), force)
            if force.unit:
                for unit, more in units.items():
                    if (
                        more
                        and unit[0] == force.unit
                        and self.units[unit] > force.unit_limit + SLACK
                    ):
                        self._violated("unit", unit, self.units[unit], force.unit_limit, force)
            # a budget of one's own is for what is asked of it; a cap, for whatever one asks
            for cap, lost_by in (
                (force.user_limit(user), self.users[user]),
                (force.own_limit(user), self.own[force.history(user)]),
            ):
                most = max((lost_by[row] for row, more in parts.items() if more), default=0)
                if cap is not None and most > cap + SLACK:
                    self._violated("user", user, most, cap, force)
        for cap, members in self.accepted[-1].together(user):
            for row, more in parts.items():
                if more and (all_ := sum(self.users[m][row] for m in members)) > cap + SLACK:
                    self._violated("group", members, all_, cap, self.accepted[-1])

    def _violated(self, kind, who, lost, limit, force):
        at = self.accepted.index(force) + 1
        raise Violation(
            kind,
            f"{kind} {who} lost {lost:.4f} of {limit:.4f}, promised by policy {at} of the "
            f"{len(self.accepted)} accepted:\n{written(force.document)}",
        )
