"""The model of PostgreSQL in ``model`` says what PostgreSQL says, and so does the server."""

import pytest

from tests.server.model import COUNT, DEAR, GROUPS, HIDDEN, LOST, WHERE
from tests.server.serving import REGIONS
from tests.server.test_messages import Wire
from tests.server.test_state_machine import SERIES, SYNC, query, reference, seen

POSTGRES = {  # what gives the same rows, or fails at the same place, on no table
    GROUPS: "SELECT generate_series(1, 4)",
    WHERE: "SELECT $1::int",
    COUNT: "SELECT 7",
    HIDDEN: "SELECT missing",
    LOST: "SELECT missing",
    DEAR: "SELECT 1 / count(*) FROM pg_class WHERE oid = 0",
}
PROXY = {
    GROUPS: REGIONS.replace("region, ", "").replace("ORDER BY region", "ORDER BY 1"),
    WHERE: "SELECT COUNT(*) AS n FROM cps1988 WHERE education = $1 WITH UTILITY (500, 0.05)",
    COUNT: "SELECT COUNT(*) AS n FROM cps1988 WITH UTILITY (500, 0.05)",
    HIDDEN: "SELECT missing FROM cps1988",
    LOST: "SELECT missing FROM cps1988",
    DEAR: "SELECT COUNT(*) AS n FROM cps1988 WITH UTILITY (1, 0.00001)",
}
ENDS = [SYNC, query("ROLLBACK"), query("DEALLOCATE ALL")]


def told(messages):
    """Return the kinds of messages, and of errors the SQLSTATE; all of them, save the data's."""
    states = {"42501": "42703", "53400": "22012"}  # of the errors that stand for others
    for kind, body in seen(messages):
        if kind == b"E":
            yield states.get(body.decode(), body.decode())
        elif kind != b"S":
            yield (kind + body if kind in b"CZ" else kind).decode()


@pytest.mark.parametrize("texts", [POSTGRES, PROXY], ids=["PostgreSQL", "the proxy"])
@pytest.mark.parametrize("sent", SERIES.values(), ids=SERIES)
def test_the_model_says_what_postgresql_says(server, sent, texts):
    """
    With the same messages, the real PostgreSQL and the server say what the model says.
    """
    data = b""
    for kind, body in sent:
        for text, other in texts.items():
            body = body.replace(text.encode(), other.encode())
        data += kind + (len(body) + 4).to_bytes(4) + body
    wire = Wire(server)
    try:
        wire.send(data)
        found = wire.answered(b"mark")
    finally:
        wire.close()
    assert None not in found
    got = list(told((each[:1], each[5:]) for each in found))
    assert got[:-2] == list(told(reference(*sent, *ENDS)))
