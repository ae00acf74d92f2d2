"""Whether a noise-free result is PostgreSQL's result on the raw records.

Two differences are meant: the proxy lists every declared group, so a row that PostgreSQL lacks
must have only zeros for numbers; and a sum over nothing is 0, not NULL.
"""

from collections import Counter

from tests.sql.survey import plain


def same(result, names, rows, ordered=False):
    """Return what differs, or None."""
    ours_names = [column.name for column in result.columns]
    if ours_names != names:
        return f"columns {ours_names}, PostgreSQL has {names}"
    ours = [tuple(plain(cell) for cell in row) for row in result.rows]
    numbers = [i for i, c in enumerate(result.columns) if c.type == "double precision"]
    theirs = [
        tuple(0.0 if i in numbers and cell is None else plain(cell) for i, cell in enumerate(row))
        for row in rows
    ]
    ours = [
        tuple(0.0 if i in numbers and cell is None else cell for i, cell in enumerate(row))
        for row in ours
    ]
    missing = Counter(theirs) - Counter(ours)
    if missing:
        extra = list((Counter(ours) - Counter(theirs)).elements())[:5]
        return f"missing {list(missing)[:5]}\ninstead {extra}"
    spare = Counter(ours) - Counter(theirs)
    for row, origin in zip(ours, result.origins, strict=True):
        if row in spare and any(cell for cell, o in zip(row, origin, strict=True) if o):
            # a combination such as 2 * COUNT(*) - 10 is not 0 over an empty group: only its shift
            return f"not in PostgreSQL: {row}"
        if row in spare and not any(origin):
            return f"not in PostgreSQL: {row}"
    if ordered and theirs != ours:
        return f"another order: {ours[:5]} instead of {theirs[:5]}"
    return None
