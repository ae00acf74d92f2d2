"""The SQL of groups as sqlglot writes it for a warehouse, for people to read; none of it runs here.

The types of columns are those of the policy's own source, such as a file with a few records.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from proxy.cube.sources import coding
from proxy.cube.sources.coded import grouped
from proxy.cube.sources.dialect import (
    DAY,
    DIGIT,
    DUCKDB,
    NUMERIC,
    TEXTUAL,
    TIME,
    Dialect,
    is_of,
    text,
)
from proxy.cube.sources.duckdb import FileSource
from proxy.cube.sources.source import opened
from proxy.errors import SourceError
from proxy.policy import Policy
from proxy.sql import types
from proxy.sql.source_expressions import REAL, identifier

WAREHOUSES = ("bigquery", "snowflake")
HEAD = "-- Untested: nobody has run this on {}. Texts of times with a zone are unreadable in it.\n"
WIDE = (exp.DType.DECIMAL, exp.DType.INT128)
KNOWN = {"REGEXP_CONTAINS", "REGEXP_LIKE", "MOD"}  # functions that sqlglot writes as they come


class _Plain(Dialect):
    """The SQL of DuckDB without what other databases have no words for."""

    def number(self, value: str, kind: str, digits: int, places: int) -> str:
        """Return a number of so many digits, to so many decimals; NULL if larger or none."""
        narrow = self.decimal(digits, places)
        if kind == "BOOLEAN":
            return f"CAST(CASE WHEN {value} THEN 1 WHEN NOT {value} THEN 0 END AS {narrow})"
        if is_of(kind, TEXTUAL):
            read = f"CASE WHEN {self.like(value, DIGIT)} THEN {self.trimmed(value)} END"
        elif is_of(kind, NUMERIC):
            read = self.text(value, kind)
        else:
            return f"CAST(NULL AS {narrow})"
        return f"TRY_CAST({read} AS {narrow})"

    def text(self, value: str, kind: str) -> str:
        """Return the text of a value."""
        if kind in REAL:
            raise SourceError(
                f"a {kind} has another text in each warehouse",
                hint="let the file have a DECIMAL, or a whole number, and cast in a view there",
            )
        return super().text(value, kind)

    def moment_of_text(self, value: str) -> str:
        """Return the time that a text is."""
        plain = f"TRY_CAST({self.trimmed(value)} AS TIMESTAMP)"
        return f"CASE WHEN {self.like(value, f'{DAY}({TIME})?')} THEN {plain} END"

    def trimmed(self, value: str) -> str:
        """Return a text without the blanks around it."""
        return f"trim({value}, ' \t\r\n\f')"

    def truth(self, value: str) -> str:
        """Return the boolean that a text is."""
        word = f"lower({self.trimmed(value)})"
        true, false = (", ".join(map(text, sorted(each))) for each in (types.TRUE, types.FALSE))
        return f"CASE WHEN {word} IN ({true}) THEN true WHEN {word} IN ({false}) THEN false END"

    def quotient(self, a: str, b: str) -> str:
        """Return the whole quotient of whole numbers that are not negative."""
        return f"(({a} - mod({a}, {b})) / {b})"

    def digest(self, parts: Sequence[str]) -> str:
        """Return a text that orders rows as if by chance, of texts that have no NULL."""
        between = f" || {text('|')} || "
        return f"md5({between.join(parts)})"


class _Elsewhere(FileSource):
    """A table of the name of the dataset, whose columns are those of a file."""

    def __init__(self, source: FileSource, dataset: str) -> None:
        self.local, self._files, self.columns = source.local, source._files, source.columns
        self.records = identifier(dataset)
        self._read = source

    dialect = _Plain()

    def kind(self, sql: str, key: str) -> str:
        """Return the type of an expression over records."""
        return self._read.kind(sql, key)

    def equal(self, key: str, kind: str, values: Sequence[str], name: str) -> tuple[str, str]:
        """Return a join with a list of the values."""
        each = [f"SELECT {DUCKDB.compared(text(v), kind)} AS v, {i} AS code"
                for i, v in enumerate(values)]  # fmt: skip
        rows = " UNION ALL ".join(each)
        return f"LEFT JOIN ({rows}) AS {name} ON {name}.v = {key}", f"{name}.code"

    def below(self, key: str, kind: str, values: Sequence[str], name: str) -> tuple[str, str]:
        """Return the number of values at or below one."""
        return "", coding.tree(key, kind, values, self.dialect)


def sql_for(policy: Policy, warehouse: str) -> str:
    """Return the SQL that would group a policy's records in a warehouse.

    Raises:
        SourceError: the policy's source is no file; or the warehouse has no words for it.
    """
    with tempfile.TemporaryDirectory() as folder, opened(policy, Path(folder)) as source:
        if not isinstance(source, FileSource):
            raise SourceError(
                "the SQL for a warehouse is made from a file with columns of the same types",
                hint="point source at a file, such as a Parquet file of the table's first rows",
            )
        sql = grouped(policy, _Elsewhere(source, policy.dataset))
    bigquery = warehouse == "bigquery"

    def own(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.RegexpFullMatch):
            value, pattern = node.this, node.expression
            if not bigquery:  # Snowflake's matches the whole by itself
                return exp.Anonymous(this="REGEXP_LIKE", expressions=[value, pattern])
            whole = exp.Literal.string(f"^(?:{pattern.name})$")
            return exp.Anonymous(this="REGEXP_CONTAINS", expressions=[value, whole])
        if bigquery and isinstance(node, exp.DataType) and node.this in WIDE:
            return exp.DataType(this=exp.DType.BIGDECIMAL, expressions=node.expressions)
        if isinstance(node, exp.DataType) and node.this == exp.DType.INT128:
            return exp.DataType.build("DECIMAL(38, 0)")
        return node

    try:
        tree = sqlglot.parse_one(sql, read="duckdb").transform(own)
        unknown = {node.name.upper() for node in tree.find_all(exp.Anonymous)} - KNOWN
        if unknown:
            raise SourceError(f"{min(unknown).lower()} is not written for {warehouse}")
        level = sqlglot.ErrorLevel.RAISE
        written = tree.sql(dialect=warehouse, pretty=True, unsupported_level=level)
    except SqlglotError as error:
        why = str(error).splitlines()[0]
        raise SourceError(f"sqlglot does not write this for {warehouse}: {why}") from None
    return f"{HEAD.format(warehouse)}{written}\n"
