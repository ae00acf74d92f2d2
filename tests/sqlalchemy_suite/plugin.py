"""What of SQLAlchemy's suite does not apply: a dataset is read, and nothing is made or written."""

from collections import Counter

import pytest
from sqlalchemy.dialects import registry

DIALECT = ("tests.sqlalchemy_suite.tables", "WithTables")
WRITES = "read-only: the test is about writing, or reflects tables that it makes"
READS = {"test_select", "test_cte", "test_results", "test_types", "test_dialect"}
DOUBLE = "numbers are divided in double precision: 38 digits are not kept"
SKIPPED = {  # what no requirement stands for, by the test's name or its class's
    "ReturningGuardsTest": WRITES,
    "test_insert_from_select_round_trip": WRITES,
    "test_select_recursive_round_trip": "there is no WITH RECURSIVE",
    "test_truediv_divisor[numeric_38_digit_divisor-typed]": DOUBLE,
    "test_truediv_divisor[numeric_38_digit_divisor-untyped_function]": DOUBLE,
    "DistinctOnTest": "the test is for dialects without DISTINCT ON",
    "UuidTest": "there are no UUIDs",
}

registry.register("privacyproxy", *DIALECT)
registry.register("privacyproxy.proxy", *DIALECT)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Skip what writes, and the tests that the table above names."""
    from sqlalchemy.testing.fixtures import TablesTest

    makes = issubclass(item.cls, TablesTest) or "metadata" in item.fixturenames
    where = {each.__module__.rpartition(".")[2] for each in item.cls.__mro__}
    if makes and not READS & where:
        pytest.skip(WRITES)
    for name in (item.name, item.cls.__name__.partition("_privacyproxy")[0]):
        if name in SKIPPED:
            pytest.skip(SKIPPED[name])


def pytest_terminal_summary(terminalreporter):
    """Say why tests were skipped, and how often."""
    reasons = (report.longrepr[2] for report in terminalreporter.stats.get("skipped", []))
    counted = Counter(reason.rpartition(" : ")[2].removeprefix("Skipped: ") for reason in reasons)
    if count := counted.pop("marked as skip", 0):
        counted["the suite itself asks no database for it, unless its dialect says so"] = count
    for reason, count in counted.most_common():
        terminalreporter.write_line(f"{count:5} skipped: {reason}")
