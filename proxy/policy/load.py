"""``load``: the policy file as a Policy, every rule that concerns several keys checked here."""

from __future__ import annotations

import datetime
import hashlib
import os
import zoneinfo
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from proxy.domain import Domain
from proxy.errors import PolicyError
from proxy.policy import document, keys
from proxy.policy.axes import domain, listed, names, period_start, source
from proxy.policy.document import Item
from proxy.policy.faults import Faults, Unread
from proxy.policy.kinds import decimal, nearest
from proxy.policy.model import (
    Partition,
    Policy,
    Privacy,
    PublicTable,
    Source,
    Utility,
)
from proxy.policy.promise import HALF, KINDS, fault, named
from proxy.policy.sources import FILES, place, source_of
from proxy.policy.spending import NOTHING, analysts, privacy

SQL = (
    "expression",
    "column",
    "query",
    "table",
    "public",
    "trusted",
)  # keys that name columns or tables
SCHEMES = ("postgresql", "postgres")
SECRETS = frozenset(("password", "sslpassword"))
LOCAL = ("localtime", "Factory")  # what the machine is set to


def load(path: str | os.PathLike[str]) -> Policy:
    """Return the policy in a file.

    Raises:
        PolicyError: the file is wrong; all of its faults, each with line and key, and what is
            allowed.
    """
    found = read(path)
    found.faults.finish()
    return found.policy


class Reading(NamedTuple):
    """A policy as far as it could be read, and what was wrong."""

    policy: Policy  # where there are faults, a stand-in for what could not be read
    faults: Faults
    sources: dict[str, str]  # the SQL of each column over the source's, by key
    lacking: frozenset[str]  # columns that could not be made: what names them cannot be judged


def read(path: str | os.PathLike[str], text: str | None = None) -> Reading:
    """Return what can be read of the policy in a file, or of a text that is to be in it.

    Raises:
        PolicyError: nothing can: the file is missing, or no mapping in YAML.
    """
    path = Path(path)
    folder = path.parent.absolute()
    item = keys.POLICY.read(document.read(path, text))
    faults, tried = item.faults, item.faults.tried
    axes = domain(item, folder)
    measures = listed(item, "measures")
    may = tried(privacy, item, axes) or NOTHING
    for check in (_sensible_utilities, _sensible_unit):
        tried(check, item, may)
    state, workload = tried(item.get, "state"), tried(item.get, "workload")
    wishes = {n: tried(_wish, measure) for n, measure in measures.items()}
    policy = Policy(
        path=path.absolute(),
        dataset=tried(item.get, "dataset") or "dataset",
        description=tried(item.get, "description") or "",
        source=tried(source_of, item, folder) or Source("duckdb"),
        max_records=tried(item.get, "max_records") or 1,
        domain=axes,
        measure_utility={name: wish for name, wish in wishes.items() if wish is not None},
        utility=tried(_wish, item),
        privacy=may,
        **analysts(item, may),
        timezone=tried(_timezone, item) or "UTC",
        public=_public(item, folder),
        state=place(folder, state) if state else None,
        workload=place(folder, workload) if workload else None,
        ledger=tried(_ledger, item),
        partition=tried(_partition, item, axes, may),
        records=tried(item.get, "records") or "mutable",
        utilities=tried(_utilities, item, axes) or {},
        lines=_lines(item),
    )
    keys.explain(faults.errors)
    sources, lacking = _sources(item), _lacking(item, axes)
    return Reading(policy, Faults(faults.file, faults.errors), sources, lacking)


def _lacking(item: Item, axes: Domain) -> frozenset[str]:
    """Return the columns that a policy declares and that could not be made; "" for any name."""
    declared = {name for name, _ in names(listed(item, "attributes"))} | set(
        listed(item, "measures")
    )
    made = {column for axis in axes.attributes for column in (axis.name, *(axis.levels or ()))}
    made |= {measure.name for measure in axes.measures}
    whole = item.faults.tried(
        lambda: [each.get("levels") for each in item.get("attributes").values()]
    )
    return frozenset(declared - made | (set() if whole is not None else {""}))


def _sources(item: Item) -> dict[str, str]:
    """Return the SQL of columns, also of those that are wrong in other keys."""
    found = {}
    for kind in ("attributes", "measures"):
        for name, column in listed(item, kind).items():
            if sql := item.faults.tried(source, name, column):
                found[f"{kind}.{name}"] = sql
    return found


def _wish(item: Item) -> Utility | None:
    """Return the utility of a policy or of a measure, if it has one."""
    return utility(item.value["utility"]) if "utility" in item.value else None


def _sensible_utilities(item: Item, may: Privacy) -> None:
    """Refuse utilities that no number can miss."""
    records = item.get("max_records")

    def check(what: str, holder: Item, most: Callable[[], Fraction]) -> None:
        wish = holder.value.get("utility")
        half = wish.get("half_width") if wish is not None else None
        if half is not None and half >= (reach := most()):
            wish.value["half_width"].report(
                f"no {what} is more than {decimal(reach)}, which max_records allows: an interval "
                "of this length says nothing"
            )

    item.faults.tried(check, "count", item, lambda: Fraction(records))
    for name, measure in listed(item, "measures").items():
        item.faults.tried(
            check,
            f"sum of {name}",
            measure,
            lambda of=measure: records * max(abs(end.value) for end in of.get("clip")),
        )


def _sensible_unit(item: Item, may: Privacy) -> None:
    """Refuse a unit that has more rows than there are, and promises about units without one."""
    records = item.get("max_records")
    if may.unit.max_rows > records:
        unit = item.value["privacy"].value["unit"]
        unit.value["max_rows"].report(f"more than max_records, {records}")
    promises = item.value["source"].value
    for key in ("public", "trusted") if may is not NOTHING and may.unit.column is None else ():
        if key in promises:
            promises[key].report(
                "it needs a column as privacy.unit: where rows are the unit each is read as it is, "
                "since a join may make several rows of one, which would count as often"
            )


def utility(item: Item) -> Utility:
    """Return a utility that was read, and makes sense."""
    which = "percent" if "percent" in item.value else "half_width"
    known = {which: Fraction(1), "delta": HALF}  # what says nothing, where one is unread
    known |= {key: read for key in known if (read := item.faults.tried(item.get, key))}
    half_width, delta = known[which], known["delta"]
    if wrong := fault(half_width, delta):
        at = item.value[which if wrong.message.startswith("half_width") else "delta"]
        message = wrong.message.replace("half_width", which)
        raise PolicyError(message, file=at.file, line=at.line, key=at.key, hint=wrong.hint)
    return Utility(half_width, delta, which == "percent")


def _utilities(item: Item, axes: Domain) -> dict[tuple[str, str], Utility]:
    """Return the defaults of numbers by aggregate and column, which there are."""
    found: dict[tuple[str, str], Utility] = {}
    columns = ["*", *axes.axis, *(measure.name for measure in axes.measures)]
    columns += [level for axis in axes.attributes for level in axis.levels or ()]
    for name, wish in item.value["utilities"].value.items():
        aggregate, column = named(name)
        if aggregate not in KINDS:
            raise wish.error(f"{aggregate} is none of {', '.join(KINDS).upper()}")
        if column not in columns:
            raise wish.error(f"no attribute or measure {column}{nearest(column, columns)}")
        if (aggregate, column) in found:
            raise wish.error("the same is there twice")
        if aggregate == "count" and column == "*" and "utility" in item.value:
            raise wish.error("counts have theirs at utility")
        found[aggregate, column] = utility(wish)
    return found


def _lines(item: Item) -> dict[str, int]:
    """Return the lines of the keys that say where records and their values come from."""

    def inside(part: Item) -> dict[str, Item]:
        read = part.faults.tried(lambda: part.value)
        return read if isinstance(read, dict) else {}

    parts = [item.value["source"]]
    parts += [item.value["partition"]] if "partition" in item.value else []
    parts += [*inside(item.value["attributes"]).values()]
    parts += [*inside(item.value["measures"]).values()]
    parts += [inside(item.value["privacy"])["unit"]] if inside(item.value["privacy"]) else []
    lines: dict[str, int] = {}
    for part in parts:
        read = inside(part)
        lines |= {each.key: each.line for each in (part, *(read[k] for k in SQL if k in read))}
    return lines


def _ledger(policy: Item) -> str | None:
    """Return the URL of the ledger's PostgreSQL, which has no password."""
    if "ledger" not in policy.value:
        return None
    item = policy.value["ledger"]
    url: str = item.value
    try:
        parts = urlsplit(url)
        settings = parse_qs(parts.query, keep_blank_values=True)
    except ValueError as error:
        raise item.error(f"postgresql://host/database is expected: {error}") from None
    if parts.password is not None or SECRETS & settings.keys():
        raise item.error(
            "a password has no place in a policy: name host and database only, and give the "
            "password by PGPASSWORD, a file that PGPASSFILE names, or a service (PGSERVICEFILE)"
        )
    if parts.scheme not in SCHEMES:
        raise item.error("postgresql://host/database is expected")
    return url


def _timezone(policy: Item) -> str:
    """Return the name of a time zone that this host knows."""
    item = policy.value["timezone"]
    name: str = item.value
    if name != "UTC":
        try:
            if name in LOCAL:
                raise ValueError
            zoneinfo.ZoneInfo(name)
        except (ValueError, OSError, KeyError):
            near = nearest(name, zoneinfo.available_timezones())
            raise item.error(
                f"no time zone {name}{near}; expected one such as UTC or Europe/Berlin"
            ) from None
    return name


def _public(item: Item, folder: Path) -> dict[str, PublicTable]:
    """Return the public tables, whose files are there."""
    tables: dict[str, PublicTable] = {}
    taken = {(item.faults.tried(item.get, "dataset") or "").lower()}
    for name, table in listed(item, "public").items():
        if name.lower() in taken:
            table.report("the name is taken by the dataset or another table")
        taken.add(name.lower())
        if found := item.faults.tried(_public_table, table, folder):
            tables[name] = found
    return tables


def _public_table(table: Item, folder: Path) -> PublicTable:
    """Return one public table."""
    path = place(folder, table.get("path"))
    if not path.name.lower().endswith(FILES):
        raise table.value["path"].error(f"the file's name ends in none of {', '.join(FILES)}")
    if not os.path.isfile(path):  # also of names that are too long
        raise table.value["path"].error(f"there is no file {path}")
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise table.value["path"].error(f"{path} cannot be read: {error.strerror}") from None
    return PublicTable(path, digest)


def _partition(policy: Item, axes: Domain, may: Privacy) -> Partition | None:
    """Return the partition: no cell of its attribute lies in two periods, and no unit."""
    if "partition" not in policy.value:
        return None
    item = policy.value["partition"]
    column, grain, known = item.value["column"], item.get("grain"), policy.get("attributes")
    if column.value not in known:
        raise column.error(f"no attribute {column.value}{nearest(column.value, known)}")
    if column.value not in axes.axis:
        raise Unread
    attribute = axes.attributes[axes.axis[column.value]]
    if attribute.type not in ("date", "timestamp"):
        raise column.error(
            f"{column.value} is of type {attribute.type}; a date or timestamp is needed"
        )
    edges: Any = attribute.edges or ()
    step = datetime.timedelta(days=1)
    if attribute.type == "timestamp":
        step = datetime.timedelta(microseconds=1)
    for first, after in pairwise(edges):
        if period_start(_day(first), grain) != period_start(_day(after - step), grain):
            raise item.value["grain"].error(
                f"the bin of {column.value} from {first} lies in more than one {grain}"
            )
    for rule in ("nulls", "outside"):
        if getattr(attribute, rule) not in ("drop", "error"):
            raise column.error(
                f"{column.value} has {rule}: {getattr(attribute, rule)}; partitions need drop or "
                "error there, since such records have no period of their own"
            )
    if may.unit.column is not None:
        raise item.error("a person has records in several periods; partitions need unit: row")
    return Partition(column.value, grain, item.get("closes"))


def _day(moment: datetime.date) -> datetime.date:
    """Return the day of a date or a timestamp."""
    return moment.date() if isinstance(moment, datetime.datetime) else moment
