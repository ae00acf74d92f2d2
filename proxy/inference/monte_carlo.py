"""The paper's two approximations of the posterior: Monte Carlo (MC), discrete probability (PC).

Both give a probability mass vector u on the integers −k … k, u_j ≈ P(j − ½ < X ≤ j + ½), of
X = Σ c_i L_i with unit Laplace L_i (c [m] in answer units; c_i = A_i S_i / α_i in the paper).
They are here to be compared with the exact law of ``laplace``: nothing released rests on them.

- MC, Algorithm 1: round m_s samples of X and count them. With v = max u,
  E Σ (u_j − E u_j)² < |u|/(m_s − 1) · v(1 − v).
- PC, Algorithm 2: cut each term off where it loses γ/m, discretize it, convolve from the shortest
  to the longest. The mass lost is ≤ γ, hence the paper's error γ²; it bounds the truncation only,
  discretization adds more. A vector has 2 ceil(c ln(m/γ)) + 1 entries (the paper's listing lacks
  the factor 2, its example and its lemma have it).
- Cost of PC ~ log²(m/γ) β with β = (Σ c_i)²; of MC m · m_s.

Source: Xiao & Xiong, Bayesian Inference under Differential Privacy, "Monte Carlo Probability
Function", "Discrete Probability Calculation", and "Experimental study" for the number of samples.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

PC_LIMIT = 1e10  # log²(m/γ) β up to which PC is taken: seconds, as MC needs at m = 1,000
FEWEST_SAMPLES = 10_000  # the paper's first m_s
DRAWS = 1_000_000  # variates held at once


def discrete_mass(noise: Vector, gamma: float = 0.01) -> Vector:
    """Algorithm 2 (PC): the mass vector of Σ c_i L_i, at most ``gamma`` of mass cut off."""
    terms = _terms(noise)
    mass = np.ones(1)
    for scale in np.sort(terms):
        mass = np.convolve(mass, _cell_mass(float(scale), terms.size, gamma))
    return mass


def monte_carlo_mass(
    noise: Vector,
    samples: int | None,
    rng: np.random.Generator,
    gamma: float = 0.01,
) -> Vector:
    """Algorithm 1 (MC): the histogram of ``samples`` rounded draws of Σ c_i L_i.

    Without ``samples``, the paper's number: 10⁴, or what the error bound asks for ``gamma``².
    """
    terms = _terms(noise)
    if samples is not None:
        return _histogram(terms, samples, rng)
    mass = _histogram(terms, FEWEST_SAMPLES, rng)
    samples = samples_needed(mass, gamma)
    return mass if samples <= FEWEST_SAMPLES else _histogram(terms, samples, rng)


def samples_needed(mass: Vector, gamma: float) -> int:
    """The paper's m_s for an expected error of ``gamma``², judged by a first mass vector."""
    peak = float(mass.max())
    return max(FEWEST_SAMPLES, math.ceil(mass.size / gamma**2 * peak * (1 - peak) + 1))


def monte_carlo_error(mass: Vector, samples: int) -> float:
    """The bound on the expected Σ (u_j − E u_j)² of MC."""
    peak = float(mass.max())
    return mass.size / (samples - 1) * peak * (1 - peak)


def truncation_error(gamma: float) -> float:
    """The paper's bound γ² on Σ (u_j − E u_j)² of PC; true of its truncation only."""
    return gamma**2


def discrete_cost(noise: Vector, gamma: float = 0.01) -> float:
    """The paper's measure of PC's work, log²(m/γ) · β."""
    terms = _terms(noise)
    return (math.log(max(terms.size, 1) / gamma) * float(terms.sum())) ** 2


def prefers_pc(noise: Vector, gamma: float = 0.01) -> bool:
    """The paper's choice: PC while log²(m/γ) · β is small, here at most ``PC_LIMIT``, else MC."""
    return discrete_cost(noise, gamma) <= PC_LIMIT


def _terms(noise: Vector) -> Vector:
    terms = np.abs(np.asarray(noise, dtype=np.float64))
    return terms[terms > 0]


def _cell_mass(scale: float, m: int, gamma: float) -> Vector:
    """The mass vector of one term, cut off where it has lost γ/m."""
    reach = math.ceil(scale * math.log(m / gamma))
    right = -0.5 * np.exp(-(np.arange(1, reach + 1) - 0.5) / scale) * math.expm1(-1 / scale)
    return np.concatenate([right[::-1], [-math.expm1(-0.5 / scale)], right])


def _histogram(terms: Vector, samples: int, rng: np.random.Generator) -> Vector:
    total = np.zeros(samples)
    for scale in terms:
        for first in range(0, samples, DRAWS):
            block = total[first : first + DRAWS]
            block += scale * rng.laplace(size=block.size)
    whole = np.rint(total).astype(np.int64)
    reach = int(np.abs(whole).max())
    return np.bincount(whole + reach, minlength=2 * reach + 1) / samples
