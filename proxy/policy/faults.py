"""All that is wrong with a policy's files, found in one reading.

A fault is noted where it is found, and what could not be read is marked: whatever needs it raises
``Unread``, and is passed over, so that each fault is reported once and none follows from another.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import TypeVar

from proxy.errors import Error, PolicyError

T = TypeVar("T")


class Unread(Exception):
    """What is needed could not be read, for a fault that has been noted."""


class Faults:
    """The faults noted so far of a file, and of what belongs to it."""

    def __init__(self, file: str, errors: Iterable[Error] = ()) -> None:
        self.file = file
        self.errors: list[Error] = list(errors)

    def add(self, error: Error) -> None:
        """Note a fault, or all that one exception carries; each once."""
        others = error.others if isinstance(error, PolicyError) else ()
        if others:
            error = copy.copy(error)
            error.others, error.detail = (), None  # type: ignore[attr-defined]  # of a PolicyError
        known = {each.message for each in self.errors}
        self.errors += [each for each in (error, *others) if each.message not in known]

    def tried(self, work: Callable[..., T], *arguments: object) -> T | None:
        """Return what work gives; None where it is wrong, which is noted, or needs what is."""
        try:
            return work(*arguments)
        except PolicyError as error:
            self.add(error)
        except Unread:
            pass
        return None

    def finish(self) -> None:
        """Raise the faults, if there are any, as one exception: those of the file first.

        Raises:
            PolicyError: the first in the order of lines, which has the others.
        """
        if self.errors:
            raise together(sorted(self.errors, key=self._place))

    def _place(self, error: Error) -> tuple[bool, str, int]:
        file = getattr(error, "file", None) or ""
        return file != self.file, file or "\U0010ffff", getattr(error, "line", None) or 0


def together(errors: Iterable[Error]) -> Error:
    """Return some errors as one: the first has the others, and its detail names them."""
    first, *others = errors
    if not others or not isinstance(first, PolicyError):
        return first
    joined = copy.copy(first)
    joined.others = tuple(others)
    joined.detail = "; ".join(["and " + error.message for error in others])
    return joined
