"""The provenance of a cell: what is packed in DuckDB is what comes out."""

import duckdb
import pytest

from proxy.sql.bind.binding import MAX_POINTS
from proxy.sql.provenance import DERIVED, NUMBER_BITS, ROW_BITS, pack, unpack


@pytest.mark.parametrize("release", [0, 1, MAX_POINTS - 1, DERIVED])
@pytest.mark.parametrize("number", [0, 1, 2**NUMBER_BITS - 1])
@pytest.mark.parametrize("row", [0, 1, 2**ROW_BITS - 1])
def test_release_number_and_row_are_unpacked_as_they_were_packed(release, number, row):
    """
    At the ends of each part's range, too: none runs over into another, and all fit a BIGINT.
    """
    ((packed,),) = duckdb.sql(
        f"SELECT {pack(release, number, 'r')} FROM (SELECT CAST({row} AS BIGINT) AS i) AS r"
    ).fetchall()
    assert unpack(packed) == (release, number, row)


def test_no_release_is_taken_for_what_is_derived():
    """
    A statement has fewer release points than the number that stands for derived ones.
    """
    assert MAX_POINTS <= DERIVED
