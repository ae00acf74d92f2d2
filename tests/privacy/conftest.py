"""The worlds of the audits, made once; the clock stands still, so that no midnight is a leak."""

import datetime

import pytest

import proxy.engine.engine
from proxy.inference import plan as planning
from proxy.inference.strategies import bases
from tests.privacy import worlds as making
from tests.privacy.double import START


class Frozen(datetime.datetime):
    """The engine's clock in an audit."""

    @classmethod
    def now(cls, tz=None):
        return START.astimezone(tz)


@pytest.fixture(scope="session")
def worlds(tmp_path_factory):
    """A world for each kind of policy."""
    return making.make(tmp_path_factory.mktemp("worlds") / "made", 5)


@pytest.fixture
def audited(worlds, monkeypatch):
    """The worlds, the clock stopped, the law of an estimator worked out once for its arguments."""
    monkeypatch.setattr(proxy.engine.engine, "datetime", Frozen)
    monkeypatch.setattr(bases, "SHORT", 2)  # of the worlds' ages there is a tree, too
    for name in ("meets", "half_width"):
        monkeypatch.setattr(planning, name, remembered(getattr(planning, name)))
    return worlds


def remembered(function):
    """A pure function of an estimator and exact numbers, and what it gave before."""
    known = {}

    def found(estimator, *args):
        parts = estimator.coefficients.tobytes(), estimator.rates.tobytes()
        key = (*parts, estimator.slack, estimator.unit, *args)
        if key not in known:
            known[key] = function(estimator, *args)
        return known[key]

    return found
