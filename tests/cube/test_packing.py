"""Codes in words are the same codes, in the same order."""

import duckdb
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.cube import build
from proxy.cube.sources.coding import CLAMPED, UNREADABLE
from proxy.cube.sources.packing import WORD, Packing
from proxy.domain import Attribute
from proxy.policy.model import Partition
from tests.cube.making import a_policy, money, write


@st.composite
def records(draw):
    """Some axes, clamped or not, of one cell or of millions, and the codes of some records."""
    axes, codes = [], []
    for i in range(draw(st.integers(1, 9))):
        size = draw(st.sampled_from([1, 2, 3, 4, 5, 127, 128, 129, 1000, 2**20]))
        clamp = draw(st.booleans())
        axes.append(
            Attribute(f"a{i}", "integer", range(size), outside="clamp" if clamp else "drop")
        )
        lowest = CLAMPED - (size - 1) if clamp else UNREADABLE
        ends = st.sampled_from([lowest, UNREADABLE, -1, 0, size - 1])
        codes.append(st.one_of(ends, st.integers(lowest, size - 1)))
    return axes, draw(st.lists(st.tuples(*codes), min_size=1, max_size=6))


@given(records())
def test_words_hold_codes_in_their_order(made):
    """
    Every code comes back; a rule is met where one is negative; words of cells sort as their codes.
    """
    axes, rows = made
    packing = Packing.of(axes)
    names = [f"c{i}" for i in range(len(axes))]
    values = ", ".join(str(row).replace(",)", ")") for row in rows)
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t AS FROM (VALUES {values}) AS t({', '.join(names)})")
        words = f"SELECT {', '.join(packing.words(names))} FROM t"
        back = [packing.code(i) for i in range(len(axes))]
        cells = [packing.cell(i) for i in range(len(axes))]
        found = connection.execute(
            f"SELECT {packing.met()}, {', '.join(packing.names + back + cells)} FROM ({words})"
        ).fetchall()
    count, plain = len(packing.names), []
    for (met, *rest), row in zip(found, rows, strict=True):
        held, code, cell = rest[:count], rest[count : count + len(axes)], rest[-len(axes) :]
        assert tuple(code) == row
        assert met == (min(row) < 0)
        assert all(0 <= word < 2**WORD for word in held)
        if not met:
            assert tuple(cell) == row
            plain.append((held, row))
    assert sorted(plain) == sorted(plain, key=lambda pair: pair[1])


def test_cells_of_several_words_are_those_of_their_codes(tmp_path):
    """
    Grouped as by a plain GROUP BY of all columns.
    """
    axes = [Attribute(f"a{i}", "integer", range(2**14)) for i in range(5)]
    assert len(Packing.of(axes).names) == 2
    names = ", ".join(axis.name for axis in axes)
    columns = ", ".join(f"CAST(hash(i % 700 * 5 + {k}) % {2**14} AS INT) AS a{k}" for k in range(5))
    write(tmp_path / "data.parquet", f"SELECT {columns} FROM range(1000) AS t(i)")
    policy = a_policy(tmp_path, axes, path="data.parquet")
    build(policy, tmp_path / "cube", "ledger")
    with duckdb.connect(str(tmp_path / "cube"), read_only=True) as connection:
        found = connection.execute("FROM cells ORDER BY ALL").fetchall()
        plain = f"FROM '{tmp_path / 'data.parquet'}' GROUP BY {names} ORDER BY {names}"
        expected = connection.execute(f"SELECT {names}, count(*) {plain}").fetchall()
    assert found == expected
    assert len(found) == 700


def test_cells_are_told_by_what_they_are_and_not_by_how_they_are_written(tmp_path):
    """
    The fingerprint is that of the version which wrote a column for each code: what was said of
    these cells stays usable.
    """
    rows = "a,b,m\nx,1,2.5\nx,,9\ny,2,\n,300,1\nx,1,-3\nz,2,4\n"
    (tmp_path / "data.csv").write_text(rows)
    axes = [
        Attribute("a", "text", ("x", "y"), nulls="group", outside="group"),
        Attribute("b", "integer", range(260), nulls="group", outside="clamp"),
    ]
    policy = a_policy(tmp_path, axes, [money(-4, 4, "0.5", nulls="group")])
    policy = replace(policy, partition=Partition("b", "day"))
    told = []
    build(policy, tmp_path / "cube", "ledger", key=b"k", origin=lambda *of: told.append(of) or "")
    ((_, _, found),) = told
    assert found == "517137d9da8d3ea8067949e12b894ec66ebd8bec2804b784cd740e7f5dbcc053"
    with duckdb.connect(str(tmp_path / "cube"), read_only=True) as connection:
        cells = connection.execute("FROM cells ORDER BY ALL").fetchall()
    assert cells == [
        *[(0, 1, 2, -1, 2), (0, 260, 1, 8, 1)],
        *[(1, 2, 1, 0, 0), (2, 2, 1, 8, 1), (2, 259, 1, 2, 1)],
    ]
