"""Mutated statements sent to an engine: no crash, no charge without an answer, and no answer
without a charge.
"""

import math
import random
import re
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

import proxy.policy as policies
from proxy.cube import Cube, build
from proxy.engine import Engine
from proxy.errors import (
    DataError,
    Error,
    InsufficientBudgetError,
    InternalError,
    StatementTooComplexError,
)
from proxy.inference.accounting import UNIT, charge, maximum
from proxy.inference.noise.refinement import Refinement
from tests.engine.mutations import LANGUAGES, Mutations
from tests.privacy.double import MemoryLedger
from tests.searches import share
from tests.sql.survey import COLUMNS, records

SURVEY = Path(__file__).parent.parent / "sql" / "survey.yaml"
PRIVACY = """
privacy:
  budget: 1.5
  unit: row
  cells: [{where: "age < 3", budget: 0.6}]
  guards: [{claim: "COUNT(*) BETWEEN 0 AND 2", for_each: [region], confidence: 0.95}]
  history_size: {total: 300, analyst: 200}
analysts: {cap: {budget: 0.3}, free: {spend: off}, own: {budget: 0.4, history: own}}
"""
USERS = ("", "", "", "cap", "free", "own")
EACH = 60  # statements of one ledger
REPRS = re.compile(
    r"Traceback|object at 0x|\{\w*\}|<class|<function|NoneType|sqlglot|Fraction\(|Decimal\("
    r"|KeyError|proxy\.|numpy"
)
CANARY = "SELECT region, COUNT(*) AS n FROM survey GROUP BY region WITH UTILITY (400, 0.3)"


class Noisy:
    """The law of the engine's sampler, drawn fast and the same each time."""

    def __init__(self, seed):
        self._rng = np.random.default_rng(seed)

    def draw(self, scale, count):
        p = -np.expm1(-1 / scale)
        one, two = self._rng.geometric(p, (2, count))
        return [int(k) for k in one - two]

    def refine(self, noise, old, new):
        refinement = Refinement(old, new, self._rng.bytes)
        return [refinement.draw(each) for each in noise]


class Watched:
    """A cube that remembers the large exact numbers that were read off it."""

    def __init__(self, cube):
        self._cube, self.secrets = cube, set()

    def answer(self, family):
        exact = self._cube.answer(family)
        for value in exact:
            for shown in (value, float(value * family.grid), round(value * family.grid)):
                if abs(value) >= 10**6 and len(str(shown)) > 5:
                    self.secrets.add(str(shown))
        return exact


class Told(Engine):
    """An engine that remembers the numbers of the last statement's parts, before any outer SQL."""

    told = ()

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        real = self.planner.answered

        def answered(*args):
            told = real(*args)
            self.told = (*self.told, told.inference)
            return told

        self.planner.answered = answered


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """The survey's records as a cube, under a policy with limits of every kind."""
    folder = tmp_path_factory.mktemp("fuzz")
    head, _, rest = SURVEY.read_text().partition("\nprivacy:")
    tail = rest[rest.index("\nutility:") :]
    (folder / "survey.yaml").write_text(head + PRIVACY + tail)
    (folder / "places.csv").write_text(SURVEY.with_name("places.csv").read_text())
    rows = [[_field(value) for value in record.values()] for record in records()]
    names = [name.replace(" ", "_") for name in COLUMNS]
    (folder / "survey.csv").write_text("\n".join(map(",".join, [names, *rows])) + "\n")
    policy = policies.load(folder / "survey.yaml")
    build(policy, folder / "cube.duckdb", "audit")
    cube = Cube.open(folder / "cube.duckdb", policy.domain, "audit")
    named = tuple(
        replace(a, name=a.name.replace("Job_Title", "Job Title")) for a in policy.domain.attributes
    )
    return replace(policy, domain=replace(policy.domain, attributes=named)), Watched(cube)


def _field(value):
    return "" if value is None else '"' + str(value).replace('"', '""') + '"'


class Run:
    """One engine after another, each with an empty ledger; what became of the statements."""

    def __init__(self, world, seed):
        self._policy, self._cube = world
        self._seed, self._draw = seed, random.Random(seed)
        self.mutations = Mutations(seed)
        self.outcomes = Counter()
        self._ledgers = 0
        self._renew()

    def _renew(self):
        self._ledgers += 1
        self.ledger = MemoryLedger(self._policy)
        sampler = Noisy([self._seed, self._ledgers])
        self.engine = Told(self._policy, self.ledger, lambda snapshot: self._cube, sampler=sampler)

    def _session(self):
        draw = self._draw
        utility = draw.choice((None, None, (300, 0.1), (90_000, 0.2)))
        dialect = draw.choice(LANGUAGES) if draw.random() < 0.04 else "postgres"
        return self.engine.session(draw.choice(USERS), utility, dialect)

    def statements(self, count):
        """Send so many, to sessions of ten each."""
        session = None
        for number in range(count):
            if number and number % EACH == 0:
                self._canary()
                self._renew()
            if number % 10 == 0:
                session = self._session()
            text, parameters = self.mutations.statement()
            self.check(session, text, parameters)
        self._canary()
        return self.outcomes

    def check(self, session, text, parameters=None):
        """Send one statement and compare its result, or its error, with the ledger."""
        lines, rows = self.ledger.sequence(), len(self.ledger._rows)
        self.engine.told = ()
        result = error = None
        try:
            result = session.execute(text, parameters)
        except Error as known:
            error = known
        except Exception as crash:
            raise AssertionError(repr(text)) from crash
        paid = self._paid(lines, rows)
        said = repr((text, parameters))
        if error is not None:
            self._check_error(session, text, parameters, error, paid)
        else:
            assert Fraction(result.cost) == Fraction(paid, UNIT), said
            assert result.left >= 0, said
            self._check_numbers(paid, said)
            self.outcomes["measured" if paid else "inferred" if self.engine.told else "free"] += 1

    def _paid(self, lines, rows):
        """What the dearest cell paid; each of the ledger's new lines cost what its answers did."""
        new = list(self.ledger.audit(lines))
        appended = self.ledger._rows[rows:]
        for line in new:
            terms = [charge(r.family, r.scale) for r in appended if r.sequence == line.seq]
            assert line.cost == maximum(terms, self._space()).value
            assert line.answers == sum(len(r.answers) for r in appended if r.sequence == line.seq)
        assert {row.sequence for row in appended} == {line.seq for line in new}
        terms = [charge(row.family, row.scale) for row in appended]
        return maximum(terms, self._space()).value

    def _space(self):
        return self.engine.planner._accountant(self.engine.privileges("")).space

    def _check_numbers(self, paid, said):
        """A number is measured if and only if there is a charge."""
        told = self.engine.told
        answers = [answer for part in told for number in part.answers for answer in number]
        sources = {answer.source for answer in answers}
        assert ("measured" in sources) == (paid > 0), said
        assert sources <= {"measured", "inferred"}, said
        assert all((answer.cost > 0) == (answer.source == "measured") for answer in answers), said
        if not self.ledger._rows:  # nothing was ever measured: what is said follows from no data
            assert all(math.isnan(a.estimate) or a.high - a.low < 1e-6 for a in answers), said

    def _check_error(self, session, text, parameters, error, paid):
        told, said = str(error), repr((text, parameters))
        assert error.message, said
        assert type(error) is not InternalError, said
        assert re.fullmatch("[0-9A-Z]{5}", error.sqlstate), said
        assert error.sqlstate != "XX000", said
        assert error.position is None or 1 <= error.position <= len(text) + 1 or parameters, said
        spoken = f"{text} {parameters}"
        for found in REPRS.finditer(told):
            assert found[0] in spoken, f"{said}\n{told}"
        for secret in self._cube.secrets:
            shown = re.search(rf"(?<![\d.]){re.escape(secret)}(?!\d)", told)  # not in a cost
            assert not shown or secret in spoken, f"{said}\n{told}"
        self.outcomes[error.sqlstate] += 1
        if not paid:
            return
        # The outer SQL failed on what was measured: it stays, and is free from now on.
        assert self.engine.told, said
        assert isinstance(error, DataError | StatementTooComplexError), said
        self._check_numbers(paid, said)
        self.outcomes["paid, then failed"] += 1
        before = self.ledger.sequence()
        with pytest.raises(type(error)):
            session.execute(text, parameters)
        assert self.ledger.sequence() == before, said

    def _canary(self):
        """The engine still answers, or says that its budget is spent."""
        try:
            assert len(self.engine.session().execute(CANARY).rows) == 4
        except InsufficientBudgetError:
            self.outcomes["canary refused"] += 1


@pytest.mark.parametrize("count", share(1, [100, 400, 1000], 2))
def test_mutated_statements_are_answered_or_refused(world, count):
    """
    Of 400 (100 in the fast run) some are measured, some inferred, most refused; every charge has
    its answer.
    """
    outcomes = Run(world, 1).statements(count)
    assert outcomes["measured"] > count / 40
    assert outcomes["inferred"] >= count // 400
    assert outcomes["53400"] >= count // 100


@pytest.mark.parametrize("seed", share(0, range(2, 6), 0))
def test_ten_thousand_mutated_statements(world, seed):
    """
    10,000 of them, with other seeds.
    """
    outcomes = Run(world, seed).statements(2500)
    assert outcomes["measured"] > 60
    assert outcomes["inferred"] > 5


@pytest.mark.audit
def test_a_hundred_thousand_mutated_statements(world):
    """
    100,000 of them.
    """
    for seed in range(100, 140):
        outcomes = Run(world, seed).statements(2500)
    assert outcomes["measured"] > 60
    assert outcomes["inferred"] > 5
