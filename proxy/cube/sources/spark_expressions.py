"""A policy's own SQL in Spark's: what DuckDB would run, node by node, where both mean the same.

``Writer`` knows the type of each node, in DuckDB's words, and refuses what it does not know to be
equal: functions whose last digit depends on a library, patterns that the two engines read in
different ways, decimals that would be rounded.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Protocol

import duckdb
import sqlglot
from sqlglot import exp

from proxy.cube.sources.dialect import BLANKS, is_of, text
from proxy.errors import NotSupportedError
from proxy.sql.source_expressions import REAL

INTS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}
NAMES = {"INT": "INTEGER", "TEXT": "VARCHAR", "TIMESTAMPNTZ": "TIMESTAMP"}
MOMENTS = ("DATE", "TIMESTAMP")
COMPARED: dict[type[exp.Expr], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}  # fmt: skip
PARTS: dict[type[exp.Expr], str] = {
    exp.Year: "year({0})", exp.Month: "month({0})", exp.Day: "day({0})", exp.Hour: "hour({0})",
    exp.Minute: "minute({0})", exp.Quarter: "quarter({0})", exp.Week: "weekofyear({0})",
    exp.DayOfYear: "dayofyear({0})", exp.DayOfWeek: "(dayofweek({0}) - 1)",
    exp.DayOfWeekIso: "(weekday({0}) + 1)",
}  # fmt: skip
GRAINS = ("YEAR", "QUARTER", "MONTH", "WEEK")
ARGS = {  # of nodes: what is written, or says no more than DuckDB's own behaviour
    *("this", "expression", "expressions", "ifs", "true", "default", "to", "table", "is_string"),
    *("start", "length", "delimiter", "part_index", "replacement", "substr", "position", "options"),
    *("flag", "unit", "decimals", "negate", "safe", "ignore_nulls", "coalesce"),
}
SPANS = {"TO_MONTHS": "months", "TO_DAYS": "days", "TO_MICROSECONDS": "microseconds"}
ATOM = (  # of a regular expression that RE2 and Java read alike
    r"[A-Za-z0-9 _,:;/@#%&=<>!'\"~-]|\\[dDwWs.*+?()\[\]{}|^$\\/-]|[.^$|]|\((?:\?:)?|\)"
    r"|\[\^?\]?(?:[A-Za-z0-9 _,.:;/@#%=<>!'\"~*+?(){}|$-]|\\[dw.\]\[\\^-])+\]|[*+?]"
    r"|\{\d+(?:,\d*)?\}"
)
SIMPLE = re.compile(f"(?:{ATOM})*")
END = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\$")
Value = tuple[str, str]  # SQL, and its type in DuckDB's words


class Texts(Protocol):
    """What of Spark's dialect a writer needs."""

    def real(self, value: str, kind: str) -> str:
        """Return the text of a DOUBLE or FLOAT."""

    def clock(self, value: str) -> str:
        """Return the TIMESTAMP that a text is."""


class Writer:
    """The writing of one expression over columns of some types."""

    def __init__(self, kinds: Mapping[str, str], texts: Texts) -> None:
        self.kinds = kinds
        self.texts = texts

    def write(self, sql: str) -> str:
        """Return DuckDB's SQL in Spark's.

        Raises:
            NotSupportedError: it has something that may mean another thing there.
        """
        return self._of(sqlglot.parse_one(sql, read="duckdb"))[0]

    def _sql(self, node: exp.Expr | None) -> str:
        assert node is not None
        return self._of(node)[0]

    def _call(self, name: str, nodes: list[exp.Expr]) -> str:
        return f"{name}({', '.join(map(self._sql, nodes))})"

    def _of(self, node: exp.Expr) -> Value:
        """Return a node, and its type."""
        if strange := {key for key, value in node.args.items() if value} - ARGS:
            raise refused(f"{node.key} with {min(strange)}")
        if node.args.get("negate"):
            node = node.copy()
            node.set("negate", None)
            return f"(NOT {self._sql(node)})", "BOOLEAN"
        if isinstance(node, exp.Paren):
            sql, kind = self._of(node.this)
            return f"({sql})", kind
        if isinstance(node, exp.Column):
            sql = node.sql(dialect="duckdb")
            return sql, self.kinds[sql]
        for family in (self._plain, self._logic, self._numbers, self._strings, self._times):
            if (found := family(node)) is not None:
                return found
        raise refused(type(node).__name__.lower() if node.key != "anonymous" else node.name)

    def _plain(self, node: exp.Expr) -> Value | None:
        """Write literals, casts, and what chooses among values."""
        match node:
            case exp.Literal(is_string=True):
                return text(node.name), "VARCHAR"
            case exp.ByteString():
                return text(node.name), "VARCHAR"
            case exp.Literal():
                return node.name, _number(node.name)
            case exp.Boolean():
                return ("true" if node.this else "false"), "BOOLEAN"
            case exp.Null():
                return "NULL", "NULL"
            case exp.Cast():  # a TRY_CAST too
                return self._cast(node)
            case exp.Case():
                return self._case(node)
            case exp.Coalesce() | exp.Greatest() | exp.Least():
                sqls, kind = self._alike([node.this, *node.expressions])
                return f"{node.key}({', '.join(sqls)})", kind
            case exp.Anonymous() if node.name.lower() == "error":
                return f"raise_error({self._sql(node.expressions[0])})", "NULL"
        return None

    def _case(self, node: exp.Case) -> Value:
        arms = [each.args["true"] for each in node.args["ifs"]]
        default = node.args.get("default") or exp.Null()
        sqls, kind = self._alike([*arms, default])
        tests = [self._sql(each.this) for each in node.args["ifs"]]
        whens = " ".join(f"WHEN {t} THEN {s}" for t, s in zip(tests, sqls, strict=False))
        return f"CASE {whens} ELSE {sqls[-1]} END", kind

    def _alike(self, nodes: list[exp.Expr]) -> tuple[list[str], str]:
        """Return nodes of one type, and that type."""
        values = [self._of(node) for node in nodes]
        kinds = [kind for _, kind in values if kind != "NULL"]
        kind = kinds[0] if kinds else "NULL"
        for other in kinds[1:]:
            kind = self._common(kind, other)
        return [sql for sql, _ in values], kind

    def _common(self, one: str, two: str) -> str:
        """Return the type in which both engines compare values of two types."""
        if one == two or two == "NULL":
            return one
        if one == "NULL":
            return two
        if one in INTS and two in INTS:
            return max(one, two, key=INTS.__getitem__)
        if {one, two} == set(MOMENTS):
            return "TIMESTAMP"
        if "DOUBLE" in (one, two) and all(is_of(k, (*INTS, *REAL, "DECIMAL")) for k in (one, two)):
            return "DOUBLE"
        sizes = [_size(each) for each in (one, two)]
        whole, places = max(w for w, _ in sizes), max(p for _, p in sizes)
        if whole + places > 38:
            raise refused("numeric values of so many digits side by side")
        return f"DECIMAL({whole + places},{places})"

    def _logic(self, node: exp.Expr) -> Value | None:
        """Write conditions."""
        match node:
            case exp.And() | exp.Or():
                a, b = self._sql(node.this), self._sql(node.expression)
                return f"({a} {node.key.upper()} {b})", "BOOLEAN"
            case exp.Not():
                return f"(NOT {self._sql(node.this)})", "BOOLEAN"
            case exp.Is(expression=exp.Null()):
                return f"({self._sql(node.this)} IS NULL)", "BOOLEAN"
            case exp.In() if node.expressions:
                sqls, _ = self._alike([node.this, *node.expressions])
                return f"({sqls[0]} IN ({', '.join(sqls[1:])}))", "BOOLEAN"
            case exp.NullSafeNEQ():
                (a, b), _ = self._alike([node.this, node.expression])
                return f"(NOT ({a} <=> {b}))", "BOOLEAN"
            case exp.IsNan():
                return f"isnan({self._sql(node.this)})", "BOOLEAN"
            case exp.IsInf():
                return f"(abs({self._sql(node.this)}) = CAST('inf' AS DOUBLE))", "BOOLEAN"
        if type(node) in COMPARED:
            (a, b), _ = self._alike([node.this, node.args["expression"]])
            return f"({a} {COMPARED[type(node)]} {b})", "BOOLEAN"
        return None

    def _numbers(self, node: exp.Expr) -> Value | None:
        """Write arithmetic: of whole numbers and of DOUBLE, or where decimals stay exact."""
        match node:
            case exp.Add() | exp.Sub() | exp.Mul() | exp.IntDiv() | exp.Mod() | exp.Div():
                return self._arithmetic(node)
            case exp.Neg():
                sql, kind = self._of(node.this)
                return f"(-{sql})", kind
            case exp.Abs() | exp.Floor() | exp.Ceil() | exp.Round() | exp.Trunc() | exp.Sqrt():
                return self._rounded(node)
            case exp.Sign():
                return f"CAST(sign({self._sql(node.this)}) AS TINYINT)", "TINYINT"
            case exp.Anonymous() if node.name.lower() == "round_even":
                value, places = node.expressions
                if places.name != "0":
                    raise refused("round to decimals of double precision")
                return f"rint({self._sql(value)})", "DOUBLE"
        return None

    def _arithmetic(self, node: exp.Binary) -> Value | None:
        a, left = self._of(node.this)
        if left in MOMENTS:
            return None
        b, right = self._of(node.expression)
        if left in INTS and right in INTS and not isinstance(node, exp.Div):
            kind = self._common(left, right)
            sign = {"add": "+", "sub": "-", "mul": "*", "intdiv": "DIV", "mod": "%"}[node.key]
            return f"CAST(({a} {sign} {b}) AS {kind})", kind  # DIV is a BIGINT
        if (left, right) == ("DOUBLE", "DOUBLE") and node.key in ("add", "sub", "mul"):
            return f"({a} {dict(add='+', sub='-', mul='*')[node.key]} {b})", "DOUBLE"
        if (left, right) == ("DOUBLE", "DOUBLE") and isinstance(node, exp.Div):
            return f"({a} / {b})", "DOUBLE"  # what divides by 0 is an error before, and here too
        raise refused("arithmetic on numeric", "cast to double precision, or to integer")

    def _rounded(self, node: exp.Func) -> Value:
        sql, kind = self._of(node.this)
        real, name = kind == "DOUBLE", node.key
        if name == "abs" or (name == "sqrt" and real):
            return f"{name}({sql})", kind
        if name in ("floor", "ceil", "trunc") and real:
            whole = {"trunc": f"CASE WHEN {sql} < 0 THEN ceil({sql}) ELSE floor({sql}) END"}
            near = whole.get(name, f"{name}({sql})")
            return f"CASE WHEN abs({sql}) < 1e15 THEN CAST({near} AS DOUBLE) ELSE {sql} END", kind
        if kind.startswith("DECIMAL("):
            width, places = _size(kind)[0], 0
            if name == "round" and node.args.get("decimals"):
                places = int(node.args["decimals"].name)
                return f"round({sql}, {places})", f"DECIMAL({min(width + places + 1, 38)},{places})"
            if name in ("floor", "ceil", "round"):
                return f"{name}({sql})", f"DECIMAL({min(width + 1, 38)},0)"
        what = "arithmetic on numeric (it is rounded)" if name == "round" else name
        raise refused(what, "cast to double precision, or to integer")

    def _cast(self, node: exp.Cast) -> Value:
        """Write a cast; DuckDB rounds where Spark would cut off."""
        to = node.args["to"].sql(dialect="duckdb").replace(" ", "")
        kind = {"INT": "INTEGER", "TEXT": "VARCHAR"}.get(to, to)
        sql, of = self._of(node.this)
        name = "TRY_CAST" if isinstance(node, exp.TryCast) else "CAST"
        if kind.partition("(")[0] not in (*INTS, *REAL, "DECIMAL", "VARCHAR", "BOOLEAN", *MOMENTS):
            raise refused(f"a cast to {kind.lower()}")
        if of == kind and name == "CAST":
            return sql, kind
        if of.startswith("VARCHAR"):
            return self._read(sql, kind, name)
        if kind == "VARCHAR":
            if of in REAL:
                return self.texts.real(sql, of), kind
            if not is_of(of, (*INTS, "DECIMAL", "BOOLEAN", "DATE", "TIMESTAMP", "NULL", "TIME")):
                raise refused(f"a text of {of.lower()}")
        elif of in REAL and kind in INTS:
            sql = f"rint({sql})"
        elif is_of(of, ("DECIMAL",)) and kind in INTS:
            sql = f"round({sql}, 0)"
        elif of in REAL and kind.startswith("DECIMAL"):
            raise refused("a cast of double precision to numeric")
        return f"{name}({sql} AS {kind})", kind

    def _read(self, sql: str, kind: str, name: str) -> Value:
        """Return a text as another type; its form is right, or DuckDB's own SQL has seen to it."""
        if kind == "TIMESTAMP":
            read = self.texts.clock(sql)
            if name == "TRY_CAST":
                return read, kind
            wrong = "raise_error('invalid input syntax for type timestamp')"
            return f"CASE WHEN {sql} IS NOT NULL THEN coalesce({read}, {wrong}) END", kind
        plain = sql if kind in ("VARCHAR", "BOOLEAN") else f"trim(BOTH {BLANKS} FROM {sql})"
        return f"{name}({plain} AS {kind})", kind

    def _strings(self, node: exp.Expr) -> Value | None:
        """Write what is done with texts, by code points as in DuckDB."""
        match node:
            case exp.DPipe():
                return self._call("concat", [node.this, node.expression]), "VARCHAR"
            case exp.Concat():
                parts = [f"coalesce({self._sql(each)}, '')" for each in node.expressions]
                return f"concat({', '.join(parts)})", "VARCHAR"
            case exp.Length():
                return f"CAST(length({self._sql(node.this)}) AS BIGINT)", "BIGINT"
            case exp.Trim():
                side = node.args.get("position") or "BOTH"
                of = node.expression
                characters = self._sql(of) if of else "' '"
                return f"trim({side} {characters} FROM {self._sql(node.this)})", "VARCHAR"
            case exp.Lower():
                return cased("lower", self._sql(node.this)), "VARCHAR"
            case exp.ArrayToString() if is_upper(node):
                return cased("upper", self._sql(node.this.this.this)), "VARCHAR"
            case exp.Left() | exp.Right():
                size = node.expression.this if isinstance(node.expression, exp.Cast) else None
                count = size or node.expression
                if not isinstance(count, exp.Literal):
                    raise refused(f"{node.key} of another number of characters than a constant")
                return f"{node.key}({self._sql(node.this)}, {count.name})", "VARCHAR"
            case exp.Substring():
                given = [node.this, node.args["start"], node.args.get("length")]
                return self._call("substring", [each for each in given if each]), "VARCHAR"
            case exp.Replace():
                given = [node.this, node.expression, node.args["replacement"]]
                return self._call("replace", given), "VARCHAR"
            case exp.StrPosition():
                place = self._call("instr", [node.this, node.args["substr"]])
                return f"CAST({place} AS BIGINT)", "BIGINT"
            case exp.SplitPart():
                given = [node.this, node.args["delimiter"], node.args["part_index"]]
                return self._call("split_part", given), "VARCHAR"
            case exp.StartsWith():
                return self._call("startswith", [node.this, node.expression]), "BOOLEAN"
            case exp.Format():
                size = re.fullmatch(r"\{:(0\d+)d\}", node.this.name)
                if size and len(node.expressions) == 1:
                    number = self._sql(node.expressions[0])
                    return f"format_string('%{size[1]}d', {number})", "VARCHAR"
                return None
        return self._patterns(node)

    def _patterns(self, node: exp.Expr) -> Value | None:
        match node:
            case exp.Escape(this=exp.Like() | exp.ILike()) if node.expression.name == "\\":
                pattern = node.this.expression
                if not isinstance(pattern, exp.Literal) or node.this.args.get("negate"):
                    raise refused("LIKE of another pattern than a constant")
                value, like = self._sql(node.this.this), text(_liked(pattern.name))
                if isinstance(node.this, exp.ILike):
                    value, like = cased("lower", value), cased("lower", like)
                return f"({value} LIKE {like})", "BOOLEAN"
            case exp.Like(expression=exp.Literal()) if "\\" not in node.expression.name:
                return f"({self._sql(node.this)} LIKE {self._sql(node.expression)})", "BOOLEAN"
            case exp.RegexpLike() | exp.RegexpFullMatch():
                flags = node.args.get("flag") or node.args.get("options")
                if not isinstance(node.expression, exp.Literal):
                    raise refused("another pattern than a constant")
                if flags is not None and flags.name != "s":
                    raise refused("a pattern in any case", "use lower()")
                pattern = java(node.expression.name)
                if isinstance(node, exp.RegexpFullMatch):
                    pattern = rf"\A(?:{pattern})\z"
                mode = "(?s)" if flags is not None else "(?d)"
                return f"({self._sql(node.this)} RLIKE {text(mode + pattern)})", "BOOLEAN"
        return None

    def _times(self, node: exp.Expr) -> Value | None:
        """Write what is done with days and moments."""
        if (part := PARTS.get(type(node))) is not None:
            return f"CAST({part.format(self._sql(node.this))} AS BIGINT)", "BIGINT"
        if isinstance(node, exp.TimestampTrunc):
            grain = node.args["unit"].name.upper()
            sql, kind = self._of(node.this)
            if grain == "DAY":
                return f"CAST(CAST({sql} AS DATE) AS TIMESTAMP)", "TIMESTAMP"
            if grain not in GRAINS or kind not in MOMENTS:
                raise refused(f"date_trunc to {grain.lower()}")
            return f"CAST(trunc({sql}, '{grain}') AS TIMESTAMP)", "TIMESTAMP"
        if not isinstance(node, exp.Add | exp.Sub):
            return None
        (a, left), sign = self._of(node.this), "+" if isinstance(node, exp.Add) else "-"
        if (span := spans(node.expression)) is not None and left == "TIMESTAMP":
            months, days, micros = (span[name] for name in SPANS.values())
            seconds = f"{abs(micros) // 10**6}.{abs(micros) % 10**6:06d}"
            made = f"make_interval(0, {months}, 0, {days}, 0, 0, {'-' * (micros < 0)}{seconds})"
            return f"({a} {sign} {made})", left
        b, right = self._of(node.expression)
        if (left, right) == ("DATE", "DATE") and sign == "-":
            return f"CAST(datediff({a}, {b}) AS BIGINT)", "BIGINT"
        if left == "DATE" and right == "INTEGER":
            return f"{'date_add' if sign == '+' else 'date_sub'}({a}, {b})", "DATE"
        return None


def refused(what: str, hint: str = "compute it in a table of the source") -> NotSupportedError:
    """Return the error for what may mean another thing in Spark."""
    return NotSupportedError(f"{what} is not known to mean the same in Spark", hint=hint)


def java(pattern: str) -> str:
    """Return a pattern of RE2 as one of Java.

    Raises:
        NotSupportedError: they may read it in different ways.
    """
    if not SIMPLE.fullmatch(pattern) or re.search(r"&&|[*+?}]\+", pattern):
        raise refused("this pattern", "letters, digits, [a-z], \\d, \\w, groups and * + ? are")
    own = {"$": r"\z", r"\s": r"[ \t\n\f\r]"}
    return END.sub(lambda each: own.get(each[0], each[0]), pattern)


def cased(name: str, sql: str) -> str:
    """Return a text in upper or lower case, as in DuckDB: each character by itself, ß alone."""
    of, to = _cases(name)
    return f"translate({sql}, '{of}', '{to}')"


@functools.cache
def _cases(name: str) -> tuple[str, str]:
    """Return the characters that DuckDB changes, and what it makes of them."""
    with duckdb.connect() as connection:
        found = connection.execute(
            f"SELECT string_agg(c, '' ORDER BY i), string_agg({name}(c), '' ORDER BY i)"
            " FROM (SELECT i, chr(CAST(i AS INTEGER)) AS c FROM (FROM range(1, 55296) AS t(i)"
            f" UNION ALL FROM range(57344, 1114112))) WHERE c <> {name}(c) AND c <> 'ß'"
        ).fetchone()
    assert found is not None
    assert len(found[0]) == len(found[1])
    return found[0], found[1]


def is_upper(node: exp.ArrayToString) -> bool:
    """Whether DuckDB's SQL is that of upper(), which leaves ß alone."""
    return node.expression.name == "ß" and isinstance(node.this, exp.Transform)


def spans(node: exp.Expr) -> dict[str, int] | None:
    """Return the parts of an interval; None of what is none."""
    found = dict.fromkeys(SPANS.values(), 0)
    while isinstance(node, exp.Paren):
        node = node.this
    parts = [*node.flatten()] if isinstance(node, exp.Add) else [node]
    for part in parts:
        known = re.fullmatch(r"(\w+)\((-?\d+)\)", part.sql(dialect="duckdb").upper())
        if known is None or known[1] not in SPANS:
            return None
        found[SPANS[known[1]]] += int(known[2])
    return found


def _liked(pattern: str) -> str:
    """Return a pattern of LIKE in which only what needs it is escaped."""
    parts = re.findall(r"\\.|[^\\]|\\$", pattern, re.S)
    if parts and parts[-1] == "\\":
        raise refused("a pattern that ends in a backslash")
    return "".join(p if len(p) == 1 or p[1] in "%_\\" else p[1] for p in parts)


def _number(written: str) -> str:
    """Return the type of a numeric literal."""
    if written.isdigit():
        size = int(written)
        short = "INTEGER" if size < 2**31 else "BIGINT"
        return short if size < 2**63 else f"DECIMAL({len(written)},0)"
    if "e" in written.lower():
        return "DOUBLE"
    whole, _, places = written.partition(".")
    return f"DECIMAL({len(whole.lstrip('0')) + len(places) or 1},{len(places)})"


def _size(kind: str) -> tuple[int, int]:
    """Return the digits before and behind the point of a type of numbers."""
    if kind in INTS:
        return {8: 3, 16: 5, 32: 10, 64: 19}[INTS[kind]], 0
    found = re.fullmatch(r"DECIMAL\((\d+),\s*(\d+)\)", kind)
    if found is None:
        raise refused(f"{kind.lower()} beside a value of another type")
    return int(found[1]) - int(found[2]), int(found[2])
