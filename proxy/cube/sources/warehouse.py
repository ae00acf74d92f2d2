"""The SQL of groups as sqlglot writes it for a warehouse, for people to read; none of it runs here.

The types of columns are those of the policy's own source, such as a file with a few records.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import NoReturn

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from proxy.cube.sources import coding
from proxy.cube.sources.coded import UNIT, grouped, parts
from proxy.cube.sources.dialect import (
    DAY,
    DIGIT,
    NUMERIC,
    TEXTUAL,
    TIME,
    Dialect,
    is_of,
    text,
)
from proxy.cube.sources.duckdb import FileSource, fault
from proxy.cube.sources.source import opened
from proxy.errors import NotSupportedError, SourceError
from proxy.policy import Policy
from proxy.sql import types
from proxy.sql.source_expressions import REAL, WHOLE, identifier

WAREHOUSES = ("bigquery", "redshift", "snowflake", "sqlserver")
TYPED = {"redshift": "Redshift", "sqlserver": "SQL Server"}  # each column is read as what it is
HEAD = "-- Untested: nobody has run this on {}. {}\n"
ZONED = "Texts of times with a zone are unreadable in it."
OWN = "Its columns are of the same types as those of the file."
WIDE = (exp.DType.DECIMAL, exp.DType.INT128)
KNOWN = {"REGEXP_CONTAINS", "REGEXP_LIKE", "MOD", "COLLATE", "CHR", "NCHAR"}  # as they come
BINARY = "Latin1_General_100_BIN2"  # of SQL Server
PREDICATES = (exp.Predicate, exp.Connector, exp.Not, exp.Boolean)
NESTED = 10  # CASEs in one another, of SQL Server
CONTROL = re.compile(r"([\x00-\x1f])")
SCIENTIFIC = re.compile(r"-?\d+e-\d+")


class _Unwritten(SourceError):
    """A value of a kind that the SQL of a warehouse would read otherwise."""

    def __init__(self, value: str, message: str, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.value = value


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
            raise _Unwritten(
                value,
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


class _Typed(_Plain):
    """What Redshift and SQL Server read as DuckDB does: a column is read as what it is.

    Both hold texts equal that differ in blanks at their end, SQL Server letters in another case
    too: so a mark ends each, and they are compared by their bytes.
    """

    hints = False

    def __init__(self, warehouse: str) -> None:
        self._warehouse = TYPED[warehouse]

    def _refuse(self, value: str, what: str) -> NoReturn:
        hint = "let the file have a column of the type that is meant, and convert in a view there"
        raise _Unwritten(value, f"{what} is not written for {self._warehouse}", hint)

    def number(self, value: str, kind: str, digits: int, places: int) -> str:
        """Return a number of so many digits, to so many decimals; NULL if larger or none."""
        if is_of(kind, ("DECIMAL",)) and int(kind.rstrip(")").partition(",")[2]) > places:
            self._refuse(value, f"what rounds a {kind} to {places} decimals")
        return super().number(value, kind, digits, places)

    def compared(self, value: str, kind: str) -> str:
        """Return a value as of the type in which an axis compares."""
        made = super().compared(value, kind)
        return f"({made} || '|') COLLATE C" if kind == "VARCHAR" else made

    def text(self, value: str, kind: str) -> str:
        """Return the text of a value: of a DECIMAL, also where a column there is of money."""
        if kind == "BOOLEAN":
            return f"CASE WHEN {value} THEN 'true' WHEN NOT {value} THEN 'false' END"
        if is_of(kind, ("DECIMAL",)):
            value = f"CAST({value} AS {kind})"
        elif not is_of(kind, (*WHOLE, *REAL, *TEXTUAL, "DATE")):
            self._refuse(value, f"the text of a {kind}")
        return super().text(value, kind)

    def moment(self, value: str, kind: str) -> str:
        """Return the time that a value is."""
        if kind.startswith("TIMESTAMP") and kind not in ("TIMESTAMP", "TIMESTAMP_S"):
            self._refuse(value, f"the time that a {kind} is")
        return super().moment(value, kind)

    def like(self, value: str, pattern: str) -> str:
        """Refuse to say whether a text is of a pattern, by which it is read as another type."""
        self._refuse(value, "what reads a text as another type")

    def unit(self, value: str, kind: str) -> str:
        """Return a privacy unit, so that equal ones are the same."""
        return self.compared(value, "VARCHAR") if is_of(kind, TEXTUAL) else value

    def unit_text(self, value: str, kind: str) -> str:
        """Return the text of a privacy unit: equal ones have one."""
        if not is_of(kind, (*WHOLE, *TEXTUAL, "DATE")):
            self._refuse(value, f"a unit that is a {kind}")
        return self.text(value, kind)


class _Elsewhere(FileSource):
    """A table of the name of the dataset, whose columns are those of a file."""

    def __init__(self, source: FileSource, dataset: str, warehouse: str) -> None:
        self.local, self._files, self.columns = source.local, source._files, source.columns
        self.records = identifier(dataset)
        self.dialect = _Typed(warehouse) if warehouse in TYPED else _Plain()
        self._read, self._warehouse = source, warehouse

    def expression(self, text: str) -> str:
        """Return SQL of the policy in DuckDB's: a column alone where sqlglot is not trusted."""
        sql = super().expression(text)
        if self._warehouse in TYPED and not isinstance(_parsed(sql), exp.Column):
            raise NotSupportedError(
                f"an expression is not written for {TYPED[self._warehouse]}",
                hint="compute it in a view there, and let the file have its column",
            )
        return sql

    def kind(self, sql: str, key: str) -> str:
        """Return the type of an expression over records."""
        return self._read.kind(sql, key)

    def equal(self, key: str, kind: str, values: Sequence[str], name: str) -> tuple[str, str]:
        """Return a join with a list of the values."""
        each = [f"SELECT {self.dialect.compared(text(v), kind)} AS v, {i} AS code"
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
    if policy.source.engine != "duckdb":
        raise SourceError(
            "the SQL for a warehouse is made from a file with columns of the same types",
            hint="point source at a file, such as a Parquet file of the table's first rows",
        )
    with tempfile.TemporaryDirectory() as folder, opened(policy, Path(folder)) as source:
        assert isinstance(source, FileSource)
        try:
            sql = grouped(policy, _Elsewhere(source, policy.dataset, warehouse))
        except _Unwritten as error:
            keys = [key for key, _ in parts(policy)]
            of = re.fullmatch(r"e(\d+)", error.value)  # as ``grouped`` calls its columns
            key = keys[int(of[1])] if of else UNIT
            raise fault(policy, key, error.message, error.hint) from None
    head = HEAD.format(warehouse, OWN if warehouse in TYPED else ZONED)
    return f"{head}{_written(sql, warehouse)}\n"


def _parsed(sql: str) -> exp.Expr:
    return sqlglot.parse_one(sql, read="duckdb")


def _written(sql: str, warehouse: str) -> str:
    """Return SQL of DuckDB as sqlglot writes it for a warehouse.

    Raises:
        SourceError: it has no words for it.
    """
    own = {"bigquery": _bigquery, "snowflake": _snowflake}.get(warehouse, _typed)
    try:
        tree = _parsed(sql).transform(own)
        if warehouse == "sqlserver":
            tree = _without_booleans(tree.transform(_sqlserver), False)
        elif warehouse == "redshift":
            tree = tree.transform(_redshift)
        unknown = {node.name.upper() for node in tree.find_all(exp.Anonymous)} - KNOWN
        if unknown:
            raise SourceError(f"{min(unknown).lower()} is not written for {warehouse}")
        level = sqlglot.ErrorLevel.RAISE
        dialect = {"sqlserver": "tsql"}.get(warehouse, warehouse)
        return tree.sql(dialect=dialect, pretty=True, unsupported_level=level)
    except SqlglotError as error:
        why = str(error).splitlines()[0]
        raise SourceError(f"sqlglot does not write this for {warehouse}: {why}") from None


def _bigquery(node: exp.Expr) -> exp.Expr:
    """Write patterns that match a part, and the widest numbers, as BigQuery does."""
    if isinstance(node, exp.RegexpFullMatch):
        whole = exp.Literal.string(f"^(?:{node.expression.name})$")
        return exp.Anonymous(this="REGEXP_CONTAINS", expressions=[node.this, whole])
    if isinstance(node, exp.DataType) and node.this in WIDE:
        return exp.DataType(this=exp.DType.BIGDECIMAL, expressions=node.expressions)
    return node


def _snowflake(node: exp.Expr) -> exp.Expr:
    """Write patterns, which match the whole by themselves, and the widest numbers."""
    if isinstance(node, exp.RegexpFullMatch):
        return exp.Anonymous(this="REGEXP_LIKE", expressions=[node.this, node.expression])
    return _wide(node)


def _wide(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.DataType) and node.this == exp.DType.INT128:
        return exp.DataType.build("DECIMAL(38, 0)")
    return node


def _typed(node: exp.Expr) -> exp.Expr:
    """Write numbers without exponents, and quotients of decimals as such: exact ones."""
    if isinstance(node, exp.Div):
        node.set("typed", True)
    if isinstance(node, exp.Cast) and node.to.this == exp.DType.DECIMAL:
        number = node.this
        if isinstance(number, exp.Literal) and SCIENTIFIC.fullmatch(number.name):
            node.set("this", exp.Literal.string(f"{Decimal(number.name):f}"))
    return _wide(node)


def _redshift(node: exp.Expr) -> exp.Expr:
    """Write comparisons by bytes as Redshift does."""
    if isinstance(node, exp.Collate):
        arguments = [node.this.transform(_redshift), exp.Literal.string("case_sensitive")]
        return exp.Anonymous(this="COLLATE", expressions=arguments)
    return _controls(node, "CHR")


def _sqlserver(node: exp.Expr) -> exp.Expr:
    """Write texts, their comparison, and sums as SQL Server does."""
    if isinstance(node, exp.Collate):
        node.set("expression", exp.Var(this=BINARY))
    if isinstance(node, exp.DataType) and node.this in exp.DataType.TEXT_TYPES:
        return exp.DataType.build("NVARCHAR(MAX)", dialect="tsql")
    if isinstance(node, exp.Sum):  # a sum of BIGINT is one, and may pass it
        node.set("this", exp.cast(node.this, "DECIMAL(38, 0)"))
    if isinstance(node, exp.Case):
        inner, depth = node.parent, 1
        while isinstance(inner, exp.Expr) and not isinstance(inner, exp.Select):
            depth, inner = depth + isinstance(inner, exp.Case), inner.parent
        if depth > NESTED:
            raise SourceError(
                f"more than {NESTED} CASEs in one another are not written for SQL Server",
                hint="declare fewer bins",
            )
    return _controls(node, "NCHAR")


def _controls(node: exp.Expr, function: str) -> exp.Expr:
    """Write a text with control characters as what it is made of, and beyond ASCII as such."""
    if not isinstance(node, exp.Literal) or not node.is_string:
        return node
    made: list[exp.Expr] = []
    for part in CONTROL.split(node.name):
        if CONTROL.fullmatch(part):
            made.append(exp.Anonymous(this=function, expressions=[exp.Literal.number(ord(part))]))
        elif part or len(node.name) == 0:
            wide = function == "NCHAR" and not part.isascii()
            made.append(exp.National(this=part) if wide else exp.Literal.string(part))
    first, *rest = made
    for each in rest:
        first = exp.DPipe(this=first, expression=each)
    return exp.paren(first, copy=False) if rest else first


def _without_booleans(node: exp.Expr, condition: bool) -> exp.Expr:
    """Return a tree in which conditions are no values, and values no conditions: 1 is true."""
    for key, child in list(node.args.items()):
        asked = (
            isinstance(node, exp.Connector | exp.Not | exp.Where)
            or (isinstance(node, exp.If) and key == "this")
            or (isinstance(node, exp.Join) and key == "on")
            or (isinstance(node, exp.Paren) and condition)
        )
        if isinstance(child, exp.Expr):
            node.set(key, _without_booleans(child, asked))
        elif isinstance(child, list):
            made = [
                _without_booleans(each, asked) if isinstance(each, exp.Expr) else each
                for each in child
            ]
            node.set(key, made)
    if isinstance(node, exp.Boolean):
        number = exp.Literal.number(int(node.this))
        return exp.EQ(this=exp.Literal.number(1), expression=number) if condition else number
    if isinstance(node, exp.Paren) or condition == isinstance(node, PREDICATES):
        return node
    if condition:
        return exp.EQ(this=node, expression=exp.Literal.number(1))
    case = exp.Case().when(node, exp.Literal.number(1))
    if _is_known(node):
        return case.else_(exp.Literal.number(0))
    return case.when(exp.Not(this=exp.paren(node.copy())), exp.Literal.number(0))


def _is_known(node: exp.Expr) -> bool:
    """Whether a condition is never NULL."""
    if isinstance(node, exp.Connector):
        return _is_known(node.left) and _is_known(node.right)
    if isinstance(node, exp.Not | exp.Paren):
        return _is_known(node.this)
    return isinstance(node, exp.Is) or (
        isinstance(node, exp.EQ) and isinstance(node.left, exp.Literal)
    )
