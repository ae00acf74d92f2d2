"""Statements that list the groups and numbers of one release as they stand: no SQL shows them.

Most statements are such.  What the outer SQL would give is known then, but for the noisy numbers:
the columns, and the order of the rows, as far as groups alone say it.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from typing import Any

from proxy.sql import provenance
from proxy.sql.bind.relations import Output
from proxy.sql.expression.faces import shown
from proxy.sql.program import GroupColumn, Listing, Number, Release

PLAIN: dict[str, type] = {  # the groups whose values are the evaluator's as they stand
    "text": str,
    "smallint": int,
    "integer": int,
    "bigint": int,
    "boolean": bool,
    "date": datetime.date,
    "timestamp": datetime.datetime,
}
NUMBERS = ("bigint", "double precision")  # so are those of these
COLUMN = re.compile(r"r\d+\.([gn])(\d+)")
KEY = re.compile(r"r\d+\.g(\d+) (ASC NULLS LAST|DESC NULLS FIRST)")


def listing(sql: str, outputs: Sequence[Output], releases: Sequence[Release]) -> Listing | None:
    """Return what a statement lists, given its SQL without the relations; None of any other."""
    if len(releases) != 1:
        return None
    release = releases[0]
    columns = [_column(output, release) for output in outputs]
    listed = [f"{shown(output.typed.sql)} AS c{i}" for i, output in enumerate(outputs)]
    listed += [f"{o.typed.provenance} AS s{i}" for i, o in enumerate(outputs) if o.typed.provenance]
    head = f"SELECT {', '.join(listed)} FROM {release.name} ORDER BY "
    if not outputs or not sql.startswith(head):
        return None
    order = _order(sql.removeprefix(head), release)
    chosen = [column for column in columns if column is not None]
    if order is None or len(chosen) < len(columns):
        return None
    return Listing(tuple(chosen), order)


def _column(output: Output, release: Release) -> tuple[str, int] | None:
    """Return which group or number of the release an output is, if it is one as it stands."""
    found = COLUMN.fullmatch(shown(output.typed.sql))
    if found is None:
        return None
    what, k = found[1], int(found[2])
    column: GroupColumn | Number = release.groups[k] if what == "g" else release.numbers[k]
    traced = provenance.pack(release.index, k, release.name) if what == "n" else None
    plain = column.type in NUMBERS if isinstance(column, Number) else _plain(column)
    if not plain or output.typed.type != column.type or output.typed.provenance != traced:
        return None
    return what, k


def _plain(group: GroupColumn) -> bool:
    """Return whether the values of a group are those that the evaluator would give."""
    return group.type in PLAIN and set(map(type, group.values)) <= {PLAIN[group.type], type(None)}


def _order(text: str, release: Release) -> tuple[int, ...] | None:
    """Return the rows in the order of an ORDER BY, if groups alone decide it; none: as they are."""
    rows = list(range(release.rows))
    *keys, last = text.split(", ")
    if last != f"{release.name}.i":
        return None
    for key in reversed(keys):
        found = KEY.fullmatch(key)
        if found is None or not _plain(release.groups[int(found[1])]):
            return None
        values: Sequence[Any] = release.groups[int(found[1])].values
        rows.sort(key=lambda i: (values[i] is None, values[i]), reverse=found[2].startswith("DESC"))
    return () if rows == sorted(rows) else tuple(rows)
