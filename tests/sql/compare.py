"""Whether a noise-free result is PostgreSQL's result on the raw records.

Two differences are meant: the proxy lists every declared group, so a row that PostgreSQL lacks
must show the numbers of no records; and a sum over nothing is 0, not NULL.
"""

import math
from collections import Counter

from tests.sql.survey import plain


def same(result, compiled, names, rows, ordered=False):
    """Return what differs, or None."""
    ours_names = [column.name for column in result.columns]
    if ours_names != names:
        return f"columns {ours_names}, PostgreSQL has {names}"
    nothing = _nothing(result, compiled)
    ours = [_zeroed(row, nothing) for row in result.rows]
    theirs = [_zeroed(row, nothing) for row in rows]
    missing = list((Counter(theirs) - Counter(ours)).elements())
    spare = list((Counter(ours) - Counter(theirs)).elements())
    for row in list(missing):  # the same but for the last digits of a double
        near = next((other for other in spare if close(row, other)), None)
        if near is not None:
            missing.remove(row)
            spare.remove(near)
    if missing:
        return f"missing {missing[:5]}\ninstead {spare[:5]}"
    for row in spare:
        if not nothing or any(row[i] != plain(empty) for i, empty in nothing.items()):
            return f"not in PostgreSQL: {row}"
    if ordered and not all(close(*pair) for pair in zip(theirs, ours, strict=True)):
        return f"another order: {ours[:5]} instead of {theirs[:5]}"
    return None


def close(one, two):
    """Return whether two rows are equal, doubles to nine digits."""
    return all(
        a == b
        or (isinstance(a, float) and isinstance(b, float) and math.isclose(a, b, rel_tol=1e-9))
        for a, b in zip(one, two, strict=True)
    )


def _nothing(result, compiled):
    """Return, for each column of numbers, what they are where there are no records."""
    found = {}
    for origins in result.origins:
        for column, origin in enumerate(origins):
            if origin:
                found[column] = float(compiled.releases[origin[0]].numbers[origin[1]].shift)
    return found


def _zeroed(row, nothing):
    return tuple(
        plain(nothing[i] if cell is None and i in nothing else cell) for i, cell in enumerate(row)
    )
