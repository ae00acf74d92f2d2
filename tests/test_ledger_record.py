"""A family written to the ledger is read back exactly, and damage is never taken for a family."""

import json
import tracemalloc
import zlib
from contextlib import suppress
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import IntegrityError
from proxy.inference.family import Family
from proxy.inference.query import Factor, LinearQuery, Term
from proxy.inference.space import Box, Space
from proxy.ledger.record import decode, encode, pack, unpack
from tests.inference.test_family import families

EDGES = [0, -1, 1, 127, -128, 128, -129, 2**15, 2**31, -(2**31) - 1, 2**53 + 1, 2**62]


def same(one, two):
    return (
        (one.query, one.query.space, one.axes, one.rows)
        == (two.query, two.query.space, two.axes, two.rows)
        and one.query.grid == two.query.grid
        and {p: t.scale for p, t in one.query.parts.items()}
        == {p: t.scale for p, t in two.query.parts.items()}
        and one.labels.dtype == two.labels.dtype
        and np.array_equal(one.labels, two.labels)
    )


def altered(**changes):
    """The bytes of COUNT(*) by the second of two axes, with a changed header."""
    family = Family(
        LinearQuery.count(Space((3, 2), (Box(0, 5),)), Factor((0,), np.array([1, 0, 2]))),
        (1,),
        np.array([0, 1], dtype=np.int32),
        2,
    )
    data = encode(family)
    end = 6 + int.from_bytes(data[2:6], "little")
    header = json.dumps(json.loads(data[6:end]) | changes).encode()
    return data[:2] + len(header).to_bytes(4, "little") + header + data[end:]


@given(families())
def test_a_family_comes_back_exactly(family):
    """
    Space, grid, scales, factors and labels, in value and type.
    """
    assert same(decode(encode(family)), family)
    assert encode(decode(encode(family))) == encode(family)


@pytest.mark.parametrize("value", EDGES)
def test_every_width_of_coefficient_comes_back(value):
    """
    The smallest and largest coefficients of each integer type, and 2**62.
    """
    array = np.array([1, value, 0], dtype=np.int64)
    term = Term(-1, (Factor((0,), array),))
    space = Space((3,), (Box(-abs(value), abs(value), True),))
    query = LinearQuery(space, Fraction(1, 2**70), {1: term})
    back = decode(encode(Family(query)))
    assert back.query.parts[1].factors[0].array.tolist() == array.tolist()
    assert back.query.space == query.space
    assert back.grid == Fraction(1, 2**70)


@given(st.lists(st.one_of(st.sampled_from(EDGES), st.integers(-(2**63), 2**63 - 1)), min_size=1))
def test_answers_come_back_exactly(answers):
    """
    Any answers that fit 64 bits; one that does not is the caller's bug.
    """
    assert unpack(pack(answers)) == tuple(answers)
    with pytest.raises(ValueError, match="2\\*\\*63"):
        pack([*answers, 2**63])


def test_small_answers_take_little_room():
    """
    One byte each, and one for the width: 5,000 groups are 5 KB.
    """
    assert len(pack([0, 100, -128])) == 4
    assert len(pack(range(5000))) == 10_001


def test_a_large_family_is_packed():
    """
    5,000 groups over a million cells take some kilobytes.
    """
    labels = np.arange(10**6, dtype=np.int32).reshape(1000, 1000) // 200
    data = encode(Family(LinearQuery.count(Space((1000, 1000))), (0, 1), labels, 5000))
    assert len(data) < 50_000
    assert (decode(data).labels == labels).all()


@pytest.mark.parametrize(
    "changes",
    [
        {"sizes": [3, 0]},
        {"sizes": [3, 2.0]},
        {"sizes": [2**40, 2]},  # more cells than a factor may have
        {"sizes": [4, 2]},  # more cells than bytes
        {"sizes": [2, 2]},  # fewer
        {"sizes": "32"},
        {"boxes": [[5, 0, False]]},
        {"boxes": [[0, 5, 1]]},
        {"boxes": [[0, 5]]},
        {"grid": [0, 1]},
        {"grid": [1, 0]},
        {"grid": [1, True]},
        {"parts": [[3, 1, [[[0], 1]]]]},  # no such measure
        {"parts": [[-1, 1, [[[0], 1]]]]},
        {"parts": [[0, 0, [[[0], 1]]]]},  # a zero term
        {"parts": [[0, 2**62, [[[0], 1]]]]},  # 2 * 2**62
        {"parts": [[0, 1, [[[2], 1]]]]},  # no such axis
        {"parts": [[0, 1, [[[], 1]]]]},
        {"parts": [[0, 1, [[[0], 3]]]]},
        {"parts": [[1, 1, []], [0, 1, [[[0], 1]]]]},
        {"parts": [[0, 1, [[[1, 0], 1]]]]},
        {"parts": 7},
        {"labels": [[1], 1, 1]},  # label 1 of 1
        {"labels": [[1], 1, 0]},
        {"labels": [[], 1, 2]},
        {"labels": [[2], 1, 2]},
        {"labels": None},
    ],
)
def test_a_wrong_header_is_damage(changes):
    """
    Every number of the header is checked, and one that is wrong is an IntegrityError.
    """
    assert decode(altered()).rows == 2
    with pytest.raises(IntegrityError, match="damaged"):
        decode(altered(**changes))


@given(families(), st.data())
def test_no_damage_crashes(family, data):
    """
    Bytes cut, added or changed anywhere: an IntegrityError, or some well-formed family.
    """
    good = bytearray(encode(family))
    at = data.draw(st.integers(0, len(good) - 1))
    good[at] ^= data.draw(st.integers(1, 255))
    for bad in (bytes(good), bytes(good[:at]), bytes(good) + b"\0", b""):
        with suppress(IntegrityError):
            assert decode(bad).rows >= 1
        with suppress(IntegrityError):
            assert len(unpack(bad)) <= len(bad)


@pytest.mark.slow
def test_a_bomb_does_not_fill_the_memory():
    """
    What unpacks to more than its header announces is refused before it is unpacked: 64 MB of
    zeros in 64 KB, as the header, and behind the arrays.
    """
    good = altered()[2:]
    for start in (good, b"\xff\xff\xff\x7f"):
        bomb = b"\1\1" + zlib.compress(start + bytes(2**26), 9)
        tracemalloc.start()
        with pytest.raises(IntegrityError, match="damaged"):
            decode(bomb)
        assert tracemalloc.get_traced_memory()[1] < 2**20
        tracemalloc.stop()
