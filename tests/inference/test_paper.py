"""The paper's worked example, to ten digits, through the public names of ``proxy.inference``."""

import numpy as np
import pytest

from proxy.experiment.blue import blue
from proxy.inference.laplace import LaplaceSum
from tests.inference.test_blue import WEIGHTS, A, H, Y


def test_the_worked_example():
    """
    Q = [1 0 1 0]: coefficients, estimate, variance, half-widths and P(θ > 0).
    """
    found = blue(H, WEIGHTS, Y, [1, 0, 1, 0])
    posterior = LaplaceSum(found.noise)
    assert found.coefficients == pytest.approx(A, abs=5e-9)
    assert found.estimate == pytest.approx(42.01380301941049, abs=1e-10)
    assert found.variance == pytest.approx(554.4500359453630, abs=1e-10)
    half_widths = {
        0.5: 14.58428418964796,
        0.8: 28.94770697917189,
        0.9: 38.45805501941482,
        0.95: 47.38332970713607,
        0.99: 66.88488644956779,
    }
    for confidence, half_width in half_widths.items():
        assert posterior.half_width(confidence) == pytest.approx(half_width, abs=1e-10)
        assert posterior.confidence(half_width) == pytest.approx(confidence, abs=1e-12)
    # θ = θ̂ - X: P(θ > 0) = P(X < θ̂)
    assert posterior.cdf(found.estimate) == pytest.approx(0.9619041161415354, abs=1e-10)
    assert posterior.interval(0.95, found.estimate) == pytest.approx(
        (found.estimate - half_widths[0.95], found.estimate + half_widths[0.95]), abs=1e-9
    )
    assert np.isclose(posterior.variance, found.variance)
