"""A policy as values: what the rest of the proxy reads, long after the YAML is forgotten.

Every number is exact: budget 0.1 is Fraction(1, 10).  ``Policy.protection`` is the part of a
policy that people's privacy rests on, as JSON, as far as the policy alone says it;
``proxy.protection`` adds what its conditions and the users file mean.
"""

from __future__ import annotations

import datetime
import hashlib
import math
import os
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from msgspec import Struct
from msgspec.structs import astuple

from proxy.domain import Attribute, Domain, described

VERSION = 2  # of the protection


class Utility(Struct, frozen=True):
    """A credible interval of confidence 1 − delta no longer than 2 · half_width."""

    half_width: Fraction  # per cent of the answer where relative
    delta: Fraction
    relative: bool = False


class Source(Struct, frozen=True):
    """Where the records come from."""

    engine: str  # duckdb | postgres | spark | sqlalchemy
    path: Path | None = None
    table: str | None = None
    query: str | None = None
    dsn: str | None = None  # how to connect: also a URL; without a password
    master: str | None = None  # of Spark, without a token
    public: tuple[str, ...] = ()  # tables that have nobody's data
    trusted: tuple[str, ...] = ()  # views whose rows are of their own unit alone


class Unit(Struct, frozen=True):
    """What is protected: a row (``column`` is None), or up to ``max_rows`` rows of one unit."""

    column: str | None = None
    max_rows: int = 1
    seed: str = "0"


class CellBudget(Struct, frozen=True):
    """A smaller budget for the cells where a condition (SQL text) is true."""

    where: str
    budget: Fraction
    line: int


class Guard(Struct, frozen=True):
    """A claim `COUNT(*) BETWEEN low AND high` that no posterior may hold above ``confidence``."""

    low: int
    high: int
    for_each: tuple[str, ...]
    confidence: Fraction
    line: int

    @property
    def cap(self) -> float:
        """The cost of a cell of its groups, ln(1/(1−γ))/(U−L+1), rounded down."""
        return guard_cap(self.low, self.high, self.confidence)


class HistorySize(Struct, frozen=True):
    """How much of a snapshot's measurements is kept, in all and for one analyst, MB."""

    total: int
    analyst: int


class WarmUp(Struct, frozen=True):
    """What is measured when the ledger is made."""

    attributes: tuple[str, ...]
    alpha: Fraction
    strategy: str  # pieces | hierarchy
    measure: str | None = None  # None: counts


class Privacy(Struct, frozen=True):
    """What may be spent, and how."""

    budget: Fraction  # per cell
    unit: Unit
    cells: tuple[CellBudget, ...]
    guards: tuple[Guard, ...]
    floor: Fraction  # the least alpha of a measurement
    history_size: HistorySize
    per: Mapping[str, Fraction]  # day, week
    strategy: str  # paper | topup | pieces | hierarchy | auto
    history: str  # shared | own, for analysts that are not listed
    warm_up: tuple[WarmUp, ...] = ()


class Analyst(Struct, frozen=True):
    """What one analyst, or group, may spend (None: all that is there)."""

    budget: Fraction | None = None
    spend: bool = True
    history: str = "shared"  # own: the budget is set aside in every cell


class PublicTable(Struct, frozen=True):
    """A public table that may be joined with results."""

    path: Path
    digest: str = ""  # a SHA-256 of the file as it was when the policy was read, in hex


class Partition(Struct, frozen=True):
    """Periods of a date attribute, whose cells a rebuild no longer reads once they are closed."""

    column: str
    grain: str
    closes: int = 0  # days after the end


class Policy(Struct, frozen=True, dict=True):
    """One dataset, its public domain, and what may be spent on it."""

    path: Path
    dataset: str
    description: str
    source: Source
    max_records: int
    domain: Domain
    measure_utility: Mapping[str, Utility]  # of the measures that have one
    utility: Utility | None
    privacy: Privacy
    analysts: Mapping[str, Analyst] = {}
    groups: Mapping[str, Analyst] = {}
    timezone: str = "UTC"
    public: Mapping[str, PublicTable] = {}
    state: Path | None = None
    workload: Path | None = None  # SQL statements that are expected
    ledger: str | None = None  # the URL of a PostgreSQL, without a password
    partition: Partition | None = None
    records: str = "mutable"
    utilities: Mapping[tuple[str, str], Utility] = {}  # aggregate, column
    lines: Mapping[str, int] = {}  # of keys with SQL

    @property
    def zone(self) -> datetime.tzinfo:
        """The time zone of now() and of days and weeks; UTC needs no time zone database."""
        return datetime.UTC if self.timezone == "UTC" else ZoneInfo(self.timezone)

    def analyst(self, name: str) -> Analyst:
        """Return what an analyst may spend; one who is not listed has no cap of their own."""
        return self.analysts.get(name, Analyst(history=self.privacy.history))

    @property
    def set_aside(self) -> Fraction:
        """The sum of the caps of own histories."""
        listed = [*self.analysts.values(), *self.groups.values()]
        return sum((a.budget or Fraction(0) for a in listed if a.history == "own"), Fraction(0))

    @property
    def shared_budget(self) -> Fraction:
        """What own histories leave of a cell's budget to the shared one."""
        return self.privacy.budget - self.set_aside

    def protection(self) -> dict[str, Any]:
        """Return all that people's privacy rests on, as JSON has it, in one canonical form."""
        privacy = self.privacy
        measures = {
            m.name: {
                "clip": [str(m.low), str(m.high)],
                "quantum": str(m.quantum),
                "nulls": m.nulls,
                "source": m.source,
            }
            for m in self.domain.measures
        }
        partition = self.partition and list(astuple(self.partition))
        return {
            "version": VERSION,
            "dataset": self.dataset,
            "source": self._source(),
            "max_records": self.max_records,
            "attributes": {a.name: _axis(a) for a in self.domain.attributes},
            "measures": measures,
            "budget": str(privacy.budget),
            "unit": {
                "column": privacy.unit.column,
                "max_rows": privacy.unit.max_rows,
                "seed": privacy.unit.seed,
            },
            "cells": [{"where": c.where, "budget": str(c.budget)} for c in privacy.cells],
            "guards": [
                {
                    "low": g.low,
                    "high": g.high,
                    "for_each": list(g.for_each),
                    "confidence": str(g.confidence),
                }
                for g in privacy.guards
            ],
            "floor": str(privacy.floor),
            "per": {period: str(budget) for period, budget in privacy.per.items()},
            "history": privacy.history,
            "analysts": {name: _caps(a) for name, a in self.analysts.items()},
            "groups": {name: _caps(a) for name, a in self.groups.items()},
            "partition": partition,
            "records": self.records,
            "timezone": self.timezone,
        }

    def _source(self) -> dict[str, Any]:
        """Return where the records come from as JSON; a path as seen from the policy's folder."""
        path = self.source.path
        near = os.path.relpath(path, self.path.parent) if path else None
        source = self.source
        found = {"engine": source.engine, "path": near}
        found |= {"table": source.table, "query": source.query}
        where = {"dsn": source.dsn, "master": source.master}
        found |= {key: said for key, said in where.items() if said}
        promises = (("public", source.public), ("trusted", source.trusted))
        return found | {key: sorted({n.lower() for n in names}) for key, names in promises if names}

    @cached_property
    def key(self) -> str:
        """A SHA-256 of all that the policy says, in hex, for what is made of it and kept."""
        return hashlib.sha256(repr(self).encode()).hexdigest()


def guard_cap(low: int, high: int, confidence: Fraction) -> float:
    """Return ln(1/(1−γ))/(U−L+1), rounded down."""
    # Each form is accurate to some 2⁻⁵² of itself on its side of one half.
    near_one = confidence > Fraction(1, 2)
    loss = -math.log(1 - confidence) if near_one else -math.log1p(-float(confidence))
    return loss / (high - low + 1) * (1 - 2**-50)


def _caps(analyst: Analyst) -> dict[str, Any]:
    """Return an analyst's limits as JSON."""
    budget = None if analyst.budget is None else str(analyst.budget)
    return {"budget": budget, "spend": analyst.spend, "history": analyst.history}


def _axis(attribute: Attribute) -> dict[str, Any]:
    """Return an axis as JSON; the order of its values protects nobody and is left out."""
    cells = sorted(attribute.values, key=str) if attribute.edges is None else attribute.edges
    return {
        "type": attribute.type,
        "binned": attribute.binned,
        "values": described(cells),
        "outside": attribute.outside,
        "nulls": attribute.nulls,
        "source": attribute.source,
    }
