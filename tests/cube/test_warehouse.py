"""The SQL for warehouses: what sqlglot is given, and that what it writes is what was read."""

from __future__ import annotations

import datetime
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import sqlglot

from proxy.cli import run
from proxy.cube.sources.coded import grouped
from proxy.cube.sources.duckdb import FileSource
from proxy.cube.sources.source import opened
from proxy.cube.sources.warehouse import WAREHOUSES, _Elsewhere, sql_for
from proxy.domain import Attribute, Domain
from proxy.errors import SourceError
from proxy.policy import Policy, Unit, load
from tests.cube.making import ROOT, a_policy, edges, money, texts, write
from tests.cube.places import here
from tests.cube.test_alike import VALUES, a_case

ZONED = r".*\d{2}(:\d{2})? ?([-+Z]|[A-Za-z]).*|-?[iI]nfinity"
KEPT = Path(__file__).with_name("warehouses")
DAYS = (datetime.date(2021, 3, 14), datetime.date(2021, 3, 15))


class InFiles:
    """A file of DuckDB, without the values that are known to be read otherwise."""

    kinds: ClassVar = {kind: kind for kind in VALUES if kind not in ("FLOAT", "DOUBLE")}
    without = frozenset(v for v in VALUES["VARCHAR"] if re.fullmatch(ZONED, v))


def small(folder: Path) -> Policy:
    """Return a policy that has some of everything."""
    write(folder / "data.parquet",
          "SELECT 1 AS who, 'a' AS town, 7::DECIMAL(8,2) AS fee, '2021-03-14' AS day, true AS new"
    )  # fmt: skip
    axes = [
        texts("a", "b's", outside="group", nulls="group"),
        Attribute("day", "date", DAYS, outside="clamp", nulls="drop"),
        Attribute("new", "boolean", (False, True), outside="drop", nulls="group"),
    ]
    axes[0] = Attribute(**{**vars(axes[0]), "name": "town"})
    fees = Attribute(**{**vars(edges(0, 5, 10, outside="drop")), "name": "fees", "source": "fee"})
    fee = money(0, 100, "0.25", nulls="group", source="fee")
    return a_policy(folder, [*axes, fees], [fee], unit=Unit("who", 3), path="data.parquet")


@pytest.mark.parametrize("warehouse", WAREHOUSES)
def test_the_sql_is_the_one_that_was_read(tmp_path: Path, warehouse: str) -> None:
    """As it is kept beside the tests, for people; and sqlglot reads what it wrote."""
    written = sql_for(small(tmp_path), warehouse)
    assert written == (KEPT / f"{warehouse}.sql").read_text()
    assert written.startswith("-- Untested")
    sqlglot.parse_one(written, read=warehouse, error_level=sqlglot.ErrorLevel.RAISE)


def test_a_steward_can_look_at_it(capsys: pytest.CaptureFixture[str]) -> None:
    """For a policy over a file; of any other source it says what is needed."""
    assert run(["check", "--sql", "bigquery", str(ROOT / "policies/cps1988.yaml")]) == 0
    assert "FROM `cps1988` AS a_record" in capsys.readouterr().out
    policy = Policy(**{**vars(load(ROOT / "policies/cps1988.yaml"))})
    with pytest.raises(SourceError, match="has another text in each warehouse"):
        sql_for(replace(policy, domain=Domain((texts("x", source="1.5::float8"),))), "bigquery")


@pytest.mark.parametrize("seed", range(20))
def test_what_sqlglot_gets_says_the_same(tmp_path: Path, seed: int) -> None:
    """Before it is another database's, it is SQL of DuckDB: run there, it gives the same groups."""
    place: Any = InFiles()
    policy, columns, rows = a_case(random.Random(seed), tmp_path, place)
    here(tmp_path / "data.duckdb", place, columns, rows)
    policy = Policy(**{**vars(policy), "timezone": "UTC"})
    with opened(policy, tmp_path) as source:
        assert isinstance(source, FileSource)
        plain = _Elsewhere(source, "data")
        plain.records = source.records
        found = source.local.execute(grouped(policy, plain)).fetchall()
        known = source.local.execute(grouped(policy, source)).fetchall()
    assert sorted(found) == sorted(known)
