"""Policies from text."""

import pytest

from proxy.policy import load
from tests.policy.people import GOOD


@pytest.fixture
def policy(tmp_path):
    """Return a function that loads a text as a policy."""

    def loaded(text=GOOD, **files):
        for name, content in files.items():
            (tmp_path / f"{name}.csv").write_text(content)
        path = tmp_path / "people.yaml"
        path.write_text(text)
        return load(path)

    return loaded
