"""Functions and operators of texts, as PostgreSQL has them."""

from __future__ import annotations

import re

from sqlglot import exp

from proxy.errors import DataError, NotSupportedError, UndefinedFunctionError
from proxy.sql import types
from proxy.sql.expression.arguments import all_texts, arguments, required, whole, wrong
from proxy.sql.expression.casts import cast
from proxy.sql.expression.lowering import PLAIN, Arguments, Lowering, Rules
from proxy.sql.expression.typed import TypedSql, coerce, combine
from proxy.sql.parse.tree import is_null, quoted_text, whole_number

TEXT = "text"
NO_BOOLEAN = "CAST(NULL AS BOOLEAN)"
RULES: Rules = {}


def _text(name: str, duckdb: str, *args: str, kind: str = TEXT) -> None:
    def rule(lowering: Lowering, node: exp.Expr) -> TypedSql:
        values = all_texts(name, required(lowering, node, *args))
        return combine(f"{duckdb}({', '.join(v.sql for v in values)})", kind, *values)

    RULES[BY_NAME[name]] = rule


BY_NAME: dict[str, type[exp.Expr]] = {
    "lower": exp.Lower,
    "upper": exp.Upper,
    "length": exp.Length,
    "reverse": exp.Reverse,
    "starts_with": exp.StartsWith,
}
_text("lower", "lower", "this")
_text("reverse", "reverse", "this")
_text("starts_with", "starts_with", "this", "expression", kind="boolean")


def upper(sql: str) -> str:
    """Return a text in capitals; DuckDB makes ẞ of ß, which has no capital in PostgreSQL."""
    return f"array_to_string(list_transform(string_split({sql}, 'ß'), lambda u: upper(u)), 'ß')"


def _upper(lowering: Lowering, node: exp.Expr) -> TypedSql:
    (value,) = all_texts("upper", required(lowering, node, "this"))
    return combine(upper(value.sql), TEXT, value)


def _length(lowering: Lowering, node: exp.Expr) -> TypedSql:
    (value,) = all_texts("length", required(lowering, node, "this"))
    return combine(f"CAST(length({value.sql}) AS INTEGER)", "integer", value)


def _substring(lowering: Lowering, node: exp.Expr) -> TypedSql:
    (value,), rest = required(lowering, node, "this"), arguments(lowering, node, "start", "length")
    (value,) = all_texts("substring", [value])
    if not rest:
        raise wrong("substring", [value])
    if len(rest) == 1 and rest[0].type == TEXT and is_null(node.args["start"]):
        return combine("CAST(NULL AS VARCHAR)", TEXT, value)
    if len(rest) == 1 and rest[0].type in (TEXT, "unknown") and not rest[0].null:
        # FROM a regular expression
        pattern = _sequence("substring", node.args["start"])
        found = f"regexp_extract({value.sql}, {pattern}, 0, 's')"
        test = f"regexp_matches({value.sql}, {pattern}, 's')"
        return combine(f"CASE WHEN {test} THEN {found} END", TEXT, value)
    start, *size = (whole("substring", v) for v in rest)
    # DuckDB counts a negative start from the end; PostgreSQL lets it eat up the length
    if not size:
        text = f"substring({value.sql}, greatest({start.sql}, 1))"  # greatest leaves NULL out
        text = f"CASE WHEN {start.sql} IS NULL THEN NULL ELSE {text} END"
        return combine(text, TEXT, value, start)
    length = size[0]
    negative = "error('negative substring length not allowed')"
    taken = f"greatest({length.sql} + least({start.sql}, 1) - 1, 0)"
    text = (
        f"CASE WHEN {start.sql} IS NULL OR {length.sql} IS NULL THEN NULL "
        f"WHEN {length.sql} < 0 THEN {negative} "
        f"ELSE substring({value.sql}, greatest({start.sql}, 1), {taken}) END"
    )
    return combine(text, TEXT, value, start, length)


def _left(lowering: Lowering, node: exp.Expr) -> TypedSql:
    name = "left" if isinstance(node, exp.Left) else "right"
    value, count = required(lowering, node, "this", "expression")
    (value,), count = all_texts(name, [value]), whole(name, count)
    return combine(f"{name}({value.sql}, {count.sql})", TEXT, value, count)


def _trim(lowering: Lowering, node: exp.Expr) -> TypedSql:
    values = all_texts("trim", arguments(lowering, node, "this", "expression"))
    side = node.args.get("position")
    name = {None: "trim", "BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}[side]
    characters = values[1].sql if len(values) > 1 else "' '"
    return combine(f"{name}({values[0].sql}, {characters})", TEXT, *values)


def _position(lowering: Lowering, node: exp.Expr) -> TypedSql:
    value, part = all_texts("position", required(lowering, node, "this", "substr"))
    text = f"CASE WHEN {part.sql} = '' THEN 1 ELSE strpos({value.sql}, {part.sql}) END"
    return combine(
        f"CASE WHEN {value.sql} IS NULL THEN NULL ELSE CAST({text} AS INTEGER) END",
        "integer",
        value,
        part,
    )


def _replace(lowering: Lowering, node: exp.Expr) -> TypedSql:
    values = all_texts("replace", arguments(lowering, node, "this", "expression", "replacement"))
    if len(values) != 3:
        raise wrong("replace", values)
    value, old, new = (v.sql for v in values)
    text = f"CASE WHEN {old} = '' THEN {value} ELSE replace({value}, {old}, {new}) END"
    width = values[0].width * max(values[2].width, 1)
    return combine(f"CASE WHEN {new} IS NULL THEN NULL ELSE {text} END", TEXT, *values, width=width)


def _split_part(lowering: Lowering, node: exp.Expr) -> TypedSql:
    value, by, index = required(lowering, node, "this", "delimiter", "part_index")
    value, by = all_texts("split_part", [value, by])
    index = whole("split_part", index)
    zero = "error('field position must not be zero')"
    part = f"split_part({value.sql}, {by.sql}, {index.sql})"
    whole_text = f"CASE WHEN abs({index.sql}) = 1 THEN {value.sql} ELSE '' END"
    whole_text = f"CASE WHEN {value.sql} IS NULL THEN NULL ELSE {whole_text} END"
    text = f"WHEN {by.sql} = '' THEN {whole_text} ELSE {part}"  # DuckDB splits into characters
    return combine(f"CASE WHEN {index.sql} = 0 THEN {zero} {text} END", TEXT, value, by, index)


def _concat(lowering: Lowering, node: exp.Expr) -> TypedSql:
    name = "concat_ws" if isinstance(node, exp.ConcatWs) else "concat"
    given = arguments(lowering, node, "expressions")
    if not given or (name == "concat_ws" and given[0].type not in (TEXT, "unknown")):
        raise wrong(name, given)
    values = [_put_out(value) for value in given]
    width = sum(value.width for value in values) + len(values) * values[0].width
    return combine(f"{name}({', '.join(v.sql for v in values)})", TEXT, *values, width=width)


def _shown(value: TypedSql) -> TypedSql:
    return coerce(value, TEXT) if value.type == "unknown" else cast(value, TEXT)


def _put_out(value: TypedSql) -> TypedSql:
    """Return a value as PostgreSQL puts it out: as a cast writes it, but t and f of a boolean."""
    text = _shown(value)
    return combine(f"left({text.sql}, 1)", TEXT, text) if value.type == "boolean" else text


def _pipe(lowering: Lowering, node: exp.Expr) -> TypedSql:
    left, right = lowering.lower(node.this), lowering.lower(node.expression)
    if TEXT not in (left.type, right.type) and "unknown" not in (left.type, right.type):
        raise UndefinedFunctionError(f"operator does not exist: {left.type} || {right.type}")
    left, right = _shown(left), _shown(right)
    text = f"({left.sql} || {right.sql})"
    return combine(text, TEXT, left, right, width=left.width + right.width)


def _pad(lowering: Lowering, node: exp.Expr) -> TypedSql:
    name = "lpad" if node.args.get("is_left") else "rpad"
    value, size = required(lowering, node, "this", "expression")
    fill = node.args.get("fill_pattern")
    values = all_texts(name, [value, lowering.lower(fill or exp.Literal.string(" "))])
    length = whole_number(node.expression)
    if length is None:
        raise NotSupportedError(f"{name} takes a length in digits")
    size = whole(name, size)
    text, by = (v.sql for v in values)
    # without anything to fill with PostgreSQL cuts only, and DuckDB fails
    cut = f"left({text}, {size.sql})"
    padded = f"CASE WHEN {by} = '' THEN {cut} ELSE {name}({text}, {size.sql}, {by}) END"
    return combine(
        f"CASE WHEN {by} IS NULL THEN NULL ELSE {padded} END", TEXT, *values, width=4 * length
    )


def _like(lowering: Lowering, node: exp.Expr) -> TypedSql:
    escape = "\\"
    negated = False
    if isinstance(node, exp.Escape):
        if is_null(node.expression):
            return combine(NO_BOOLEAN, "boolean", lowering.lower(node.this))
        given = quoted_text(node.expression)
        if given is None or len(given) > 1:
            raise NotSupportedError("ESCAPE takes one character in quotes")
        escape, node = given, node.this
    if node.args.get("negate"):
        negated = True
    word = "ILIKE" if isinstance(node, exp.ILike) else "LIKE"
    left, right = all_texts(word, [lowering.lower(node.this), lowering.lower(node.expression)])
    if right.axes or right.numbers:
        raise NotSupportedError(f"{word} takes a pattern in quotes")
    pattern = quoted_text(node.expression)
    if escape and pattern is not None and (len(pattern) - len(pattern.rstrip(escape))) % 2:
        raise DataError("LIKE pattern must not end with escape character")
    tail = f" ESCAPE '{escape.replace(chr(39), chr(39) * 2)}'" if escape else ""
    text = f"({left.sql} {word} {right.sql}{tail})"
    return combine(f"(NOT {text})" if negated else text, "boolean", left, right)


def _initcap(lowering: Lowering, node: exp.Expr) -> TypedSql:
    """Return initcap: a capital for the first letter of each word, small letters for the rest."""
    (value,) = all_texts("initcap", required(lowering, node, "this"))
    pieces = rf"regexp_extract_all({value.sql}, '{WORD}+|[^{WORD[1:]}+')"
    each = f"lambda w: {upper('left(w, 1)')} || lower(substring(w, 2))"
    return combine(f"array_to_string(list_transform({pieces}, {each}), '')", TEXT, value)


def _translate(lowering: Lowering, node: exp.Expr) -> TypedSql:
    values = all_texts("translate", required(lowering, node, "this", "from_", "to"))
    width = 4 * values[0].width
    return combine(f"translate({', '.join(v.sql for v in values)})", TEXT, *values, width=width)


def _repeat(lowering: Lowering, node: exp.Expr) -> TypedSql:
    value, times = required(lowering, node, "this", "times")
    (value,) = all_texts("repeat", [value])
    count = whole_number(node.args["times"])
    if count is None:
        raise NotSupportedError("repeat takes a number of times in digits")
    times = whole("repeat", times)
    width = value.width * count
    return combine(f"repeat({value.sql}, {times.sql})", TEXT, value, times, width=width)


WORD = r"[\p{L}\p{Nl}0-9]"  # PostgreSQL's letters and digits, as RE2 has them
LETTERS = r"[\p{L}\p{Nl}0-9_]"
# what PostgreSQL's regular expressions and RE2 have in common
PATTERN = re.compile(r"(?:[\w\s%&@!/,;:'\"<>=~#^$.*+?|()-]|\[\^?[\w\s.,:%&@!-]+\]|\\[dws.])*")


def _matches(lowering: Lowering, node: exp.Expr) -> TypedSql:
    left, right = all_texts("~", [lowering.lower(node.this), lowering.lower(node.expression)])
    if is_null(node.expression):
        return combine(NO_BOOLEAN, "boolean", left)
    pattern = quoted_text(node.expression)
    if pattern is None or not PATTERN.fullmatch(pattern) or "(?" in pattern:
        raise NotSupportedError(
            "a regular expression takes plain characters, . [...] * + ? | ^ $ \\d \\s \\w",
            hint="use LIKE, or a simpler pattern",
        )
    options = "'si'" if isinstance(node, exp.RegexpILike) else "'s'"
    text = f"regexp_matches({left.sql}, {_of_re2(pattern)}, {options})"
    return combine(text, "boolean", left, right)


def _of_re2(pattern: str) -> str:
    """Return a regular expression with PostgreSQL's class of letters, in quotes."""
    letters = re.sub(r"\\.", lambda m: LETTERS if m[0] == r"\w" else m[0], pattern)
    return types.literal(TEXT, letters)


# a sequence of single characters, of which RE2's first match is the longest too: PostgreSQL's
SEQUENCE = re.compile(
    r"\^?(?:(?:[\w\s%&@!/,;:'\"<>=~#.-]|\[\^?[\w\s.,:%&@!-]+\]|\\[dws.])[*+]?)+\$?"
)


def _sequence(name: str, node: exp.Expr | None) -> str:
    """Return a regular expression of which each match is the same in RE2.

    Raises:
        NotSupportedError: it may not be, or may match nothing.
    """
    pattern = quoted_text(node)
    if pattern is None or not SEQUENCE.fullmatch(pattern) or re.fullmatch(pattern.strip("^$"), ""):
        raise NotSupportedError(
            f"{name} takes a sequence of characters, . [...] \\d \\s \\w, with * and + after them, "
            "which is not empty",
            hint="use replace, split_part or substring with numbers, or a simpler pattern",
        )
    return _of_re2(pattern)


def _regexp_replace(lowering: Lowering, node: exp.Expr) -> TypedSql:
    flags = node.args.get("modifiers")
    letters = "" if flags is None else quoted_text(flags)
    values = all_texts("regexp_replace", required(lowering, node, "this", "replacement"))
    pattern = _sequence("regexp_replace", node.expression)
    new = quoted_text(node.args["replacement"])
    if new is None or "\\" in new or letters is None or not set(letters) <= set("gi"):
        raise NotSupportedError(
            "regexp_replace takes a replacement in quotes, without \\, and the flags g and i"
        )
    options = f"'s{letters}'"
    text = f"regexp_replace({values[0].sql}, {pattern}, {values[1].sql}, {options})"
    width = values[0].width * (1 + values[1].width)
    return combine(text, TEXT, *values, width=width)


SIMPLE = re.compile(r"[\w\s%&@!/,;:'\"<>=~#^$.*+?|()-]*")
SIMILAR = {"%": ".*", "_": ".", ".": r"\.", "^": r"\^", "$": r"\$"}


def _similar(lowering: Lowering, node: exp.Expr) -> TypedSql:
    """Return SIMILAR TO: a regular expression of the whole text, with LIKE's % and _."""
    left, right = all_texts(
        "SIMILAR TO", [lowering.lower(node.this), lowering.lower(node.expression)]
    )
    if is_null(node.expression):
        return combine(NO_BOOLEAN, "boolean", left)
    pattern = quoted_text(node.expression)
    if pattern is None or not SIMPLE.fullmatch(pattern) or "(?" in pattern:
        raise NotSupportedError(
            "SIMILAR TO takes plain characters, % _ ( ) | * + ?",
            hint="use LIKE, a list, or ~ with a regular expression",
        )
    regexp = types.literal(TEXT, "".join(SIMILAR.get(c, c) for c in pattern))
    return combine(f"regexp_full_match({left.sql}, {regexp}, 's')", "boolean", left, right)


RULES |= {
    exp.Length: _length,
    exp.Substring: _substring,
    exp.Left: _left,
    exp.Right: _left,
    exp.Trim: _trim,
    exp.StrPosition: _position,
    exp.Replace: _replace,
    exp.SplitPart: _split_part,
    exp.Concat: _concat,
    exp.ConcatWs: _concat,
    exp.DPipe: _pipe,
    exp.Pad: _pad,
    exp.Upper: _upper,
    exp.Initcap: _initcap,
    exp.Translate: _translate,
    exp.Repeat: _repeat,
    exp.RegexpReplace: _regexp_replace,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Escape: _like,
    exp.SimilarTo: _similar,
    exp.RegexpLike: _matches,
    exp.RegexpILike: _matches,
}
ARGUMENTS: Arguments = {
    exp.Substring: PLAIN | {"start", "length"},
    exp.Trim: PLAIN | {"position"},
    exp.StrPosition: PLAIN | {"substr"},
    exp.Replace: PLAIN | {"replacement"},
    exp.SplitPart: PLAIN | {"delimiter", "part_index"},
    exp.Concat: PLAIN | {"safe", "coalesce"},
    exp.ConcatWs: PLAIN | {"safe", "coalesce"},
    exp.DPipe: PLAIN | {"safe"},
    exp.Pad: PLAIN | {"is_left", "fill_pattern"},
    exp.Translate: PLAIN | {"from_", "to"},
    exp.Repeat: PLAIN | {"times"},
    exp.RegexpReplace: PLAIN | {"replacement", "modifiers", "single_replace"},
    exp.Like: PLAIN | {"negate"},
    exp.ILike: PLAIN | {"negate"},
}
