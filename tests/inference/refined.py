"""The laws of noise and of its refinements, with as many digits as mpmath is told."""

import mpmath


def f(rate, k):
    """P(N = k) of the two-sided geometric law with p = exp(-rate)."""
    return mpmath.tanh(rate / 2) * mpmath.exp(-rate * abs(k))


def difference(old, new, d):
    """P(N₁ − N₂ = d): an atom at 0 and the law of the old scale."""
    one, two = 1 / mpmath.mpf(old), 1 / mpmath.mpf(new)
    p, q = mpmath.exp(-one), mpmath.exp(-two)
    atom = (1 - p) ** 2 * q / ((1 - q) ** 2 * p)
    return (1 - atom) * f(one, d) + (atom if d == 0 else 0)


def given_old(k, n, old, new):
    """P(N₂ = k | N₁ = n) by Bayes' rule."""
    one, two = 1 / mpmath.mpf(old), 1 / mpmath.mpf(new)
    return f(two, k) * difference(old, new, n - k) / f(one, n)


def below(k, n, old, new):
    """P(N₂ ≤ k | N₁ = n) and P(N₂ > k | N₁ = n), by the formulas of what draws; n ≥ 0."""
    one, two = 1 / mpmath.mpf(old), 1 / mpmath.mpf(new)
    r, q, rest = mpmath.exp(one - two), mpmath.exp(-one - two), -mpmath.expm1(-2 * two)
    outer = -mpmath.expm1(one - two) / rest
    if k < 0:
        tail = outer * q ** abs(k)
        return tail, 1 - tail
    if k < n:
        tail = -mpmath.expm1(-one - two) / rest * r ** (k + 1)
    else:
        tail = outer * r**n * q ** (k - n + 1)
    return 1 - tail, tail


def mass(k, n, old, new):
    """P(N₂ = k | N₁ = n), by the formulas of what draws."""
    if n < 0:
        k, n = -k, -n
    (low, high), (before, after) = below(k, n, old, new), below(k - 1, n, old, new)
    if k == 0:
        return 1 - before - high
    return low - before if k < 0 else after - high
