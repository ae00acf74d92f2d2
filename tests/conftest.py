"""Settings of all tests."""

from hypothesis import settings

# Machines differ in speed: no test fails for being slow.  The examples are the same in every run.
settings.register_profile("tests", deadline=None, derandomize=True)
settings.load_profile("tests")
