"""Clients that are no packages of Python: psql, pgJDBC, psqlODBC, R, node's pg."""

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.server.serving import COUNT, NAMES, REGIONS, password

HERE = Path(__file__).parent
JDBC = Path("/usr/share/java/postgresql.jar")
CAPTURED = {"capture_output": True, "text": True, "check": False, "timeout": 60}
pytestmark = pytest.mark.clients


def run(command, environment, **more):
    done = subprocess.run(command, env=environment, **CAPTURED, **more)
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
        return run(["psql", "-X", "-A", "-t", *arguments], ask.environment, **more)

    ask.environment = server.environment()
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


def test_psql_lists_databases(psql):
    r"""
    \l and \dO of psql 15 and 16 ask for columns that PostgreSQL 17 renamed; they are answered.
    """
    told = psql(r"\l", r"\l+", r"\dO").stdout
    assert "cps1988|privacy_proxy|UTF8" in told
    wrong = "SELECT d.daticulocale FROM pg_catalog.pg_database d, nowhere"
    failed = subprocess.run(["psql", "-X", "-c", wrong], env=psql.environment, **CAPTURED)
    _, shown, caret = failed.stderr.rstrip().splitlines()
    assert shown[caret.index("^") :] == "nowhere"


def test_psql_exports(psql, tmp_path):
    r"""
    \copy of a query, \g and --csv write files, \copy of the table does not; \x and \timing.
    """
    file = tmp_path / "regions.csv"
    query = f"({REGIONS}) TO '{file}'"
    for options, first in (
        ("", ""),
        (" csv header", "region,n\n"),
        (" with (format binary)", "PG"),
    ):
        assert psql(rf"\copy {query}{options}").stdout == "COPY 4\n"
        assert file.read_bytes().startswith(first.encode())
    refused = rf"\copy cps1988 TO '{file}'"
    failed = subprocess.run(["psql", "-X", "-c", refused], env=psql.environment, **CAPTURED)
    assert "only aggregates" in failed.stderr
    assert "COPY (SELECT COUNT(*) FROM cps1988) TO STDOUT" in failed.stderr
    script = f"\\pset format csv\n{REGIONS} \\g {file}\n"
    run(["psql", "-X"], psql.environment, input=script)
    rows = [line.split(",")[0] for line in file.read_text().splitlines()]
    assert rows == ["region", *NAMES]
    told = psql(r"\timing on", r"\x on", COUNT).stdout
    assert re.search(r"^n\|-?\d+$", told, re.MULTILINE)
    assert re.search(r"^Time: [\d.]+ ms", told, re.MULTILINE)


@pytest.fixture
def terminal(psql):
    """Return what types into a psql at a terminal and returns what it says, up to some word."""
    child, end = pty.fork()
    if child == 0:
        environment = psql.environment | {"TERM": "dumb", "PAGER": "cat"}
        os.execvpe("psql", ["psql", "-X", "-A", "-t"], environment)

    def typed(text, *expected):
        os.write(end, text.encode())
        said, end_at = "", time.monotonic() + 60
        for word in expected:
            at = len(said)
            while word not in said[at:]:
                assert time.monotonic() < end_at, f"no {word!r} in {said[-2000:]!r}"
                assert select.select([end], [], [], 20)[0], f"no {word!r} in {said!r}"
                said += os.read(end, 1).decode()
        return said

    typed("", "=> ")
    yield typed
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(end)


INTERRUPT = "\x03"  # Ctrl-C
TABULATOR = "\t"


def test_psql_completes(terminal):
    """
    The tabulator key finds tables and columns, from the catalogs.
    """
    terminal(f"SELECT COUNT(*) FROM cps19{TABULATOR}", "FROM cps1988 ")
    terminal(f"WHERE edu{TABULATOR}", "WHERE education ")


@pytest.mark.slow
def test_psql_watches(terminal):
    r"""
    \watch measures in its first round, and from the second on what it shows is free and the same.
    """
    text = "SELECT COUNT(*) FROM cps1988 WHERE education = 7 WITH UTILITY (43, 0.05)"
    free = "1 number free; cost nothing"
    said = terminal(f"{text} \\watch 0.2\n", "1 number measured", *[free] * 3, "\n", "\n")
    terminal(INTERRUPT, "=> ")
    numbers = re.findall(r"^-?\d+\r$", said, re.MULTILINE)
    assert len(numbers) >= 3
    assert len(set(numbers)) == 1


ALL = "SELECT education, experience, ethnicity, smsa, region, parttime, COUNT(*) AS n FROM cps1988"
SLOW = {
    "of the mirror": "SELECT pg_sleep(30)",
    "of the engine": f"WITH a AS ({ALL} GROUP BY 1, 2, 3, 4, 5, 6) SELECT COUNT(*) FROM a AS x, "
    "a AS y, a AS z WHERE x.n + y.n * z.n > 7 WITH UTILITY (5000, 0.05)",
}


@pytest.mark.slow
@pytest.mark.parametrize("whose", SLOW)
def test_psql_is_stopped_by_the_interrupt_key(terminal, whose):
    """
    Ctrl-C ends the statement at once, and the session goes on.
    """
    terminal(f"{SLOW[whose]};\n", "\n")
    time.sleep(1)
    began = time.monotonic()
    terminal(INTERRUPT, "canceling statement due to user request", "=> ")
    assert time.monotonic() - began < 10
    terminal("SELECT 6 * 7;\n", "42", "=> ")


@pytest.mark.slow
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


@pytest.mark.slow
def test_r(server):
    """
    R's DBI, and dbplyr, whose pipelines become SQL; a look at rows is refused with the way out.
    """
    if shutil.which("Rscript") is None:
        pytest.skip("R is not installed")
    packages = "library(RPostgreSQL); library(dbplyr)"
    found = subprocess.run(["Rscript", "-e", packages], env=os.environ, **CAPTURED)
    if found.returncode:
        pytest.skip("RPostgreSQL or dbplyr is not installed")
    arguments = [server.host, str(server.port), password("alice")]
    told = lines(run(["Rscript", str(HERE / "client.R"), *arguments], os.environ).stdout)
    assert told["tables"].split() == ["cps1988", "budget", "history"]
    assert told["fields"].split()[-1] == "wage"
    assert told["rows"].split() == NAMES
    for name in ("same", "counted", "grouped"):
        assert told[name].strip() == "TRUE", name
    assert "only aggregates" in told["rows_refused"]
    assert "SELECT COUNT(*) FROM cps1988" in told["preview_refused"]


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
