"""Records that Spark reads: the same cubes as from DuckDB, and clear errors where there are none."""

from __future__ import annotations

import random
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from proxy.cube import build, faults
from proxy.cube.sources.source import opened
from proxy.domain import Attribute
from proxy.errors import Error, PolicyError, SourceError
from proxy.policy import Policy, Source, Unit, load
from tests.cube.making import ROOT, ROW, a_policy, edges, money, texts
from tests.cube.test_postgres import (
    COLUMNS,
    DAYS,
    EXPRESSIONS,
    KINDS,
    VALUES,
    a_case,
    cube,
    shown,
)

pytest.importorskip("pyspark")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java"),
    pytest.mark.filterwarnings("ignore::FutureWarning:pyspark"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Spark that runs while the tests do, whose sessions builds make for themselves."""
    from proxy.cube.sources.spark import _started

    folder = tmp_path_factory.mktemp("spark")
    context = _started("local[2]", folder, {"spark.sql.warehouse.dir": str(folder / "warehouse"),
                                            "spark.sql.shuffle.partitions": "2"})  # fmt: skip
    from pyspark.sql import SparkSession

    yield SparkSession(context)
    context.stop()


def there(policy: Policy, **source: Any) -> Policy:
    """Return a policy whose records Spark reads."""
    given = source or {"path": policy.path.parent / "data.parquet"}
    return replace(policy, source=Source("spark", master="local[2]", **given))


def put(path: Path, columns: dict[str, str], rows: list[Any]) -> None:
    """Put rows, as texts, into a table ``data`` of a DuckDB file, and into a Parquet file."""
    path.unlink(missing_ok=True)
    with duckdb.connect(str(path)) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        named = ", ".join(f'"{name}" {KINDS[kind]}' for name, kind in columns.items())
        connection.execute(f"CREATE TABLE data ({named})")
        marks = ", ".join(f"CAST(? AS {KINDS[kind]})" for kind in columns.values())
        connection.executemany(f"INSERT INTO data VALUES ({marks})", rows)
        connection.execute(f"COPY data TO '{path.with_suffix('.parquet')}' (FORMAT parquet)")


@pytest.mark.parametrize("seed", range(40))
def test_cubes_are_those_of_duckdb(tmp_path: Path, spark: Any, seed: int) -> None:
    """Every type of a column, on every type of an axis, by every rule: cells and reports agree."""
    policy, columns, rows = a_case(random.Random(seed), tmp_path)
    columns = {name: "text" if kind == "uuid" else kind for name, kind in columns.items()}
    put(tmp_path / "data.duckdb", columns, rows)
    assert cube(there(policy), "there") == cube(policy, "here")
