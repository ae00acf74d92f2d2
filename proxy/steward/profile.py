"""What many records of a column have in common: all that a draft of a policy learns of the data.

Few are fewer than ``FEW`` privacy units.  Invariant: a value is in a profile only if at least FEW
units have it, and a number or a time, which ``draft`` rounds, only if at least FEW lie at or beyond
it on either side; no count is.  Values are read by the rules of ``cube.sources.coding``.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import duckdb
from msgspec import Struct
from msgspec.structs import replace

from proxy.cube.sources import coding
from proxy.cube.sources.dialect import DIGIT, DUCKDB, INFINITE, TEXTUAL, is_of
from proxy.cube.sources.duckdb import RECORDS, columns
from proxy.domain import Attribute
from proxy.sql.source_expressions import REAL, identifier

FEW = 20  # units; what fewer have in common does not show
MOST = 100  # values of a list
LONGEST = 60  # characters of a listed text
READABLE = 0.95  # the share of a column that must be of its type
KEY = 0.95  # distinct values for each record, of a key
EVEN = 2.5  # the most by which distances between its quantiles differ, where it is a number
LARGEST, SMALLEST = 10**12, 1e-6  # numbers beyond are left to the steward
SHARES = (0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99)
SIGNS = {".": "a decimal point", ",": "commas", " ": "blanks", "'": "apostrophes", "$": "$",
         "€": "€", "£": "£", "¥": "¥", "%": "%", "(": "brackets"}  # fmt: skip
STYLED = r"[-+(]*[ $€£¥]*[-+]?[0-9][0-9.,'' ]*[ $€£¥%)]*"
STYLED_DAY = r"[0-9]{1,4}[./-][0-9]{1,2}[./-][0-9]{1,4}([ T].*)?"
MOMENT = Attribute("", "timestamp", ())
TEXT = Attribute("", "text", ())
ROWS, COL = "temp.main.drafted", "temp.main.col"
ALL_SHARES = f"SELECT quantile_disc(v, {list(SHARES)}) FROM {COL}"
Number = float | datetime.datetime


class Profile(Struct, frozen=True):
    """One column: its type as an attribute, or why it can be none."""

    column: str
    kind: str = ""  # boolean | integer | decimal | text | date | timestamp
    why_not: str = ""
    missing: bool = False  # whether many have no value that can be read
    rare: bool = False  # whether many have a value that few have
    values: tuple[float | str, ...] = ()  # those that many have; of a time, none
    listed: bool = False  # whether nearly all have one of them
    places: int = 0  # decimals that many have
    quantiles: tuple[Number, ...] = ()  # at SHARES


class Rows(Struct, frozen=True):
    """The rows of a source."""

    magnitude: int  # 10^k, more than ten times as many
    per_unit: int  # that 95% of many units do not pass; 1 where rows are the unit


class Profiler:
    """The columns of a source, which is copied to a temporary table once."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, unit: str | None) -> None:
        self.connection = connection
        self.unit = unit
        self.kinds = columns(connection)
        self.names = [name for name in self.kinds if unit is None or name.lower() != unit.lower()]
        owner = identifier(unit) if unit is not None else "row_number() OVER ()"
        parts = [f"{owner} AS u"]
        parts += [f"{identifier(name)} AS c{i}" for i, name in enumerate(self.names)]
        sql = f"SELECT {', '.join(parts)} FROM {RECORDS}"
        self._run(f"CREATE TEMP TABLE {ROWS} AS FROM ({sql}) WHERE u IS NOT NULL")
        self.units = "count(*)" if unit is None else "count(DISTINCT u)"

    def rows(self) -> Rows:
        """Return what is said of the rows."""
        count = self._one(f"SELECT count(*) FROM {ROWS}")[0]
        usual = 1
        if self.unit is not None:
            each = f"SELECT count(*) AS n FROM {ROWS} GROUP BY u ORDER BY n DESC"
            far = self._run(f"{each} LIMIT 1 OFFSET {FEW - 1}") or [(1,)]
            (most,) = self._one(f"SELECT quantile_disc(n, 0.95) FROM ({each})")
            usual = min(most or 1, far[0][0])
        return Rows(10 ** len(str(10 * count)), usual)

    def reserved(self) -> set[str]:
        """Return the words that are no column's name without quotes."""
        sql = "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category = 'reserved'"
        return {word for (word,) in self._run(sql)}

    def profile(self, i: int) -> Profile:
        """Return the profile of the column at a place."""
        name = self.names[i]
        kind, why_not = self._kind(f"c{i}", self.kinds[name])
        found = Profile(name, kind, why_not)
        if why_not:
            return found
        read = {"text": coding.key(TEXT, f"c{i}", self.kinds[name]),
                "boolean": f"lower(trim(CAST(c{i} AS VARCHAR)))",
                "decimal": _number(f"c{i}", self.kinds[name])}  # fmt: skip
        value = read.get(kind) or coding.key(MOMENT, f"c{i}", self.kinds[name])
        self._run(f"CREATE OR REPLACE TEMP TABLE {COL} AS SELECT u, {value} AS v FROM {ROWS}")
        ok = {"decimal": f"abs(v) < {LARGEST} AND (v = 0 OR abs(v) >= {SMALLEST})",
              "timestamp": "year(v) BETWEEN 1800 AND 2199"}  # fmt: skip
        self._run(f"UPDATE {COL} SET v = NULL WHERE NOT ({ok.get(kind, 'true')})")
        return self._spread(found)

    def _kind(self, column: str, kind: str) -> tuple[str, str]:
        """Return the type of a column's values, or why it has none."""
        missing = coding.null(column, kind, "NULL", "decimal")
        number = f"{_number(column, kind)} IS NOT NULL"
        moment = f"{coding.key(MOMENT, column, kind)} IS NOT NULL"
        text = f"trim(CAST({column} AS VARCHAR))"
        tests = [number, moment, f"lower({text}) IN ('true', 'false')",
                 f"regexp_full_match({text}, '{STYLED}')",
                 f"regexp_full_match({text}, '{STYLED_DAY}')",
                 f"regexp_full_match({text}, '[-+]?0[0-9]+')"]  # fmt: skip
        counts = ", ".join(f"count(*) FILTER ({test})" for test in tests)
        sql = f"SELECT {self.units}, count(*), {counts} FROM {ROWS} WHERE NOT ({missing})"
        units, all_, numbers, moments, truths, styled, days, zeros = self._one(sql)
        if units < 2 * FEW:
            return "", f"fewer than {2 * FEW} {self._who()} have a value"
        enough = READABLE * all_
        if truths >= enough:
            return "boolean", ""
        if numbers >= enough and zeros < FEW:
            return "decimal", ""
        if moments >= enough:
            return "timestamp", ""
        if days >= enough:
            return "", "dates that are not written YYYY-MM-DD; write an `expression`"
        if styled - zeros >= enough:
            signs = [said for sign, said in SIGNS.items() if self._many(text, sign)]
            with_ = f" with {', '.join(signs)}" if signs else ""
            return "", f"numbers that are written{with_}; write an `expression`"
        if self._one(f"SELECT count({coding.key(TEXT, column, kind)}) FROM {ROWS}")[0] == 0:
            return "", "of a type that is not read"
        return "text", ""

    def _spread(self, found: Profile) -> Profile:
        """Return a profile with what the values in ``col`` have in common."""
        count, nulls, distinct, longest = self._one(
            "SELECT count(v), count(*) - count(v), count(DISTINCT v),"
            f" avg(length(CAST(v AS VARCHAR))) FROM {COL}"
        )
        if self._one(f"SELECT {self.units} FROM {COL} WHERE v IS NOT NULL")[0] < 2 * FEW:
            return replace(found, why_not="numbers or times that are too large or too small")
        found = replace(found, missing=nulls >= FEW)
        if found.kind == "timestamp":
            timed = self._one(f"SELECT count(*) FROM {COL} WHERE v <> date_trunc('day', v)")[0]
            found = replace(found, kind="timestamp" if timed >= FEW else "date")
            return replace(found, quantiles=self._quantiles())
        if found.kind == "boolean":
            return found
        if found.kind == "decimal":
            places = self._places()
            found = replace(found, kind="decimal" if places else "integer", places=places)
        own = distinct >= KEY * count
        if own and (found.kind == "text" or (found.kind == "integer" and self._even())):
            return replace(found, why_not="a key: nearly each row has its own")
        common = self._run(
            f"SELECT v, count(*) FROM {COL} WHERE v IS NOT NULL GROUP BY v"
            f" HAVING {self.units} >= {FEW} ORDER BY v"
        )
        if found.kind == "text":
            common = [(v, n) for v, n in common if len(v) <= LONGEST and "\0" not in v]
        covered = sum(n for _, n in common)
        found = replace(
            found,
            values=tuple(v for v, _ in common),
            listed=covered >= READABLE * count and _exact(found, common),
            rare=count - covered >= FEW,
        )
        if found.kind != "text":
            return replace(found, quantiles=self._quantiles())
        if longest > LONGEST or 2 * covered < count:
            return replace(found, why_not="free text, or values that few have", values=())
        return found

    def _quantiles(self) -> tuple[Number, ...]:
        """Return quantiles of ``col``, none nearer to an end than FEW units are."""
        ends = []
        for end, order in (("min", "ASC"), ("max", "DESC")):
            each = f"SELECT {end}(v) AS m FROM {COL} WHERE v IS NOT NULL GROUP BY u"
            far = f"SELECT m FROM ({each}) ORDER BY m {order} LIMIT 1 OFFSET {FEW - 1}"
            ends.append(self._one(far)[0])
        low, high = ends
        (found,) = self._one(ALL_SHARES)
        if found[0] == found[-1]:  # nearly all have one value: what is beyond them counts
            found = [low, *found[1:-1], high]
        return tuple(max(low, min(q, high)) for q in found)

    def _even(self) -> bool:
        """Return whether numbers are spread as those that count or name rows: no amounts are."""
        gaps = [after - before for before, after in pairwise(self._one(ALL_SHARES)[0])]
        return bool(max(gaps) <= EVEN * min(gaps))

    def _places(self) -> int:
        """Return the decimals that all but few numbers have, at most 6."""
        counts = ", ".join(f"count(*) FILTER (round(v, {p}) <> v)" for p in range(6))
        found = self._one(f"SELECT {counts} FROM {COL}")
        return next((p for p, n in enumerate(found) if n < FEW), 6)

    def _many(self, text: str, sign: str) -> bool:
        """Return whether many texts of a column have a sign in them."""
        sql = f"SELECT {self.units} FROM {ROWS} WHERE contains({text}, ?)"
        return bool(self._run(sql, [sign])[0][0] >= FEW)

    def _who(self) -> str:
        return "records" if self.unit is None else "units"

    def _one(self, sql: str) -> tuple[Any, ...]:
        """Return the one row of a query."""
        return self._run(sql)[0]

    def _run(self, sql: str, values: Sequence[str] = ()) -> list[tuple[Any, ...]]:
        """Run one statement; return its rows."""
        return self.connection.execute(sql, values).fetchall()


def _exact(found: Profile, common: Sequence[tuple[Any, ...]]) -> bool:
    """Return whether a DOUBLE holds the digits of the values."""
    return found.kind == "text" or all(abs(v) * 10**found.places < 10**15 for v, _ in common)


def _number(column: str, kind: str) -> str:
    """Return SQL for the DOUBLE that a value is; NULL where it is none, or not finite."""
    if kind in REAL:  # of a FLOAT the shortest decimal counts, not the DOUBLE that it is
        column, kind = f"CAST({column} AS VARCHAR)", "VARCHAR"
    if is_of(kind, TEXTUAL):
        number = DUCKDB.like(column, f"({DIGIT}|{INFINITE})")
        column = f"CASE WHEN {number} THEN {DUCKDB.trimmed(column)} END"
    read = f"TRY_CAST({column} AS DOUBLE)"
    return f"CASE WHEN isfinite({read}) THEN {read} END"
