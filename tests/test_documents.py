"""The documents that the README leads to tell the truth as well: see ``documents``."""

import duckdb
import pytest

from tests import documents
from tests.documents import ROOT, as_shown

DOCUMENTS = ["policies/README.md", "proxy/cli/README.md"]
ASKED = """\
SELECT COUNT(*) FROM cps1988 WHERE education >= 12 WITH UTILITY (150, 0.05);
SELECT COUNT(*) FROM cps1988 WHERE education >= 16 WITH UTILITY (150, 0.05);
SELECT COUNT(*) FROM cps1988 WHERE education BETWEEN 9 AND 14 WITH UTILITY (150, 0.05);
SELECT education, COUNT(*) FROM cps1988 GROUP BY education WITH UTILITY (100, 0.05);
"""


def sources(folder):
    """Write the made-up sources of policies/README.md."""
    lines = ["person,day,ward,cost"]
    for i in range(6000):
        cost = f'"{1 + i % 9},{i % 1000:03d}"'
        lines.append(
            f"p{i * i % 2003},2024-{i % 12 + 1:02d}-{i % 28 + 1:02d},{'ABC'[i % 3]},{cost}"
        )
    (folder / "visits.csv").write_text("\n".join(lines) + "\n")
    (folder / "asked.sql").write_text(ASKED)
    with duckdb.connect(str(folder / "shop.duckdb")) as shop:
        shop.execute(
            "CREATE TABLE customers AS SELECT i AS customer,"
            " CASE WHEN i % 3 = 0 THEN 'DE' ELSE 'FR' END AS country FROM range(1000) t(i)"
        )
        shop.execute(
            "CREATE TABLE orders AS SELECT i % 1000 AS customer, (i * 37) % 200 AS amount,"
            " DATE '2024-01-01' + (i % 366)::INTEGER AS day FROM range(5000) t(i)"
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_output_is_what_a_reader_will_see(tmp_path, name):
    """
    Commands run one after the other, as the document tells it.
    """
    sources(tmp_path)
    steps = documents.run(tmp_path, (ROOT / name).read_text())
    assert len(steps) >= 5
    as_shown(steps)


def filled(name, folder):
    """The document with the outputs of its commands; for its author."""
    text = (ROOT / name).read_text()
    sources(folder)
    place = 0
    for command, shown, real in documents.run(folder, text):
        place = text.find(f"$ {command}\n", place)
        if place >= 0:
            start = place + len(f"$ {command}\n")
            text = text[:start] + real + text[start + len(shown) :]
            place = start
        else:
            place = 0
    return text


if __name__ == "__main__":
    import sys
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        (ROOT / sys.argv[1]).write_text(filled(sys.argv[1], Path(folder)))
