"""Random statements mean what PostgreSQL says they mean, or are refused with a reason."""

from collections import Counter

import pytest

from proxy.errors import Error
from tests.searches import share
from tests.sql.compare import same
from tests.sql.generator import Generator
from tests.sql.survey import program, run

STATEMENTS = 5000
SEEDS = 10


@pytest.mark.parametrize(
    "seed, count", share(1, [(0, 150), *((seed, STATEMENTS // SEEDS) for seed in range(SEEDS))], 3)
)
def test_random_statements_equal_postgresql(postgres, seed, count):
    """
    Each of 5,000 random statements (150 in the fast run, 1,000 in the slow one) gives PostgreSQL's
    exact result on the raw records, but for those that tie too many columns together or overflow,
    which PostgreSQL may refuse as well.
    """
    generator = Generator(seed)
    refused = []
    for _ in range(count):
        text, binned = generator.statement()
        result = answered(text, refused)
        if result is not None:
            problem = same(result, program(text), *postgres.query(text, raw=not binned))
            assert problem is None, f"{text}\n{problem}"
    reasons = Counter(type(error).__name__ for _, error in refused)
    known = ("cells", "ties too many columns", "Overflow")
    unknown = [(t, e) for t, e in refused if not any(words in e.message for words in known)]
    assert not unknown, f"{unknown[0][0]}\n{unknown[0][1]}"
    assert len(refused) < 0.05 * count, reasons


def answered(text, refused):
    """The result of a statement; if it is refused, the reason is noted."""
    try:
        return run(text)
    except Error as error:
        refused.append((text, error))
        return None
