"""Arithmetic of decimals: its whole parts, remainders and comparisons are PostgreSQL's.

A quotient has 15 digits here; where it has no more, it is exact, and so is what rests on it.
"""

import random
from decimal import Decimal

import pytest

from tests.sql.survey import plain, run

SHAPES = [
    "floor({a} / {b})", "ceil({a} / {b})", "trunc({a} / {b})", "div({a}, {b})",
    "round({a} / {b}, 6)", "{a} / {b} = {c}", "{a} / {b} >= {c}", "{a} / {b} in ({c}, {d})",
    "{a} % {b}", "mod({a}, {b})", "({a} * {d}) % {b}", "({a} + {b}) % {b}", "round({a}, 1) % {b}",
    "coalesce({a}, {d}) % {b}", "case when {a} > {b} then {a} else {d} end % {b}",
    "floor({a} * {b} / {b})", "floor(({a} + {b}) / {b}) * {b}", "{a} * {b} / {b} = {a}",
    "floor(sqrt({a} * {a}))", "floor(power({b}, 2) / {b})", "width_bucket({a}, 0, 9, 7)",
    "floor({a} / {b} / {b})", "floor(-({a}) / {b})", "-({a}) % {b}",
    "floor(log(10.0, power(10.0, {n})))",
]  # fmt: skip


def expression(rng):
    """Return an expression of decimals of which many divide one another."""
    step = Decimal(rng.choice(["0.1", "0.2", "0.05", "0.25", "1.1", "0.3", "0.7", "0.01", "2.5"]))
    times, other = rng.randint(0, 40), rng.choice(["1", "0.5", "3", "1.25", "7"])
    a = step * times if rng.random() < 0.8 else Decimal(rng.randint(-999, 999)) / 100
    written = {
        "a": rng.choice([f"{a}", f"{a}::numeric", f"'{a}'::numeric", f"({a} * 1)"]),
        "b": f"{step}",
        "c": f"{times}",
        "d": other,
        "n": rng.randint(0, 15),
    }
    return rng.choice(SHAPES).format(**written)


@pytest.mark.parametrize("seed", range(3))
def test_decimals_are_divided_as_by_postgresql(postgres, seed):
    """
    Of 250 expressions, constants and columns of results.
    """
    rng = random.Random(seed)
    texts = [expression(rng) for _ in range(250)]
    wrong = []
    for start in range(0, len(texts), 25):
        chunk = texts[start : start + 25]
        query = "SELECT " + ", ".join(f"{text} AS x{i}" for i, text in enumerate(chunk))
        found = run(query).rows[0]
        expected = postgres.query(query)[1][0]
        wrong += [
            f"{text}: {mine}, PostgreSQL has {theirs}"
            for text, mine, theirs in zip(chunk, found, expected, strict=True)
            if plain(mine) != plain(theirs)
        ]
    assert wrong == []
