"""The cube file: whole or not at all, for one ledger and one domain, for many readers."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

from proxy.cube import Cube, build
from proxy.domain import Attribute, Domain
from proxy.errors import IntegrityError, SourceError, StateError
from proxy.inference.family import Family
from proxy.inference.query import LinearQuery
from proxy.inference.space import Space
from tests.cube.making import (
    a_policy,
    built,
    money,
    space,
    texts,
)


def test_the_file_is_its_owner_s_and_comes_whole_or_not_at_all(tmp_path: Path) -> None:
    """Mode 0600, nothing beside it; a build that fails leaves the old cube as it was."""
    (tmp_path / "data.csv").write_text("a\nx\n")
    policy = a_policy(tmp_path, [texts("x")])
    built(policy)
    assert stat.S_IMODE((tmp_path / "cube").stat().st_mode) == 0o600
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cube", "data.csv"]
    before = (tmp_path / "cube").read_bytes()
    (tmp_path / "data.csv").write_text("a\n" + "x\n" * 2000)
    with pytest.raises(SourceError):
        built(policy)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cube", "data.csv"]
    assert (tmp_path / "cube").read_bytes() == before


def test_a_cube_opens_for_its_own_ledger_and_domain_only(tmp_path: Path) -> None:
    """No cube, another ledger, another domain, clip or quantum, a damaged file: refused."""
    (tmp_path / "data.csv").write_text("a,m\nx,1\n")
    policy = a_policy(tmp_path, [texts("x", "y")], [money(0, 9, "1")])
    path = tmp_path / "cube"
    with pytest.raises(StateError, match="no cube yet"):
        Cube.open(path, policy.domain, "ledger")
    built(policy)
    with pytest.raises(IntegrityError, match="another ledger") as told:
        Cube.open(path, policy.domain, "other")
    assert "move it away" in (told.value.hint or "")
    for axis, measure in (
        (texts("y", "x"), money(0, 9, "1")), (texts("x", "y", nulls="group"), money(0, 9, "1")),
        (texts("x", "y"), money(0, 8, "1")), (texts("x", "y"), money(0, 9, "0.5")),
        (texts("x", "y", source="b"), money(0, 9, "1")),
    ):  # fmt: skip
        with pytest.raises(StateError, match="other attributes or measures"):
            Cube.open(path, Domain((axis,), (measure,)), "ledger")
    path.write_bytes(b"no database")
    with pytest.raises(IntegrityError, match="damaged"):
        Cube.open(path, policy.domain, "ledger")


@pytest.mark.parametrize("size", [3, 256])  # whose next code fits the column's type, or does not
def test_a_code_past_the_domain_is_damage(tmp_path: Path, size: int) -> None:
    """It is refused with what to do, and nothing is answered."""
    (tmp_path / "data.csv").write_text("a\n1\n1\n")
    cube, _ = built(a_policy(tmp_path, [Attribute("a", "integer", range(size))]))
    with duckdb.connect(str(tmp_path / "cube")) as connection:
        connection.execute(f"UPDATE packed SET w0 = {size}")
    with pytest.raises(IntegrityError, match="damaged") as told:
        cube.answer(Family(LinearQuery.count(Space((size,)))))
    assert "move it away" in (told.value.hint or "")


def test_a_cube_that_is_rebuilt_is_not_read_as_the_old_one(tmp_path: Path) -> None:
    """Cells are read at the first answer; if another cube is there by then, it is refused."""
    (tmp_path / "data.csv").write_text("a\nx\n")
    policy = a_policy(tmp_path, [texts("x")])
    (one, _), (two, _) = built(policy), built(policy)
    whole = Family(LinearQuery.count(space(policy.domain)))
    with pytest.raises(StateError, match="rebuilt"):
        one.answer(whole)
    assert two.answer(whole) == [1]


def test_several_processes_read_one_cube(tmp_path: Path) -> None:
    """While one process holds a cube open, another answers from it."""
    (tmp_path / "data.csv").write_text("a\nx\nx\n")
    cube, _ = built(a_policy(tmp_path, [texts("x")]))
    code = f"""
import duckdb
with duckdb.connect({str(tmp_path / "cube")!r}, read_only=True) as c:
    print(c.execute("SELECT sum(n) FROM cells").fetchone())
"""
    with duckdb.connect(str(tmp_path / "cube"), read_only=True, config=CONFIG):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert (done.stdout, done.stderr) == ("(2,)\n", "")
        assert cube.answer(Family(LinearQuery.count(Space((1,))))) == [2]


CONFIG: dict[str, Any] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}


def test_progress_goes_from_0_to_1(tmp_path: Path) -> None:
    """The callback sees ascending shares, the last of them 1; what it raises stops the build.

    How far the build is when it is first looked at is not known.
    """
    (tmp_path / "data.csv").write_text("a\nx\n")
    policy = a_policy(tmp_path, [texts("x")])
    seen: list[float] = []
    build(policy, tmp_path / "cube", "ledger", seen.append)
    assert seen == sorted(seen)
    assert 0.0 <= seen[0] <= seen[-1] == 1.0

    def stop(share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(policy, tmp_path / "stopped", "ledger", stop)
    assert not (tmp_path / "stopped").exists()
