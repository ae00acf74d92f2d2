"""The records of a policy's source: its table, view or ``query`` as one SELECT of DuckDB.

One record must stay one record, or a single one could move many cells: a query is SELECT … FROM
one table WHERE ….  Where the privacy unit is a column, tables may be joined, by equality of that
column in all of them (USING, or ON a.unit = b.unit AND …), and with tables that the steward has
promised to be public, in any way in which these make no row of their own.  A view of the source is
read as the query that it is, where it only joins and filters, or as a table where the steward
vouches for it; a subquery in FROM as the query that it is.

Invariant: each record comes from rows of one unit, its own, and of public tables, so that the rows
of other units neither make, change nor remove it, whatever the tables hold.  By induction over
joins: the rows that a join puts together agree in the unit, as far as they have one, and those that
an outer join fills up with NULL have one, and no partner of their unit or in the public table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import count

from msgspec import Struct
from msgspec.structs import replace
from sqlglot import exp

from proxy.errors import AmbiguousColumnError, Error, NotSupportedError, UndefinedTableError
from proxy.policy.kinds import nearest
from proxy.sql.bind.names import Names
from proxy.sql.parse.deep_stack import deeply
from proxy.sql.parse.identifiers import name_of, output_name
from proxy.sql.parse.tree import flat
from proxy.sql.source_expressions import Field, Native, Record, identifier, select

EXACT = (  # types of a unit: equal values are the same value, also after a conversion
    *("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER"),
    *("UBIGINT", "DECIMAL", "VARCHAR", "UUID", "ENUM", "DATE", "BOOLEAN"),
)
CLAUSES = {"with_": "WITH", "group": "GROUP BY", "order": "ORDER BY", "locks": "FOR UPDATE"}
SOURCE = {"this", "db", "catalog", "alias"}  # what is known of a table, a join, a *
JOIN = {"this", "side", "kind", "on", "using"}
STAR = {"except_", "replace"}
KEPT = {"LEFT": (1, 0, 1), "RIGHT": (0, 1, 1)}  # groups of the sides, and of both, if one is public
SIDES, KINDS = ("", "LEFT", "RIGHT", "FULL"), ("", "INNER", "CROSS", "OUTER")
MAX_DEPTH = 16  # of views and subqueries within one another
SIMPLE = "a query is SELECT … FROM one table WHERE …; anything else needs a privacy unit"
JOINED = (
    "a query is SELECT … FROM tables WHERE …, joined by USING ({0}) or ON a.{0} = b.{0}; tables of "
    "nobody's data, listed in source.public, by anything, with JOIN, or LEFT JOIN after the others"
)
UNITS_ONLY = "SQL of its own, being a view, which is read only where the privacy unit is a column"
Group = frozenset[str]


class Table(Struct, frozen=True):
    """A table of the source: its DuckDB name, its columns with DuckDB's types."""

    sql: str
    columns: Mapping[str, str]
    view: str | None = None  # the statement that makes it
    has: str | None = None  # what it has, for which it is not read
    public: bool = False  # the steward promises that it has nobody's data
    trusted: bool = False  # a view, whose rows the steward promises to be of their unit alone


class Relation(Struct, frozen=True):
    """What FROM or a SELECT gives: DuckDB text and columns, and whose rows are in it."""

    sql: str
    names: Names[Field]
    groups: tuple[Group, ...]  # of the tables in FROM that have units: those whose rows agree
    units: Mapping[str, str | None]  # by table that is not public, the column that is its unit
    several: bool = False  # its rows are made of rows of several tables

    @property
    def columns(self) -> dict[str, str]:
        """Its columns, with their types in DuckDB's words."""
        return {name: field.kind for each in self.names.tables.values() for name, field in each}


def records(
    tables: Mapping[str, Table],
    unit: str | None,
    *,
    query: str | None = None,
    table: str = "",
    native: Native | None = None,
) -> Relation:
    """Return the SELECT of the records, with its columns.

    It is DuckDB's text, or that of the database which has the tables and their views.

    Raises:
        UndefinedTableError, UndefinedColumnError: the source has none of this name.
        Error: a record may depend on rows of another unit, or some SQL is not supported.
    """
    text = (query or "").strip().removesuffix(";")
    reader = _Reader(tables, unit.lower() if unit else None, text, native)

    def work() -> Relation:
        if query is None:
            return reader.named(table, "")
        return reader.select(select(f"{text}\n"))

    found = deeply(work)
    if not found.units:
        raise reader.refused("it reads public tables only, and no record is anybody's")
    return found if query is not None else replace(found, sql=f"SELECT * FROM {found.sql}")


def promised(
    tables: Mapping[str, Table], key: str, names: Iterable[str], unit: str | None
) -> dict[str, Table]:
    """Return the tables of a source, with what the steward promises of some: public or trusted.

    Raises:
        UndefinedTableError: there is none of a name.
        NotSupportedError: such a promise cannot be of this table.
    """
    known = {name.lower(): table for name, table in tables.items()}
    column = (unit or "").lower()
    marked = set()
    for name in names:
        if (table := known.get(name.lower())) is None:
            raise UndefinedTableError(f'the source has no table "{name}"{nearest(name, tables)}')
        if table.has is not None:
            raise NotSupportedError(f"the table {name} has {table.has}")
        owned = column in map(str.lower, table.columns)
        if key == "public" and owned:
            raise NotSupportedError(
                f"{name} has the column {unit}, the privacy unit: its rows are of people",
                hint="a public table has nobody's data; leave out what is of people, or join it by "
                f"{unit}",
            )
        if key == "trusted" and (table.view is None or table.public):
            raise NotSupportedError(
                f"{name} is {'in public, too' if table.public else 'a table, not a view'}",
                hint="leave it out: tables are read as they are",
            )
        if key == "trusted" and not owned:
            raise NotSupportedError(
                f"the view {name} has no column {unit}, the privacy unit",
                hint="a view is trusted for saying whose each of its rows is",
            )
        marked.add(table.sql)
    found = dict(tables)
    for name, table in tables.items():
        if table.sql in marked:
            public = key == "public"
            found[name] = replace(table, public=public, trusted=not public)
    return found


def shortest(tables: Mapping[str, Table], sql: str) -> str:
    """Return the shortest name of the table with a DuckDB name."""
    return min((name for name, table in tables.items() if table.sql == sql), key=len)


class _Reader:
    """The reading of one query."""

    def __init__(
        self, tables: Mapping[str, Table], unit: str | None, text: str, native: Native | None
    ) -> None:
        self.tables = tables
        self.unit = unit
        self.text = text
        self.native = native
        self.name = native.name if native is not None else identifier
        self.count = 0  # tables in FROM, so far
        self.depth = 0
        self.plain = False  # it is a view that is read, whose SQL is DuckDB's

    def refused(self, message: str) -> NotSupportedError:
        """Return the error for what is not row by row, or not unit by unit."""
        hint = JOINED.format(identifier(self.unit)) if self.unit else SIMPLE
        return NotSupportedError(message, hint=hint)

    def select(self, tree: exp.Select) -> Relation:
        """Return what a SELECT gives."""
        for key, value in tree.args.items():
            if value and key not in ("expressions", "from_", "joins", "where"):
                raise self.refused(f"{CLAUSES.get(key, key).upper()} is not row by row")
        if tree.args.get("from_") is None:
            raise self.refused("it reads from no table")
        rows = self._joined(tree.args["from_"].this, tree.args.get("joins"))
        condition = ""
        if tree.args.get("where") is not None:
            where = tree.args["where"].this
            condition = f" WHERE {self._condition(rows.names, where)}"
            rows = replace(rows, groups=_linked(rows.groups, rows.names, where))
        self._check(rows)
        fields = dict(self._outputs(tree, rows))
        units = rows.units
        if not rows.several:  # the one table's unit is what the query calls so
            own = fields.get(self.unit or "")
            units = dict.fromkeys(units, own.column if own else None)
        items = ", ".join(f"{field.sql} AS {self.name(name)}" for name, field in fields.items())
        sql = f"SELECT {items} FROM {rows.sql}{condition}"
        return Relation(sql, Names({"": list(fields.items())}), (), units, rows.several)

    def _check(self, rows: Relation) -> None:
        """Refuse joins of rows of several units."""
        if len(rows.names.tables) == 1:
            return
        if self.unit is None:
            raise self.refused("it reads from exactly one table")
        for sql, column in rows.units.items():
            if column is None:
                name = shortest(self.tables, sql)
                raise self.refused(
                    f"the table {name} has no column {self.unit}, the privacy unit, and is not in "
                    "source.public"
                )
        if len(rows.groups) > 1:
            apart = [min(group) for group in rows.groups[:2]]
            message = f"{' and '.join(apart)} are not joined by equality of {self.unit} in both"
            fields = [dict(rows.names.tables[each]).get(self.unit) for each in apart]
            one, two = (field.kind if field else "" for field in fields)
            if one != two:
                message += f": its types differ, {one} and {two}"
            elif one and not _exact(one):
                message += f": equal values of its type, {one}, may be different ones"
            raise self.refused(message)

    def _outputs(self, tree: exp.Select, rows: Relation) -> Iterator[tuple[str, Field]]:
        """Yield the columns of a SELECT."""
        record = Record(rows.names, self.plain, self.native)
        seen: set[str] = set()
        for item in tree.expressions:
            star = isinstance(item, exp.Star) or isinstance(item.this, exp.Star)
            if star:
                fields = self._star(record, item)
            else:
                name = output_name(item, self.text).lower()
                if name == "?column?":
                    raise NotSupportedError("a column has no name", hint="write expression AS name")
                inner = item.this if isinstance(item, exp.Alias) else item
                fields = [(name, record.field(inner))]
            for name, field in fields:
                if star and name in seen:  # as DuckDB calls it
                    name = next(n for i in count(1) if (n := f"{name}_{i}") not in seen)
                if name in seen:
                    raise AmbiguousColumnError(
                        f'the column "{name}" is there twice', hint="name the columns in SELECT"
                    )
                seen.add(name)
                if name == self.unit and rows.several and not field.unit:
                    raise self.refused(f"{name} is not the column {name} of the tables joined")
                yield name, replace(field, unit=name == self.unit and bool(rows.units))

    def _star(self, record: Record, item: exp.Expr) -> list[tuple[str, Field]]:
        """Return the columns of *, EXCLUDE and REPLACE regarded."""
        star = item if isinstance(item, exp.Star) else item.this
        table = item.args.get("table") and exp.to_identifier(item.args["table"].name.lower(), True)
        columns = record.names.all(exp.Column(this=exp.Star(), table=table) if table else star)
        for column in star.args.get("except_") or []:
            record.find(exp.Column(this=exp.to_identifier(column.name, True)))
        left_out = {column.name.lower() for column in star.args.get("except_") or []}
        changed = {
            name_of(each.args["alias"]).lower(): record.field(each.this)
            for each in star.args.get("replace") or []
        }
        strange = [key for key, value in star.args.items() if value and key not in STAR]
        if strange or not isinstance(item, exp.Star | exp.Column) or changed.keys() - dict(columns):
            raise NotSupportedError("* is changed by EXCLUDE and REPLACE only")
        return [(n, changed.get(n, field)) for n, field in columns if n not in left_out]

    def _joined(self, node: exp.Expr, joins: list[exp.Expr] | None) -> Relation:
        """Return what FROM gives."""
        rows = self._source(node)
        for join in joins or []:
            rows = self._join(rows, join)
        return rows

    def _source(self, node: exp.Expr) -> Relation:
        """Return a table, a subquery, or joins in brackets."""
        joins = node.args.get("joins")
        if joins:
            node = node.copy()
            node.set("joins", None)
            return self._joined(node, joins)
        alias = node.args.get("alias")
        strange = [key for key, value in node.args.items() if value and key not in SOURCE]
        if strange or (alias and alias.args.get("columns")):
            raise self.refused("FROM takes tables and their names, nothing else")
        shown = name_of(alias.this).lower() if alias else ""
        if isinstance(node, exp.Subquery):
            inner = node.this
            if isinstance(inner, exp.Select):
                return self._nested(inner, shown, self.plain)
            if isinstance(inner, exp.Table | exp.Subquery) and not shown:
                return self._source(inner)
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            raise self.refused("FROM takes tables and their names, nothing else")
        if node.args.get("catalog"):
            raise self.refused("a table is written as table or schema.table")
        return self.named(".".join(part.name for part in node.parts), shown)

    def named(self, name: str, shown: str) -> Relation:
        """Return a table or a view, by name."""
        tables = {each.lower(): each for each in self.tables}
        alike = [each for each in self.tables if each.lower() == name.lower()]
        if len(alike) > 1:
            raise AmbiguousColumnError(
                f'the source has several tables "{name}", in different cases', hint="rename one"
            )
        if name.lower() not in tables:
            raise UndefinedTableError(
                f'the source has no table "{name}"{nearest(name, tables.values())}'
            )
        table = self.tables[tables[name.lower()]]
        if table.has is not None:
            raise self.refused(f"the table {name} has {table.has}")
        shown = shown or name.lower().rpartition(".")[2]
        if table.view is not None and not (table.public or table.trusted):
            return self._view(table, name, shown)
        self.count += 1
        alias = f"t{self.count}"
        fields = []
        for column, kind in table.columns.items():
            lower = column.lower()
            text = f"{alias}.{self.name(column)}"
            own = lower == self.unit and not table.public
            fields.append((lower, Field(text, kind, shown, lower, own)))
        units = (
            {} if table.public else {table.sql: self.unit if self.unit in dict(fields) else None}
        )
        groups = () if table.public else (frozenset({shown}),)
        return Relation(f"{table.sql} AS {alias}", Names({shown: fields}), groups, units)

    def _view(self, table: Table, name: str, shown: str) -> Relation:
        """Return a view, read as its query."""
        assert table.view is not None
        try:
            if self.native is not None:
                return self._nested(select(table.view, self.native.language), shown, self.plain)
            return self._nested(select(table.view, "duckdb"), shown, plain=True)
        except Error as error:
            vouch = "write what it does as source.query, where it can be, or vouch for it in "
            vouch += f"source.trusted{f': {error.hint}' if error.hint else ''}"
            raise NotSupportedError(
                f"the view {name} is not read: {error.message}", hint=vouch
            ) from None

    def _nested(self, tree: exp.Select, shown: str, plain: bool) -> Relation:
        """Return a SELECT as a table of FROM."""
        if self.depth >= MAX_DEPTH:
            raise self.refused("views and subqueries are nested too deeply")
        before = self.plain
        self.depth, self.plain = self.depth + 1, plain
        inner = self.select(tree)
        self.depth, self.plain = self.depth - 1, before
        self.count += 1
        alias = f"t{self.count}"
        fields = [
            (name, replace(field, sql=f"{alias}.{self.name(name)}", table=shown))
            for name, field in inner.names.tables[""]
        ]
        return replace(
            inner,
            sql=f"({inner.sql}) AS {alias}",
            names=Names({shown: fields}),
            groups=(frozenset({shown}),) if inner.units else (),
        )

    def _join(self, left: Relation, join: exp.Expr) -> Relation:
        """Return two relations, joined."""
        right = self._source(join.this)
        side, kind = (str(join.args.get(key) or "").upper() for key in ("side", "kind"))
        strange = [key for key, value in join.args.items() if value and key not in JOIN]
        if strange or side not in SIDES or kind not in KINDS:
            raise self.refused(f"a {' '.join(strange) or side} {kind} JOIN is not known here")
        if twice := left.names.tables.keys() & right.names.tables.keys():
            raise AmbiguousColumnError(f'table name "{min(twice)}" specified more than once')
        for table in left.units.keys() & right.units.keys():
            if left.units[table] != right.units[table]:
                name = shortest(self.tables, table)
                raise self.refused(f"the table {name} has two privacy units in one query")
        names = Names(
            {**left.names.tables, **right.names.tables}, {**left.names.merged, **right.names.merged}
        )
        groups = (*left.groups, *right.groups)
        on, using = join.args.get("on"), join.args.get("using") or []
        conditions = []
        for column in using:
            a, b = (Record(r.names).find(exp.Column(this=column.copy())) for r in (left, right))
            if a.kind != b.kind:
                raise self.refused(f"{column.name} is of two types in the tables joined")
            record = Record(names, self.plain, self.native)
            conditions.append(f"({record.value(a)} = {record.value(b)})")
            groups = _merged(groups, a, b)
            text = {"FULL": f"COALESCE({a.sql}, {b.sql})", "RIGHT": b.sql}.get(side, a.sql)
            names.merged[column.name.lower()] = replace(a, sql=text, unit=a.unit and b.unit)
        if on is not None:
            conditions.append(self._condition(names, on))
            groups = _linked(groups, names, on)
        ends = (len(left.groups), len(right.groups), len(groups))
        if side and ends not in ((1, 1, 1), (0, 0, 0), KEPT.get(side)):
            raise self.refused(
                f"a {side} JOIN keeps rows of a public table of which nobody has a partner"
                if 0 in ends and max(ends) == 1
                else f"an outer JOIN is not by equality of {self.unit or 'a unit'}"
            )
        other = f"({right.sql})" if len(right.names.tables) > 1 else right.sql
        text = f"{left.sql} {side} JOIN {other} ON {' AND '.join(conditions) or 'true'}"
        return Relation(text, names, groups, {**left.units, **right.units}, several=True)

    def _condition(self, names: Names[Field], node: exp.Expr) -> str:
        return Record(names, self.plain, self.native).condition(node)


def _linked(groups: tuple[Group, ...], names: Names[Field], node: exp.Expr) -> tuple[Group, ...]:
    """Return groups of tables, joined where a condition says that their units are equal."""
    whole = _bare(node)
    for part in flat(whole) if isinstance(whole, exp.And) else [whole]:
        equal = _bare(part)
        sides = [_bare(equal.args[key]) for key in ("this", "expression") if key in equal.args]
        if isinstance(equal, exp.EQ) and all(isinstance(each, exp.Column) for each in sides):
            groups = _merged(groups, *(Record(names).find(each) for each in sides))
    return groups


def _merged(groups: tuple[Group, ...], a: Field, b: Field) -> tuple[Group, ...]:
    """Return groups of tables after columns of two are equal: one, if both say the unit."""
    if not (a.unit and b.unit and a.kind == b.kind and _exact(a.kind)):
        return groups
    touched = [group for group in groups if {a.table, b.table} & group]
    return (frozenset().union(*touched), *(group for group in groups if group not in touched))


def _exact(kind: str) -> bool:
    """Whether equal values of a type are the same value."""
    return kind.startswith(EXACT) and "[" not in kind


def _bare(node: exp.Expr) -> exp.Expr:
    """Return a node without the brackets around it."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node
