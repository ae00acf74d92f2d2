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
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from proxy.inference import plan as planning
from proxy.inference.accounting import UNIT, Account, BudgetRule, charge, maximum
from proxy.inference.estimator import Integers
from proxy.inference.family import Family
from proxy.inference.history import History
from proxy.inference.plan import AccuracyTarget, Allocation, Plan, Strategy
from proxy.inference.query import Factor, LinearQuery, Term, TooLargeError
from proxy.inference.space import Space
from proxy.inference.strategies.bases import MAX_ROWS, Base, Bases, Pieces, needed, plain
from proxy.inference.strategies.simulated import AFTER, Simulated

MARGINALS = "marginals"  # that are chosen for the requests
STRATEGIES = ("topup", "pieces", "hierarchy", MARGINALS)
MAX_SCOPES = 12  # of one kind of query whose unions are candidates
MAX_CANDIDATES = 40  # bases of one kind
AHEAD = 4  # steps in time by which requests are moved on
MAX_CLUSTERS = 120  # requests of one kind, those that differ


Number = TypeVar("Number", bound=np.generic)
Deadline = Callable[[], bool]  # whether time is up


def until(seconds: float) -> Deadline:
    """Return a deadline from now, of time that this process works."""
    end = time.process_time() + seconds
    return lambda: time.process_time() > end


class Shadow(Struct, frozen=True):
    """Where strategies are tried: the shape of a cube, and the limits on its cells."""

    space: Space
    records: int
    rules: Sequence[BudgetRule]
    floor: float  # the least alpha of a measurement
    cap: float = math.inf  # on what statements spend together, 2⁻⁴⁰ alpha

    @property
    def budget(self) -> float:
        """The least of the limits on cells, in 2⁻⁴⁰ alpha."""
        return min((rule.budget for rule in self.rules), default=math.inf)


class Choice(Struct, frozen=True, eq=False):
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
    budget = min(shadow.budget, shadow.cap) / UNIT

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
    left = shadow.cap
    for targets in requests:
        if deadline():
            break
        how = Allocation(name != "paper", shadow.floor, strategy)
        before = account.spent().value
        plan = afforded(history, account, shadow.rules, targets, how, left)
        cost = maximum(_charges(plan), shadow.space).value if plan else 0
        left -= cost
        for each in plan.measurements if plan else ():
            history.set_answers(each.block, [0] * each.family.rows)
            each.block.refinable = True
        more = cost if shadow.cap <= shadow.budget else account.spent().value - before
        paid.append(more / UNIT if plan else None)
    return Simulated(name, tuple(paid))


def afforded(
    history: History,
    account: Account,
    rules: Sequence[BudgetRule],
    targets: Sequence[AccuracyTarget],
    allocation: Allocation,
    left: float = math.inf,
) -> Plan | None:
    """Return what is measured for a statement, which then is charged; None where it is refused.

    Where the rules, or what is ``left`` for it, do not allow what the strategy measures, it is what
    was asked for.  The answers are the caller's to give.
    """
    for how in dict.fromkeys((allocation, replace(allocation, strategy=None))):
        mark = history.mark
        try:
            plan = planning.plan(history, targets, how)
            terms = _charges(plan)
            cost = maximum(terms, account.space).value if math.isfinite(left) else 0
            if cost <= left and account.check(terms, rules) is None:
                account.add(terms)
                history.refined.clear()
                return plan
        except TooLargeError:
            pass
        history.take_back(mark)
    return None


def _charges(plan: Plan) -> list[Term]:
    """Return what a plan charges."""
    return [charge(each.family, each.scale, each.before) for each in plan.measurements]


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
