"""The one table of keys: what a policy and a users file may say.

The reader, the documentation (``describe``) and the JSON Schema of editors (``json_schema``) all
come from it.  What concerns several keys at once is checked in ``load``, ``axes`` and ``users``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

from proxy.errors import Error, PolicyError
from proxy.policy.kinds import (
    INT64,
    LOWEST,
    Boolean,
    Choice,
    Date,
    Kind,
    Name,
    Number,
    Secret,
    Text,
    Value,
    decimal,
)
from proxy.policy.promise import HALF, LEAST, MOST
from proxy.policy.table import Either, Key, Many, Named, Record

GRAINS = ("day", "week", "month", "quarter", "year")
HISTORY = Choice(("shared", "own"))
NULLS = Choice(("group", "drop", "error"))
OUTSIDE = Choice(("group", "drop", "clamp", "error"))
TYPE = Choice(("integer", "text", "boolean", "decimal", "date", "timestamp"))
ALPHA = Number(low=0, high=1_000_000, open_low=True)  # sums of charges of 2⁻⁴⁰ fit 63 bits
PROBABILITY = Number(low=0, high=1, open_low=True, open_high=True)
COUNT = Number(low=1, high=INT64, whole=True)
INTEGER = Number(low=LOWEST, high=INT64, whole=True)
NUMBER = Number()
PATH = Text("a path, relative to this file")
LEDGER = Text("postgresql://host/database, without a password")
SQL = Text("SQL text")

# fmt: off
UTILITY = Record((
    Key("half_width", Number(low=0, open_low=True, least=LEAST, most=Fraction(MOST)),
        "The credible interval may be twice this long, in units of the answer.",
        otherwise="percent is there instead"),
    Key("percent", Number(low=0, open_low=True, least=LEAST, most=Fraction(MOST)),
        "Or so many per cent of the answer, as PERCENT in a query.",
        otherwise="half_width is there instead"),
    Key("delta", Number(low=0, high=1, open_low=True, open_high=True, least=LEAST, most=HALF),
        "The interval's confidence is 1 − delta: for 95% write 0.05.", required=True),
), ("half_width", "percent"))

SOURCE = Record((
    Key("engine", Choice(("duckdb", "postgres", "spark", "sqlalchemy")),
        "Where the data lives.", required=True),
    Key("path", PATH, "The file: .csv, .csv.gz, .parquet, or a DuckDB database; a pattern such as "
        "orders/**/*.parquet is all files that it finds, key=value folders as columns."),
    Key("table", Text("the name of a table"), "The table, in a database."),
    Key("query", SQL, "A SELECT in the SQL of statements, row by row FROM one table WHERE …; where "
        "a column is the privacy unit, FROM tables joined by it."),
    Key("dsn", Secret("a connection string"),
        "How to connect to PostgreSQL: host=… dbname=… or service=…, without a password."),
    Key("public", Many(Text("a table"), 1), "Tables of the database that have nobody's data, such "
        "as a list of regions: where a column is the privacy unit, the query may join them by any "
        "condition. That they are nobody's is your promise.", otherwise="none"),
    Key("trusted", Many(Text("a view"), 1), "Views that are read as tables, whatever their SQL: "
        "you promise that each row is made of rows of its own unit (and public ones) alone.",
        otherwise="none"),
    Key("url", Secret("a SQLAlchemy URL"),
        "How to connect by SQLAlchemy: mysql+pymysql://user@host/database, where MariaDB groups "
        "records; sqlite:///path or any other, whose records are streamed; without a password."),
    Key("master", Secret("local[*], spark://… or sc://…"),
        "The Spark that groups the records: in this process, of a cluster, or by Spark Connect, "
        "without a token.", otherwise="local[*], all cores of this host, for spark"),
))

ATTRIBUTE = Record((
    Key("type", TYPE, "The SQL type of the values.",
        otherwise="integer for range and whole numbers, decimal for other numbers, text for "
        "texts, date for from/to"),
    Key("range", Many(INTEGER, 2, 2), "One cell for each integer from low to high."),
    Key("edges", Many(Value("a number or a date"), 2),
        "Bins: [e0, e1), [e1, e2), …; a bin shows as its lower edge."),
    Key("values", Either((Many(Value()), Record((
        Key("path", PATH, "A public CSV file (.csv or .csv.gz) with a header.", required=True),
        Key("column", Text("a column's name"), "The column of it with the values.", required=True),
    )))), "One cell for each value; a file's column is read with repetitions left out."),
    Key("from", Date(), "The first day; the start of a `bin`."),
    Key("to", Date(), "The last day, included; the end of a `bin`."),
    Key("bin", Choice(GRAINS), "The cells between from and to; weeks begin on Monday.",
        otherwise="day"),
    Key("levels", Named(Named(Many(Value()), "label", low=1), "level"),
        "Coarser columns: {level: {label: [values]}}, each value under one label."),
    Key("column", Text("a column's name"), "The source's column, where it has another name."),
    Key("expression", SQL,
        "An expression over the source's columns, in the SQL of statements, instead of a column."),
    Key("cut", Choice(("refuse", "snap")),
        "What a predicate that cuts a bin does: is refused, or moves to the nearest edge.",
        otherwise="refuse"),
    Key("outside", OUTSIDE, "What becomes of values outside the domain.",
        otherwise="as the policy says"),
    Key("nulls", NULLS, "What becomes of NULL.", otherwise="as the policy says"),
))

MEASURE = Record((
    Key("clip", Many(NUMBER, 2, 2),
        "Each record's value is moved into [low, high]; multiples of quantum.", required=True),
    Key("quantum", Number(low=0, open_low=True),
        "Each record's value is rounded to a multiple of it.", required=True),
    Key("utility", UTILITY, "For sums of the measure, when a query brings none."),
    Key("column", Text("a column's name"), "The source's column, where it has another name."),
    Key("expression", SQL,
        "An expression over the source's columns, in the SQL of statements, instead of a column."),
    Key("nulls", NULLS, "What becomes of NULL.", otherwise="as the policy says"),
))

WARM_UP = Record((
    Key("attributes", Many(Text("an attribute")), "Whose cells are measured.", required=True),
    Key("alpha", ALPHA, "What each cell pays for it, in nats.", required=True),
    Key("strategy", Choice(("pieces", "hierarchy")),
        "pieces: the cells; hierarchy: a tree over the longest ordered attribute.",
        default="hierarchy"),
    Key("measure", Text("a measure"), "Whose sums are measured.", otherwise="counts are"),
))

HISTORY_SIZE = Record((
    Key("total", COUNT, "MB of all histories together; a number counts 0.02, a GROUP BY of 50,000 "
        "groups about 5.", default=500),
    Key("analyst", COUNT, "MB of what one analyst asked for.", otherwise="as total"),
))

PRIVACY = Record((
    Key("budget", ALPHA, "The privacy cost (alpha, in nats) that a cell may reach.", required=True),
    Key("unit", Either((Choice(("row",)), Record((
        Key("column", Text("a column's name"), "Who a row belongs to.", required=True),
        Key("max_rows", Number(low=1, high=2**20, whole=True),
            "The most rows kept of one unit; charges count so many times.", required=True),
        Key("seed", Text("text"), "Chooses which rows are kept.", default="0"),
    )))), "What is protected: one row, or all rows of a unit.", required=True),
    Key("cells", Many(Record((
        Key("where", SQL, "A condition on attributes.", required=True),
        Key("budget", Number(low=0), "The budget of the cells where it is true.", required=True),
    )), 0), "Smaller budgets for some cells; the smallest applicable one holds.", default=[]),
    Key("guards", Many(Record((
        Key("claim", Text("COUNT(*) BETWEEN low AND high"),
            "A count that nobody may become certain of.", required=True),
        Key("for_each", Many(Text("an attribute")), "The groups that are counted.", required=True),
        Key("confidence", Number(low=0, high=1, open_low=True, open_high=True, least=HALF),
            "No posterior of the claim may pass it.", required=True),
    )), 0), "Claims on small groups that stay uncertain; each caps the cost of a cell.",
        default=[]),
    Key("floor", ALPHA, "The least alpha of a measurement, in nats.",
        otherwise="a ten-thousandth of the budget"),
    Key("warm_up", Many(WARM_UP, 0), "What `init` measures once, when the ledger is made, so that "
        "first answers follow from it.", default=[]),
    Key("history_size", HISTORY_SIZE,
        "How large what is kept of a snapshot may become: it costs every process memory and time."),
    Key("per", Record((
        Key("day", ALPHA, "In one day of the policy's time zone."),
        Key("week", ALPHA, "In one week, from Monday."),
    )), "The privacy cost a cell may take on in a period, beside the budget."),
    Key("strategy", Choice(("paper", "topup", "pieces", "hierarchy", "auto")),
        "What is measured: the number that was asked for, as if nothing were known (paper) or as "
        "much as the history lacks (topup); the cells of its scope (pieces), or trees over long "
        "ordered attributes (hierarchy), which are measured more exactly when needed and serve "
        "later statements; or what serves the requests so far best (auto).",
        default="topup"),
    Key("history", HISTORY, "Whose answers an analyst without an own entry infers from.",
        default="shared"),
))

ANALYST = Record((
    Key("budget", ALPHA, "The most of a cell's budget spent for this analyst or group."),
    Key("spend", Boolean(), "off: answers are only inferred.", default=True),
    Key("history", HISTORY, "own: the budget is set aside, and a guarantee of what is learnt.",
        otherwise="as privacy.history"),
))

POLICY = Record((
    Key("dataset", Name(),
        "The table that analysts query.", required=True),
    Key("description", Text(), "What it is, for people."),
    Key("source", SOURCE, "Where the records come from.", required=True),
    Key("max_records", COUNT, "A public upper bound on the number of records.", required=True),
    Key("outside", OUTSIDE, "What becomes of records with a value outside the domain.",
        required=True),
    Key("nulls", NULLS, "What becomes of records with a NULL: group is a cell of its own.",
        required=True),
    Key("attributes", Named(ATTRIBUTE, "attribute", low=1),
        "The axes of the cube, with their public domains.", required=True),
    Key("measures", Named(MEASURE, "measure"), "Numbers to be summed.", default={}),
    Key("privacy", PRIVACY, "What may be spent.", required=True),
    Key("analysts", Named(ANALYST, "analyst"), "Caps by analyst.", default={}),
    Key("groups", Named(ANALYST, "group"),
        "Caps by group of analysts; the users file says who is in it.", default={}),
    Key("utility", UTILITY, "For counts, when a query brings none."),
    Key("utilities", Named(UTILITY, "number"), "For other numbers, when a query brings none: "
        "SUM(age), AVG(wage), QUANTILE(age) (medians and percentiles); * is every column without "
        "its own.", default={}),
    Key("timezone", Text("an IANA time zone such as Europe/Berlin"),
        "What now() and CURRENT_DATE mean, and times of the source that have a zone.",
        default="UTC"),
    Key("public", Named(Record((
        Key("path", PATH, "A public file: .csv, .csv.gz or .parquet.", required=True),
    )), "table"), "Public tables that queries may join with results.", default={}),
    Key("workload", PATH, "SQL statements that are expected, for `privacy-proxy plan`, and to "
        "choose a strategy by, where that is auto."),
    Key("state", PATH, "The folder of the ledger and the cube.",
        otherwise=".privacy-proxy beside this file"),
    Key("ledger", LEDGER,
        "The PostgreSQL that has the ledger, for proxies on several machines.",
        otherwise="a file in the folder at state"),
    Key("partition", Record((
        Key("column", Text("an attribute"), "A date or timestamp attribute: when a record's period "
            "is.", required=True),
        Key("grain", Choice(GRAINS), "The length of a period; no cell lies in two.", required=True),
        Key("closes", Number(low=0, high=36_500, whole=True),
            "How many days after its end a period closes; what comes later is not seen.",
            default=0),
    )), "A rebuild reads the periods that are not closed; the others keep their cells, and what "
        "was answered about them. Needs `unit: row`, and records that never leave their period."),
    Key("records", Choice(("mutable", "immutable")),
        "immutable: a record once there never changes; new ones may come.", default="mutable"),
))

USERS = Record((
    Key("users", Named(Record((
        Key("password", Secret("a verifier SCRAM-SHA-256$…"),
            "The verifier that `privacy-proxy passwd` prints.", required=True),
        Key("roles", Many(Choice(("analyst", "steward", "auditor"))),
            "analyst: queries; steward: policies and budgets; auditor: everyone's history.",
            required=True),
        Key("groups", Many(Text("a group"), 0), "Groups of the policies.", default=[]),
        Key("datasets", Many(Text("a dataset"), 0), "The datasets open to the user.",
            otherwise="all"),
        Key("utility", UTILITY, "Of counts, when a query brings none."),
    )), "user", low=1), "Who may connect.", required=True),
))
# fmt: on


def json_schema(record: Record = POLICY) -> dict[str, Any]:
    """Return the JSON Schema of a file, for editors."""
    schema = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": schema, "title": "privacy-proxy policy"} | record.schema()


def describe(record: Record = POLICY) -> str:
    """Return the documentation of a file: one Markdown table row a key."""
    rows = [
        f"| `{path}` | {_cell(_words(key.kind))} | {_cell(_default(key))} | {_cell(key.help)} |"
        for path, key in _flat(record, "")
    ]
    return "\n".join(["| key | allowed | default | meaning |", "| --- | --- | --- | --- |", *rows])


def explain(errors: Iterable[Error], record: Record = POLICY) -> None:
    """Give each error at a key the key's meaning as a hint, where it has no other."""
    for error in errors:
        if isinstance(error, PolicyError) and not error.hint:
            error.hint = _meaning(error.key or "", record) or "all keys: policies/README.md"


def _meaning(path: str, record: Record) -> str | None:
    """Return what the key at a path is for, or else the nearest one around it."""
    said: str | None = None
    kind: Kind = record
    for part in re.findall(r"[^.\[\]]+", path):
        while isinstance(kind, Either):
            kind = next((k for k in kind.kinds if isinstance(k, Record | Named)), kind.kinds[0])
        if isinstance(kind, Many | Named):
            kind = kind.of
            continue
        key = (
            next((k for k in kind.keys if k.name == part), None)
            if isinstance(kind, Record)
            else None
        )
        if key is None:
            break
        said, kind = f"{key.name}: {key.help}", key.kind
    return said


def _flat(kind: Kind, path: str) -> Iterator[tuple[str, Key]]:
    """Yield every key below a kind with its path."""
    match kind:
        case Record(keys):
            for key in keys:
                here = f"{path}.{key.name}" if path else key.name
                yield here, key
                yield from _flat(key.kind, here)
        case Named(of=of, what=what):
            yield from _flat(of, f"{path}.<{what}>")
        case Many(of=of):
            yield from _flat(of, f"{path}[]")
        case Either(kinds):
            for each in kinds:
                yield from _flat(each, path)


def _words(kind: Kind) -> str:
    """Return what a kind allows, keys left to their own rows."""
    match kind:
        case Record():
            return "a mapping"
        case Named(what=what):
            return f"a mapping by {what}"
        case Many(of=Record()):
            return "a list of mappings"
        case Either(kinds):
            return ", or ".join(_words(each) for each in kinds)
    return kind.words


def _default(key: Key) -> str:
    """Return a key's default in words."""
    if key.required:
        return "required"
    if key.otherwise:
        return key.otherwise
    match key.default:
        case None | [] | {}:
            return "none"
        case bool(switch):
            return "on" if switch else "off"
        case Fraction() | int() as number:
            return decimal(number)
    return str(key.default)


def _cell(text: str) -> str:
    """Return text that may stand in a Markdown table."""
    return text.replace("|", r"\|")
