"""Which strategy serves requests best: simulated beside an empty history, which costs nothing.

Decisions depend on queries and weights alone, never on answers, so that what a strategy would have
paid for the requests of a log, or of a workload that is declared, is known beforehand.  ``chosen``
looks for the marginals, or trees over them, that all requests together need at least alpha of:
requests that need the same of each base are one, a base's level is the most that any request needs
of it, and the sum of levels is made small by adding bases, leaving them out, and moving requests.

Units: alpha; half-widths in answer units.
Source: in the spirit of McKenna et al. 2018 (HDMM: marginals for a workload); the search is ours.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from proxy.inference import plan as planning
from proxy.inference.accounting import UNIT, Account, BudgetRule, charge
from proxy.inference.estimator import Integers
from proxy.inference.family import Family
from proxy.inference.history import History
from proxy.inference.plan import AccuracyTarget, Allocation, Plan, Strategy
from proxy.inference.query import Factor, LinearQuery, Term, TooLargeError
from proxy.inference.space import Space
from proxy.inference.strategies.bases import MAX_ROWS, Base, Bases, Pieces, needed, plain

MARGINALS = "marginals"  # that are chosen for the requests
STRATEGIES = ("topup", "pieces", "hierarchy", MARGINALS)
MAX_SCOPES = 12  # of one kind of query whose unions are candidates
MAX_CANDIDATES = 40  # bases of one kind
AFTER = 20  # more steps, or times as many requests, for which what the last ones cost stands
AHEAD = 4  # steps in time by which requests are moved on
MAX_CLUSTERS = 120  # requests of one kind, those that differ


@dataclass(frozen=True)
class Simulated:
    """What a strategy would have done with the requests, in their order."""

    name: str
    paid: tuple[float | None, ...]  # by request, what the dearest cell paid more; None: refused

    @property
    def asked(self) -> int:
        """How many requests there was time for."""
        return len(self.paid)

    @property
    def answered(self) -> int:
        """How many were answered."""
        return sum(each is not None for each in self.paid)

    @property
    def free(self) -> int:
        """How many were answered from what was known."""
        return sum(each == 0 for each in self.paid)

    @property
    def alpha(self) -> float:
        """What the dearest cell has paid in the end."""
        return math.fsum(each or 0.0 for each in self.paid)

    def after(self, later: int, steps: float) -> float:
        """Return what the dearest cell would have paid in the long run, when the last ``later``
        requests are those of so many steps in time.
        """
        return self.alpha + AFTER * self.growth(later, steps)

    def growth(self, later: int, steps: float) -> float:
        """Return what the dearest cell pays more with each of these steps; 0 of none."""
        if steps < 1:
            return 0.0
        return math.fsum(each or 0.0 for each in self.paid[-later:]) / steps

    def lasting(self, budget: float) -> tuple[float, float]:
        """Return how many requests it would have answered in the long run, and for what alpha.

        More of them, AFTER times as many, fare as the later half of these does, which rests on the
        earlier one, until the budget is spent; from then on as those that are free.
        """
        half, more = self.paid[len(self.paid) // 2 :], AFTER * len(self.paid)
        if not half:
            return 0.0, self.alpha
        price = math.fsum(each or 0.0 for each in half) / len(half)
        left = 0.0 if None in half else max(budget - self.alpha, 0.0)
        paying = min(more, left / price) if price else more
        answered = sum(each is not None for each in half) / len(half)
        free = sum(each == 0 for each in half) / len(half)
        total = self.answered + paying * answered + (more - paying) * free
        return total, self.alpha + paying * price

    def first(self, requests: int) -> Simulated:
        """Return what it did with the first requests."""
        return replace(self, paid=self.paid[:requests])


Number = TypeVar("Number", bound=np.generic)
Deadline = Callable[[], bool]  # whether time is up


def until(seconds: float) -> Deadline:
    """Return a deadline from now, of time that this process works."""
    end = time.process_time() + seconds
    return lambda: time.process_time() > end


@dataclass(frozen=True)
class Shadow:
    """Where strategies are tried: the shape of a cube, and the limits on its cells."""

    space: Space
    records: int
    rules: Sequence[BudgetRule]
    floor: float  # the least alpha of a measurement


@dataclass(frozen=True, eq=False)
class Choice:
    """How strategies fare, the best first; and the bases that were chosen for the requests."""

    simulated: Sequence[Simulated]
    bases: Sequence[Base]
    later: int = 0  # the last requests, which are the first ones moved on
    steps: float = 0.0  # in time, by so many

    @property
    def best(self) -> Simulated:
        """The strategy that answers most requests in the long run, and then at least alpha."""
        return self.simulated[0]


def choose(
    requests: Sequence[Sequence[AccuracyTarget]],
    shadow: Shadow,
    pieces: Pieces,
    trees: Pieces,
    seconds: float,
    names: Sequence[str] = STRATEGIES,
    moving: Sequence[int] = (),
) -> Choice:
    """Simulate the strategies; each is given its part of the time.

    ``moving`` are axes of time: what was asked of some days will be asked of later ones.
    """
    given, requests = len(requests), ahead(requests, moving)
    if not _trees(requests, trees):
        names = [name for name in names if name != "hierarchy"]
    part = seconds / (len(names) + 1)
    times = (1 + AHEAD + AFTER) / (1 + AHEAD) if len(requests) > given else 1.0
    bases = chosen(requests, pieces, trees, until(part), times) if MARGINALS in names else []
    tried = strategies(pieces, trees, bases)
    found = []
    for name in names:
        if name != MARGINALS or bases:
            found.append(simulate(name, tried.get(name), requests, shadow, until(part)))
    least = min((each.asked for each in found), default=0)
    found = [each.first(least) for each in found]  # of equally many requests
    later = max(least - given, 0)  # those of them that were moved on
    steps = later * AHEAD / max(len(requests) - given, 1)
    budget = min((rule.budget / UNIT for rule in shadow.rules), default=math.inf)

    def rank(each: Simulated) -> tuple[float, float]:
        if steps >= 1:
            return -each.answered, each.after(later, steps)
        answered, alpha = each.lasting(budget)
        return -round(answered, 6), alpha

    return Choice(sorted(found, key=rank), bases, later, steps)


def strategies(pieces: Pieces, trees: Pieces, bases: Sequence[Base] = ()) -> dict[str, Strategy]:
    """Return the strategies that measure something in the place of what is asked, by name."""
    return {
        MARGINALS: Bases(bases, pieces=pieces, most=1.0),
        "pieces": Bases(pieces=pieces),
        "hierarchy": Bases(pieces=trees),
    }


def _trees(requests: Iterable[Sequence[AccuracyTarget]], trees: Pieces) -> bool:
    """Whether trees would be measured: some request is of a long axis."""
    return any(
        trees.over(t.family.scope, t.family.query.space) is not None for r in requests for t in r
    )


def simulate(
    name: str,
    strategy: Strategy | None,
    requests: Sequence[Sequence[AccuracyTarget]],
    shadow: Shadow,
    deadline: Deadline,
) -> Simulated:
    """Ask the requests in turn, each all or nothing."""
    history, account = History(shadow.space, shadow.records), Account(shadow.space)
    paid: list[float | None] = []
    for targets in requests:
        if deadline():
            break
        how = Allocation(name != "paper", shadow.floor, strategy)
        before = account.spent().value
        plan = afforded(history, account, shadow.rules, targets, how)
        for each in plan.measurements if plan else ():
            history.set_answers(each.block, [0] * each.family.rows)
            each.block.refinable = True
        paid.append((account.spent().value - before) / UNIT if plan else None)
    return Simulated(name, tuple(paid))


def afforded(
    history: History,
    account: Account,
    rules: Sequence[BudgetRule],
    targets: Sequence[AccuracyTarget],
    allocation: Allocation,
) -> Plan | None:
    """Return what is measured for a statement, which then is charged; None where it is refused.

    Where the rules do not allow what the strategy measures, it is what was asked for.  The answers
    are the caller's to give.
    """
    for how in dict.fromkeys((allocation, replace(allocation, strategy=None))):
        mark = history.mark
        try:
            plan = planning.plan(history, targets, how)
            terms = [charge(each.family, each.scale, each.before) for each in plan.measurements]
            if account.check(terms, rules) is None:
                account.add(terms)
                history.refined.clear()
                return plan
        except TooLargeError:
            pass
        history.take_back(mark)
    return None


def ahead(
    requests: Sequence[Sequence[AccuracyTarget]], axes: Sequence[int]
) -> list[Sequence[AccuracyTarget]]:
    """Return the requests, and those to come if they move on along axes of time."""
    moving = [
        targets
        for targets in requests
        if any(t.family.scope.intersection(axes) for t in targets if t.family.rows <= MAX_ROWS)
    ]
    found = list(requests)
    for step in range(1, AHEAD + 1):
        for targets in moving:
            moved = [replace(t, family=_moved(t.family, axes, step)) for t in targets]
            found.append([t for t in moved if not t.family.query.zero])
    return found


def _moved(family: Family, axes: Sequence[int], step: int) -> Family:
    """Return a family some cells further along axes; what leaves them is lost."""
    labels = family.labels
    parts = {
        part: Term.of(
            term.scale,
            [Factor(f.axes, _shifted(f.array, f.axes, axes, step, 0)) for f in term.factors],
        )
        for part, term in family.query.parts.items()
    }
    query = LinearQuery.of(family.query.space, family.grid, parts)
    return Family(query, family.axes, _shifted(labels, family.axes, axes, step, -1), family.rows)


def _shifted(
    array: NDArray[Number], own: Sequence[int], axes: Sequence[int], step: int, fill: int
) -> NDArray[Number]:
    """Return an array moved on along those of its axes that are axes of time."""
    for place, axis in enumerate(own):
        if axis in axes:
            array = np.roll(array, step, axis=place)
            np.moveaxis(array, place, 0)[:step] = fill
    return array


# --- choosing bases ------------------------------------------------------------------------------


@dataclass(eq=False)
class Cluster:
    """Requests that need the same of every base, such as those of one window that moves."""

    target: AccuracyTarget  # one of them
    scope: frozenset[int]
    queries: float = 0.0  # that differ
    direct: float = 0.0  # alpha of one, if it is measured by itself
    needs: list[float] = field(default_factory=list)  # alpha, of each candidate


def chosen(
    requests: Iterable[Sequence[AccuracyTarget]],
    pieces: Pieces,
    trees: Pieces,
    deadline: Deadline,
    times: float = 1.0,
) -> list[Base]:
    """Return the bases that all requests together need least alpha of, with their levels.

    What is measured by itself is paid so many ``times``, for requests to come.
    """
    found: list[Base] = []
    for whole, clusters in _kinds(itertools.chain(*requests), pieces).items():
        for cluster in clusters.values():
            cluster.queries *= times
        found += _of_kind(whole, clusters, pieces, trees, deadline)
    return found


def _kinds(
    targets: Iterable[AccuracyTarget], pieces: Pieces
) -> dict[LinearQuery, dict[tuple[object, ...], Cluster]]:
    """Return the clusters of targets, by the constant query whose cells they are made of."""
    kinds: dict[LinearQuery, dict[tuple[object, ...], Cluster]] = {}
    seen = set()
    for target in targets:
        family = target.family
        if family.query.zero or family.rows > planning.MAX_ROWS_BEST:
            continue
        whole = plain(family.query, pieces.units)
        if whole is None or family.query.space.cells(family.scope) > MAX_ROWS:
            continue
        clusters = kinds.setdefault(whole, {})
        row = _largest(target)
        key = (family.scope, _profile(row.family.query), target.half_width, target.delta)
        if key not in clusters and len(clusters) >= MAX_CLUSTERS:
            continue
        cluster = clusters.setdefault(key, Cluster(row, family.scope))
        if (key, family.key) not in seen:
            seen.add((key, family.key))
            cluster.queries += 1
    return kinds


def _largest(target: AccuracyTarget) -> AccuracyTarget:
    """Return the row of a target that is the sum of most cells, as a target of its own."""
    squares = [abs(square) for square in target.family.squares()]
    row = target.family.row(squares.index(max(squares)))
    return AccuracyTarget(Family(row), target.half_width, target.delta)


def _profile(query: LinearQuery) -> tuple[object, ...]:
    """Return what tells what a query needs of a marginal: its coefficients, without their order."""
    return tuple(
        (part, term.scale, tuple((f.axes, _counts(f.array)) for f in term.factors))
        for part, term in query.parts.items()
    )


def _counts(array: Integers) -> tuple[tuple[int, int], ...]:
    values, counts = np.unique(np.abs(array), return_counts=True)
    return tuple(zip(values.tolist(), counts.tolist(), strict=True))


def _of_kind(
    whole: LinearQuery,
    clusters: dict[tuple[object, ...], Cluster],
    pieces: Pieces,
    trees: Pieces,
    deadline: Deadline,
) -> list[Base]:
    """Return the bases of one kind of query."""
    every = list(clusters.values())
    candidates = list(_candidates(whole, {cluster.scope for cluster in every}, pieces, trees))
    empty = History(whole.space, pieces.records)
    for cluster in every:
        family = cluster.target.family
        price = planning.price(family, cluster.target.half_width, cluster.target.delta)
        cluster.direct = price * cluster.queries
        for base in candidates:
            need = math.inf
            if cluster.scope <= base.scope and not deadline():
                proposal = needed(base, empty, cluster.target)
                need = proposal.alpha if proposal else math.inf
            cluster.needs.append(need)
    best, cost = frozenset[int](), math.inf
    start = frozenset(
        min(range(len(candidates)), key=lambda place: (cluster.needs[place], place))
        for cluster in every
        if candidates
    )
    for start_ in (start, frozenset[int]()):
        found, total = _searched(start_, every, len(candidates), deadline)
        if total < cost:
            best, cost = found, total
    levels, _ = _assigned(best, every)
    for place, level in levels.items():
        candidates[place].level = level
    return [candidates[place] for place, level in levels.items() if level]


def _candidates(
    whole: LinearQuery, scopes: set[frozenset[int]], pieces: Pieces, trees: Pieces
) -> Iterator[Base]:
    """Yield marginals over the scopes and unions of two, and trees over these."""
    space: Space = whole.space
    order = sorted(scopes, key=lambda scope: (space.cells(scope), sorted(scope)))
    few = order[:MAX_SCOPES]
    unions = [one | two for one, two in itertools.combinations(few, 2)]
    made = 0
    for scope in dict.fromkeys([*order, *unions]):
        if space.cells(scope) > MAX_ROWS or made >= MAX_CANDIDATES:
            continue
        base = pieces.base(whole, scope)
        yield base
        made += 1
        tree = trees.base(whole, scope)
        if len(tree.families) > 1:
            yield tree
            made += 1


def _searched(
    start: frozenset[int], clusters: Sequence[Cluster], count: int, deadline: Deadline
) -> tuple[frozenset[int], float]:
    """Return the best set of candidates that small changes of ``start`` lead to, and its cost."""
    best, cost = start, _cost(start, clusters)
    better = True
    while better and not deadline():
        better = False
        swaps = [best - {out} | {new} for out in best for new in range(count) if new not in best]
        changes = [best - {out} for out in best] + [best | {new} for new in range(count)]
        for changed in changes + swaps:
            total = _cost(changed, clusters)
            if total < cost * (1 - 1e-9):
                best, cost, better = changed, total, True
                break
    return best, cost


def _cost(bases: frozenset[int], clusters: Sequence[Cluster]) -> float:
    levels, direct = _assigned(bases, clusters)
    return math.fsum(levels.values()) + direct


def _assigned(bases: frozenset[int], clusters: Sequence[Cluster]) -> tuple[dict[int, float], float]:
    """Return the levels of bases, each request served where it adds least, and what is direct."""
    levels = dict.fromkeys(sorted(bases), 0.0)
    served: dict[int, int] = {}  # cluster -> base; those that are not here are direct
    order = sorted(
        range(len(clusters)),
        key=lambda place: -min((clusters[place].needs[b] for b in bases), default=0.0),
    )
    for _ in range(3):
        for place in order:
            cluster = clusters[place]
            before = served.pop(place, None)
            if before is not None:
                mine = [clusters[p].needs[before] for p, b in served.items() if b == before]
                levels[before] = max(mine, default=0.0)
            adds = {b: max(cluster.needs[b] - level, 0.0) for b, level in levels.items()}
            least = min(adds, key=lambda b: (adds[b], cluster.needs[b]), default=None)
            if least is not None and adds[least] <= cluster.direct:
                served[place] = least
                levels[least] = max(levels[least], cluster.needs[least])
    direct = math.fsum(c.direct for p, c in enumerate(clusters) if p not in served)
    return levels, direct
