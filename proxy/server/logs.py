"""Structured logs: one JSON object a line, on standard error.

Invariant: a line has the fields named here and no others, and no text of a statement, so that
neither data nor literals get into a log: of a record's ``extra``, what FIELDS does not name is left
out without a word; nor do crowds of statements fill a disk with lines.  What statements said is in
the ledger's audit log.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from types import TracebackType

import psycopg

FIELDS = (
    *("host", "port", "metrics_port", "console", "user", "database", "address"),
    *("outcome", "outcomes", "cost", "seconds", "count", "sqlstate", "sqlstates"),
    *("measured", "inferred"),  # numbers of a statement that was answered
    *("file", "line", "key", "reason", "detail", "hint"),  # a file, and what is wrong with it
)


class JSONLines(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        when = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        line: dict[str, object] = {
            "time": when.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            # What other libraries have to say may hold a statement: only that they said it is kept.
            "event": record.getMessage() if record.name.startswith("proxy") else record.name,
        }
        line |= {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
            line["at"] = _place(record.exc_info[2])
        return json.dumps(line, ensure_ascii=False)


def _place(traceback: TracebackType | None) -> list[str]:
    """Return where an error came from: files and lines, none of its texts."""
    places = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        places.append(f"{code.co_filename}:{traceback.tb_lineno}")
        traceback = traceback.tb_next
    return places


def start(level: int = logging.INFO) -> None:
    """Log what the server has to say."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JSONLines())
    for name, least in (("proxy", level), ("", logging.WARNING)):  # "": those of other libraries
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(least)
        logger.propagate = False


LINES = 20  # a second, of one session
OTHER = "other"  # SQLSTATEs that PostgreSQL does not have
log = logging.getLogger("proxy.server")


class Statements:
    """The log lines of one session's statements: one for each message, or series up to a Sync.

    A session has ``LINES`` a second; what would be more waits for the next second, in one line.
    """

    def __init__(self, who: Mapping[str, str], on_failure: Callable[[str], None]) -> None:
        self._who, self._on_failure = who, on_failure
        self._outcomes: Counter[str] = Counter()
        self._sums: dict[str, float] = {}
        self._failures: Counter[str] = Counter()  # by SQLSTATE
        self._announced = False  # the engine's error, whose ErrorResponse is to come
        self._since, self._lines = 0.0, 0
        self._later: asyncio.TimerHandle | None = None

    def ran(
        self,
        outcome: str,
        cost: float,
        seconds: float,
        sqlstate: str | None,
        numbers: Mapping[str, int],
    ) -> None:
        """Note a statement of the engine's; ``numbers`` by source, if it was answered."""
        self._outcomes[outcome] += 1
        for name, amount in {"cost": cost, "seconds": seconds, **numbers}.items():
            self._sums[name] = self._sums.get(name, 0.0) + amount
        if sqlstate is not None:
            self._failures[sqlstate] += 1
            self._announced = True

    def replied(self, sqlstate: str | None) -> None:
        """Note the SQLSTATE of an ErrorResponse, or None: a ReadyForQuery, which ends a series."""
        if sqlstate is None:
            self._end()
            return
        if not self._announced:
            self._failures[sqlstate] += 1
            outcome = "canceled" if sqlstate == "57014" else "failed"
            self._outcomes[outcome] += 1
            self._on_failure(outcome)
        self._announced = False

    def _end(self) -> None:
        if not self._outcomes or self._later is not None:
            return
        now = time.monotonic()
        if now - self._since >= 1:
            self._since, self._lines = now, 0
        if self._lines < LINES:
            self._lines += 1
            self.flush()
        else:
            loop = asyncio.get_running_loop()
            self._later = loop.call_later(self._since + 1 - now, self.flush)

    def flush(self) -> None:
        """Write the line of what has been noted."""
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if not (count := self._outcomes.total()):
            return
        line: dict[str, object] = dict(self._who)
        if len(self._outcomes) == 1:
            line["outcome"] = next(iter(self._outcomes))
        else:
            line["outcomes"] = dict(self._outcomes)
        if count > 1:
            line["count"] = count
        line |= {name: round(amount, 6) for name, amount in self._sums.items()}
        if len(self._failures) == 1:
            line |= failure(next(iter(self._failures)))
        elif self._failures:
            line["sqlstates"] = self._named()
        log.info("answered", extra=line)
        for noted in (self._outcomes, self._sums, self._failures):
            noted.clear()

    def _named(self) -> dict[str, int]:
        """Return the number of failures by SQLSTATE, of those that PostgreSQL has."""
        named: Counter[str] = Counter()
        for sqlstate, count in self._failures.items():
            named[failure(sqlstate)["sqlstate"]] += count
        return dict(named)


def failure(sqlstate: str) -> dict[str, str]:
    """Return what a line says of an error: its SQLSTATE, and PostgreSQL's name for that."""
    try:
        return {"sqlstate": sqlstate, "reason": psycopg.errors.lookup(sqlstate).__name__}
    except KeyError:
        return {"sqlstate": OTHER}
