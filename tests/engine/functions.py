"""Histories in memory, whose noise is drawn anew for each run, and what is told of a statement.

The truth is what is in each cell.  A run costs little: nothing is planned, stored or charged; over
drawn numbers a function of numpy may stand for the SQL, of which tests say that it is the same.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from msgspec.structs import replace

from proxy.engine.answers import Answer
from proxy.engine.functions.cells import computed
from proxy.engine.functions.numbers import Numbers
from proxy.engine.goals.linear import AbsoluteGoal
from proxy.engine.outcomes import Outcome
from proxy.engine.result import shown
from proxy.inference.history import History
from proxy.sql import draw, parameters, postprocess
from proxy.sql.compile.release_point import space
from proxy.sql.provenance import unpack


@dataclass
class World:
    """A policy, what is in its cells, and a history of noisy answers."""

    policy: object
    evaluator: object
    truth: dict  # of each part of a query: what is in each cell
    delta: float
    seed: int = 1
    exact: list = field(default_factory=list)  # the answers without noise
    _best: dict = field(default_factory=dict)
    _first: dict = field(default_factory=dict)

    def __post_init__(self):
        self.history = History(space(self.policy.domain), self.policy.max_records)
        self.random = np.random.default_rng(self.seed)

    def measured(self, program, scale):
        """Take up the numbers of a statement, measured with noise of this scale."""
        for release in program.releases:
            for number in release.numbers:
                for family in filter(None, (number.denominator, number.family)):
                    self.history.append(family, scale)
                    rows = map(family.row, range(family.rows))
                    self.exact += [int(self.answer(q) / family.grid) for q in rows]

    def answer(self, query):
        """Return the true answer to a query."""
        axes = list(range(len(self.policy.domain.sizes)))
        terms = (t.dense(axes, query.space) * self.truth[p] for p, t in query.parts.items())
        return query.grid * sum(int(term.sum()) for term in terms)

    def run(self):
        """Draw all noise anew."""
        p = -np.expm1(-self.history._rates.of(np.arange(len(self.history))))
        noise = self.random.geometric(p) - self.random.geometric(p)
        drawn = [a + int(k) for a, k in zip(self.exact, noise, strict=True)]
        for block in self.history.blocks:
            self.history.set_answers(block, drawn[block.rows.start : block.rows.stop])

    def outcomes(self, program):
        """Return what is known of the numbers of a statement: all are inferred."""
        return [
            [self._outcome(number, release.rows) for number in release.numbers]
            for release in program.releases
        ]

    def _outcome(self, number, rows):
        estimators = [
            tuple(
                self._estimator((id(number), k, row), family.row(row))
                for k, family in enumerate(filter(None, (number.denominator, number.family)))
            )
            for row in range(rows)
        ]
        if number.kind != "avg":
            goal = AbsoluteGoal(number, 1, self.delta)
            answers = goal.answers(self.history, estimators, frozenset(), {})
            return Outcome(number, self.delta, estimators, answers, ())
        estimates = [tuple(map(self.history.estimate, row)) for row in estimators]
        low, high = map(float, number.bounds)
        means = [
            min(max(float(number.shift) + top / under, low), high) if under > 0 else math.nan
            for under, top in estimates
        ]
        answers = [Answer(mean, low, high, 1 - self.delta, "inferred", 0.0) for mean in means]
        return Outcome(number, self.delta, estimators, answers, (), 1, estimates)

    def _estimator(self, key, query):
        if key not in self._best:
            known = self.history.estimators(query)
            self._best[key] = min(known, key=lambda estimator: estimator.variance)
        return self._best[key]

    def true_rows(self, program):
        """Return what a statement gives on the true numbers."""
        values = [
            [[self._true(number, row) for row in range(release.rows)] for number in release.numbers]
            for release in program.releases
        ]
        return postprocess(program, values, self.evaluator).rows

    def _true(self, number, row):
        value = self.answer(number.family.row(row))
        if number.kind == "avg":
            below = self.answer(number.denominator.row(row))
            return float(number.shift + value / below) if below else None
        return int(value) if number.whole else float(value)

    def _rows(self, program, values, over):
        """Return the rows of a statement: once by its SQL, then as their forms say.

        Where draws are looked at, nothing is asked of the values.
        """
        if over is None and program.wide.drawn:
            return postprocess(program, values, self.evaluator)
        if id(program) not in self._first:
            self._first[id(program)] = postprocess(program, values, self.evaluator)
        rows = self._first[id(program)]
        if program.wide.drawn:
            return rows

        def total(terms):
            numbers = [(c, unpack(i) if i >= 0 else None) for i, c in zip(*terms, strict=True)]
            terms = [(c, values[at[0]][at[1]][at[2]] if at else 1.0) for c, at in numbers]
            return None if any(v is None for _, v in terms) else sum(c * v for c, v in terms)

        moved = []
        for key, row in zip(rows.keys, rows.rows, strict=True):
            cells = list(row)
            for i, trace in enumerate(program.traces):
                if trace is None or trace.steps:
                    continue
                found = rows.linear[key]
                parts = [(found[part], found[part + 1]) for part in trace.parts]
                if (None, None) in parts:
                    continue
                top, *under = map(total, parts)
                if top is None:
                    cells[i] = None
                    continue
                cells[i] = top if not under else top / under[0] if under[0] else None
            moved.append(tuple(cells))
        return replace(rows, rows=moved)

    def told(self, program, over=None, place=None):
        """Return the answers of the computed cells, of all rows or of one.

        ``over`` stands for the SQL over drawn numbers: a function of arrays [draw, row], one for
        each number, which gives the column that is drawn [draw, row].
        """
        outcomes = self.outcomes(program)
        values = [
            [[shown(a.estimate, each.number, False) for a in each.answers] for each in release]
            for release in outcomes
        ]
        rows = self._rows(program, values, over)
        places = list(range(len(rows.rows)) if place is None else [place])
        rows = replace(
            rows, rows=[rows.rows[i] for i in places], keys=[rows.keys[i] for i in places]
        )

        def run(drawn, count):
            if over is None:
                return draw(program, self.evaluator, parameters(program, values), drawn, count)
            cells = over(*(np.array(each, dtype=float) for each in drawn[0]))
            return [
                (case, key, None if math.isnan(line[i]) else float(line[i]))
                for case, line in enumerate(cells)
                for i, key in zip(places, rows.keys, strict=True)
            ]

        return computed(Numbers(program, outcomes, values, []), rows, run, lambda: None)[0]
