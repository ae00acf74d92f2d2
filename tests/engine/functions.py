"""Histories in memory, whose noise is drawn anew for each run: what statements tell of them.

The truth is the counts of a few cells.  A run costs what the interval costs: the SQL around the
numbers is run once, for its forms; over drawn numbers a function of numpy stands for it, which is
compared with the SQL by ``sql_over``.
"""

from dataclasses import dataclass

import numpy as np

from proxy.engine.functions.cells import computed
from proxy.engine.functions.numbers import Numbers
from proxy.engine.linear_goals import AbsoluteGoal
from proxy.engine.outcomes import Outcome
from proxy.engine.result import shown
from proxy.inference.history import History
from proxy.sql import draw, parameters, postprocess
from proxy.sql.compile.release_point import space


@dataclass
class World:
    """A policy's space, its true cells, and a history that measured some statements."""

    policy: object
    evaluator: object
    compile: object  # a text to its program
    truth: np.ndarray  # the count of each cell
    delta: float

    def __post_init__(self):
        self.history = History(space(self.policy.domain), self.policy.max_records)
        self.exact = []

    def measured(self, text, scale):
        """Take up the numbers of a statement, measured with this noise."""
        for release in self.compile(text).releases:
            for number in release.numbers:
                family = number.family
                self.history.append(family, scale)
                self.exact += [self.answer(family.row(i)) for i in range(family.rows)]

    def answer(self, query):
        """Return the true answer to a count query, in units of its grid."""
        ((part, term),) = query.parts.items()
        assert part == 0
        axes = range(len(self.policy.domain.sizes))
        return int((term.dense(list(axes), query.space) * self.truth).sum())

    def run(self, rng):
        """Draw all noise anew."""
        rates = np.array(self.history._rates)
        noise = rng.geometric(-np.expm1(-rates)) - rng.geometric(-np.expm1(-rates))
        self.history.answers[:] = [a + int(k) for a, k in zip(self.exact, noise, strict=True)]

    def outcomes(self, program):
        """Return what is known of the numbers of a statement, all inferred."""
        found = []
        for release in program.releases:
            row = []
            for number in release.numbers:
                if not hasattr(self, "_known"):
                    self._known = {}
                key = id(number)
                if key not in self._known:
                    rows = [number.family.row(i) for i in range(release.rows)]
                    best = [min(self.history.estimators(q), key=lambda e: e.variance) for q in rows]
                    self._known[key] = [(each,) for each in best]
                estimators = self._known[key]
                goal = AbsoluteGoal(number, 1, self.delta)
                answers = goal.answers(self.history, estimators, frozenset(), {})
                row.append(Outcome(number, self.delta, estimators, answers, ()))
            found.append(row)
        return found

    def values(self, outcomes):
        """Return the numbers as they are shown."""
        return [
            [[shown(a.estimate, each.number, False) for a in each.answers] for each in release]
            for release in outcomes
        ]

    def true_rows(self, program):
        """Return what a statement gives on the true numbers."""
        values = [
            [[self.answer(n.family.row(i)) for i in range(release.rows)] for n in release.numbers]
            for release in program.releases
        ]
        return postprocess(program, values, self.evaluator).rows

    def told(self, program, rows=None, over=None):
        """Return the answers of the computed cells, by row and column.

        ``rows``: those of an earlier run, whose forms are the same; ``over``: what the SQL gives
        over drawn numbers, as a function of [draw, number, row].
        """
        outcomes = self.outcomes(program)
        values = self.values(outcomes)
        given = rows or postprocess(program, values, self.evaluator)

        def run(drawn, count):
            if over is None:
                par = parameters(program, values)
                return draw(program, self.evaluator, par, drawn, count)
            return numpy_over(over, drawn, given, program)

        numbers = Numbers(program, outcomes, values, [])
        return computed(numbers, given, run, lambda: None)[0], given


def numpy_over(over, drawn, rows, program):
    """Return what a function of numpy gives, in the form in which the SQL does."""
    numbers = [np.array(each, dtype=float) for each in drawn[0]]
    cells = over(*numbers)  # [draw, row]
    return [
        (s, key, None if np.isnan(v) else float(v))
        for s, line in enumerate(cells)
        for key, v in zip(rows.keys, line, strict=True)
    ]
