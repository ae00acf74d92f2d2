"""A text to a Program or a Command: the front door of this package.

tokens → command? → translate → parse → fold the clock → expand quantifiers → bind → program

``_statement`` is these stages.  Invariant: the same text under the same policy and settings is the
same program, so programs are cached by these three.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from fractions import Fraction
from itertools import count
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace
from sqlglot import exp
from sqlglot.tokenizer_core import Token

from proxy.errors import (
    Error,
    NotSupportedError,
    SQLSyntaxError,
    StatementTooComplexError,
)
from proxy.inference.accounting import TooDearError
from proxy.inference.query import TooLargeError, TooWideError
from proxy.policy import Policy
from proxy.sql import types, unread
from proxy.sql.bind.binding import Binding
from proxy.sql.bind.query import Binder
from proxy.sql.bind.relations import BoundQuery, Cte, Env, Scope
from proxy.sql.clauses import refuse_unread
from proxy.sql.evaluator.evaluator import Evaluator
from proxy.sql.expression.faces import keyed, narrow, wide, without_marks
from proxy.sql.expression.typed import HIDDEN, JUMPS, Form
from proxy.sql.listing import listing
from proxy.sql.parse import clock, commands, grammar, quantifiers, utility_clause
from proxy.sql.parse.deep_stack import deeply, is_deep
from proxy.sql.parse.identifiers import quoted
from proxy.sql.parse.parameters import Parameters, bind_parameters
from proxy.sql.parse.tree import SIGNS, nodes, position
from proxy.sql.parse.views import Create, View, Views, readable_by, readable_in, without_positions
from proxy.sql.postprocess import draws, relation
from proxy.sql.program import Cell, Column, Command, Program, Release, Trace, Wide

Released = Mapping[str, Sequence[tuple[Cell, ...]]]  # rows, by the key of their query
CHANGES = (exp.Insert, exp.Update, exp.Delete, exp.Merge)
ON = ("on", "true", "yes", "1")  # what turns a setting on


def compile_statement(
    text: str,
    policy: Policy,
    evaluator: Evaluator,
    parameters: Parameters | None = None,
    settings: Mapping[str, str] | Iterable[tuple[str, str]] | None = None,
    *,
    views: Views | None = None,
    language: str = "postgres",
    now: datetime | None = None,
    timeless: bool = False,
    released: Released | None = None,
) -> Program | Command:
    """Return the meaning of one statement; ``now`` is a naive time in the policy's zone.

    A ``timeless`` statement may not read the clock.  ``released`` are the rows of results that
    choose rows of the dataset: those that are missing are the program's ``first``; None: no result
    may.

    Raises:
        ProgrammingError, NotSupportedError, DataError, OperationalError: it cannot be
            answered; the message says what can.
    """
    if parameters is not None:
        text = bind_parameters(text, parameters)
    key = program_key(text, policy, settings, views, language, now, timeless, released)
    return compile_key(key, policy, evaluator)


def compile_key(key: ProgramKey, policy: Policy, evaluator: Evaluator) -> Program | Command:
    """Return the program of a key under its policy; as ``compile_statement``."""

    def compiled() -> Program | Command:
        settings, views = dict(key.settings), dict(key.views)
        rows = None if key.released is None else dict(key.released)
        source = Source(policy, evaluator, settings, key.language, key.moment, views, rows)
        return _compile(key.text, source)

    return evaluator.cached(key, compiled, may_cache)


class ProgramKey(NamedTuple):
    """All that a program depends on."""

    text: str
    policy: str  # its key
    settings: tuple[tuple[str, str], ...]
    views: tuple[tuple[str, View], ...]  # that the text may name
    language: str
    moment: datetime | None  # None where the text does not read the clock
    timeless: bool
    released: tuple[tuple[str, tuple[tuple[Cell, ...], ...]], ...] | None


def program_key(
    text: str,
    policy: Policy,
    settings: Mapping[str, str] | Iterable[tuple[str, str]] | None,
    views: Views | None,
    language: str,
    now: datetime | None = None,
    timeless: bool = False,
    released: Released | None = None,
) -> ProgramKey:
    """Return what the program of a text depends on; the text is not parsed for it."""
    named = readable_in(views or {}, text)
    texts = " ".join([text, *(view.text for view in named.values())])
    moment = None if timeless else clock.reading(texts, policy.timezone, now)
    options = tuple(sorted(dict(settings or {}).items()))
    rows = None if released is None else tuple((k, tuple(v)) for k, v in released.items())
    readable = tuple(named.items())
    return ProgramKey(text, policy.key, options, readable, language, moment, timeless, rows)


def may_cache(compiled: Program | Command) -> bool:
    """Return whether a program may be cached: a cache has room for some hundreds."""
    releases = compiled.releases if isinstance(compiled, Program) else ()
    cells = sum(release.rows * (len(release.groups) + 1) for release in releases)
    cells += sum(n.family.labels.size for release in releases for n in release.numbers[:1])
    return cells <= 2**17


class Source(Struct, frozen=True):
    """All that a program depends on beside its text."""

    policy: Policy
    evaluator: Evaluator
    settings: Mapping[str, str]
    language: str
    moment: datetime | None  # None where the text does not read the clock
    views: Views  # that the text may name
    released: Released | None = None

    @property
    def hides_empty(self) -> bool:
        """Whether groups that are probably empty are left out."""
        return self.settings.get("privacy.hide_empty", "off").strip().lower() in ON


def _compile(text: str, source: Source) -> Program | Command:
    """Return the meaning of a text; an error with a position shows the line."""
    try:
        tokens = grammar.tokens(text, source.language)
        if is_deep(tokens):  # as it will be seen
            return deeply(lambda: _statement(text, tokens, source))
        try:
            return _statement(text, tokens, source)
        except RecursionError:
            return deeply(lambda: _statement(text, tokens, source))
    except Error as error:
        if error.position is not None and error.detail is None:
            error.detail = grammar.caret(text, error.position)
        raise


def _tree(text: str, tokens: list[Token], source: Source) -> exp.Expr:
    """Return a text, a view's too, as a query, with the clock folded, quantifiers expanded."""
    tree, found = grammar.parsed(text, tokens)
    _query(tree, found)
    clock.fold(found, source.moment)
    found = nodes(tree) if quantifiers.expand(found) else found
    clock.localise(found, source.policy.timezone)
    return tree


def _statement(text: str, tokens: list[Token], source: Source) -> Program | Command:
    """Return the meaning of a text: all stages of this package, in order."""
    if (command := commands.command(text, tokens)) is not None:
        return _with_program(command, source)
    text, tokens = grammar.to_postgres(text, tokens, source.language)
    without_marks(text)
    try:
        tree = _tree(text, tokens, source)
        less, views = None, {}
        if not source.hides_empty:  # which looks at every number of a row
            less, views = unread.left_out(tree, text), _less_of_views(tree, source)
        again = less or (tree.copy() if views else None)
        binder, bound = _bound(tree, text, tokens, source, {})
        if again is not None:  # it is right, and costs less
            binder, bound = _bound(again, text, tokens, source, views)
        return _program(binder, bound)
    except TooLargeError as error:
        raise too_complex("the statement", error) from None
    except Error as error:
        if source.language != "postgres":
            error.position = None  # a position in the translated text
        raise


def _bound(
    tree: exp.Expr,
    text: str,
    tokens: list[Token],
    source: Source,
    changed: Mapping[str, exp.Expr],
) -> tuple[Binding, BoundQuery]:
    """Return a bound statement; some of the views as they are ``changed``."""
    binder = Binder(
        source.policy, source.evaluator, text, source.hides_empty, released=source.released
    )
    for each in (tokens, *(grammar.tokens(view.text) for view in source.views.values())):
        binder.limit(utility_clause.max_cost(each))
    return binder, binder.query(tree, Scope(_views(source, changed), utility_clause.hint(tokens)))


def _with_program(command: Command, source: Source) -> Command:
    """Return a command with the program of the query inside, if there is one."""
    if command.kind not in ("explain", "create view") or command.value is None:
        return command
    change = command.change if isinstance(command.change, Create) else None
    if change is not None:
        source = replace(source, views=readable_by(source.views, change.name))
    tokens = grammar.tokens(command.value, source.language)
    inner = commands.command(command.value, tokens)
    program = None if inner else _statement(command.value, tokens, source)
    if not isinstance(program, Program):  # a command holds no command, however many are nested
        raise NotSupportedError(f"{'CREATE VIEW' if change else 'EXPLAIN UTILITY'} takes a SELECT")
    if change is not None:
        change = replace(change, text=program.text)  # in PostgreSQL's language
    return replace(command, program=program, change=change)


def _query(tree: exp.Expr, found: Iterable[exp.Expr]) -> None:
    """Refuse a tree, with these nodes, that is no query, changes something, or is not all read."""
    if not isinstance(tree, exp.Query):
        raise NotSupportedError(
            f"{tree.key.upper()} is not supported: the proxy answers SELECT statements"
        )
    change = next((node for node in found if isinstance(node, CHANGES)), None)
    if change is not None:  # in a WITH that nothing reads, too
        raise NotSupportedError(
            f"{change.key.upper()} is not supported here", position=position(change)
        )
    chained = next((node for node in found if _is_chained(node)), None)
    if chained is not None:
        raise SQLSyntaxError(
            "a comparison of a comparison is not PostgreSQL",
            hint="put brackets around one of them",
            position=position(chained),
        )
    refuse_unread(found)


def _is_chained(node: exp.Expr) -> bool:
    """Return whether a comparison has another beside it, without brackets."""
    return type(node) in SIGNS and {type(node.this), type(node.expression)} & SIGNS.keys() != set()


def _views(source: Source, changed: Mapping[str, exp.Expr]) -> Env:
    """Return the views of the session, as if the statement began with WITH them."""
    env: dict[str, Cte] = {}
    for name, view in source.views.items():
        tree = changed[name] if name in changed else _view(view, source)
        hint = utility_clause.hint(grammar.tokens(view.text))
        env[name] = Cte(tree, _columns(view), dict(env), request=hint)
    return env


def _less_of_views(tree: exp.Expr, source: Source) -> dict[str, exp.Expr]:
    """Return the views that a statement reads, without the numbers that nothing reads."""
    names = unread.named(tree) if source.views else None
    if names is None or not any(names[name] for name in source.views):
        return {}
    trees = {name: _view(view, source) for name, view in source.views.items()}
    columns = {name: _columns(view) for name, view in source.views.items()}
    return unread.views_left_out(trees, columns, names)


def _view(view: View, source: Source) -> exp.Expr:
    return without_positions(_tree(view.text, grammar.tokens(view.text), source), view.text)


def _columns(view: View) -> list[str]:
    return [column.name for column in view.columns]


def _program(binder: Binding, bound: BoundQuery, limit: Fraction | None = None) -> Program:
    """Return the program of a bound query: its releases, and the SQL over their relations."""
    columns = tuple(Column(output.name, output.typed.type) for output in bound.outputs)
    binder.limit(limit)  # of the whole statement
    first = tuple((key, _program(*each, binder.max_cost)) for key, each in binder.first.items())
    places = count(len(columns))  # the provenances stand after the columns
    provenances = tuple(
        next(places) if output.typed.provenance else None for output in bound.outputs
    )
    traces = _traces(bound)
    if bound.probe:
        return Program(
            binder.text, (), columns, "", provenances, probe=True, first=first, traces=traces
        )
    _name_columns(binder, bound)
    releases = tuple(point.release() for point in binder.points)
    above = (*binder.systems.values(), *binder.withs)
    form = keyed if traces else narrow
    withs, sql = [*map(relation, releases), *map(form, above)], form(bound.sql)
    measured = tuple(release for release in releases if release.rows)
    return Program(
        binder.text,
        measured,
        columns,
        f"WITH {', '.join(withs)} {sql}" if withs else sql,
        provenances,
        systems=tuple(binder.systems),
        notices=tuple(binder.notices),
        derived=tuple(binder.derived),
        traces=traces,
        wide=_wide(bound, releases, above, traces) if traces else None,
        first=first,
        max_cost=binder.max_cost,
        listing=None if traces or binder.derived else listing(sql, bound.outputs, measured),
    )


def _wide(
    bound: BoundQuery,
    releases: Sequence[Release],
    above: Sequence[str],
    traces: Sequence[Trace | None],
) -> Wide:
    """Return the SQL that tells how the computed numbers of a statement depend on released ones."""
    withs, sql, terms, names = [*map(wide, above)], wide(bound.sql), "", []
    for i, (output, trace) in enumerate(zip(bound.outputs, traces, strict=True)):
        if trace and trace.kind == "drawn":
            names.append(f"f{i}_0" if output.typed.form else f"d{i}")
        elif trace and output.typed.form:
            for k in range(len(output.typed.form.parts)):
                terms += "".join(f", list_transform(q.f{i}_{k}, lambda x: x.{n})" for n in "ic")
    key = len(bound.outputs) + sum(o.typed.provenance is not None for o in bound.outputs)
    linear = drawn = ""
    if terms:
        first = ", ".join([*(relation(each, "") for each in releases), *withs])
        linear = f"WITH {first} SELECT q.k{terms} FROM ({sql}) AS q"
    if names:
        inner = ", ".join([*(relation(each, "d") for each in releases), *withs])
        listed = ", ".join(f"CAST(q.{name} AS DOUBLE)" for name in names)
        lateral = f"LATERAL (WITH {inner} {sql}) AS q"
        drawn = f"SELECT d.s, q.k, {listed} FROM {draws(releases)} AS d, {lateral}"
    return Wide(key, linear, drawn)


def _traces(bound: BoundQuery) -> tuple[Trace | None, ...]:
    """Return how each column depends on released numbers; nothing where all are plain numbers."""
    traces: list[Trace | None] = []
    places = {"linear": 0, "drawn": 0}  # the next column of either SQL
    for typed in (output.typed for output in bound.outputs):
        plain = typed.provenance is not None and not typed.partial
        if plain or not typed.chance or typed.type not in types.NUMBERS:
            traces.append(None)
            continue
        form = typed.form or Form("drawn", ())
        kind = "hidden" if typed.chance == HIDDEN and form.kind == "drawn" else form.kind
        parts: tuple[int, ...] = ()
        if kind == "drawn":
            parts = (places["drawn"],)
            places["drawn"] += 1
        elif kind != "hidden":
            parts = tuple(places["linear"] + 2 * k for k in range(len(form.parts)))
            places["linear"] += 2 * len(parts)
        numbers, jumps = tuple(sorted(typed.numbers)), typed.chance >= JUMPS
        traces.append(Trace(kind, numbers, parts, form.steps, jumps))
    return tuple(traces) if any(traces) else ()


def _name_columns(binder: Binding, bound: BoundQuery) -> None:
    """Give each number the name of the first column that reads it, where no other has that name."""
    names = [output.name for output in bound.outputs]
    for output in bound.outputs:
        for point, index in output.typed.numbers if names.count(output.name) == 1 else ():
            numbers = binder.points[point].numbers
            if numbers[index].column is None:
                numbers[index] = replace(numbers[index], column=quoted(output.name))


def too_complex(what: str, error: TooLargeError) -> StatementTooComplexError:
    """Return the refusal of coefficients that are too many, or too large."""
    if isinstance(error, TooDearError):
        return StatementTooComplexError(
            f"{what} asks for more than any budget should give: {error}",
            hint="ask for a wider interval: a larger half_width, or delta",
        )
    if isinstance(error, TooWideError):
        return StatementTooComplexError(
            f"{what} adds up amounts of too different sizes: {error}",
            hint="sum the large and the small terms apart, or round them to a coarser step",
        )
    return StatementTooComplexError(
        f"{what} ties too many columns together: {error}",
        hint="group by fewer columns, or split conditions into parts joined by AND",
    )
