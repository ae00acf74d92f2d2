"""Codes in words: what a record is on all axes, in as few integers of 64 bits as hold it.

A word is kept, grouped and sorted faster than a column for each axis.  Each axis has a field of it,
the first axis the most significant one, with the code in two's complement: so words of cells are
in order as their codes are, and the highest bit of a field says that a rule was met there.
Columns: w0, w1, ...; of other small numbers, which have no sign, another letter.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from proxy.cube.sources.coding import CLAMPED
from proxy.domain import Attribute

WORD = 63  # bits, as the sign stays 0


class Packing(Struct, frozen=True):
    """Where the codes of each axis are: (word, shift, bits)."""

    fields: tuple[tuple[int, int, int], ...]
    letter: str = "w"  # of the columns

    @classmethod
    def of(cls, axes: Sequence[Attribute]) -> Packing:
        """Return the packing of some axes, in their order."""
        lowest = [1 + CLAMPED - (len(a.values) if a.outside == "clamp" else 0) for a in axes]
        sizes = [max(a.size - 1, ~low).bit_length() for a, low in zip(axes, lowest, strict=True)]
        return cls.of_bits([size + 1 for size in sizes])

    @classmethod
    def of_bits(cls, sizes: Sequence[int], letter: str = "w") -> Packing:
        """Return the packing of fields of so many bits."""
        words: list[list[int]] = []
        for bits in sizes:
            if not words or sum(words[-1]) + bits > WORD:
                words.append([])
            words[-1].append(bits)
        return cls(
            tuple(
                (w, sum(word[i + 1 :]), bits)
                for w, word in enumerate(words)
                for i, bits in enumerate(word)
            ),
            letter,
        )

    @property
    def names(self) -> list[str]:
        """The columns of the words."""
        return [f"{self.letter}{w}" for w in range(self.fields[-1][0] + 1)]

    def words(self, codes: Sequence[str], long: str = "BIGINT") -> list[str]:
        """Return SQL for the words, of that for the codes; ``long`` is the type of a word."""
        parts: list[list[str]] = [[] for _ in self.names]
        for code, (w, shift, bits) in zip(codes, self.fields, strict=True):
            parts[w].append(f"(CAST({code} AS {long}) & {2**bits - 1}) * {2**shift}")
        return [
            f"{' + '.join(each)} AS {name}" for each, name in zip(parts, self.names, strict=True)
        ]

    def code(self, i: int) -> str:
        """Return SQL for the code of an axis."""
        _, _, bits = self.fields[i]
        return f"({self.cell(i)} - (({self.cell(i)} >> {bits - 1}) << {bits}))"

    def cell(self, i: int) -> str:
        """Return SQL for the code of an axis where no rule is met."""
        w, shift, bits = self.fields[i]
        return f"(({self.letter}{w} >> {shift}) & {2**bits - 1})"

    def met(self) -> str:
        """Return the SQL condition that a rule is met on some axis."""
        masks = [0] * len(self.names)
        for w, shift, bits in self.fields:
            masks[w] += 2 ** (shift + bits - 1)
        return f"({' OR '.join(f'w{w} & {mask} <> 0' for w, mask in enumerate(masks))})"
