"""Long searches: a share of each is in every run, more in the slow one, the whole in the audit."""

import pytest


def share(fast, whole, slow=None):
    """Return the parameters of a search, marked as slow after the first ``fast``, and as audit
    after the first ``slow``, if that is said; a tuple is several parameters.
    """
    sets = [value if isinstance(value, tuple) else (value,) for value in whole]
    slow = len(sets) if slow is None else slow
    marks = [[]] * fast + [pytest.mark.slow] * (slow - fast) + [pytest.mark.audit] * len(sets)
    return [pytest.param(*s, marks=mark) for s, mark in zip(sets, marks, strict=False)]
