"""Random statements mean what PostgreSQL says they mean, or are refused with a reason."""

import pytest

from proxy.errors import Error
from tests.sql.compare import same
from tests.sql.generator import Generator
from tests.sql.survey import program, run


def test_random_statements_equal_postgresql(postgres):
    """
    Each of 400 random statements gives PostgreSQL's exact result on the raw records.
    """
    _check(postgres, seed=1, count=400)


def _check(postgres, seed, count):
    generator = Generator(seed)
    refused = []
    for _ in range(count):
        text = generator.statement()
        try:
            result = run(text)
        except Error as error:
            refused.append((text, str(error)))
            continue
        keys = text.partition(" GROUP BY ")[2]
        names, rows = postgres.query(text, raw="income" not in keys and "month" not in keys)
        problem = same(result, program(text), names, rows)
        if problem:
            pytest.fail(f"{text}\n{problem}")
    assert not refused, "\n\n".join(f"{text}\n{reason}" for text, reason in refused[:5])
