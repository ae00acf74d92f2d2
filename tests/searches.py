"""Long searches: a share of each is in every run, the rest is in the slow one."""

import pytest


def share(fast, whole):
    """Return the parameters of a search, marked as slow after the first ``fast``; a tuple is
    several parameters.
    """
    sets = [value if isinstance(value, tuple) else (value,) for value in whole]
    slow = pytest.mark.slow
    return [pytest.param(*s, marks=[slow] * (place >= fast)) for place, s in enumerate(sets)]
