"""A text to a Program or a Command: the front door of this package.

tokens → command? → translate → parse → fold the clock → expand quantifiers → bind → program

``_statement`` is these stages.  Invariant: the same text under the same policy and settings is the
same program, so programs are cached by these three.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count
from typing import NamedTuple

from sqlglot import exp

from proxy.errors import Error, NotSupportedError, StatementTooComplexError
from proxy.inference.query import TooLargeError, TooWideError
from proxy.policy import Policy
from proxy.sql.bind.query import Binder
from proxy.sql.bind.relations import BoundQuery, Cte, Env, Scope
from proxy.sql.evaluator.evaluator import Evaluator
from proxy.sql.parse import clock, commands, grammar, quantifiers, utility_clause
from proxy.sql.parse.deep_stack import deeply
from proxy.sql.parse.identifiers import quoted
from proxy.sql.parse.parameters import Parameters, bind_parameters
from proxy.sql.parse.tree import position
from proxy.sql.parse.views import Create, View, Views, readable_by, readable_in, without_positions
from proxy.sql.postprocess import relation
from proxy.sql.program import Column, Command, Program

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
) -> Program | Command:
    """Return the meaning of one statement; ``now`` is a naive time in the policy's zone.

    A ``timeless`` statement may not read the clock.

    Raises:
        ProgrammingError, NotSupportedError, DataError, OperationalError: it cannot be
            answered; the message says what can.
    """
    if parameters is not None:
        text = bind_parameters(text, parameters)
    key = program_key(text, policy, settings, views, language, now, timeless)

    def compiled() -> Program | Command:
        values, named = dict(key.settings), dict(key.views)
        return _compile(text, Source(policy, evaluator, values, language, key.moment, named))

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


def program_key(
    text: str,
    policy: Policy,
    settings: Mapping[str, str] | Iterable[tuple[str, str]] | None,
    views: Views | None,
    language: str,
    now: datetime | None = None,
    timeless: bool = False,
) -> ProgramKey:
    """Return what the program of a text depends on; the text is not parsed for it."""
    named = readable_in(views or {}, text)
    texts = " ".join([text, *(view.text for view in named.values())])
    moment = None if timeless else clock.reading(texts, policy.timezone, now)
    options = tuple(sorted(dict(settings or {}).items()))
    return ProgramKey(text, policy.key, options, tuple(named.items()), language, moment, timeless)


def may_cache(compiled: Program | Command) -> bool:
    """Return whether a program may be cached: a cache has room for some hundreds."""
    releases = compiled.releases if isinstance(compiled, Program) else ()
    cells = sum(release.rows * (len(release.groups) + 1) for release in releases)
    cells += sum(n.family.labels.size for release in releases for n in release.numbers[:1])
    return cells <= 2**17


@dataclass(frozen=True)
class Source:
    """All that a program depends on beside its text."""

    policy: Policy
    evaluator: Evaluator
    settings: Mapping[str, str]
    language: str
    moment: datetime | None  # None where the text does not read the clock
    views: Views  # that the text may name

    @property
    def hides_empty(self) -> bool:
        """Whether groups that are probably empty are left out."""
        return self.settings.get("privacy.hide_empty", "off").strip().lower() in ON


def _compile(text: str, source: Source) -> Program | Command:
    """Return the meaning of a text; an error with a position shows the line."""
    try:
        try:
            return _statement(text, source)
        except RecursionError:
            return deeply(lambda: _statement(text, source))
    except Error as error:
        if error.position is not None and error.detail is None:
            error.detail = grammar.caret(text, error.position)
        raise


Rewrite = Callable[[exp.Expr, Source], None]
REWRITES: tuple[Rewrite, ...] = (  # of every tree, views' too
    lambda tree, source: clock.fold(tree, source.moment),
    lambda tree, _: quantifiers.expand(tree),
    lambda tree, source: clock.localise(tree, source.policy.timezone),
)


def _statement(text: str, source: Source) -> Program | Command:
    """Return the meaning of a text: all stages of this package, in order."""
    tokens = grammar.tokens(text, source.language)
    if (command := commands.command(text, tokens)) is not None:
        return _with_program(command, source)
    text, tokens = grammar.to_postgres(text, tokens, source.language)
    try:
        tree = _query(grammar.parse(text, tokens))
        for rewrite in REWRITES:  # fold the clock, expand quantifiers
            rewrite(tree, source)
        binder = Binder(source.policy, source.evaluator, text, source.hides_empty)
        for each in (tokens, *(grammar.tokens(view.text) for view in source.views.values())):
            binder.limit(utility_clause.max_cost(each))
        bound = binder.query(tree, Scope(_views(source), utility_clause.hint(tokens)))
        return _program(binder, bound)
    except TooLargeError as error:
        raise too_complex("the statement", error) from None
    except Error as error:
        if source.language != "postgres":
            error.position = None  # a position in the translated text
        raise


def _with_program(command: Command, source: Source) -> Command:
    """Return a command with the program of the query inside, if there is one."""
    if command.kind not in ("explain", "create view") or command.value is None:
        return command
    change = command.change if isinstance(command.change, Create) else None
    if change is not None:
        source = replace(source, views=readable_by(source.views, change.name))
    inner = commands.command(command.value, grammar.tokens(command.value, source.language))
    program = None if inner else _statement(command.value, source)
    if not isinstance(program, Program):  # a command holds no command, however many are nested
        raise NotSupportedError(f"{'CREATE VIEW' if change else 'EXPLAIN UTILITY'} takes a SELECT")
    if change is not None:
        change = replace(change, text=program.text)  # in PostgreSQL's language
    return replace(command, program=program, change=change)


def _query(tree: exp.Expr) -> exp.Expr:
    """Return a tree that is a query and changes nothing, or refuse it."""
    if not isinstance(tree, exp.Query):
        raise NotSupportedError(
            f"{tree.key.upper()} is not supported: the proxy answers SELECT statements"
        )
    if (change := tree.find(*CHANGES)) is not None:  # in a WITH that nothing reads, too
        raise NotSupportedError(
            f"{change.key.upper()} is not supported here", position=position(change)
        )
    return tree


def _views(source: Source) -> Env:
    """Return the views of the session, as if the statement began with WITH them."""
    env: dict[str, Cte] = {}
    for name, view in source.views.items():
        tokens = grammar.tokens(view.text)
        tree = _query(grammar.parse(view.text, tokens))
        for rewrite in REWRITES:  # fold the clock, expand quantifiers
            rewrite(tree, source)
        tree = without_positions(tree, view.text)
        columns = [column.name for column in view.columns]
        env[name] = Cte(tree, columns, dict(env), request=utility_clause.hint(tokens))
    return env


def _program(binder: Binder, bound: BoundQuery) -> Program:
    """Return the program of a bound query: its releases, and the SQL over their relations."""
    columns = tuple(Column(output.name, output.typed.type) for output in bound.outputs)
    if bound.probe:
        return Program(binder.text, (), columns, "", probe=True)
    _name_columns(binder, bound)
    releases = tuple(point.release() for point in binder.points)
    withs = [*map(relation, releases), *binder.systems.values(), *binder.withs]
    places = count(len(columns))  # the provenances stand after the columns
    return Program(
        binder.text,
        tuple(release for release in releases if release.rows),
        columns,
        f"WITH {', '.join(withs)} {bound.sql}" if withs else bound.sql,
        tuple(next(places) if output.typed.provenance else None for output in bound.outputs),
        systems=tuple(binder.systems),
        notices=tuple(binder.notices),
        derived=tuple(binder.derived),
        max_cost=binder.max_cost,
    )


def _name_columns(binder: Binder, bound: BoundQuery) -> None:
    """Give each number the name of the first column that reads it, where no other has that name."""
    names = [output.name for output in bound.outputs]
    for output in bound.outputs:
        for point, index in output.typed.numbers if names.count(output.name) == 1 else ():
            numbers = binder.points[point].numbers
            if numbers[index].column is None:
                numbers[index] = replace(numbers[index], column=quoted(output.name))


def too_complex(what: str, error: TooLargeError) -> StatementTooComplexError:
    """Return the refusal of coefficients that are too many, or too large."""
    if isinstance(error, TooWideError):
        return StatementTooComplexError(
            f"{what} adds up amounts of too different sizes: {error}",
            hint="sum the large and the small terms apart, or round them to a coarser step",
        )
    return StatementTooComplexError(
        f"{what} ties too many columns together: {error}",
        hint="group by fewer columns, or split conditions into parts joined by AND",
    )
