"""The companions of a number: its interval, and the probability of a claim on it.

Each becomes a further column of the release's relation.  Nothing here adds a number: a claim says
which node is to be one.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import reduce

from msgspec import Struct
from msgspec.structs import replace
from sqlglot import exp

from proxy.errors import NotSupportedError
from proxy.inference.space import next_multiple
from proxy.sql.bind.linear_combinations import scaled_inside
from proxy.sql.compile.linear import Average, Linear, same_number
from proxy.sql.compile.release_point import DIGITS, LARGEST
from proxy.sql.parse.tree import SIGNS, flat, position
from proxy.sql.program import Companion

CREDIBLE = {"credible_low": "low", "credible_high": "high", "confidence": "confidence"}
Measured = Callable[[exp.Expr], Linear | Average | None]  # None of what is no such number


def claim(node: exp.Expr, measured: Measured) -> tuple[exp.Expr, Companion]:
    """Return the number that CREDIBLE_LOW, ..., PROBABILITY is of, as a node, and what it shows.

    Where that node is no number after all, whoever lowers it says so.

    Raises:
        NotSupportedError: it takes no such argument.
    """
    name = node.name.lower()
    if len(node.expressions) != 1:
        raise NotSupportedError(f"{name.upper()} takes one number", position=position(node))
    if name != "probability":
        return _bare(node.expressions[0], measured), Companion(CREDIBLE[name])
    claimed = _claim(node.expressions[0], measured)
    return claimed.node, claimed.companion()


def not_one_number(node: exp.Expr) -> NotSupportedError:
    """Return the error for a node that is not one number of the aggregation."""
    return NotSupportedError(
        "this takes one number of the aggregation: a COUNT, SUM or AVG, or a linear "
        "combination of COUNTs and SUMs",
        position=position(node),
    )


def _bare(node: exp.Expr, measured: Measured) -> exp.Expr:
    """Return a node without brackets and casts: how a number is shown does not matter."""
    while isinstance(node, exp.Paren) or (isinstance(node, exp.Cast) and measured(node)):
        node = node.this
    return node


class Claim(Struct, frozen=True):
    """That a number is between two ends, each with whether it is itself left out; or is not.

    ``number`` is None where ``node`` is none.
    """

    node: exp.Expr
    number: Linear | Average | None
    least: tuple[Fraction, bool] | None = None
    most: tuple[Fraction, bool] | None = None
    negated: bool = False

    def opposite(self) -> Claim:
        """Return the claim that holds where this one does not."""
        if self.negated or (self.least and self.most):
            return replace(self, negated=not self.negated)
        least = self.most and (self.most[0], not self.most[1])
        most = self.least and (self.least[0], not self.least[1])
        return replace(self, least=least, most=most)

    def over(self, factor: Fraction) -> Claim:
        """Return the claim on a number of which this one is on so many times it."""
        ends = [end and (end[0] / factor, end[1]) for end in (self.least, self.most)]
        least, most = ends if factor > 0 else reversed(ends)
        return replace(self, least=least, most=most)

    def also(self, other: Claim) -> Claim:
        """Return the claim that both hold, of one number."""
        least = [end for end in (self.least, other.least) if end]
        most = [end for end in (self.most, other.most) if end]
        return Claim(
            self.node,
            self.number,
            max(least, default=None),
            min(most, default=None, key=lambda end: (end[0], not end[1])),
        )

    def companion(self) -> Companion:
        """Return what is shown of the number; ends of all but means are multiples of its grid."""
        ends = [self.least, self.most]
        if isinstance(self.number, Linear) and self.number.query is not None:
            shift, grid = self.number.shift, self.number.query.grid
            if self.least:
                ends[0] = next_multiple(*self.least, shift, grid), False
            if self.most:
                value, strict = self.most
                ends[1] = -next_multiple(-value, strict, -shift, grid), False
        (low, above), (high, under) = (end or (None, False) for end in ends)
        return Companion("probability", low, high, (above, under), self.negated)


def _claim(node: exp.Expr, measured: Measured) -> Claim:
    """Return a claim on one number, such as COUNT(*) > 100."""
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Not):
        return _claim(node.this, measured).opposite()
    if isinstance(node, exp.And):
        return _both(node, measured)
    if isinstance(node, exp.Between):
        subject, factor = _unscaled(node.this, measured)
        if subject.number is None:
            return subject
        low, high = (_constant(node.args[arg], measured) for arg in ("low", "high"))
        if node.args.get("symmetric"):
            low, high = min(low, high), max(low, high)
        return replace(subject, least=(low, False), most=(high, False)).over(factor)
    if type(node) in SIGNS:
        return _compared(node, SIGNS[type(node)], measured)
    raise _refused(node)


def _both(node: exp.Expr, measured: Measured) -> Claim:
    """Return claims that are joined by AND, on one number."""
    claims: list[Claim] = []
    for part in flat(node):
        claims.append(_claim(part, measured))
        if claims[-1].number is None:
            return claims[-1]
    first = claims[0].number
    for each in claims:
        if each.negated or not same_number(each.number, first):
            raise _refused(node)
    return reduce(Claim.also, claims)


def _refused(node: exp.Expr) -> NotSupportedError:
    return NotSupportedError(
        "PROBABILITY takes a claim on one number: a comparison with a constant, or BETWEEN",
        hint="for example PROBABILITY(COUNT(*) > 100)",
        position=position(node),
    )


MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _compared(node: exp.Expr, sign: str, measured: Measured) -> Claim:
    """Return what a comparison claims."""
    sides = [node.this, node.expression]
    if (constant := _linear(node.this, measured)) is not None and constant.query is None:
        sides, sign = sides[::-1], MIRRORED.get(sign, sign)
    other = _linear(sides[1], measured)
    if other is not None and other.query is not None:  # of two numbers: their difference
        left, right = (exp.Paren(this=side.copy()) for side in sides)
        sides = [exp.Sub(this=left, expression=right), exp.Literal.number(0)]
    subject, factor = _unscaled(sides[0], measured)
    if subject.number is None:
        return subject
    end = _constant(sides[1], measured)
    if sign in ("=", "<>"):
        if isinstance(subject.number, Average):  # it is hardly ever equal to anything
            raise _refused(node)
        negated = sign == "<>"
        return replace(subject, least=(end, False), most=(end, False), negated=negated).over(factor)
    if sign in (">", ">="):
        return replace(subject, least=(end, sign == ">")).over(factor)
    return replace(subject, most=(end, sign == "<")).over(factor)


def _unscaled(node: exp.Expr, measured: Measured) -> tuple[Claim, Fraction]:
    """Return the number of which a node is a multiple, with no ends yet, and how many times it."""
    factor = Fraction(1)
    while isinstance(node, exp.Paren | exp.Neg | exp.Mul | exp.Div):
        sides = (
            [node.this] if isinstance(node, exp.Paren | exp.Neg) else list(node.iter_expressions())
        )
        terms = [_linear(side, measured) for side in sides]
        constants = [term for term in terms if term is not None and term.query is None]
        if isinstance(node, exp.Paren | exp.Neg):
            times, node = Fraction(-1 if isinstance(node, exp.Neg) else 1), node.this
        elif len(constants) == 1 and constants[0].shift and _linear(node, measured) is not None:
            times = constants[0].shift if isinstance(node, exp.Mul) else 1 / constants[0].shift
            node = sides[0] if constants[0] is terms[1] else sides[1]
        else:
            break
        factor *= times
    node = _bare(node, measured)
    number = None if scaled_inside(node) else measured(node)
    constant = isinstance(number, Linear) and number.query is None
    return Claim(node, None if constant else number), factor


def _linear(node: exp.Expr, measured: Measured) -> Linear | None:
    """Return a node as a linear combination, or a constant; None of an average."""
    number = measured(node)
    return number if isinstance(number, Linear) else None


def _constant(node: exp.Expr, measured: Measured) -> Fraction:
    constant = _linear(node, measured)
    if constant is None or constant.query is not None:
        raise NotSupportedError("a claim compares with a constant", position=position(node))
    if abs(constant.shift) > LARGEST:
        raise NotSupportedError(
            f"a claim compares with a number of up to {DIGITS} digits", position=position(node)
        )
    return constant.shift
