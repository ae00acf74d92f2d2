"""policies/README.md has every key, as the table of keys has it."""

import re
from pathlib import Path

from proxy.policy import describe, keys

PAGE = Path(__file__).parents[2] / "policies/README.md"


def written(text):
    """The page, with its tables made anew."""
    for name, record in (("policy", keys.POLICY), ("users", keys.USERS)):
        table = f"<!-- {name} -->\n{describe(record)}\n<!-- end -->"
        text = re.sub(
            rf"<!-- {name} -->\n.*?<!-- end -->", lambda _, t=table: t, text, count=1, flags=re.S
        )
    return text


def test_the_page_has_every_key():
    """
    With what is allowed, the default and the meaning.
    """
    assert PAGE.read_text() == written(PAGE.read_text()), (
        "python -m tests.policy.test_keys_in_readme"
    )
    assert PAGE.read_text().count("\n| `") > 60


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
