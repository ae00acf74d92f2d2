"""How what was entered ends before its end."""

from __future__ import annotations


class Stopped(Exception):
    """The rest is not to be run: an error was printed, or somebody did not agree to a price."""

    def __init__(self, status: int = 0) -> None:
        super().__init__(status)
        self.status = status


class Leave(Exception):
    r"""Somebody wants to leave: ``\q``."""
