"""The languages that statements may be written in: sqlglot's dialects, with the utility clause.

The clause is ``WITH UTILITY (half_width [PERCENT], delta) [, name (half_width, delta)] ...
[, MAX COST alpha]``, last in a query, before or after a LIMIT; after a UNION it covers the whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.parser import Parser
from sqlglot.tokenizer_core import TokenType

from proxy.errors import NotSupportedError, OperationalError, UndefinedFunctionError
from proxy.policy.promise import FOLD
from proxy.sql.parse.utility_clause import MaxCost, Utility, UtilityItem

UNNAMED = {"CAST", "CASE", "TRIM", "ANY", "ALL", "SOME"}  # columns have not the names of these


class ToChar(exp.Expression, exp.Func):
    """PostgreSQL's to_char, its template as it is written: sqlglot makes it one of strftime."""

    _sql_names: ClassVar[list[str]] = ["TO_CHAR"]
    arg_types: ClassVar[dict[str, bool]] = {"this": True, "format": True}


class UtilityParser(Parser):
    """A parser, extended where a query's modifiers end."""

    def _parse_query_modifiers(self, this: Any) -> Any:
        this = super()._parse_query_modifiers(this)
        if not isinstance(this, exp.Query) or not self._match_text_seq("WITH", "UTILITY"):
            return this
        if this.args.get("utility"):
            self.raise_error("Found multiple 'WITH UTILITY' clauses", self._prev)
        items = self._parse_csv(self._parse_utility_item)
        this.set("utility", self.expression(Utility(expressions=items)))
        return self._parse_query_modifiers(this)  # a LIMIT appended by a tool

    def _parse_date_part(self) -> Any:
        extract = super()._parse_date_part()  # type: ignore[misc]  # PostgreSQL's parser has it
        if isinstance(extract, exp.Extract):
            extract.meta["name"] = "date_part"  # of another type than EXTRACT
        return extract

    def _parse_function_call(self, *args: Any, **options: Any) -> Any:
        written = self._curr
        call = super()._parse_function_call(*args, **options)
        inner = call
        while isinstance(inner, exp.Window | exp.Filter | exp.WithinGroup):
            inner = inner.this
        quoted = written is not None and written.token_type is TokenType.IDENTIFIER
        if isinstance(inner, exp.Expr) and (quoted or written.text.upper() not in UNNAMED):
            name = written.text if quoted else written.text.translate(FOLD)
            inner.meta.setdefault("name", name)  # sqlglot has names of its own
        return call

    def _parse_type(self, *args: Any, **options: Any) -> Any:
        written = self._curr
        typed = super()._parse_type(*args, **options)
        kinds: list[exp.Expr] = []
        inner: Any = typed
        while isinstance(inner, exp.Cast):
            kinds.append(inner.to)
            inner = inner.this
        if len(kinds) > 1 and inner.is_string and written.token_type in self.TYPE_TOKENS:
            # of DATE 'x'::text sqlglot makes the date of 'x'::text
            for kind in (kinds[0], *reversed(kinds[1:])):
                inner = self.expression(exp.Cast(this=inner, to=kind))
            return inner
        return typed

    def _warn_unsupported(self) -> None:
        self.raise_error("Unsupported syntax")  # sqlglot would log it and go on

    def _parse_utility_item(self) -> Any:
        start = self._curr
        if self._match_text_seq("MAX", "COST"):
            limit = MaxCost(this=self._parse_unary())
            limit.meta["start"] = start.start
            return self.expression(limit)
        name = None if self._curr.token_type is TokenType.L_PAREN else self._parse_id_var()
        self._match_l_paren()
        half_width = self._parse_unary()
        percent = bool(self._match_text_seq("PERCENT") or self._match(TokenType.MOD))
        if not self._match(TokenType.COMMA):
            self.raise_error("Expecting ', delta)' in WITH UTILITY")
        delta = self._parse_unary()
        self._match_r_paren()
        item = UtilityItem(this=half_width, expression=delta, percent=percent, name=name)
        item.meta["start"] = start.start
        return self.expression(item)

    def _parse_set_operations(self, this: Any) -> Any:
        this = super()._parse_set_operations(this)
        return self._parse_query_modifiers(this) if isinstance(this, exp.SetOperation) else this


def _date_bin(args: list[Any]) -> exp.Expr:
    """Return date_bin; sqlglot takes its origin for a unit."""
    parts = dict(zip(("this", "expression", "zone"), args, strict=False))
    if len(args) != len(parts):
        return exp.Anonymous(this="date_bin", expressions=args)
    return exp.DateBin(**parts)


def _to_timestamp(args: list[Any]) -> exp.Expr:
    """Return to_timestamp, its template as it is written, as to_date has it."""
    kind = exp.UnixToTime if len(args) == 1 else exp.StrToTime
    made: exp.Expr = kind.from_arg_list(args)
    return made


MOST_ARGUMENTS = {
    "MOD": 2,
    "DIV": 2,
    "LTRIM": 2,
    "RTRIM": 2,
    "BTRIM": 2,
    "INITCAP": 1,
    "TO_DATE": 2,
}


def _at_most(name: str, most: int, build: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Return how a function is built; more arguments, which sqlglot would drop, or take for
    something else, are refused.
    """

    def built(args: list[Any]) -> Any:
        if len(args) > most:
            raise UndefinedFunctionError(f"{name.lower()} takes no more than {most} arguments")
        return build(args)

    return built


def extended(name: str) -> Dialect:
    """Return one of sqlglot's dialects with the utility clause.

    Raises:
        OperationalError: this sqlglot's parsers cannot be extended.
    """
    base: Any = type(Dialect.get_or_raise(name))
    modifiers = base.parser_class.SET_OP_MODIFIERS | {"utility"}
    # sqlglot does not know it; it is PostgreSQL's other name of bool_and
    functions = base.parser_class.FUNCTIONS | {"EVERY": exp.LogicalAnd.from_arg_list}
    parsers = dict(base.parser_class.FUNCTION_PARSERS)
    if name == "postgres":
        parsers.pop("INITCAP", None)  # which gives it a second argument, and drops a third
        functions |= {"TO_CHAR": ToChar.from_arg_list, "DATE_BIN": _date_bin}
        functions |= {"TO_DATE": exp.StrToDate.from_arg_list, "TO_TIMESTAMP": _to_timestamp}
        functions |= {n: _at_most(n, k, functions[n]) for n, k in MOST_ARGUMENTS.items()}
    own = {"SET_OP_MODIFIERS": modifiers, "FUNCTIONS": functions, "FUNCTION_PARSERS": parsers}
    parser = type("Parser", (UtilityParser, base.parser_class), own)
    dialect: Dialect = type(f"Proxy{base.__name__}", (base,), {"Parser": parser})()
    try:
        dialect.parser()
    except TypeError:  # compiled classes have no interpreted subclasses
        raise OperationalError(
            "sqlglot's compiled parsers (sqlglotc) are installed: the proxy's grammar cannot "
            "extend them",
            hint="pip uninstall -y sqlglot sqlglotc && pip install sqlglot",
        ) from None
    return dialect


LANGUAGES = ("postgres", "duckdb", "mysql", "bigquery", "snowflake", "tsql")
DIALECT = extended("postgres")


_extended = {"postgres": DIALECT}


def language(name: str) -> Dialect:
    """Return one of the languages that statements may be written in.

    Raises:
        NotSupportedError: it is not among them.
    """
    if name not in LANGUAGES:
        raise NotSupportedError(
            f"the dialect {name} is not known", hint=f"there are {', '.join(LANGUAGES)}"
        )
    if name not in _extended:
        _extended[name] = extended(name)
    return _extended[name]
