"""One PostgreSQL for all tests of the SQL front end."""

import pytest

from tests.sql.reference import Reference


@pytest.fixture(scope="session")
def postgres(tmp_path_factory):
    """A PostgreSQL that holds the records of the survey."""
    folder = tmp_path_factory.mktemp("postgres")
    for parent in (folder, *folder.parents[:2]):
        parent.chmod(parent.stat().st_mode | 0o055)
    reference = Reference(folder)
    yield reference
    reference.close()
