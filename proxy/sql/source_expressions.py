"""A policy's own SQL, ``expression`` and ``source.query``, as DuckDB text over the source's tables.

It is PostgreSQL's SQL and goes through the translation of statements, so that 7 / 2 is 3 in both;
what has no translation (random numbers, clocks, settings, files, aggregates) is refused by name.
Columns are found in any case; a column that stands alone keeps the type that it has.

``records`` does the query.  Where records are in another database, what was checked so is written
in its own SQL (``Native``).  Invariant: what is made of a record depends on that record alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct
from sqlglot import exp

from proxy.errors import NotSupportedError, UndefinedColumnError
from proxy.policy.kinds import nearest
from proxy.sql import types
from proxy.sql.bind.names import Names
from proxy.sql.expression import allowlist, casts
from proxy.sql.expression.casts import READABLE, sized
from proxy.sql.expression.rules import ExpressionLowering
from proxy.sql.expression.typed import TypedSql, coerce, combine
from proxy.sql.parse import grammar, quantifiers
from proxy.sql.parse.deep_stack import deeply
from proxy.sql.parse.tree import called, nodes

WHY_NOT: tuple[tuple[tuple[type[exp.Expr], ...], str], ...] = (
    ((exp.Window,), "a window function"),
    ((exp.AggFunc, exp.Filter, exp.WithinGroup), "an aggregate"),
    ((exp.Query, exp.Subquery, exp.Exists), "a subquery"),
    ((exp.Star,), "*"),
    ((exp.CurrentDate, exp.CurrentTime, exp.CurrentTimestamp, exp.Localtimestamp), "the clock"),
    ((exp.Rand, exp.Uuid), "a random number"),
    ((exp.Placeholder, exp.Parameter), "a parameter"),
)
HINT = f"columns of the record and the functions in {allowlist.PAGE} may be combined"
WHOLE = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT"), "integer"),
    **dict.fromkeys(("UINTEGER", "BIGINT"), "bigint"),
    **dict.fromkeys(("UBIGINT", "HUGEINT", "UHUGEINT"), "numeric"),
}
REAL = ("FLOAT", "DOUBLE")
WIDE = f"DECIMAL(38, {types.DECIMALS})"
TEXTS = ("VARCHAR", "ENUM", "UUID", "TIME")
PLAIN = (  # what a view may hold: it means the same in DuckDB, whose SQL a view is
    *(exp.Column, exp.Literal, exp.Boolean, exp.Null, exp.Paren, exp.And, exp.Or, exp.Not),
    *(exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between, exp.In, exp.Is, exp.Neg),
)
ALIKE = (  # types whose values compare the same in both
    *("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "DECIMAL", "DOUBLE", "VARCHAR"),
    *("BOOLEAN", "DATE"),
)


class Field(Struct, frozen=True):
    """A column: DuckDB text and DuckDB type."""

    sql: str
    kind: str
    table: str = ""  # the table of FROM that it is of
    column: str | None = None  # the column of a table of the source that it is a copy of
    unit: bool = False  # it says whose row of the table it is


@runtime_checkable
class FromText(Protocol):
    """The SQL of another database, written from what DuckDB would run."""

    language: str  # sqlglot's name of that of its views

    def name(self, name: str) -> str:
        """Return a name as an identifier, in DuckDB's quotes."""

    def typed(self, field: Field) -> str:
        """Return a column as a value of its PostgreSQL type."""

    def translated(self, sql: str, kinds: dict[str, str]) -> str:
        """Return an expression, written in DuckDB's SQL over columns of some types.

        Raises:
            NotSupportedError: it is not known to mean the same there.
        """


class FromTree(Protocol):
    """The SQL of another database, written from the policy's own text, which it all but reads."""

    language: str  # sqlglot's name of it

    def name(self, name: str) -> str:
        """Return a name as an identifier."""

    def typed(self, field: Field) -> str:
        """Return a column as a value of its PostgreSQL type."""

    def prepared(self, tree: exp.Expr) -> exp.Expr:
        """Return the tree of an expression, made to mean the same; it may be changed."""

    def written(
        self, node: exp.Expr, sql: Callable[[exp.Expr], str], kind: Callable[[exp.Expr], str]
    ) -> str | None:
        """Return a node in its own words; None where those of its ``language`` mean the same.

        ``sql`` gives the SQL of a part of it, ``kind`` a part's PostgreSQL type.

        Raises:
            NotSupportedError: it cannot say the same.
        """

    def cast(self, sql: str, of: str, kind: str) -> str:
        """Return a text as another PostgreSQL type; an error where it cannot be read."""

    def tried(self, sql: str, of: str, kind: str) -> str:
        """Return a value as another PostgreSQL type; NULL where it cannot be read, or fit."""

    def sized(self, sql: str, kind: str, size: Sequence[int]) -> str:
        """Return a value as PostgreSQL's type of a size: a text is cut, a number rounded."""


Native = FromTree | FromText  # of another database than DuckDB, which has the records


def expression(text: str, columns: Mapping[str, str], native: Native | None = None) -> str:
    """Return an expression over columns of given DuckDB types, as DuckDB text, or native.

    Raises:
        Error: as ``expression_field``.
    """
    return expression_field(text, columns, native).sql


def expression_field(text: str, columns: Mapping[str, str], native: Native | None = None) -> Field:
    """Return an expression over columns of given DuckDB types as a column.

    Raises:
        UndefinedColumnError: it names an unknown column.
        Error: it is not a value of one record; the message says why.
    """

    def work() -> Field:
        tree = select(text=f"SELECT\n{text}\n")
        items = tree.expressions
        bare = not any(value for key, value in tree.args.items() if key != "expressions")
        if len(items) != 1 or not bare or isinstance(items[0], exp.Alias | exp.Tuple):
            raise NotSupportedError("one SQL expression is expected", hint=HINT)
        quoted = native.name if native is not None else identifier
        fields = [(name.lower(), Field(quoted(name), kind)) for name, kind in columns.items()]
        record = Record(Names({"": fields}), native=native)
        return record.field(items[0])

    return deeply(work)


def select(text: str, language: str = "postgres") -> exp.Select:
    """Return the tree of one SELECT.

    Raises:
        NotSupportedError: it is something else, such as a UNION.
    """
    tree = grammar.parse(text, grammar.tokens(text, language), language)
    if isinstance(tree, exp.Create) and isinstance(tree.this, exp.Table):  # of a view
        tree = tree.expression
    if not isinstance(tree, exp.Select):
        what = "UNION and the like are" if isinstance(tree, exp.SetOperation) else "it is"
        raise NotSupportedError(f"{what} not one SELECT, which is read row by row")
    quantifiers.expand(nodes(tree))
    return tree


def identifier(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


class Record(ExpressionLowering):
    """The translation of expressions over the columns of one record, or of joined ones."""

    def __init__(
        self, names: Names[Field], plain: bool = False, native: Native | None = None
    ) -> None:
        self.names = names
        self.plain = plain
        self.native = native

    def find(self, node: exp.Expr) -> Field:
        """Return a column.

        Raises:
            UndefinedColumnError: there is none of this name.
        """
        if node.args.get("db") or isinstance(node.this, exp.Star):
            raise NotSupportedError("a column is written as column or table.column")
        parts = {
            part: exp.to_identifier(node.args[part].name.lower(), quoted=True)
            for part in ("this", "table")
            if node.args.get(part)
        }
        field = self.names.find(exp.Column(**parts))
        if field is None:
            columns = [name for table in self.names.tables.values() for name, _ in table]
            near = nearest(node.name.lower(), columns)
            raise UndefinedColumnError(f'the source has no column "{node.name}"{near}')
        return field

    def column(self, node: exp.Expr) -> TypedSql:
        """Return a column as a value of PostgreSQL's types."""
        field = self.find(node)
        if self.plain and not field.kind.startswith(ALIKE):
            raise NotSupportedError(f"a view that compares a column of type {field.kind[:40]}")
        return typed(field)

    def special_case(self, node: exp.Expr) -> TypedSql | None:
        """Refuse what is no value of one record, by its kind; TRY_CAST gives NULL for an error."""
        if self.plain and not isinstance(node, PLAIN):
            raise NotSupportedError(
                f"a view that computes ({called(node) or 'an expression'}) is not read",
                hint="write what the view computes as source.query",
            )
        for kinds, what in WHY_NOT:
            if isinstance(node, kinds):
                raise NotSupportedError(f"{what} is not a value of one record", hint=HINT)
        if not isinstance(node, exp.TryCast):
            return None
        value = tried(self.lower(node.this), types.of_cast(node.args["to"]))
        return sized(value, node.args["to"])

    def field(self, node: exp.Expr) -> Field:
        """Return an expression as a column of a result."""
        while isinstance(node, exp.Paren):
            node = node.this
        if isinstance(node, exp.Column):
            return self.find(node)
        value = self.lower(node)
        value = coerce(value, "text") if value.type == "unknown" else value
        if value.type == "interval":
            raise NotSupportedError("an interval is no value of an attribute, nor of a measure")
        return Field(self._written(node, value), types.DUCKDB.get(value.type, "DECIMAL"))

    def condition(self, node: exp.Expr) -> str:
        """Return what WHERE or ON says."""
        return self._written(node, self.boolean(node, "WHERE or ON"))

    def value(self, field: Field) -> str:
        """Return a column as a value of its PostgreSQL type, as text."""
        known = typed(field).sql  # or it is of no type that is read
        return known if self.native is None else self.native.typed(field)

    def _own(self, node: exp.Expr) -> str:
        """Return a part of an expression in the SQL of the source."""
        return self._written(node, self.lower(node))

    def _written(self, node: exp.Expr, value: TypedSql) -> str:
        """Return an expression that was translated to DuckDB's text in the SQL of the source."""
        native = self.native
        if native is None:
            return value.sql
        if isinstance(native, FromText):
            fields = (field for each in self.names.tables.values() for _, field in each)
            return native.translated(value.sql, {field.sql: field.kind for field in fields})

        def own(each: exp.Expr) -> exp.Expr:
            if isinstance(each, exp.Column):
                return exp.Var(this=self.value(self.find(each)))
            if isinstance(each, exp.TryCast):
                inner = self.lower(each.this)
                of, kind = inner.type, types.of_cast(each.args["to"])
                size = [int(p.name) for p in each.args["to"].expressions]
                written = native.tried(self._written(each.this, inner), of, kind)
                return exp.Var(this=native.sized(written, kind, size) if size else written)
            if isinstance(each, exp.Cast) and not isinstance(each.this, exp.Literal):
                inner = self.lower(each.this)
                kind = types.of_cast(each.args["to"])
                if inner.type == "text" and kind != "text":
                    size = [int(p.name) for p in each.args["to"].expressions]
                    written = native.cast(self._written(each.this, inner), "text", kind)
                    return exp.Var(this=native.sized(written, kind, size) if size else written)
            text = native.written(each, self._own, lambda part: self.lower(part).type)
            return each if text is None else exp.Var(this=text)

        return native.prepared(node.copy()).transform(own).sql(dialect=native.language)


def typed(field: Field) -> TypedSql:
    """Return a column as a value of its PostgreSQL type.

    Raises:
        NotSupportedError: its type is not supported.
    """
    sql, kind = field.sql, field.kind
    if kind.startswith("DECIMAL"):
        return TypedSql(sql, "numeric")
    if kind in ("BOOLEAN", "DATE"):
        return TypedSql(sql, kind.lower())
    if kind.startswith("TIMESTAMP"):
        return TypedSql(moment(sql, kind), "timestamp")
    if kind in WHOLE:
        name = WHOLE[kind]
        return TypedSql(f"CAST({sql} AS {types.DUCKDB.get(name, 'DECIMAL(38, 0)')})", name)
    if kind in REAL:
        return TypedSql(f"CAST({sql} AS DOUBLE)", "double precision")
    if kind.startswith(TEXTS) and "[" not in kind:
        return TypedSql(f"CAST({sql} AS VARCHAR)", "text")
    raise NotSupportedError(f"a column of type {kind[:40]} is not read in an expression")


def tried(value: TypedSql, kind: str) -> TypedSql:
    """Return a value as another type; NULL where it cannot be read, or does not fit."""
    if value.type == "text" and kind in READABLE:
        read = f"TRY_CAST(trim({value.sql}) AS {types.DUCKDB.get(kind, WIDE)})"
        test = f"regexp_full_match({value.sql}, '{READABLE[kind]}')"
        if kind in types.TIMES:
            test += f" AND trim({value.sql}) NOT LIKE '0000%'"  # there is no such year
        text = f"CASE WHEN {test} THEN {read} END"
    elif value.type == "text" and kind == "boolean":
        text = words(value.sql)
    elif (value.type, kind) in casts.PLAIN and kind in types.NUMBERS:
        text = f"TRY_CAST({value.sql} AS {types.DUCKDB.get(kind, WIDE)})"
    else:
        return coerce(value, kind) if value.type == "unknown" else casts.cast(value, kind)
    return combine(text, kind, value)


def words(sql: str) -> str:
    """Return a text read as a boolean, as PostgreSQL does; NULL where it is not one."""
    return among(f"lower(trim({sql}, E' \\t\\r\\n\\f'))")


def among(word: str) -> str:
    """Return a word in lower case read as a boolean; NULL where it is not one."""
    true, false = (", ".join(f"'{w}'" for w in sorted(each)) for each in (types.TRUE, types.FALSE))
    return f"CASE WHEN {word} IN ({true}) THEN true WHEN {word} IN ({false}) THEN false END"


def moment(sql: str, kind: str) -> str:
    """Return a column of timestamps as TIMESTAMP: in the session's zone, nanoseconds cut off."""
    if kind == "TIMESTAMP_NS":
        count = f"epoch_ns({sql})"
        return f"make_timestamp(({count} - (({count} % 1000) + 1000) % 1000) // 1000)"
    return f"CAST({sql} AS TIMESTAMP)"
