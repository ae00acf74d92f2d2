"""A set of cells in names: what a condition of the policy means, whatever its text.

A region is a product of 0/1 tensors over disjoint sets of axes, all cells where there is none.  As
JSON each tensor has its axes by name, in alphabetical order, and its cells as packed bits, the
values of an axis in alphabetical order too, NULL last: nothing of it depends on the order in which
a policy lists its attributes and their values.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxy.domain import Attribute, Domain

MAX_BYTES = 2**16  # packed; a longer tensor is held by its hash
HASH = "sha256:"
MAX_CELLS = 2**22  # of the tensors that are compared cell by cell

Tensor = tuple[Sequence[int], NDArray[Any]]  # axes by index, 0/1 [sizes]


def region_json(tensors: Iterable[Tensor], domain: Domain) -> list[dict[str, Any]]:
    """Return a product of tensors over a domain's axes as JSON."""
    return sorted(
        (_tensor_json(axes, array, domain) for axes, array in tensors),
        key=lambda tensor: tuple(tensor["axes"]),
    )


def contains(
    outer: Sequence[Mapping[str, Any]],
    inner: Sequence[Mapping[str, Any]],
    changed: Collection[str] = (),
) -> bool:
    """Whether a region has every cell of another; False where that cannot be shown.

    The axes that are named in ``changed`` have not the same cells in both.
    """
    if any(set(tensor["axes"]) & set(changed) for tensor in (*outer, *inner)):
        return False
    known = [(tensor["axes"], _array(tensor)) for tensor in inner]
    if any(array is not None and not array.any() for _, array in known):
        return True  # nothing is in it
    for tensor in outer:
        if tensor in inner:
            continue
        array = _array(tensor)
        if array is None or _leaves(tensor["axes"], array, known):
            return False
    return True


def _leaves(
    axes: Sequence[str],
    array: NDArray[np.bool_],
    inner: Iterable[tuple[Sequence[str], NDArray[np.bool_] | None]],
) -> bool:
    """Whether a product has a cell outside a tensor, or may have one."""
    tied = [(names, part) for names, part in inner if set(names) & set(axes)]
    order = sorted({*axes, *(name for names, _ in tied for name in names)})
    outside = _over(order, axes, ~array)
    for names, part in tied:
        if part is None:
            return True
        factor = _over(order, names, part)
        shape = np.broadcast_shapes(outside.shape, factor.shape)
        if np.prod(shape, dtype=float) > MAX_CELLS:
            return True
        outside = outside & factor
    return bool(outside.any())


def _tensor_json(axes: Sequence[int], array: NDArray[Any], domain: Domain) -> dict[str, Any]:
    """Return one tensor as JSON."""
    by_name = sorted(axes, key=lambda axis: domain.attributes[axis].name)
    cells = np.transpose(array > 0, [list(axes).index(axis) for axis in by_name])
    for place, axis in enumerate(by_name):
        cells = np.take(cells, _alphabetical(domain.attributes[axis]), axis=place)
    plain = np.packbits(cells.reshape(-1)).tobytes()
    packed = zlib.compress(plain, 9)
    if len(packed) > MAX_BYTES:
        bits = f"{HASH}{hashlib.sha256(plain).hexdigest()}"
    else:
        bits = base64.b64encode(packed).decode()
    names = [domain.attributes[axis].name for axis in by_name]
    return {"axes": names, "shape": list(cells.shape), "cells": bits}


def _alphabetical(attribute: Attribute) -> list[int]:
    """Return the codes of an axis by the texts of their values; bins stay in their order."""
    codes = list(range(len(attribute.values)))
    if not attribute.binned:
        codes.sort(key=lambda code: str(attribute.values[code]))
    return [*codes, *range(len(attribute.values), attribute.size)]


def _array(tensor: Mapping[str, Any]) -> NDArray[np.bool_] | None:
    """Return the cells of a tensor, None where only their hash is known."""
    if tensor["cells"].startswith(HASH):
        return None
    bits = np.frombuffer(zlib.decompress(base64.b64decode(tensor["cells"])), dtype=np.uint8)
    count = int(np.prod(tensor["shape"]))
    return np.unpackbits(bits, count=count).astype(bool).reshape(tensor["shape"])


def _over(
    order: Sequence[str], names: Sequence[str], array: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return an array shaped to broadcast over more axes; both lists are in order."""
    sizes = dict(zip(names, array.shape, strict=True))
    return array.reshape([sizes.get(name, 1) for name in order])
