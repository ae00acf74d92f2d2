"""What a policy may compute from a source: values of one record from that record alone.

One record must stay one record, or a single one could move many cells.  The SQL is parsed by
DuckDB itself, since it is DuckDB that will run it: what is checked is what runs.  A ``query`` is
one SELECT from one table with at most a WHERE; functions are built in, of their arguments only
(no aggregate, window, random number or clock).  Where the privacy unit is a column, tables may be
joined too.  Invariant: nothing here reads a record.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import duckdb

from proxy.errors import PolicyError, SourceError
from proxy.policy.kinds import nearest

VALUES = {  # the classes of DuckDB's expressions that are values of one record
    "BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT",
    "FUNCTION", "OPERATOR", "TYPE",
}  # fmt: skip
WHY_NOT = {
    "SUBQUERY": "a subquery", "WINDOW": "a window function", "STAR": "*", "LAMBDA": "a lambda",
    "PARAMETER": "a parameter",
}  # fmt: skip
MACROS = {"split_part", "nullif", "if", "date_add", "days_in_month", "fdiv"}  # built in, by row
CLOCK = {"age"}  # of one argument it counts from today
JOINS = {"REGULAR", "CROSS"}


def check_expression(
    connection: duckdb.DuckDBPyConnection, text: str, columns: Sequence[str], key: str
) -> None:
    """Refuse an expression that is not a value of one record's columns.

    Raises:
        PolicyError: it is something else.
        SourceError: it names a column that the source has not.
    """
    select = _parsed(connection, f"SELECT (\n{text}\n)", key)
    items = select["select_list"]
    bare = select["from_table"]["type"] == "EMPTY" and not _clauses(select)
    row = items[0].get("function_name") == "row" if items else True  # (), (a, b)
    if len(items) != 1 or row or not bare or select["where_clause"]:
        raise PolicyError("one SQL expression is expected", key=key)
    _check_values(connection, items, columns, key)


def check_query(
    connection: duckdb.DuckDBPyConnection, text: str, tables: Iterable[str], joins: bool
) -> list[str]:
    """Return the tables that a source query reads, if it filters and computes row by row.

    Raises:
        PolicyError: it does anything else.
    """
    key = "source.query"
    select = _parsed(connection, text, key)
    found = _clauses(select)
    if found:
        raise PolicyError(f"{found} is not row by row", key=key, hint=_hint(joins))
    names = [_table(table, tables, joins) for table in _tables(select["from_table"])]
    if not names or (len(names) > 1 and not joins):
        raise PolicyError("it reads from exactly one table", key=key, hint=_hint(joins))
    return names


def check_columns(connection: duckdb.DuckDBPyConnection, text: str, columns: Sequence[str]) -> None:
    """Refuse a source query whose outputs or conditions are not values of one record.

    Raises:
        PolicyError: they are something else.
        SourceError: they name a column that the tables have not.
    """
    select = _parsed(connection, text, "source.query")
    stars = [item for item in select["select_list"] if item["class"] == "STAR"]
    items = [item for item in select["select_list"] if item["class"] != "STAR"]
    for star in stars:
        if star.get("columns") or star.get("expr"):
            raise PolicyError("COLUMNS(...) is not allowed; name the columns", key="source.query")
        items += [entry["value"] for entry in star.get("replace_list", [])]
    known = [*columns, *(item["alias"] for item in items if item["alias"])]
    parts = [*items, select["where_clause"], *_conditions(select["from_table"])]
    _check_values(connection, [part for part in parts if part], known, "source.query")


def missing(name: str, columns: Iterable[str], key: str) -> SourceError:
    """Return the error for a column that the source has not."""
    return SourceError(f'{key}: the source has no column "{name}"{nearest(name, columns)}')


def _parsed(connection: duckdb.DuckDBPyConnection, text: str, key: str) -> dict[str, Any]:
    """Return DuckDB's tree of one SELECT."""
    row = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [text]).fetchone()
    tree: dict[str, Any] = json.loads(row[0]) if row else {"error": True}
    if tree["error"] or len(tree["statements"]) != 1:
        raise PolicyError("it is not one SELECT or expression that DuckDB can parse", key=key)
    node: dict[str, Any] = tree["statements"][0]["node"]
    if node["type"] != "SELECT_NODE":
        raise PolicyError("UNION and the like are not row by row", key=key)
    return node


def _clauses(select: dict[str, Any]) -> str | None:
    """Return a clause beyond SELECT, FROM and WHERE, if there is one."""
    names = {
        "cte_map": "WITH", "group_expressions": "GROUP BY", "group_sets": "GROUP BY",
        "having": "HAVING", "qualify": "QUALIFY", "sample": "TABLESAMPLE",
    }  # fmt: skip
    for name, clause in names.items():
        value = select.get(name)
        if value and value != {"map": []}:
            return clause
    if select.get("aggregate_handling") != "STANDARD_HANDLING":
        return "GROUP BY ALL"
    for modifier in select.get("modifiers", []):
        return str(modifier["type"]).removesuffix("_MODIFIER").replace("_", " ")
    return None


def _tables(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the tables of a FROM clause."""
    if node["type"] == "JOIN" and node.get("ref_type", "REGULAR") in JOINS:
        yield from _tables(node["left"])
        yield from _tables(node["right"])
    elif node["type"] != "EMPTY":
        yield node


def _conditions(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the conditions of joins."""
    if node["type"] == "JOIN":
        yield node["condition"]
        yield from _conditions(node["left"])
        yield from _conditions(node["right"])


def _table(node: dict[str, Any], tables: Iterable[str], joins: bool) -> str:
    """Return the name of a table of the source."""
    if node["type"] != "BASE_TABLE" or node.get("sample") or node.get("at_clause"):
        raise PolicyError("FROM takes a table, nothing else", key="source.query", hint=_hint(joins))
    name, schema = str(node["table_name"]), str(node["schema_name"])
    full = f"{schema}.{name}" if schema else name
    known = {table.lower(): table for table in tables}
    if full.lower() not in known or node["catalog_name"]:
        raise SourceError(f'the source has no table "{full}"{nearest(full, known.values())}')
    return known[full.lower()]


def _hint(joins: bool) -> str:
    """Return what a query may be."""
    if joins:
        return "a query here is SELECT … FROM tables, joined, WHERE …"
    return "a query here is SELECT … FROM one table WHERE …; anything else needs a privacy unit"


def _check_values(
    connection: duckdb.DuckDBPyConnection,
    trees: Iterable[Any],
    columns: Sequence[str],
    key: str,
) -> None:
    """Refuse expressions that are not values of one record."""
    known = {column.lower() for column in columns}
    functions: set[str] = set()
    for node in (node for tree in trees for node in _nodes(tree)):
        kind = node["class"]
        if kind not in VALUES or node["type"] == "GROUPING_FUNCTION":
            what = WHY_NOT.get(kind, node["type"].lower())
            raise PolicyError(f"{what} is not a value of one record", key=key)
        if kind == "COLUMN_REF":
            names = [str(name) for name in node["column_names"]]
            if not any(name.lower() in known for name in names[:2]):
                raise missing(names[min(1, len(names) - 1)], columns, key)
        if kind == "FUNCTION":
            _check_call(node, key)
            functions.add(str(node["function_name"]).lower())
    for name in sorted(functions - _by_row(connection, functions)):
        raise PolicyError(f"{name}() is not a built-in function of one record", key=key)


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield the expressions in a tree, subqueries as one."""
    if isinstance(tree, list):
        for item in tree:
            yield from _nodes(item)
    elif isinstance(tree, dict):
        if "class" in tree:
            yield tree
        if tree.get("class") != "SUBQUERY":
            for value in tree.values():
                yield from _nodes(value)


def _check_call(node: dict[str, Any], key: str) -> None:
    """Refuse what only an aggregate can have."""
    ordered = node.get("order_bys") or {"orders": []}
    if node.get("filter") or node.get("distinct") or ordered["orders"]:
        raise PolicyError("an aggregate is not a value of one record", key=key)


def _by_row(connection: duckdb.DuckDBPyConnection, names: set[str]) -> set[str]:
    """Return those of the functions that depend on nothing but their arguments.

    A macro of the source is none of them: it has no such entry, and hides none (``connected``).
    """
    if not names:
        return set()
    rows = connection.execute(
        "SELECT lower(function_name),"
        " bool_or(function_type IN ('aggregate', 'window', 'table', 'table_macro')),"
        " bool_or(function_type = 'scalar' AND stability = 'CONSISTENT')"
        " FROM duckdb_functions() WHERE lower(function_name) IN (SELECT unnest(?::VARCHAR[]))"
        " GROUP BY 1",
        [sorted(names)],
    ).fetchall()
    return {name for name, sets, by_row in rows if (by_row or name in MACROS) and not sets} - CLOCK
