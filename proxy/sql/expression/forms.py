"""What an expression is of released numbers, where that is simple: its ``Form``.

A linear combination is a DuckDB list of terms: the provenance ``i`` of a number and its
coefficient ``c``, a constant having the provenance -1.  So the coefficients of a total, a share or
a running sum are known for each row of a result, from the one run that gives the rows.  Everything
here returns None where an expression has no such form: then it is known from draws.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from proxy.sql import types
from proxy.sql.expression.faces import MARK, shown
from proxy.sql.expression.typed import STILL, Form, Step, TypedSql

OVER = f"{MARK}o"  # where the window of an aggregate goes
LONGEST = 20_000  # characters of a form
NOTHING = "CAST(NULL AS STRUCT(i BIGINT, c DOUBLE)[])"


def number(provenance: str) -> Form:
    """Return the form of a number as it stands."""
    return Form("linear", (f"[{{'i': {provenance}, 'c': CAST(1 AS DOUBLE)}}]",))


def of(value: TypedSql) -> Form | None:
    """Return the form of a value, also of one that no noise moves."""
    if value.chance != STILL:
        return value.form
    if value.null:
        return Form("linear", (NOTHING,))
    if value.type not in types.NUMBERS:
        return None
    term = f"[{{'i': CAST(-1 AS BIGINT), 'c': CAST({value.sql} AS DOUBLE)}}]"
    if value.constant is None:
        term = f"CASE WHEN {value.sql} IS NOT NULL THEN {term} END"
    return _form("linear", term)


def _form(kind: str, *parts: str, steps: tuple[Step, ...] = ()) -> Form | None:
    return Form(kind, parts, steps) if sum(map(len, parts)) <= LONGEST else None


def _times(terms: str, factor: str, known: bool = True) -> str:
    """Return so many times a linear combination."""
    text = f"list_transform({terms}, lambda x: {{'i': x.i, 'c': x.c * {factor}}})"
    return text if known else f"CASE WHEN {factor} IS NOT NULL THEN {text} END"


def smooth(value: TypedSql, parts: Sequence[TypedSql], form: Form | None) -> TypedSql:
    """Return a value that moves no more abruptly than its parts, with its form."""
    return replace(value, chance=max(part.chance for part in parts), form=form)


def stepped(value: TypedSql, *step: str | float) -> Form | None:
    """Return the form of a monotone function of a value, or of its size."""
    if value.chance == STILL:
        return None
    form = value.form
    if form is None:  # then its own draws are looked at, before the step
        form = _form("drawn", value.sql)
    return form and replace(form, steps=(*form.steps, (str(step[0]), *map(float, step[1:]))))


def negative(value: TypedSql) -> Form | None:
    """Return the form of -x."""
    return _scaled(value, "(-1)", -1.0)


def _scaled(value: TypedSql, factor: str, constant: float | None) -> Form | None:
    form = value.form
    if form is None or form.steps or form.kind == "drawn":
        return None if form is None or constant is None else stepped(value, "times", constant)
    top = _times(form.parts[0], factor, constant is not None)
    return _form(form.kind, top, *form.parts[1:])


def arithmetic(sign: str, left: TypedSql, right: TypedSql) -> Form | None:
    """Return the form of a sum, a difference or a product."""
    if left.chance == STILL == right.chance:
        return None
    if sign == "*":
        if STILL not in (left.chance, right.chance):
            return None
        factor, value = (left, right) if left.chance == STILL else (right, left)
        return _scaled(value, f"CAST({factor.sql} AS DOUBLE)", factor.constant)
    one, two = of(left), of(right)
    if one is None or two is None:
        return None
    for form, value, other, times in ((one, left, right, -1.0), (two, right, left, 1.0)):
        if form.steps or form.kind == "drawn":
            if other.constant is None:
                return None
            if sign == "+":
                return stepped(value, "plus", other.constant)
            if form is one:
                return stepped(value, "plus", times * other.constant)
            moved = stepped(value, "times", -1.0)
            return moved and replace(moved, steps=(*moved.steps, ("plus", other.constant)))
    minus = "(-1)" if sign == "-" else ""
    if one.kind == two.kind and one.parts[1:] == two.parts[1:]:
        added = _times(two.parts[0], minus) if minus else two.parts[0]
        return _form(one.kind, f"({one.parts[0]} || {added})", *one.parts[1:])
    return _moved(one, two, sign, left, right)


def _moved(one: Form, two: Form, sign: str, left: TypedSql, right: TypedSql) -> Form | None:
    """Return the form of a ratio and something public that is added to it, or taken away."""
    if STILL not in (left.chance, right.chance):
        return None
    ratio, public = (one, left) if one.kind == "ratio" else (two, right)
    public = right if public is left else left
    (top, bottom) = ratio.parts
    factor = f"CAST({public.sql} AS DOUBLE)"
    if sign == "-":
        if ratio is one:
            factor = f"(-{factor})"
        else:
            top = _times(top, "(-1)")
    return _form(
        "ratio", f"({top} || {_times(bottom, factor, public.constant is not None)})", bottom
    )


def quotient(left: TypedSql, right: TypedSql, whole: bool) -> Form | None:
    """Return the form of a quotient; ``whole``: without its remainder."""
    form = _quotient(left, right)
    return form and (replace(form, steps=(*form.steps, ("trunc", 0.0))) if whole else form)


def _quotient(left: TypedSql, right: TypedSql) -> Form | None:
    if left.chance == STILL == right.chance:
        return None
    if right.chance == STILL:
        times = 1 / right.constant if right.constant else None
        return _scaled(left, f"(1 / nullif(CAST({right.sql} AS DOUBLE), 0))", times)
    one, two = of(left), of(right)
    if one is None or two is None or one.steps or two.steps or "drawn" in (one.kind, two.kind):
        return None
    if two.kind == "linear":
        return _form("ratio", one.parts[0], two.parts[0]) if one.kind == "linear" else None
    if one.kind == "ratio" and one.parts[1] == two.parts[1]:
        return _form("ratio", one.parts[0], two.parts[0])
    return None


def chosen(conditions: Sequence[TypedSql], values: Sequence[TypedSql]) -> Form | None:
    """Return the form of CASE: of its only value, or of one that public conditions choose."""
    there = [value for value in values if not value.null]
    if all(value.chance == STILL for value in there):
        return None
    if len(there) > 1 and any(c.chance != STILL for c in conditions):
        return None
    forms = [of(value) for value in there]
    if len({(form.kind, form.steps) if form else None for form in forms}) > 1 or not forms[0]:
        return None
    first, parts = forms[0], []
    for k in range(len(first.parts)):
        rest = iter(form.parts[k] for form in forms if form)
        texts = [NOTHING if value.null else next(rest) for value in values]
        pieces = [
            f"WHEN {shown(c.sql)} THEN {text}" for c, text in zip(conditions, texts, strict=False)
        ]
        parts.append(f"CASE {' '.join(pieces)} ELSE {texts[-1]} END")
    return None if first.kind == "drawn" else _form(first.kind, *parts, steps=first.steps)


def replaced(values: Sequence[TypedSql]) -> Form | None:
    """Return the form of COALESCE: where the first is a ratio over nothing it may be the second."""
    first, *rest = values
    if first.chance == STILL or any(value.chance != STILL for value in rest):
        return None
    form = first.form
    if form is not None and form.kind == "linear" and not form.steps:
        others = [of(value) for value in rest]
        texts = [other.parts[0] for other in others if other]
        if len(texts) < len(rest):
            return None
        return _form("linear", f"COALESCE({', '.join([form.parts[0], *texts])})")
    if form is not None and len(rest) == 1 and rest[0].constant is not None:
        return replace(form, steps=(*form.steps, ("or", rest[0].constant)))
    return None


def bounded(name: str, values: Sequence[TypedSql]) -> Form | None:
    """Return the form of GREATEST or LEAST of one value and constants, if there are any."""
    moved = [value for value in values if value.chance != STILL]
    constants = [value.constant for value in values if value.chance == STILL]
    if len(moved) != 1 or None in constants:
        return None
    if not constants:
        return moved[0].form
    best = (max if name == "greatest" else min)(c for c in constants if c is not None)
    return stepped(moved[0], name, best)


def aggregate(name: str, value: TypedSql, conditions: Sequence[TypedSql]) -> Form | None:
    """Return the form of SUM or AVG; of a deviation, or its square, a form that is smooth."""
    form = value.form
    tests = " AND ".join(c.sql for c in conditions)
    if name.startswith(("stddev_", "var_")):
        tail = f" FILTER (WHERE {tests})" if tests else ""
        text = f"var{name[name.index('_') :]}(CAST({value.sql} AS DOUBLE)){tail}{OVER}"
        return _form("drawn", text, steps=(("sqrt",) if name[0] == "s" else ("greatest", 0.0),))
    if form is None or form.steps or form.kind != "linear":
        return None
    (top,) = form.parts
    there = f"({top}) IS NOT NULL" + (f" AND {tests}" if tests else "")
    total = f"flatten(list({top}) FILTER (WHERE {there}){OVER})"
    if name == "avg":
        total = _times(total, f"(1 / nullif(count(*) FILTER (WHERE {there}){OVER}, 0))")
    return _form("linear", total)


def over(form: Form | None, window: str = "") -> Form | None:
    """Return the form of an aggregate over a window, or over a group."""
    return form and replace(form, parts=tuple(part.replace(OVER, window) for part in form.parts))


def neighbour(function: str, value: TypedSql, others: Sequence[TypedSql]) -> Form | None:
    """Return the form of LAG, LEAD, FIRST_VALUE, ...: that of another row."""
    form = value.form
    if form is None or form.kind == "drawn" or any(o.chance != STILL for o in others):
        return None
    rest = "".join(f", {other.sql}" for other in others[:1])
    if len(others) > 1:  # what stands for a row that is not there
        default = of(others[1])
        if default is None or form.kind != "linear" or form.steps:
            return None
        rest += f", {default.parts[0]}"
    return _form(
        form.kind, *(f"{function}({part}{rest}){OVER}" for part in form.parts), steps=form.steps
    )
