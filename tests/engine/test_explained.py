"""Explained answers: the posterior of each number, and which answers it follows from.

On a small dataset without noise: what is released is exact, its interval is that of the noise.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import proxy.engine.explained.explanations as explained
from proxy.engine.answered import PaidStatement, Sources
from proxy.engine.answers import Posterior
from proxy.engine.cache import key_of
from proxy.engine.explained.explanations import EXPLAINED, MAX_ORIGINS
from proxy.errors import InsufficientPrivilegeError
from proxy.inference import plan as planning
from proxy.inference.estimator import Estimator, omega
from proxy.inference.posterior import POINTS, distribution, ratio_distribution
from proxy.server.session.result_text import document
from tests.small import DOMAIN, Small

WITHIN = " WITH UTILITY ({}, 0.1)"
RICH = "privacy: {budget: 100, unit: row}\n"


@pytest.fixture
def small(tmp_path):
    """A folder with a few hundred people."""
    small = Small(tmp_path)
    small.data((0, "a", 200), (1, "b", 300), (5, "a", 40), (9, "b", 7))
    return small


def asking(engine, user=None):
    """A function that asks for a count in a session with explanations."""
    session = engine.session(user)
    session.execute("SET privacy.explanations = on")

    def ask(where="true", within=10, text="SELECT COUNT(*) FROM people WHERE {}"):
        return session.execute(text.format(where) + WITHIN.format(within))

    return ask


def only(result):
    """The one answer of a result, and its explanation."""
    ((answer,),), ((explanation,),) = result.answers, result.explanations
    return answer, explanation


def scales(engine):
    """The noise scales of the ledger's measurements, in their order."""
    return [row.scale for row in engine.ledger.measurements()]


@pytest.mark.parametrize("within", [2, 10, 100])
def test_a_measured_count_has_the_law_of_its_noise(small, within):
    """
    P(θ ≤ c) is that of a two-sided geometric variable around the answer: p^k p / (1 + p) is left
    beyond k; the interval has its confidence; and the number is this statement's own.
    """
    engine = small.made(RICH)
    answer, explanation = only(asking(engine)("age < 5", within))
    (scale,), posterior = scales(engine), explanation.posterior
    p = math.exp(-1 / scale)
    assert answer.estimate == 500
    for value, below in zip(posterior.values, posterior.below, strict=True):
        beyond = abs(value - 500) - 0.5  # whole steps that are still within
        tail = p ** (beyond + 1) / (1 + p) if value != 500 else 0.5
        assert below == pytest.approx(tail if value < 500 else 1 - tail, abs=1e-9)
    assert posterior.between(answer.low, answer.high) >= 0.9 - 1e-9
    assert posterior.above(answer.high) == pytest.approx(0.05, abs=0.05 * (1 - p) + 1e-9)
    (origin,) = explanation.origins
    assert (origin.kind, origin.numbers, origin.share) == ("this", 1, 1.0)
    assert origin.weights == (1.0, 1.0)
    assert origin.statement.startswith("SELECT COUNT(*) FROM people WHERE age < 5")


def test_an_inferred_count_says_which_answers_it_adds_up(small):
    """
    A sum of two measured counts: each once, with its own variance; as privacy.history lists them.
    """
    engine = small.made(RICH)
    ask = asking(engine)
    ask("town = 'a'", 10)
    ask("town = 'b'", 20)
    answer, explanation = only(ask("true", 40))
    assert answer.source == "inferred"
    variances = 2 / omega(1 / np.array(scales(engine))) ** 2
    shares = variances[::-1] / variances.sum()  # the second is noisier
    found = explanation.origins
    assert [origin.share for origin in found] == pytest.approx(shares.tolist())
    assert [origin.weights for origin in found] == [(1.0, 1.0), (1.0, 1.0)]
    assert [origin.kind for origin in found] == ["earlier", "earlier"]
    history = engine.session().execute("SELECT * FROM privacy.history ORDER BY 1 DESC").rows
    assert [(o.sequence, o.time, o.statement) for o in found] == [
        (line[0], line[1], line[3]) for line in history
    ]
    assert explanation.posterior.between(answer.low, answer.high) >= 0.9


def test_weights_are_those_of_the_best_linear_unbiased_estimate(small):
    """
    Of a, b and a + b, all measured, a is estimated with the weights of generalized least squares.
    """
    engine = small.made(RICH)
    ask = asking(engine)
    for where, within in (("town = 'a'", 10), ("town = 'b'", 12), ("true", 11)):
        ask(where, within)
    _, explanation = only(ask("town = 'a'", 10))
    rows = np.array([[1.0, 0], [0, 1], [1, 1]])
    inverse = np.diag(omega(1 / np.array(scales(engine))) ** 2 / 2)
    best = np.linalg.solve(rows.T @ inverse @ rows, rows.T @ inverse)[0]
    by_text = {origin.statement.split("WHERE ")[1][:10]: origin for origin in explanation.origins}
    for start, weight in zip(("town = 'a'", "town = 'b'", "true WITH "), best, strict=True):
        assert by_text[start].weights == pytest.approx((weight, weight))
    shares = best**2 / np.diag(inverse)
    assert by_text["town = 'b'"].share == pytest.approx(shares[1] / shares.sum())


def test_the_posterior_keeps_to_what_is_possible(small):
    """
    Nobody can be fewer than 0: of a count of 7 within 10, nothing is below, and the interval, cut
    at 0, has its confidence.
    """
    answer, explanation = only(asking(small.made(RICH))("age = 9", 10))
    posterior = explanation.posterior
    assert (answer.low, posterior.values[0], posterior.below[0]) == (0, -0.5, 0)
    assert posterior.at_most(-1) == 0
    assert posterior.between(answer.low, answer.high) >= 0.9


def test_a_claim_is_read_half_way_between_possible_values():
    """
    Of θ = 3 or 4, alike: no more than 3 is one half, whatever is asked between the two.
    """
    posterior = Posterior((2.5, 3.5, 4.5), (0.0, 0.5, 1.0), 0.0, 1.0)
    assert [posterior.at_most(v) for v in (2, 2.9, 3, 3.4, 3.9, 4, 99)] == [0, 0, *[0.5] * 3, 1, 1]
    assert posterior.above(3) == 0.5
    assert posterior.between(3.1, 4) == 0.5
    assert posterior.between(3, 4) == 1
    assert posterior.between(3.2, 3.8) == 0
    assert posterior.density() == [(3.0, 0.5), (4.0, 0.5)]


def test_off_there_is_nothing(small, monkeypatch):
    """
    Unless the session asks for it, nothing is worked out, and nothing sent.
    """
    engine = small.made()
    monkeypatch.setattr("proxy.engine.planner.Statements.follow", None)
    monkeypatch.setattr("proxy.engine.explained.explanations._explanation", None)
    result = engine.session().execute("SELECT COUNT(*) FROM people")
    assert result.explanations == []
    assert "explanations" not in document(result)


def test_texts_of_others_are_not_shown(small):
    """
    An analyst learns how many numbers are others', and nothing more; an auditor, whose they are;
    and what the one was shown is not given to the other, nor to the auditor once they are none.
    """
    small.users(ann="roles: [analyst]", bob="roles: [analyst]", eve="roles: [analyst, auditor]")
    engine = small.made(RICH)
    asking(engine, "ann")("town = 'a'", 10)
    asking(engine, "bob")("town = 'b'", 20)

    def origins(user):
        result = asking(engine, user)("true", 40)
        assert ("town" in document(result)) == ("WHERE town" in str(only(result)[1]))
        return only(result)[1].origins

    for user, own, sequence in (("eve", None, None), ("ann", "a", 1), ("bob", "b", 1)):
        for _ in range(2):  # worked out, and given again
            found = origins(user)
            assert sum(origin.share for origin in found) == pytest.approx(1)
            if own is None:
                assert all(origin.kind == "earlier" and origin.statement for origin in found)
                continue
            (others,) = (origin for origin in found if origin.kind == "others")
            shown = (others.statement, others.time, others.sequence, others.weights)
            assert (others.numbers, *shown) == (1, None, None, None, None)
            (mine,) = (origin for origin in found if origin.kind != "others")
            assert f"town = '{own}'" in mine.statement
            assert mine.sequence == sequence
    small.users(ann="roles: [analyst]", bob="roles: [analyst]", eve="roles: [analyst]")
    engine.read_users()
    assert {origin.kind for origin in origins("eve")} == {"others"}


def test_steps_of_a_statement_are_one_origin(small):
    """
    What is met in steps is measured several times, by one statement.
    """
    engine = small.made(RICH)
    result = asking(engine)("town = 'a' AND age = 0", "1 PERCENT")
    assert len(scales(engine)) > 1
    (origin,) = only(result)[1].origins
    assert origin.kind == "this"
    assert origin.numbers == len(scales(engine))
    again = only(asking(engine)("town = 'a' AND age = 0", "1 PERCENT"))[1].origins
    assert [(o.kind, o.sequence) for o in again] == [("earlier", origin.sequence)]


def test_only_numbers_that_are_one_linear_query_are_explained(small):
    """
    What is computed has no explanation; its place among the answers has None.
    """
    ask = asking(small.made(RICH))
    text = "SELECT COUNT(*), ROUND(COUNT(*) / 7.0), 2 * COUNT(*) + 1 FROM people WHERE {}"
    result = ask("true", 10, text)
    assert [each is None for each in result.explanations[0]] == [False, True, False]
    assert result.explanations[0][2].posterior.zero == 1
    assert len(result.answers[0]) == 3


def test_columns_beside_numbers_change_no_explanation(small):
    """
    With privacy.columns there are more columns, and as many answers and explanations.
    """
    engine = small.made(RICH)
    ask = asking(engine)
    ask("true", 10)
    plain = ask("true", 10)
    session = engine.session()
    session.execute("SET privacy.explanations = on")
    session.execute("SET privacy.columns = on")
    wide = session.execute("SELECT COUNT(*) FROM people WHERE true WITH UTILITY (10, 0.1)")
    assert wide.explanations == plain.explanations
    assert wide.answers == plain.answers
    assert len(wide.columns) == 4


def test_of_many_rows_the_first_are_explained(small):
    """
    Rows as they are shown, whatever their order, up to a bound.
    """
    domain = DOMAIN.replace("range: [0, 9]", f"range: [0, {EXPLAINED + 9}]")
    ask = asking(small.made(RICH, domain=domain))
    text = "SELECT age, COUNT(*) FROM people WHERE {} GROUP BY age ORDER BY 2 DESC"
    result = ask("true", 10, text)
    made = [explanation is not None for (explanation,) in result.explanations]
    assert made == [True] * EXPLAINED + [False] * 10
    assert result.rows[0][0] == 1
    assert result.explanations[0][0].posterior.at_most(299) == pytest.approx(0.5, abs=0.1)


def test_an_empty_group_has_no_noise(small):
    """
    What nobody can be in is 0 for sure.
    """
    answer, explanation = only(asking(small.made(RICH))("age = 1 AND age = 2"))
    assert answer.estimate == 0
    assert explanation.origins == ()
    assert (explanation.posterior.at_most(-1), explanation.posterior.at_most(0)) == (0, 1)


def test_explanations_ask_nobody_who_may_not_ask(small):
    """
    The setting gives nobody a role.
    """
    small.users(sam="roles: [steward]")
    engine = small.made(RICH)
    with pytest.raises(InsufficientPrivilegeError):
        asking(engine, "sam")("true")


def estimator(coefficients, rates, unit=1):
    """An estimator of so many rows."""
    rows = np.arange(len(rates))
    return Estimator(Fraction(unit), rows, np.array(coefficients), np.array(rates))


terms = st.lists(st.tuples(st.floats(0.01, 3.0), st.floats(1e-4, 3.0)), min_size=1, max_size=4)


@settings(max_examples=25)
@given(terms, st.integers(-50, 500), st.sampled_from((0.5, 0.1, 0.01)), st.booleans())
def test_a_posterior_is_a_law_and_has_the_interval_s_confidence(terms, estimate, delta, bounded):
    """
    It rises from 0 to 1, is even around an estimate within what is possible, and the interval has
    its confidence, wherever it is cut, up to a step.
    """
    used = estimator(*zip(*terms, strict=True))
    possible = (0.0, 400.0) if bounded else (-1e9, 1e9)
    half = planning.half_width(used, delta)
    values, below = distribution(used, estimate, half, possible, 0.0, 1.0)
    assert (np.diff(values) > 0).all()
    assert (np.diff(below) >= 0).all()
    assert 0 <= below[0] <= below[-1] <= 1
    assert values[0] >= possible[0] - 0.5
    assert values[-1] <= possible[1] + 0.5
    assert len(values) <= 4 * POINTS
    center = min(max(estimate, possible[0]), possible[1])
    ends = max(center - half, possible[0]) - 1, min(center + half, possible[1]) + 1
    low, high = np.interp(ends, values, below)
    assert high - low >= 1 - delta - 1e-9
    if not bounded:
        assert np.interp(2 * estimate - values, values, below) == pytest.approx(1 - below, abs=1e-9)


@settings(max_examples=50)
@given(st.data(), st.integers(1, 60))
def test_shares_add_up_to_one(data, count):
    """
    Whoever measured what: they are sorted, the asking statement first, and capped; of others and
    of the rest there is one each, and no text.
    """
    rates = data.draw(st.lists(st.floats(0.1, 3), min_size=count, max_size=count))
    weights = data.draw(st.lists(st.floats(0.1, 3), min_size=count, max_size=count))
    places = data.draw(st.lists(st.integers(-1, 39), min_size=count, max_size=count))
    texts = [PaidStatement(i, None, f"SELECT {i}") for i in range(40)]
    sources = Sources(range(count), [1.0] * count, places, texts, 7, 1000)
    found = explained._origins(estimator(weights, rates), sources)
    assert sum(origin.share for origin in found) == pytest.approx(1)
    assert sum(origin.numbers for origin in found) == count
    assert len(found) <= MAX_ORIGINS
    assert (found[0].kind == "this") == (7 in places)
    kinds = [origin.kind for origin in found]
    assert kinds.count("others") == (-1 in places)
    assert kinds.count("rest") <= 1
    shares = [origin.share for origin in found if origin.kind == "earlier"]
    assert shares == sorted(shares, reverse=True)
    for origin in found:
        assert (origin.statement is None) == (origin.kind in ("others", "rest"))


def test_an_average_has_a_posterior_and_origins(small):
    """
    Its interval has its confidence; what is above a value is what PROBABILITY says; what it adds
    up are its sum and its count, of whose noise the shares are.
    """
    ask = asking(small.made(RICH))
    result = ask("true", 0.3, "SELECT AVG(age), PROBABILITY(AVG(age) > 0.95) FROM people WHERE {}")
    (answer, *_), (explanation, *_) = result.answers[0], result.explanations[0]
    posterior = explanation.posterior
    assert answer.estimate == pytest.approx(563 / 547, abs=0.05)
    assert posterior.between(answer.low, answer.high) >= 0.9 - 1e-9
    assert posterior.above(0.95) == pytest.approx(result.rows[0][1], abs=2e-3)
    assert posterior.step == 0
    assert posterior.at_most(-1) == 0
    assert posterior.at_most(9) == 1
    (origin,) = explanation.origins
    assert origin.kind == "this"
    assert origin.share == pytest.approx(1)
    assert origin.numbers >= 2


def test_an_average_of_nobody_has_no_explanation(small):
    """
    Where nobody may be counted, it may be anything.
    """
    result = asking(small.made(RICH))("age = 7", 1, "SELECT AVG(age) FROM people WHERE {}")
    assert result.rows == [(None,)]
    assert result.explanations == [[None]]


@pytest.mark.parametrize("claim", ["> 505", ">= 500", "< 493"])
def test_a_count_s_posterior_says_what_a_claim_says(small, claim):
    """
    PROBABILITY in SQL and the posterior read alike, inferred from several answers as well.
    """
    ask = asking(small.made(RICH))
    for where in ("town = 'a'", "town = 'b'"):
        ask(f"age < 5 AND {where}", 10)
    text = f"SELECT COUNT(*), PROBABILITY(COUNT(*) {claim}) FROM people WHERE {{}}"
    result = ask("age < 5", 20, text)
    posterior = result.explanations[0][0].posterior
    assert result.answers[0][0].source == "inferred"
    found = {
        "> 505": posterior.above(505),
        ">= 500": posterior.above(499),
        "< 493": posterior.at_most(492),
    }
    assert result.rows[0][1] == pytest.approx(found[claim], abs=4e-3)


@settings(max_examples=30)
@given(st.integers(1, 400), st.floats(-1, 1), st.floats(0.01, 1), st.sampled_from((0.1, 0.01)))
def test_a_ratio_s_posterior_is_a_law(count, mean, rate, delta):
    """
    It rises within what is possible, and the interval has its confidence, however it was found.
    """
    top, bottom = estimator((1.0, 0.5), (rate, 0.3)), estimator((1.0,), (0.7,))
    ends = mean - 3 / count, mean + 4 / count
    cut = max(ends[0], -1.0), min(ends[1], 1.0)
    values, below = ratio_distribution(
        top, bottom, (mean * count, count), mean, cut, (-1.0, 1.0), delta
    )
    assert (np.diff(values) > 0).all()
    assert (np.diff(below) >= 0).all()
    assert 0 <= below[0] <= below[-1] <= 1
    assert -1 <= values[0] <= values[-1] <= 1
    low, high = np.interp(cut, values, below)
    assert high - low >= 1 - delta - 1e-9


def test_a_step_is_not_taken_from_the_interval():
    """
    1.1 K ends an interval of 95% at 5.5, half-way between two counts: the curve has it there.
    """
    used = estimator((1.1,), (0.55,))
    half = planning.half_width(used, 0.05)
    assert half == pytest.approx(5.5)
    values, below = distribution(used, 0.0, half, (-1e9, 1e9), 0.0, 1.0)
    low, high = np.interp((-half - 0.5, half + 0.5), values, below)
    assert high - low >= 0.95 - 1e-9


def test_weights_are_of_answers_as_they_were_given(small):
    """
    Of half a count and 3, which was measured, the count is twice what is above 3.
    """
    ask = asking(small.made(RICH))
    ask("true", 5, "SELECT 0.5 * COUNT(*) + 3 FROM people WHERE {}")
    answer, explanation = only(ask("true", 11))
    assert answer.source == "inferred"
    assert explanation.origins[0].weights == (2, 2)


def test_what_is_but_a_rounding_is_no_origin():
    """
    A weight that least squares leave at 1e-9 of the others stands for nothing.
    """
    texts = [PaidStatement(i, None, f"SELECT {i}") for i in range(2)]
    sources = Sources((0, 1), (1.0, 1.0), (0, 1), texts, -1, 1000)
    (origin,) = explained._origins(estimator((1.0, 1e-9), (0.1, 0.1)), sources)
    assert (origin.statement, origin.share) == ("SELECT 0", 1.0)


def test_results_are_given_again_to_whoever_sees_as_much(small):
    """
    What a result shows of statements depends on whose the user may see.
    """
    small.users(eve="roles: [analyst, auditor]")
    engine = small.made(RICH)
    session = engine.session("eve")
    before = key_of(None, session)
    assert key_of(None, session) == before
    session.privileges = replace(session.privileges, roles=frozenset({"analyst"}))
    assert key_of(None, session) != before
