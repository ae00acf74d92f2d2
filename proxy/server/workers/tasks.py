"""What a worker does with the texts of clients: functions of a text and of what is public.

A value that comes back is made of the plain classes in ``pool.VALUES``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from zoneinfo import ZoneInfo

from msgspec import Struct

from proxy.errors import Error, OperationalError, StatementTooComplexError
from proxy.policy import Policy
from proxy.server.statements import parameters, routing
from proxy.server.statements.parameters import Bound
from proxy.server.statements.probe import gives_no_row
from proxy.server.statements.routing import Decision, Reject, ToEngine
from proxy.server.statements.split import split
from proxy.server.wire.messages import Bind
from proxy.sql.evaluator.evaluator import Evaluator, public_relation
from proxy.sql.evaluator.public_tables import PublicTable
from proxy.sql.evaluator.worker import WARMING, Database, pack_column
from proxy.sql.program import Command, Program
from proxy.sql.statement import ProgramKey, compile_key

Columns = list[tuple[str, list[object]]]  # of rows, packed


class Dataset(Struct, frozen=True):
    """What is public of a dataset: its policy without what only builds need, and public tables."""

    key: str  # of the whole policy
    policy: Policy
    public: Mapping[str, PublicTable]


__all__ = ["bound", "compiled", "filled", "gives_no_row", "numbers", "read", "rows"]


class StaleError(OperationalError):
    """The worker does not know the policy: it is older, or newer, than the statement."""


_datasets: dict[str, Dataset] = {}  # by the key of the policy
_evaluators: dict[str, Evaluator] = {}
_zones: list[ZoneInfo] = []


def prepare(datasets: Iterable[Dataset]) -> None:
    """Take what is public, in the template."""
    _datasets.update((dataset.key, dataset) for dataset in datasets)


def open_evaluators() -> None:
    """Open an evaluator for each dataset, in a worker that can still open files."""
    databases = Database.several(len(_datasets))
    for database, (key, dataset) in zip(databases, _datasets.items(), strict=True):
        _zones.append(ZoneInfo(dataset.policy.timezone))  # kept, as a worker can read no file
        evaluator = Evaluator(dataset.policy.domain, database, dataset.public)
        evaluator.rows(WARMING, {})
        evaluator.fetch(WARMING)
        _evaluators[key] = evaluator


def _evaluator(key: str) -> Evaluator:
    if key not in _evaluators:
        raise StaleError("the policy has changed meanwhile", hint="try again")
    return _evaluators[key]


def compiled(key: ProgramKey) -> Program | Command:
    """Return the program of a key; as ``compile_key``."""
    evaluator = _evaluator(key.policy)
    return compile_key(key, _datasets[key.policy].policy, evaluator)


def rows(key: str, sql: str, values: dict[str, object]) -> Columns:
    """Return the rows of a statement's outer SQL on released numbers, column by column."""
    evaluator = _evaluator(key)
    for name, table in _datasets[key].policy.public.items():
        if public_relation(name) in sql:  # another worker may have compiled it
            evaluator.public(name, table.path)
    return [pack_column(column) for column in zip(*evaluator.rows(sql, values), strict=True)]


def routed(
    text: str,
    datasets: tuple[str, ...],
    home: str,
    public: tuple[tuple[str, str], ...],
    views: tuple[tuple[str, str], ...],
    several: bool,
) -> list[tuple[str, int, Decision]]:
    """Return the statements of a text (one, if not ``several``), their offsets, who answers."""
    try:
        pieces = split(text) if several and ";" in text else [(text, 0)]
    except StatementTooComplexError as error:
        return [(text, 0, Reject(error))]
    return [
        (piece, offset, routing.route(piece, datasets, home, public, views))
        for piece, offset in pieces
    ]


def read(
    of: tuple[Any, ...], key: ProgramKey | None
) -> tuple[list[tuple[str, int, Decision]], Program | Command | None]:
    """Return what ``routed`` does, and the program of a single statement that has this key.

    None where it has another, or an error: that is told when it is its turn.
    """
    plan = routed(*of)
    to = plan[0][2]
    if key is None or len(plan) > 1 or not isinstance(to, ToEngine) or to.text != key.text:
        return plan, None
    try:
        mine = _datasets[key.policy].policy.dataset == to.dataset
        return plan, compiled(key) if mine else None
    except (KeyError, Error):
        return plan, None


def numbers(text: str) -> list[int]:
    """Return the numbers of the parameters in a text."""
    return [number for number, _, _ in parameters.places(text)]


def filled(
    texts: Sequence[str], arguments: Sequence[str], types: Sequence[int]
) -> tuple[list[str], list[int]]:
    """Return texts with their parameters replaced by the arguments of EXECUTE, and which of these
    are no literals.
    """
    pairs = zip(arguments, types, strict=True)
    values = [parameters.argument(each, oid, i) for i, (each, oid) in enumerate(pairs, 1)]
    computed = [i for i, each in enumerate(arguments) if parameters.constant(each) is None]
    return [parameters.fill(text, values).text for text in texts], computed


def bound(text: str, bind: Bind, types: Sequence[int], encoding: str) -> Bound:
    """Return a text with the values of a portal in it."""
    return parameters.fill(text, parameters.values(bind, types, encoding))
