"""``load``: the policy file as a Policy, every rule that concerns several keys checked here."""

from __future__ import annotations

import datetime
import hashlib
import itertools
import os
import re
import zoneinfo
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

from proxy.domain import Attribute, Domain, Measure
from proxy.errors import PolicyError
from proxy.policy import document, keys
from proxy.policy.axes import domain, period_start
from proxy.policy.document import Item
from proxy.policy.kinds import decimal, nearest
from proxy.policy.model import (
    Analyst,
    CellBudget,
    Guard,
    HistorySize,
    Partition,
    Policy,
    Privacy,
    PublicTable,
    Source,
    Unit,
    Utility,
)
from proxy.policy.promise import HALF, KINDS, fault, named

CLAIM = re.compile(r"\s*COUNT\s*\(\s*\*\s*\)\s+BETWEEN\s+(\d[\d_]*)\s+AND\s+(\d[\d_]*)\s*", re.I)
DATABASES = (".duckdb", ".db", ".ddb")
FILES = (".csv", ".csv.gz", ".parquet")
SQL = ("expression", "column", "query", "table")  # keys that name columns or tables
LOCAL = ("localtime", "Factory")  # what the machine is set to
LARGEST = 1_000_000  # alpha; sums of charges stop a little above it


def load(path: str | os.PathLike[str]) -> Policy:
    """Return the policy in a file.

    Raises:
        PolicyError: the file is wrong; with its line and key, and what is allowed.
    """
    path = Path(path)
    folder = path.parent.absolute()
    item = keys.POLICY.read(document.read(path))
    axes = domain(item, folder)
    measures = item.value["measures"].value
    privacy = _privacy(item.value["privacy"], axes)
    _sensible(item, privacy)
    state = item.get("state")
    return Policy(
        path=path.absolute(),
        dataset=item.get("dataset"),
        description=item.get("description") or "",
        source=_source(item.value["source"], folder),
        max_records=item.get("max_records"),
        domain=axes,
        measure_utility={
            name: utility(measure.value["utility"])
            for name, measure in measures.items()
            if "utility" in measure.value
        },
        utility=utility(item.value["utility"]) if "utility" in item.value else None,
        privacy=privacy,
        **_analysts(item, privacy),
        timezone=_timezone(item.value["timezone"]),
        public=_public(item, folder),
        state=_place(folder, state) if state else None,
        partition=_partition(item.value["partition"], axes) if "partition" in item.value else None,
        records=item.get("records"),
        utilities=_utilities(item, axes),
        lines=_lines(item),
    )


def _sensible(item: Item, privacy: Privacy) -> None:
    """Refuse numbers that are each allowed, and together cannot be meant."""
    records = item.get("max_records")
    most = {f"sum of {n}": (m, records * max(abs(end.value) for end in m.value["clip"].value))
            for n, m in item.value["measures"].value.items()}  # fmt: skip
    for what, (holder, reach) in {"count": (item, records), **most}.items():
        wish = holder.value.get("utility")
        if wish is not None and wish.get("half_width") and wish.get("half_width") >= reach:
            raise wish.value["half_width"].error(
                f"no {what} is more than {decimal(reach)}, which max_records allows: an interval "
                "of this length says nothing"
            )
    unit = item.value["privacy"].value["unit"]
    if privacy.unit.max_rows > records:
        raise unit.value["max_rows"].error(f"more than max_records, {records}")
    for guard, entry in zip(
        privacy.guards, item.value["privacy"].value["guards"].value, strict=True
    ):
        if guard.low > records or (guard.low == 0 and guard.high >= records):
            raise entry.value["claim"].error(
                f"no count is more than max_records, {records}: the claim is decided beforehand"
            )
        if guard.cap < privacy.floor:
            raise entry.value["claim"].error(
                "the guard lets a cell pay less than privacy.floor, the least that a measurement "
                "costs: nothing could be measured"
            )


def utility(item: Item) -> Utility:
    """Return a utility that was read, and makes sense."""
    which = "percent" if "percent" in item.value else "half_width"
    half_width, delta = item.get(which), item.get("delta")
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
    sources = item.value["attributes"].value.values(), item.value["measures"].value.values()
    parts = [item.value["source"], *itertools.chain(*sources)]
    keys = [part.value.get(key, part) for part in parts for key in SQL]
    return {key.key: key.line for key in keys}


def _place(folder: Path, path: str) -> Path:
    """Return a path of the policy, which begins at the policy's folder."""
    return Path(os.path.normpath(folder / path))


def _source(item: Item, folder: Path) -> Source:
    """Return where the records come from: keys that fit one another and the engine."""
    engine = item.get("engine")
    path, table, query, dsn = (item.get(key) for key in ("path", "table", "query", "dsn"))
    if table and query:
        raise item.value["query"].error("table is there too; keep one of the two")
    if path and "://" in path:
        raise item.value["path"].error("a path on this host is expected, not a URL")
    if engine == "duckdb":
        if dsn:
            raise item.value["dsn"].error("engine duckdb reads the file at path; leave dsn out")
        if not path:
            raise item.error("engine duckdb needs path: the data file")
        database = path.lower().endswith(DATABASES)
        if not database and not path.lower().endswith(FILES):
            known = ", ".join(FILES + DATABASES)
            raise item.value["path"].error(f"the file's name ends in none of {known}")
        if database and not (table or query):
            raise item.error("a DuckDB database needs table or query")
        if table and not database:
            raise item.value["table"].error("a file is a single table; leave table out")
    elif engine == "postgres":
        if path:
            raise item.value["path"].error("engine postgres connects by dsn; leave path out")
        if not dsn:
            raise item.error("engine postgres needs dsn: host=… dbname=…")
    if engine != "duckdb" and not (path or table or query):
        raise item.error(f"engine {engine} needs table or query")
    return Source(engine, _place(folder, path) if path else None, table, query, dsn)


def _privacy(item: Item, axes: Domain) -> Privacy:
    """Return what may be spent: no part more than the budget."""
    budget: Fraction = item.get("budget")
    if budget * 2**40 < 1:
        raise item.value["budget"].error("less than the smallest charge, 2^-40")
    if budget > LARGEST:
        raise item.value["budget"].error(f"more than {LARGEST:,}, up to which charges are counted")
    cells = item.value["cells"].value
    within = [cell.value["budget"] for cell in cells]
    within += [item.value["floor"]] if "floor" in item.value else []
    per = item.value["per"].value if "per" in item.value else {}
    for part in [*within, *per.values()]:
        if part.value > budget:
            raise part.error(f"{decimal(part.value)} is more than the budget {decimal(budget)}")
    if len(per) == 2 and per["day"].value > per["week"].value:
        raise per["day"].error("more than in a week")
    return Privacy(
        budget=budget,
        unit=_unit(item.value["unit"], axes),
        cells=tuple(CellBudget(c.get("where"), c.get("budget"), c.line) for c in cells),
        guards=tuple(_guard(guard, axes) for guard in item.value["guards"].value),
        floor=item.get("floor") or budget / 10_000,
        history_size=_history_size(item),
        per={period: part.value for period, part in per.items()},
        allocation=item.get("allocation"),
        history=item.get("history"),
    )


def _history_size(item: Item) -> HistorySize:
    """Return the limits on the size of histories."""
    if "history_size" not in item.value:
        default = {key.name: key.default for key in keys.HISTORY_SIZE.keys}["total"]
        return HistorySize(default, default)
    size = item.value["history_size"]
    total = size.get("total")
    analyst = size.get("analyst") or total
    if analyst > total:
        raise size.value["analyst"].error(f"{analyst} is more than total, {total}")
    return HistorySize(total, analyst)


def _unit(item: Item, axes: Domain) -> Unit:
    """Return the privacy unit; its column is no attribute, for the cube would show who is in it."""
    if item.value == "row":
        return Unit()
    column = item.value["column"]
    quoted = '"' + column.value.replace('"', '""') + '"'
    columns: list[Attribute | Measure] = [*axes.attributes, *axes.measures]
    for axis in columns:
        if column.value.lower() == axis.name.lower() or axis.source == quoted:
            raise column.error(
                f"{column.value} is the attribute or measure {axis.name}; whom a row belongs to "
                "cannot be queried"
            )
    return Unit(column.value, item.get("max_rows"), item.get("seed"))


def _guard(item: Item, axes: Domain) -> Guard:
    """Return a guard on groups of attributes."""
    claim = item.value["claim"]
    match = CLAIM.fullmatch(claim.value)
    if not match:
        raise claim.error(
            f"'{claim.value}' is not allowed; expected COUNT(*) BETWEEN low AND high, with whole "
            "numbers"
        )
    low, high = (int(end) for end in match.groups())
    if low > high:
        raise claim.error(f"BETWEEN low AND high, low ≤ high; got {low} and {high}")
    names: list[str] = []
    for each in item.value["for_each"].value:
        if each.value not in axes.axis:
            raise each.error(f"no attribute {each.value}{nearest(each.value, axes.axis)}")
        if each.value in names:
            raise each.error(f"{each.value} is there twice")
        names.append(each.value)
    confidence = item.value["confidence"]
    if confidence.value < HALF:
        raise PolicyError(
            f"{decimal(confidence.value)} is less than 0.5: the claim would be uncertain before "
            "anything was answered",
            file=confidence.file,
            line=confidence.line,
            key=confidence.key,
            hint="it is a confidence, not a delta: for 95% write 0.95",
        )
    return Guard(low, high, tuple(names), confidence.value, item.line)


def _analysts(item: Item, privacy: Privacy) -> dict[str, dict[str, Analyst]]:
    """Return caps of analysts and groups; those of own histories fit the budget together."""
    left = privacy.budget
    read: dict[str, dict[str, Analyst]] = {"analysts": {}, "groups": {}}
    for kind, listed in read.items():
        for name, entry in item.value[kind].value.items():
            history = entry.get("history") or privacy.history
            cap = entry.get("budget")
            if history == "own" and cap is None:
                raise entry.error("history: own needs a budget, which is set aside for it")
            if cap is not None and cap > privacy.budget:
                raise entry.value["budget"].error(
                    f"{decimal(cap)} is more than the budget {decimal(privacy.budget)}"
                )
            left -= cap if history == "own" else 0
            if left < 0:
                raise entry.value["budget"].error(
                    "the budgets of own histories together pass the budget "
                    f"{decimal(privacy.budget)} by {decimal(-left)}"
                )
            listed[name] = Analyst(cap, entry.get("spend"), history)
    return read


def _timezone(item: Item) -> str:
    """Return the name of a time zone that this host knows."""
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
    taken = {item.get("dataset").lower()}
    for name, table in item.value["public"].value.items():
        path = _place(folder, table.get("path"))
        if name.lower() in taken:
            raise table.error("the name is taken by the dataset or another table")
        if not path.name.lower().endswith(FILES):
            raise table.value["path"].error(f"the file's name ends in none of {', '.join(FILES)}")
        if not os.path.isfile(path):  # also of names that are too long
            raise table.value["path"].error(f"there is no file {path}")
        taken.add(name.lower())
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise table.value["path"].error(f"{path} cannot be read: {error.strerror}") from None
        tables[name] = PublicTable(path, digest)
    return tables


def _partition(item: Item, axes: Domain) -> Partition:
    """Return the partition; no cell of its attribute lies in two."""
    column, grain = item.value["column"], item.get("grain")
    if column.value not in axes.axis:
        raise column.error(f"no attribute {column.value}{nearest(column.value, axes.axis)}")
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
    return Partition(column.value, grain)


def _day(moment: datetime.date) -> datetime.date:
    """Return the day of a date or a timestamp."""
    return moment.date() if isinstance(moment, datetime.datetime) else moment
