"""What a dataset looks like from outside: a table, its columns and their comments.

It follows from the policy alone.  Every door shows the same: the mirror's catalogs, and reflection
on an embedded policy.
"""

from __future__ import annotations

from msgspec import Struct

from proxy.policy import Policy
from proxy.sql.program import Column
from proxy.sql.types import of_attribute, of_measure


class Relation(Struct, frozen=True):
    """A table or view."""

    schema: str
    name: str
    columns: tuple[Column, ...]
    comment: str = ""
    comments: tuple[str, ...] = ()  # of the columns


def relation(policy: Policy) -> Relation:
    """Return the table that a dataset is: attributes, their levels, measures."""
    columns: list[Column] = []
    comments: list[str] = []
    for attribute in policy.domain.attributes:
        columns.append(Column(attribute.name, of_attribute(attribute)))
        comments.append("attribute, in bins" if attribute.binned else "attribute")
        for level in attribute.levels or ():
            columns.append(Column(level, "text"))
            comments.append(f"level of {attribute.name}")
    for measure in policy.domain.measures:
        columns.append(Column(measure.name, of_measure(measure)))
        comments.append(f"measure, clipped to [{float(measure.low):g}, {float(measure.high):g}]")
    return Relation("public", policy.dataset, tuple(columns), policy.description, tuple(comments))
