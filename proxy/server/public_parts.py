"""What is public of a dataset: what its mirror and the workers are told."""

from __future__ import annotations

from msgspec.structs import replace

from proxy.catalog import Relation, relation
from proxy.engine import Column, Engine
from proxy.server.mirror.mirror import SCHEMA, PublicRows
from proxy.server.statements.routing import OWN
from proxy.server.workers.tasks import Dataset
from proxy.sql.evaluator.public_tables import load as load_public


def public_part(engine: Engine) -> Dataset:
    """Return what a worker may know of a dataset."""
    policy = engine.policy
    tables = {name: load_public(name, table.path) for name, table in policy.public.items()}
    bare = replace(policy, source=replace(policy.source, dsn=None, query=None))
    return Dataset(policy.key, bare, tables)


def relations(engine: Engine) -> list[Relation]:
    """Return the tables that only the engine can answer for."""
    relations = [relation(engine.policy)]
    for name in OWN:
        columns = engine.session().describe(f"SELECT * FROM {SCHEMA}.{name}")
        relations.append(Relation(SCHEMA, name, columns))
    return relations


def public_rows(part: Dataset) -> list[PublicRows]:
    """Return the public tables beside a dataset, with their rows."""
    rows = []
    for table, source in sorted(part.policy.public.items()):
        columns, values = part.public[table]
        described = tuple(Column(name, kind) for name, kind, _ in columns)
        rows.append(PublicRows(table, described, list(zip(*values, strict=True)), source.digest))
    return rows
