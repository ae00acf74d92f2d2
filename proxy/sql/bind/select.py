"""One SELECT: what it reads from, and whether that is protected rows or results.

Over protected rows an aggregation is a release point (``grouped``), a plain selection a relation
of rows that an outer query may aggregate; over results it is ordinary SQL (``results``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from proxy.errors import (
    AmbiguousColumnError,
    GroupingError,
    NotSupportedError,
    SQLSyntaxError,
)
from proxy.sql.bind.aggregation import release
from proxy.sql.bind.binding import Binding
from proxy.sql.bind.grouping_sets import grouping_sets
from proxy.sql.bind.joins import joined
from proxy.sql.bind.names import Names
from proxy.sql.bind.outer import Outer
from proxy.sql.bind.protected_rows import Inputs
from proxy.sql.bind.relations import Bound, Context, Output, Protected, Relation
from proxy.sql.bind.render import Body, assembled
from proxy.sql.bind.results import Results
from proxy.sql.compile.moments import has_measure
from proxy.sql.expression.aggregates import aggregates
from proxy.sql.expression.typed import Typed, convert, together
from proxy.sql.parse.identifiers import name_of, output_name, quoted
from proxy.sql.parse.tree import position, refuse_constant, worded

CLAUSES = {
    *("expressions", "from_", "joins", "where", "group", "having", "qualify", "windows"),
    *("order", "limit", "offset", "distinct", "utility", "with_"),
}
WORDS = {"locks": "FOR UPDATE", "sample": "TABLESAMPLE", "laterals": "LATERAL"}


class Select:
    """A SELECT, its FROM clause resolved."""

    def __init__(self, binding: Binding, node: exp.Select, context: Context) -> None:
        self.binding, self.node, self.context = binding, node, context
        for arg, value in node.args.items():
            if value and arg not in CLAUSES:
                raise NotSupportedError(
                    f"{WORDS.get(arg, arg.strip('_').upper())} is not supported",
                    position=position(node),
                )
        distinct = node.args.get("distinct")
        if distinct is not None and distinct.args.get("on"):
            raise NotSupportedError("DISTINCT ON is not supported", position=position(distinct))
        self.protected: Protected | None = None
        self.names: Names[Typed] = Names()
        self.text = ""
        self.first: tuple[str, Relation] | None = None  # of FROM, if it is a result or public
        self._from()
        self.aggregated = bool(node.args.get("group") or node.args.get("having")) or any(
            next(aggregates(item), None) is not None for item in self._outside()
        )

    def _outside(self) -> list[exp.Expr]:
        """Return the clauses in which aggregates may stand."""
        order, qualify = self.node.args.get("order"), self.node.args.get("qualify")
        return [
            *self.node.expressions,
            *(order.expressions if order else ()),
            *([qualify.this] if qualify else ()),
            *(self.node.args.get("windows") or ()),
        ]

    # --- FROM --------------------------------------------------------------------------------

    def _from(self) -> None:
        source = self.node.args.get("from_")
        if source is None:
            return
        name, found = self.binding.source(source.this, self.context)
        if isinstance(found, Protected):
            self.protected = replace(found, names=Names({name: found.names.tables[""]}))
        else:
            self.text, self.first = found.text, (name, found)
            self.names.add(name, found.columns, source.this)
        for join in self.node.args.get("joins") or ():
            comma = "pivots" not in join.args  # sqlglot tells the two apart by nothing else
            free = comma or join.args.get("kind") == "CROSS" or join.args.get("method")
            if not (free or join.args.get("on") or join.args.get("using")):
                raise SQLSyntaxError(
                    "JOIN lacks its condition: ON or USING",
                    hint="CROSS JOIN, or a comma, pairs every row with every other",
                    position=position(join.this),
                )
            self._join(join, *self.binding.source(join.this, self.context))

    def _join(self, join: exp.Expr, name: str, found: Protected | Relation) -> None:
        where = self.node.args.get("where")
        condition = where and where.this
        if isinstance(found, Protected):
            if self.protected is not None or len(self.names.tables) != 1:
                raise NotSupportedError(
                    "protected rows are not joined with one another, or with a result",
                    hint="aggregate the dataset in subqueries first, then join the results; public "
                    "tables go after the dataset: FROM dataset JOIN table ON ...",
                    position=position(join),
                )
            if name in self.names.tables:
                raise _taken(name, join)
            rows = replace(found, names=Names({name: found.names.tables[""]}))
            inputs = Inputs(self.binding, rows, self.context)
            assert self.first is not None
            self.protected = joined(inputs, rows, self.first, join, condition, first=True)
            self.names, self.text = Names(), ""
        elif self.protected is not None:
            if name in self.protected.names.tables:
                raise _taken(name, join)
            inputs = Inputs(self.binding, self.protected, self.context)
            self.protected = joined(inputs, self.protected, (name, found), join, condition)
        else:
            self._join_results(join, name, found)

    def _join_results(self, join: exp.Expr, name: str, found: Relation) -> None:
        side, kind = join.args.get("side") or "", join.args.get("kind") or ""
        unknown = {"this", "side", "kind", "on", "using"}
        if any(value and arg not in unknown for arg, value in join.args.items()):
            raise NotSupportedError("this JOIN is not supported", position=position(join))
        if side not in ("", "LEFT", "RIGHT", "FULL") or kind not in ("", "INNER", "OUTER", "CROSS"):
            raise NotSupportedError(f"{side} {kind} JOIN is not supported", position=position(join))
        left = self.names
        names = Names(dict(left.tables), dict(left.merged))
        names.add(name, found.columns, join.this)
        lowering = Results(self.binding, names, self.context)
        conditions = []
        if join.args.get("on"):
            conditions.append(lowering.boolean(join.args["on"], "JOIN/ON").sql)
        for identifier in join.args.get("using") or ():
            column = exp.Column(this=identifier.copy())
            one, two = left.find(column), Names({name: found.columns}).find(column)
            if one is None or two is None:
                raise (names if one is None else Names({name: found.columns})).unknown(column)
            a, b = together([one, two], "JOIN/USING")
            conditions.append(f"{a.sql} = {b.sql}")
            names.merged[name_of(identifier)] = self._merged(side, a, b)
        self.names = names
        if not conditions:
            self.text += f" CROSS JOIN {found.text}"
            return
        self.text += f" {side or 'INNER'} JOIN {found.text} ON ({' AND '.join(conditions)})"

    def _merged(self, side: str, left: Typed, right: Typed) -> Typed:
        if side in ("", "LEFT"):
            return left
        if side == "RIGHT":
            return right
        return replace(left, sql=f"COALESCE({left.sql}, {right.sql})", shadow=None)

    # --- protected rows ----------------------------------------------------------------------

    @property
    def inputs(self) -> Inputs:
        """The columns of the protected rows."""
        assert self.protected is not None
        return Inputs(self.binding, self.protected, self.context)

    @property
    def shows_rows(self) -> bool:
        """Whether it selects protected rows as they are, for an outer query to aggregate."""
        plain = not any(
            self.node.args.get(arg) for arg in ("distinct", "limit", "offset", "qualify")
        )
        return self.protected is not None and not self.aggregated and plain

    def rows(self) -> Protected:
        """Return the rows that it selects."""
        assert self.protected is not None
        columns: list[tuple[str, exp.Expr]] = []
        for item in self.node.expressions:
            if item.is_star:
                columns += [(n, m.copy()) for n, m in self.protected.names.all(item)]
                continue
            if item.find(exp.Window):
                raise NotSupportedError(
                    "window functions run over results, not over protected rows",
                    hint="aggregate first: SUM(COUNT(*)) OVER (...) with GROUP BY",
                    position=position(item),
                )
            inner = item.this if isinstance(item, exp.Alias) else item
            columns.append((output_name(item, self.binding.text), self.inputs.resolve(inner)))
        return replace(self.protected, names=Names({"": columns}), where=self.conditions())

    def conditions(self) -> tuple[exp.Expr, ...]:
        """Return WHERE, resolved, after the conditions of the rows."""
        assert self.protected is not None
        where = self.node.args.get("where")
        if where is None:
            return self.protected.where
        if (aggregate := next(aggregates(where.this), None)) is not None:
            raise GroupingError(
                "aggregate functions are not allowed in WHERE",
                hint="HAVING filters by aggregates",
                position=position(aggregate),
            )
        return (*self.protected.where, self.inputs.resolve(where.this))

    # --- the whole ---------------------------------------------------------------------------

    def bind(self) -> Bound:
        """Return the bound query."""
        if self.protected is None:
            return self._results()
        if not self.aggregated and not self.node.args.get("distinct"):
            return self._no_rows()
        return release(self)

    def _no_rows(self) -> Bound:
        """Return the columns of a selection that shows no row, or refuse it."""
        found = self.rows()
        limit = self.node.args.get("limit")
        none = limit is not None and limit.args.get("expression") == exp.Literal.number(0)
        if none or self.binding.never(found.where):
            outputs = [Output(name, self.binding.kind_of(m)) for name, m in found.names.tables[""]]
            columns = ", ".join(f"{o.typed.sql} AS c{i}" for i, o in enumerate(outputs))
            return Bound(f"SELECT {columns} WHERE FALSE", tuple(outputs), probe=True)
        raise self._refused()

    def _refused(self) -> NotSupportedError:
        columns = [i.this if isinstance(i, exp.Alias) else i for i in self.node.expressions]
        plain = [c for c in columns if isinstance(c, exp.Column) and not c.is_star]
        sums = [c for c in plain if has_measure(self.inputs.resolve(c))]
        keys = ", ".join(worded(c) for c in plain if c not in sums)
        shown = [f"SUM({worded(c)})" for c in sums] or ["COUNT(*)"]
        name = quoted(self.binding.policy.dataset)
        form = f"SELECT {', '.join([keys] * bool(keys) + shown)} FROM {name}"
        form += f" GROUP BY {keys}" if keys else ""
        return NotSupportedError(
            "the rows of a protected dataset are not shown, only aggregates of them",
            hint=f"ask for counts or sums, for example {form}",
            position=position(self.node.expressions[0]) if columns else None,
        )

    def _results(self) -> Bound:
        node = self.node
        windows = node.args.get("windows") or ()
        plain = Results(self.binding, self.names, self.context)
        where = node.args.get("where")
        kept = plain.boolean(where.this, "WHERE").sql if where else None
        keys, group = None, None
        if self.aggregated:
            keys, group = self._grouping(plain)
        lowering = Results(self.binding, self.names, self.context, keys, windows)
        outputs = self.outputs(lowering)
        having, qualify = node.args.get("having"), node.args.get("qualify")
        body = Body(
            self.text,
            outputs,
            kept,
            group,
            lowering.boolean(having.this, "HAVING").sql if having else None,
            self.qualified(lowering, outputs, qualify) if qualify else None,
        )
        return assembled(node, body, lowering.lower)

    def qualified(self, lowering: Outer, outputs: Sequence[Output], node: exp.Expr) -> str:
        """Return QUALIFY, which may name output columns."""
        condition = node.this.copy()
        for column in list(condition.find_all(exp.Column)):
            for item in self.node.expressions:
                same = isinstance(item, exp.Alias) and name_of(item.args["alias"]) == name_of(
                    column.this
                )
                if same and not column.args.get("table"):
                    if column is condition:
                        condition = item.this.copy()
                    else:
                        column.replace(exp.Paren(this=item.this.copy()))
        del outputs
        return lowering.boolean(condition, "QUALIFY").sql

    def outputs(self, lowering: Outer) -> list[Output]:
        """Return the columns of the result."""
        outputs = []
        for item in self.node.expressions:
            if item.is_star:
                if self.protected is not None:
                    raise self._refused()
                if item.args.get("except_") or item.args.get("replace"):
                    raise NotSupportedError("* EXCEPT is not supported", position=position(item))
                keys = isinstance(lowering, Results) and lowering.keys is not None
                if keys:
                    raise GroupingError("* is not grouped", position=position(item))
                outputs += [Output(name, typed) for name, typed in self.names.all(item)]
                continue
            inner = item.this if isinstance(item, exp.Alias) else item
            typed = settled(lowering.lower(inner))
            outputs.append(Output(output_name(item, self.binding.text), typed))
        return outputs

    def _grouping(self, plain: Results) -> tuple[list[Typed], str | None]:
        group = self.node.args.get("group")
        if group is None:
            return [], None
        sets = grouping_sets(group)
        known: list[Typed] = []
        listed = []
        for each in sets:
            texts = []
            for item in each:
                typed = plain.lower(self.key(item, plain.names))
                if all(other.sql != typed.sql for other in known):
                    known.append(typed)
                texts.append(typed.sql)
            listed.append(f"({', '.join(texts)})")
        if len(sets) == 1:
            return known, ", ".join(typed.sql for typed in known) or "()"
        return known, f"GROUPING SETS ({', '.join(listed)})"

    def key(self, item: exp.Expr, names: Names[Typed] | Names[exp.Expr]) -> exp.Expr:
        """Return what an item of GROUP BY stands for: an ordinal, an alias, an expression."""
        outputs = self.node.expressions
        refuse_constant(item, "GROUP BY")
        if isinstance(item, exp.Literal) and not item.is_string:
            at = int(item.name) if item.name.isdigit() else 0
            if not 1 <= at <= len(outputs):
                raise GroupingError(
                    f"GROUP BY position {item.name} is not in select list", position=position(item)
                )
            item = outputs[at - 1]
            item = item.this if isinstance(item, exp.Alias) else item
        elif isinstance(item, exp.Column) and not item.args.get("table") and not names.find(item):
            # PostgreSQL: in GROUP BY an input column goes before an output column
            for output in outputs:
                alias = isinstance(output, exp.Alias) and name_of(output.args["alias"])
                if alias == name_of(item.this):
                    item = output.this
                    break
        if next(aggregates(item), None) is not None:
            raise GroupingError(
                "aggregate functions are not allowed in GROUP BY", position=position(item)
            )
        return item


def _taken(name: str, node: exp.Expr) -> AmbiguousColumnError:
    return AmbiguousColumnError(
        f'table name "{name}" specified more than once', position=position(node)
    )


def settled(value: Typed) -> Typed:
    """Return an output's value: an untyped literal is text."""
    if value.type == "unknown":
        return convert(value, "text")
    return value
