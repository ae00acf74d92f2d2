"""Settings of all tests."""

from hypothesis import settings

# Machines differ in speed: no test fails for being slow.  The examples are the same in every run.
settings.register_profile("tests", deadline=None, derandomize=True)
settings.load_profile("tests")


def pytest_configure(config):
    """Know the marker of what takes many minutes."""
    config.addinivalue_line("markers", "audit: takes many minutes; run by -m audit only")


def pytest_collection_modifyitems(config, items):
    """Leave the audits out of every run that does not ask for them."""
    if "audit" not in config.option.markexpr:
        left_out = [item for item in items if item.get_closest_marker("audit")]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)
