"""What a client is told where DuckDB fails: PostgreSQL's words and SQLSTATE, and none of DuckDB's.

Invariant: nothing of an engine's message gets out.  It is looked at only to tell which error it is;
our own messages, of ``error('...')``, are known by heart.
"""

from __future__ import annotations

import re

from proxy.errors import (
    DataError,
    NotSupportedError,
    OperationalError,
    QueryCanceledError,
    StatementTooComplexError,
)
from proxy.lazy import duckdb

OUT_OF_RANGE = "22003"  # numeric_value_out_of_range
NO_TIME = "22008"  # datetime_field_overflow
OWN = {  # what translations say by error('...')
    "division by zero": "22012",
    "cannot take square root of a negative number": "2201F",
    "cannot take logarithm of zero or a negative number": "2201E",
    "the power is not a finite number": OUT_OF_RANGE,
    "value out of range: overflow": OUT_OF_RANGE,
    "value out of range: underflow": OUT_OF_RANGE,
    "smallint out of range": OUT_OF_RANGE,
    "integer out of range": OUT_OF_RANGE,
    "bigint out of range": OUT_OF_RANGE,
    "date out of range": NO_TIME,
    "timestamp out of range": NO_TIME,
    "negative substring length not allowed": "22011",
    "field position must not be zero": "22023",
    "lower bound cannot equal upper bound": "2201G",
    "count must be greater than zero": "2201G",
    "only whole numbers multiply a length of time": "0A000",
    "years and months have no one length: EXTRACT them, or cast to text": "0A000",
    "value out of range: to_char writes 15 digits of a double": OUT_OF_RANGE,
    "a double precision value with an exponent is not cast to text: round it first": "0A000",
    **{
        f"invalid input syntax for type {kind}": "22P02"
        for kind in (
            *("smallint", "integer", "bigint", "numeric", "real", "double precision"),
            *("boolean", "date", "timestamp"),
        )
    },
}
WHOLE = {"16": "smallint", "32": "integer", "64": "bigint"}
LEAST = {str(-(2 ** (int(bits) - 1))): kind for bits, kind in WHOLE.items()}
KNOWN = (  # words of DuckDB's, PostgreSQL's message, SQLSTATE
    (r"division by zero|zero division", "division by zero", "22012"),
    (r"\bDECIMAL\((?!38)\d+", "numeric field overflow", OUT_OF_RANGE),
    (r"\bDECIMAL|\bHUGEINT|\bINT128|scale", "value overflows numeric format", OUT_OF_RANGE),
    (r"type (FLOAT|DOUBLE)|to (FLOAT|DOUBLE)", "value out of range: overflow", OUT_OF_RANGE),
    (r"(?i)date and time not in|timestamp", "timestamp out of range", NO_TIME),
    (r"(?i)\binterval\b", "interval out of range", NO_TIME),
    (r"(?i)\bdate\b", "date/time field value out of range", NO_TIME),
    (r"(?i)more than one row", "more than one row returned by a subquery used as an expression",
     "21000"),
)  # fmt: skip
EVERYWHERE = "an expression must have a value everywhere, also where WHERE would exclude it"
GUARD = f"{EVERYWHERE}; guard it with CASE"
YEARS = "dates and times of the years 1 to 9999 are shown; EXTRACT the year of others"
HINTS = {
    "interval out of range": "a length of time has up to 999,999,999 days here; EXTRACT its days",
    "date out of range": YEARS,
    "timestamp out of range": YEARS,
    "division by zero": "write NULLIF(divisor, 0), or CASE WHEN divisor <> 0 THEN ... END; "
    + EVERYWHERE,
    "value overflows numeric format": "a numeric has up to 38 digits here; cast to double "
    "precision, or round it",
}


def no_time(kind: str) -> DataError:
    """Return the error for a date or timestamp of a year that is not shown."""
    message = f"{kind} out of range"
    return DataError(message, hint=HINTS[message], sqlstate=NO_TIME)


def failure(error: duckdb.Error, met: bool) -> Exception:
    """Return the error that a client sees where DuckDB fails on public values or noisy answers.

    ``met``: the value was met, in a result; else it is one of the domain, which may be met.
    """
    if isinstance(error, duckdb.InterruptException):
        return QueryCanceledError("the statement was canceled, or took too long")
    if isinstance(error, duckdb.OutOfMemoryException):
        return StatementTooComplexError("the statement needs more memory than it may have")
    if isinstance(error, duckdb.FatalException):
        return StatementTooComplexError(
            "the evaluator ended while it worked on the statement, which may need more memory "
            "than it may have"
        )
    if isinstance(error, duckdb.ConnectionException):
        return OperationalError(f"there is no evaluator: {str(error).splitlines()[0]}")
    planned = isinstance(error, duckdb.ProgrammingError | duckdb.InternalError)
    if planned and not isinstance(error, duckdb.InvalidInputException):
        return NotSupportedError("an expression of the statement cannot be evaluated here")
    message, sqlstate = _meaning(str(error).split("\n")[0].split(": ", 1)[-1])
    if message == "division by zero":
        return DataError(message, hint=HINTS[message], sqlstate=sqlstate)
    hint = HINTS.get(message) or (None if met else GUARD)
    shown = message if met else f"an expression fails for a value it may meet: {message}"
    return DataError(shown, hint=hint, sqlstate=sqlstate)


def _meaning(words: str) -> tuple[str, str]:
    """Return PostgreSQL's message and SQLSTATE for what DuckDB says."""
    if words in OWN:
        return words, OWN[words]
    if found := re.search(r"\bINT(16|32|64)\b(?!.*\bINT(16|32|64)\b)", words):
        return f"{WHOLE[found[1]]} out of range", OUT_OF_RANGE
    if (found := re.search(r"Overflow \D*(-\d+)", words)) and found[1] in LEAST:
        return f"{LEAST[found[1]]} out of range", OUT_OF_RANGE
    for pattern, message, sqlstate in KNOWN:
        if re.search(pattern, words):
            return message, sqlstate
    return "a value is out of range", OUT_OF_RANGE
