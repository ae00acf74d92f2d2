"""The settings of one session: ``SET privacy.utility = '50, 0.05'`` and its kin.

One table names them all, with what they allow and what they do.  A setting is a text, as in
PostgreSQL; reading one gives its value.  Invariant: a session holds only texts that could be read.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from copy import copy
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

from msgspec import Struct

from proxy.errors import ProgrammingError, UtilityError
from proxy.policy import Policy, Utility
from proxy.policy.kinds import decimal
from proxy.policy.promise import AGGREGATE, COLUMN, fault, named
from proxy.sql.parse.identifiers import nearest
from proxy.sql.parse.utility_clause import limit
from proxy.sql.parse.views import Views
from proxy.sql.program import Number, Request
from proxy.sql.statement import ON

UTILITY = "privacy.utility"
MAX_COST = "privacy.max_cost"
SPEND = "privacy.spend"
COLUMNS = "privacy.columns"
HIDE_EMPTY = "privacy.hide_empty"
NONNEGATIVE = "privacy.nonnegative"
ANSWERS = "privacy.answers"
EXPLANATIONS = "privacy.explanations"

HINT = (
    f"SET {UTILITY} = '50, 0.05; wage 170000, 0.05' asks for counts within 50, and sums of wage "
    "within 170000, with confidence 95%"
)
DIGITS = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?"
OUT_OF_RANGE = "half_width or delta is out of any useful range"
ITEM = re.compile(
    rf"\s*(?:(?P<name>(?:\w+\s*\(\s*)?(?:{COLUMN})(?:\s*\))?)(?=[\s(]))?\s*"
    rf"(?P<open>\()?\s*(?P<half>{DIGITS})\s*(?P<percent>percent|%)?\s*,\s*"
    rf"(?P<delta>{DIGITS})\s*(?(open)\))\s*(?:[;,]|\Z)",
    re.IGNORECASE,
)


class Wishes(Struct, frozen=True):
    """How good numbers must be that say nothing themselves.

    ``counts`` is a pair without a name.  A named one is of an aggregate over a column,
    ``("avg", "wage")``; the name of a column alone is that of its sums, ``*`` every column.
    """

    counts: Request | None = None
    named: Mapping[tuple[str, str], Request] = {}

    def of(self, number: Number) -> Request | None:
        """Return what holds for a number, if anything does."""
        names = [named(number.label)] if AGGREGATE.fullmatch(number.label) else []
        if number.kind == "sum" and number.measure is not None:
            names.append(("sum", number.measure))
        if number.quantile is not None:
            names = [("quantile", number.quantile.column), ("quantile", "*")]
            return next((self.named[name] for name in names if name in self.named), None)
        if counts(number):
            return next((self.named[n] for n in names if n in self.named), self.counts)
        names.append((number.kind, "*"))
        return next((self.named[name] for name in names if name in self.named), None)

    def check(self, policy: Policy) -> None:
        """Refuse the name of what is no column of the dataset.

        Raises:
            UtilityError: there is one.
        """
        if not self.named:
            return
        axes, measures = policy.domain.attributes, policy.domain.measures
        known = ["*", *(axis.name for axis in axes), *(measure.name for measure in measures)]
        known += [level for axis in axes for level in axis.levels or ()]
        for _, column in self.named:
            if column not in known:
                raise UtilityError(
                    f'{UTILITY} names "{column}", which is no column of {policy.dataset}',
                    hint=nearest(column, known) or HINT,
                )

    def over(self, farther: Wishes) -> Wishes:
        """Return these, and where they are silent the ones farther away."""
        return Wishes(self.counts or farther.counts, {**farther.named, **self.named})

    def __str__(self) -> str:
        said = [_pair(self.counts)] if self.counts else []
        said += [f"{_name(*name)} {_pair(request)}" for name, request in self.named.items()]
        return "; ".join(said)


def counts(number: Number) -> bool:
    """Return whether a number is a count, or a sum of ones."""
    ones = number.measure is None and number.family.sensitivity * number.family.grid <= 1
    return number.kind == "count" or (number.kind == "sum" and ones)


def defaults(policy: Policy) -> Wishes:
    """Return what a policy says of the numbers that say nothing themselves."""
    named = {("sum", name): _request(wish) for name, wish in policy.measure_utility.items()}
    named |= {name: _request(wish) for name, wish in policy.utilities.items()}
    return Wishes(_request(policy.utility) if policy.utility else None, named)


def utility(text: str) -> Wishes:
    """Return what ``50, 0.05; wage 170000, 0.05; AVG(wage) 20, 0.05``, or part of it, asks for.

    Raises:
        UtilityError: it is not of that form, or its numbers make no sense.
    """
    general: Request | None = None
    others: dict[tuple[str, str], Request] = {}
    at, end = 0, len(text.rstrip(" \t\r\n;"))
    while at < end:
        match = ITEM.match(text, at)
        name = match and match["name"] and named(match["name"])
        if match is None or (name in others if name else general is not None):
            raise UtilityError(
                f"utility is two numbers, half_width and delta, not {text!r}", hint=HINT
            )
        try:
            numbers = _exact(match["half"]), _exact(match["delta"])
        except ValueError:
            raise UtilityError(OUT_OF_RANGE, hint=HINT) from None
        request = checked(*numbers, bool(match["percent"]))
        if name:
            others[name] = request
        else:
            general = request
        at = match.end()
    return Wishes(general, others)


def checked(
    half_width: Fraction, delta: Fraction, relative: bool = False, position: int | None = None
) -> Request:
    """Return a request that makes sense.

    Raises:
        UtilityError: it makes none.
    """
    if wrong := fault(half_width, delta):
        raise UtilityError(wrong.message, hint=wrong.hint, position=position)
    return Request(half_width, delta, relative, "setting")


def given(wish: tuple[float, float] | str) -> Wishes:
    """Return what a pair of Python's numbers, or the text of the setting, asks for.

    Raises:
        UtilityError: it is neither, or makes no sense.
    """
    if isinstance(wish, str):
        return utility(wish)
    try:
        half_width, delta = (_exact(str(part)) for part in wish)
    except (TypeError, ValueError):
        raise UtilityError(f"utility is two numbers, (half_width, delta), not {wish!r}") from None
    return Wishes(checked(half_width, delta))


def of_user(wish: Utility | None) -> Wishes:
    """Return a user's own default, which is of counts."""
    return Wishes(_request(wish)) if wish else Wishes()


def _request(wish: Utility) -> Request:
    return Request(wish.half_width, wish.delta, wish.relative, "setting")


def _pair(request: Request) -> str:
    percent = " PERCENT" if request.relative else ""
    return f"{decimal(request.half_width)}{percent}, {decimal(request.delta)}"


def _name(aggregate: str, column: str) -> str:
    plain = re.fullmatch(r"[^\W\dA-Z][^\WA-Z]*|\*", column)
    written = column if plain else '"' + column.replace('"', '""') + '"'
    bare = aggregate == "sum" and column != "*"
    return written if bare else f"{aggregate.upper()}({written})"


def _exact(text: str) -> Fraction:
    """Return a decimal number; of 1e999999999 the digits alone would take minutes.

    Raises:
        ValueError: it is none.
    """
    try:
        number = Decimal(text.strip())
    except InvalidOperation:
        raise ValueError(text) from None
    if not number.is_finite():
        raise ValueError(text)
    if abs(number.adjusted()) > 300:
        raise UtilityError(OUT_OF_RANGE, hint=HINT)
    return Fraction(number)


def max_cost(text: str) -> Fraction | None:
    """Return the most that a statement may cost, in alpha; None where no text says it.

    Raises:
        UtilityError: it is no number above 0.
    """
    return limit(text) if text.strip() else None


def switch(text: str) -> bool:
    """Return what on/off says."""
    word = text.strip().lower()
    if word in ON:
        return True
    if word in ("off", "false", "no", "0", ""):
        return False
    raise ProgrammingError(f"on or off, not {text!r}")


class Setting(Struct, frozen=True):
    """One setting: its default, how it is read, and what it does."""

    default: str
    read: Callable[[str], Any]
    what: str


TABLE = {
    UTILITY: Setting("", utility, "'half_width, delta' of counts; then '; name half_width, delta'"),
    MAX_COST: Setting("", max_cost, "the most alpha that a statement may cost; what fits is given"),
    SPEND: Setting("on", switch, "off: infer only, refuse what would have to be measured"),
    COLUMNS: Setting("off", switch, "on: add <name>_low, <name>_high, <name>_source columns"),
    HIDE_EMPTY: Setting("off", switch, "on: leave out groups that are probably empty"),
    NONNEGATIVE: Setting("off", switch, "on: show counts below 0 as 0"),
    ANSWERS: Setting("off", switch, "on: send the answers with each result, as JSON"),
    EXPLANATIONS: Setting("off", switch, "on: say how probable values are, and what they rest on"),
}


class Settings:
    """The settings of a session, and those that it began with; ``policy`` is farther away."""

    def __init__(
        self, wish: Wishes | None = None, policy: Wishes | None = None, cost: object = None
    ) -> None:
        most = "" if cost is None else str(cost)
        max_cost(most)
        self._defaults = {MAX_COST: most}
        self._texts: dict[str, str] = {}
        self.views: Views = {}  # which are a session's own as its settings are
        self._began, self._policy = wish or Wishes(), policy or Wishes()

    def set(self, name: str, text: str) -> None:
        """Set a setting, or refuse a value that it does not allow."""
        setting = _find(name)
        setting.read(text)
        self._texts[name.lower()] = text

    def having(self, name: str, text: str) -> Settings:
        """Return the same settings but for one."""
        other = copy(self)
        other._texts = dict(self._texts)
        other.set(name, text)
        return other

    def reset(self, name: str | None = None) -> None:
        """Give one setting, or all, its default again."""
        if name is None:
            self._texts.clear()
            self.views = {}
        else:
            _find(name)
            self._texts.pop(name.lower(), None)

    def restore(self, texts: Mapping[str, str], views: Views) -> None:
        """Set what was set before, and nothing else."""
        self._texts, self.views = dict(texts), views

    def text(self, name: str) -> str:
        """Return a setting as it was written, else the default that holds."""
        text = self.written(name)
        if name.lower() == UTILITY and not text.strip():
            return str(self._began) or str(self._policy)
        return text

    def value(self, name: str) -> Any:
        """Return what a setting says; of utility, what the session asks for, not the policy."""
        read = _find(name).read(self.written(name))
        return read.over(self._began) if isinstance(read, Wishes) else read

    def written(self, name: str) -> str:
        """Return a setting as it was written, else what it is by itself."""
        default = _find(name).default
        return self._texts.get(name.lower(), self._defaults.get(name.lower(), default))

    def items(self) -> list[tuple[str, str]]:
        """Return what has been set, in one order."""
        return sorted(self._texts.items())

    @property
    def texts(self) -> Mapping[str, str]:
        """What has been set, as it was written."""
        return self._texts


def _find(name: str) -> Setting:
    try:
        return TABLE[name.lower()]
    except KeyError:
        near = difflib.get_close_matches(name.lower(), TABLE, 1)
        raise ProgrammingError(
            f'unrecognized setting "{name}"',
            hint=f"did you mean {near[0]}?" if near else f"there are {', '.join(TABLE)}",
        ) from None
