"""SQLAlchemy's suite for dialects."""

from sqlalchemy.testing.suite import *  # noqa: F403  # which is how it is made to be used
