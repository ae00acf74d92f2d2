"""Clients that are no packages of Python: psql, pgJDBC, psqlODBC, node's pg."""

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.server.serving import COUNT, NAMES, REGIONS, password

HERE = Path(__file__).parent
JDBC = Path("/usr/share/java/postgresql.jar")
pytestmark = pytest.mark.clients


def run(command, environment, **more):
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=60, **more
    )
    assert done.returncode == 0, done.stderr
    return done


def lines(text):
    """Return the lines of a program's output by their first words."""
    return dict(line.split(" ", 1) if " " in line else (line, "") for line in text.splitlines())


@pytest.fixture
def psql(server):
    if shutil.which("psql") is None:
        pytest.skip("psql is not installed")

    def ask(*commands, **more):
        arguments = [part for command in commands for part in ("-c", command)]
        return run(["psql", "-X", "-A", "-t", *arguments], server.environment(), **more)

    return ask


def test_psql_describes(psql):
    r"""
    \d, \dt, \dn, \du, \dp and the rest of psql's catalog queries are answered.
    """
    told = psql(r"\d", r"\dt", r"\d cps1988", r"\dn", r"\du", r"\dp", r"\df", r"\conninfo").stdout
    assert "public|cps1988|table" in told
    assert "wage|double precision" in told
    assert "education|integer" in told
    assert "alice" in told
    assert "cps1988" in psql("SELECT datname FROM pg_database").stdout


def test_psql_queries(psql):
    """
    Rows on standard output, the notice on standard error; errors point at their place.
    """
    done = psql(REGIONS)
    assert [line.split("|")[0] for line in done.stdout.splitlines()] == NAMES
    assert "NOTICE:  privacy: " in done.stderr
    assert psql(COUNT).stdout.strip().lstrip("-").isdigit()


def test_psql_scripts(psql, server):
    r"""
    A script with \gdesc, \gset, \watch, \copy of the client and a cursor.
    """
    script = (
        f"{COUNT} \\gdesc\n{COUNT} \\gset\n\\echo got :n\n"
        f"{COUNT} \\watch i=0.1 c=2\n"
        "BEGIN; DECLARE c CURSOR FOR SELECT region, COUNT(*) FROM cps1988 GROUP BY 1 "
        "WITH UTILITY (500, 0.05); FETCH 2 FROM c; ROLLBACK;\n"
        "\\set FETCH_COUNT 2\nSELECT region FROM cps1988 GROUP BY region ORDER BY region;\n"
    )
    version = run(["psql", "--version"], os.environ).stdout
    if int(re.search(r"(\d+)", version)[1]) < 16:
        script = script.replace("\\watch i=0.1 c=2", ";")
    done = run(["psql", "-X", "-A", "-t"], server.environment(), input=script)
    assert "n|bigint" in done.stdout
    assert re.search(r"got -?\d+", done.stdout)
    assert "south" in done.stdout
    assert "ERROR" not in done.stderr


def test_psql_is_stopped_by_the_interrupt_key(server):
    """
    Ctrl-C ends the statement at once.
    """
    if shutil.which("psql") is None:
        pytest.skip("psql is not installed")
    with subprocess.Popen(
        ["psql", "-X", "-A", "-t"],
        env=server.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        process.stdin.write("SELECT pg_sleep(30);\n")
        process.stdin.flush()
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    assert "canceling statement due to user request" in errors


def test_jdbc(server, tmp_path):
    """
    pgJDBC: metadata, statements, prepared ones past the fifth use, fetch sizes, isValid.
    """
    if not JDBC.exists() or shutil.which("javac") is None:
        pytest.skip("pgJDBC or javac is not installed")
    shutil.copy(HERE / "Client.java", tmp_path)
    run(["javac", "Client.java"], os.environ, cwd=tmp_path)
    url = f"jdbc:postgresql://{server.host}:{server.port}/cps1988"
    command = ["java", "-cp", f"{JDBC}:.", "Client", url, "alice", password("alice")]
    told = lines(run(command, os.environ, cwd=tmp_path).stdout)
    regions = "[midwest, northeast, south, west]"
    assert told["tables"] == "[cps1988]"
    assert told["columns"] == (
        "[education, experience, ethnicity, smsa, region, area, parttime, wage]"
    )
    assert told["types"] == "[int4, int4, text, text, text, text, text, float8]"
    assert told["rows"] == told["fetched"] == regions
    assert told["described"] == "int8 float8"
    assert told["max"] == "[midwest, northeast]"
    assert told["refused"] == "0A000"
    for name in ("warning", "prepared", "valid", "privileges"):
        assert told[name] == "true", name


def test_odbc(server):
    """
    psqlODBC: catalogs, queries, parameters, errors.
    """
    pyodbc = pytest.importorskip("pyodbc")
    drivers = [name for name in pyodbc.drivers() if "PostgreSQL" in name]
    if not drivers:
        pytest.skip("psqlODBC is not installed")
    connection = pyodbc.connect(
        f"DRIVER={{{drivers[-1]}}};SERVER={server.host};PORT={server.port};DATABASE=cps1988;"
        f"UID=alice;PWD={password('alice')}",
        autocommit=True,
    )
    cursor = connection.cursor()
    assert "cps1988" in [row.table_name for row in cursor.tables()]
    assert "wage" in [row.column_name for row in cursor.columns("cps1988")]
    assert [row[0] for row in cursor.execute(REGIONS).fetchall()] == NAMES
    text = "SELECT COUNT(*) FROM cps1988 WHERE education >= ? AND region = ? "
    count = cursor.execute(text + "WITH UTILITY (900, 0.05)", 12, "west").fetchone()[0]
    assert isinstance(count, int)
    with pytest.raises(pyodbc.Error, match="0A000"):
        cursor.execute("SELECT * FROM cps1988")
    assert cursor.execute("SELECT 1").fetchone()[0] == 1
    connection.close()


def test_node(server):
    """
    The driver of node: queries, parameters, named statements, errors, notices.
    """
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    found = subprocess.run(
        ["node", "-e", "require('pg')"], capture_output=True, check=False, env=node(os.environ)
    )
    if found.returncode:
        pytest.skip("node's pg is not installed")
    told = lines(run(["node", str(HERE / "client.js")], node(server.environment())).stdout)
    assert told["rows"] == "midwest northeast south west"
    assert told["types"] == "25 20"
    assert told["same"] == told["notice"] == "true"
    assert told["refused"].startswith("0A000 8")
    assert told["list"] == "1"


def node(environment):
    """Say where node's packages may be, as NODE_PATH."""
    places = [
        environment.get("NODE_PATH", ""),
        "/usr/share/nodejs",
        "/usr/lib/node_modules",
        "/usr/local/lib/node_modules",
    ]
    return environment | {"NODE_PATH": os.pathsep.join(filter(None, places))}
