"""What a function of one number makes of an interval: of both ends, where it is monotone.

A step is the name of a function and its constants; ``abs`` is not monotone, and ``or`` is another
value that the number has where it is a ratio over nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

Ends = tuple[float, float]
Step = tuple[str | float, ...]


def _rounded(x: float, digits: float) -> float:
    scale = math.pow(10, digits)
    return math.copysign(math.floor(abs(x) * scale + 0.5 + 1e-9) / scale, x)


def _cut(x: float, digits: float) -> float:
    return math.trunc(x * math.pow(10, digits)) / math.pow(10, digits)


def _logarithm(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf


def _exponential(x: float) -> float:
    return math.exp(x) if x < 709 else math.inf


FUNCTIONS: dict[str, Callable[..., float]] = {
    "round": _rounded,
    "trunc": _cut,
    "floor": lambda x: float(math.floor(x)),
    "ceil": lambda x: float(math.ceil(x)),
    "sign": lambda x: float((x > 0) - (x < 0)),
    "sqrt": lambda x: math.sqrt(max(x, 0.0)),
    "cbrt": lambda x: math.copysign(abs(x) ** (1 / 3), x),
    "ln": _logarithm,
    "log10": lambda x: _logarithm(x) / math.log(10),
    "exp": _exponential,
    "greatest": max,
    "least": min,
    "times": lambda x, factor: x * factor,
    "plus": lambda x, more: x + more,
}
BOUNDED = {"sign": (-1.0, 1.0), "sqrt": (0.0, math.inf), "exp": (0.0, math.inf)}


def image(ends: Ends, steps: Sequence[Step], vanishes: bool = False) -> Ends:
    """Return the least interval that holds the values of steps on an interval.

    ``vanishes``: the number may be a ratio over nothing.
    """
    for name, *constants in steps:
        if name == "or":
            if vanishes:
                ends = min(ends[0], float(constants[0])), max(ends[1], float(constants[0]))
        elif name == "abs":
            low, high = ends
            ends = max(low, -high, 0.0), max(-low, high)
        else:
            one, two = (_at(str(name), end, constants) for end in ends)
            ends = min(one, two), max(one, two)
    return ends


def _at(name: str, x: float, constants: Sequence[str | float]) -> float:
    """Return a function at an end, which may be infinite."""
    if math.isinf(x):
        if name in BOUNDED:
            return BOUNDED[name][x > 0]
        if name in ("round", "trunc", "floor", "ceil", "cbrt", "ln", "log10", "plus"):
            return x
        if name == "times" and not constants[0]:
            return 0.0
    return float(FUNCTIONS[name](x, *constants))
