"""The relations of schema ``privacy``: what the proxy says of itself, filled by the engine."""

from __future__ import annotations

from proxy.sql import types

TABLES: dict[str, tuple[tuple[str, str], ...]] = {
    "budget": (
        ("name", "text"),
        ("budget", "double precision"),
        ("spent", "double precision"),
        ("remaining", "double precision"),
        ("exact", "boolean"),
    ),
    "history": (
        ("sequence", "bigint"),
        ("time", "timestamp"),
        ("analyst", "text"),
        ("statement", "text"),
        ("cost", "double precision"),
        ("numbers", "bigint"),
    ),
}


def relation(name: str) -> str:
    """Return the definition of a relation, over named parameters."""
    columns = [
        f"unnest(CAST($sys_{name}{i} AS {types.DUCKDB[kind]}[])) AS c{i}"
        for i, (_, kind) in enumerate(TABLES[name])
    ]
    return f"sys_{name} AS (SELECT {', '.join(columns)})"
