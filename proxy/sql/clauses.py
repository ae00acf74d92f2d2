"""What may stand in the clauses of a statement: for each kind of node, what of it is read.

sqlglot parses the words of many languages.  Invariant: what it puts into a node, and nothing here
reads, is refused, so that no word is dropped.  Expressions have such a table of their own, in
``proxy.sql.expression.rules``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlglot import exp

from proxy.errors import NotSupportedError
from proxy.sql.parse.tree import position, unread

SORTED = frozenset({"with_", "order", "limit", "offset", "utility"})
SET = SORTED | {"this", "expression", "distinct"}
ONE = frozenset({"this"})
TWO = ONE | {"expression"}
LISTED = frozenset({"expressions"})
READ: Mapping[type[exp.Expr], frozenset[str]] = {
    exp.Select: SORTED
    | {"expressions", "from_", "joins", "where", "group", "having", "qualify", "windows"}
    | {"distinct"},
    exp.Subquery: SORTED | {"this", "alias"},
    **dict.fromkeys((exp.Union, exp.Intersect, exp.Except), SET),
    exp.Values: LISTED | {"alias"},
    exp.With: LISTED | {"recursive"},
    exp.CTE: ONE | {"alias", "materialized"},
    exp.TableAlias: ONE | {"columns"},
    exp.Table: ONE | {"alias", "db", "catalog"},
    exp.Unnest: LISTED | {"alias", "offset"},
    exp.ExplodingGenerateSeries: frozenset({"start", "end", "step"}),
    exp.Array: LISTED | {"bracket_notation", "value_constructor"},
    exp.From: ONE,
    exp.Join: ONE | {"side", "kind", "on", "using", "method", "pivots"},
    exp.Where: ONE,
    exp.Group: LISTED | {"all"},
    **dict.fromkeys((exp.Rollup, exp.Cube, exp.GroupingSets, exp.Grouping, exp.Tuple), LISTED),
    exp.Having: ONE,
    exp.Qualify: ONE,
    exp.Window: ONE | {"partition_by", "order", "spec", "alias", "over"},
    exp.WindowSpec: frozenset({"kind", "start", "start_side", "end", "end_side", "exclude"}),
    exp.Distinct: LISTED | {"on"},
    exp.Order: LISTED | {"this"},
    exp.Ordered: ONE | {"desc", "nulls_first"},
    exp.Limit: frozenset({"expression", "limit_options"}),
    exp.Fetch: frozenset({"direction", "count", "limit_options"}),
    exp.Offset: frozenset({"expression"}),
    exp.LimitOptions: frozenset({"percent", "rows", "with_ties"}),
    exp.Star: frozenset(),
    exp.Alias: ONE | {"alias"},
    exp.Identifier: ONE | {"quoted"},
    exp.Var: ONE,
    exp.Exists: ONE,
    exp.In: ONE | {"expressions", "query"},
    **dict.fromkeys((exp.Any, exp.All), ONE),
    exp.DataType: ONE | {"expressions", "nested"},
    exp.DataTypeParam: ONE,
    **dict.fromkeys((exp.Filter, exp.WithinGroup), TWO),
    exp.Count: ONE | {"expressions", "big_int"},
    **dict.fromkeys((exp.CountIf, exp.Sum, exp.Avg, exp.Median), ONE),
    **dict.fromkeys((exp.Min, exp.Max), ONE | {"expressions"}),
    **dict.fromkeys((exp.LogicalAnd, exp.LogicalOr), ONE),
    **dict.fromkeys((exp.Stddev, exp.StddevSamp, exp.StddevPop), ONE),
    **dict.fromkeys((exp.Variance, exp.VariancePop), ONE),
    exp.RegrCount: TWO,
    exp.GroupConcat: ONE | {"separator", "on_overflow"},
    **dict.fromkeys((exp.PercentileCont, exp.PercentileDisc), TWO),
    exp.Mode: ONE,
    **dict.fromkeys((exp.RowNumber, exp.FirstValue, exp.LastValue, exp.Ntile), ONE),
    **dict.fromkeys((exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist), LISTED),
    **dict.fromkeys((exp.Lag, exp.Lead), ONE | {"offset", "default"}),
    exp.NthValue: ONE | {"offset"},
}
WORDS = {
    "locks": "FOR UPDATE",
    "sample": "TABLESAMPLE",
    "laterals": "LATERAL",
    "pivots": "PIVOT",
    "match": "MATCH_RECOGNIZE",
    "ordinality": "WITH ORDINALITY",
    "rows_from": "ROWS FROM",
    "by_name": "UNION of columns by their names",
    "except_": "* EXCEPT",
    "replace": "* REPLACE",
    "rollup": "WITH ROLLUP",
    "cube": "WITH CUBE",
    "totals": "WITH TOTALS",
    "grouping_sets": "GROUPING SETS without a comma before it",
}
HINTS = {
    "except_": "list the columns",
    "rollup": "write GROUP BY ROLLUP (a, b)",
    "cube": "write GROUP BY CUBE (a, b)",
    "totals": "write GROUP BY ROLLUP (a, b)",
    "grouping_sets": "write GROUP BY GROUPING SETS ((a, b), (a))",
    "by_name": "list the columns of both sides in the same order",
}


def refuse_unread(found: Iterable[exp.Expr]) -> None:
    """Refuse nodes of a statement of which something would be dropped.

    Raises:
        NotSupportedError: there is one; ``position`` says where.
    """
    for node in found:
        known = READ.get(type(node))
        name = unread(node, known) if known is not None else None
        if name is not None:
            word = WORDS.get(name, name.strip("_").replace("_", " ").upper())
            place = "" if isinstance(node, exp.Query) else f" in {node.key.upper()}"
            raise NotSupportedError(
                f"{word} is not supported{'' if name in WORDS else place}",
                hint=HINTS.get(name),
                position=position(node),
            )
