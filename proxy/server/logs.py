"""Structured logs: one JSON object a line, on standard error.

Invariant: a line has the fields named here and no others, and no text of a statement, so that
neither data nor literals get into a log: of a record's ``extra``, what FIELDS does not name is left
out without a word.  What statements said is in the ledger's audit log.
"""

from __future__ import annotations

import datetime
import json
import logging
import sys
from types import TracebackType

FIELDS = (
    *("host", "port", "metrics_port", "user", "database", "outcome", "cost", "seconds", "count"),
    *("measured", "inferred"),  # numbers of a statement that was answered
    *("address", "sqlstate"),  # of a client that did not log in
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
