"""One PostgreSQL for all tests of the SQL front end."""

import tempfile
from pathlib import Path

import pytest

from tests.sql.reference import Reference


@pytest.fixture(scope="session")
def postgres():
    """A PostgreSQL that holds the records of the survey."""
    # pytest's own folders may be read by one user only, and as root the server is another
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        reference = Reference(Path(folder))
        yield reference
        reference.close()
