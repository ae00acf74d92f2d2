"""The dialect with tables of the suite's own: what it makes and fills is remembered here.

The proxy only answers.  So CREATE, INSERT and DELETE are kept in memory, and a SELECT gets the
tables that it reads as WITH clauses of constants before it; the proxy compiles and answers that.
What the suite checks of SELECT, parameters, types and rows is what the dialect then did; tests of
writing and of reflection would check this file, and are left out.
"""

import re

import sqlglot
from sqlglot import exp

from proxy.errors import NotSupportedError
from proxy.sql.parse.parameters import bind_parameters
from proxy.sqlalchemy_dialect import PrivacyProxyDialect

NO_ROWS = "SET privacy.spend = on"
NAMES = {
    "serial": "integer",
    "smallint": "integer",
    "varchar": "text",
    "char": "text",
    "float": "double precision",
}


class Table:
    """A table: the types of its columns, and its rows, whose cells are expressions of SQL."""

    def __init__(self, create):
        columns = list(create.this.find_all(exp.ColumnDef))
        self.types = {column.name: _type(column.kind) for column in columns}
        self.key = next((c.name for c in columns if c.find(exp.PrimaryKeyColumnConstraint)), None)
        keys = create.find(exp.PrimaryKey)
        if keys and len(keys.expressions) == 1 and not self.key:
            self.key = keys.expressions[0].name
        self.rows = []

    def insert(self, names, values):
        row = dict(zip(names or self.types, values, strict=False))
        if self.key and self.key not in row:
            row[self.key] = str(len(self.rows) + 1)
        self.rows.append([row.get(name, "NULL") for name in self.types])

    def relation(self, name):
        rows = [
            ", ".join(f"CAST({v} AS {t})" for v, t in zip(row, self.types.values(), strict=True))
            for row in self.rows
        ]
        none = ", ".join(f"CAST(NULL AS {t})" for t in self.types.values())
        body = " UNION ALL ".join(f"SELECT {row}" for row in rows) or f"SELECT {none} WHERE false"
        return f"{_quoted(name)} ({', '.join(map(_quoted, self.types))}) AS ({body})"


def _type(kind):
    name = kind.sql("postgres").lower()
    return NAMES.get(name.partition("(")[0], name)


def _quoted(name):
    return '"' + name.replace('"', '""') + '"'


class WithTables(PrivacyProxyDialect):
    """The dialect, and the tables."""

    supports_statement_cache = True

    def __init__(self, **options):
        super().__init__(**options)
        self.tables = {}

    def do_execute(self, cursor, statement, parameters, context=None):
        cursor.execute(self._instead(statement, parameters))

    def do_execute_no_params(self, cursor, statement, context=None):
        cursor.execute(self._instead(statement, None))

    def do_executemany(self, cursor, statement, parameters, context=None):
        for each in parameters:
            self.do_execute(cursor, statement, each, context)

    def _instead(self, statement, parameters):
        """Return what the proxy is sent for a statement."""
        text = statement if parameters is None else bind_parameters(statement, parameters)
        word = re.match(r"\s*(\w*)", text)[1].upper()
        if word in ("", "SELECT", "WITH"):
            return self._with(text)
        if word in ("CREATE", "DROP", "INSERT", "DELETE", "UPDATE"):
            self._keep(sqlglot.parse_one(text, read="postgres"))
            return NO_ROWS
        return text

    def _keep(self, tree):
        """Make, fill or empty a table."""
        name = tree.find(exp.Table).name
        if isinstance(tree, exp.Create) and tree.kind == "TABLE" and not tree.expression:
            self.tables[name] = Table(tree)
        elif isinstance(tree, exp.Drop) and tree.kind == "TABLE":
            self.tables.pop(name, None)
        elif isinstance(tree, exp.Delete) and not tree.args.get("where"):
            self.tables[name].rows.clear()
        elif isinstance(tree, exp.Insert) and isinstance(tree.expression, exp.Values):
            names = [column.name for column in tree.this.expressions]
            for row in tree.expression.expressions:
                self.tables[name].insert(names, [v.sql("postgres") for v in row.expressions])
        elif isinstance(tree, exp.Insert) and tree.args.get("default"):
            self.tables[name].insert([], [])
        else:
            raise NotSupportedError(f"{tree.key} is not kept here")

    def _with(self, text):
        low = text.lower()
        found = [t.relation(name) for name, t in self.tables.items() if name.lower() in low]
        if not found:
            return text
        listed = ", ".join(found)
        if low.startswith("with "):
            return f"WITH {listed}, {text[5:]}"
        return f"WITH {listed} {text}"

    def get_table_names(self, connection, schema=None, **kw):
        return [*super().get_table_names(connection, schema, **kw), *self.tables]
