"""The languages of statements: sqlglot's dialects, extended."""

import pytest

from proxy.errors import OperationalError
from proxy.sql.parse import dialects


def test_compiled_parsers_are_told_from_statements_that_do_not_parse(monkeypatch):
    """
    Sqlglot's optional compiled parsers allow no subclasses: what to install is said at once, and
    not that every statement is wrong.
    """

    def compiled(self, *args, **kwargs):
        raise TypeError("interpreted classes cannot inherit from compiled")

    monkeypatch.setattr(dialects.Parser, "__init__", compiled)
    with pytest.raises(OperationalError, match="sqlglotc") as told:
        dialects.extended("postgres")
    assert "pip install sqlglot" in told.value.hint
