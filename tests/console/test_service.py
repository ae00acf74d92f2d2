"""The console on a port: with TLS, beside a server, by itself; and what ends a visit there."""

import asyncio
import contextlib
import os
import re
import signal
import socket
import ssl
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

import proxy.console.service as service
import proxy.console.visits as visits
from proxy.cli import run
from proxy.console.backend import Credentials
from proxy.console.embedded import Embedded
from proxy.console.pages import COOKIE
from proxy.console.service import Console
from proxy.console.visits import LOOK, Lane, Visit
from proxy.errors import OperationalError
from proxy.policy import scram_verifier
from tests.console.conftest import stranger
from tests.server import forked
from tests.server.serving import password, prepare, running, spawned
from tests.server.test_changes import until
from tests.server.test_login_tls import certificate


@pytest.fixture
def server_of_our_own(tmp_path):
    prepare(tmp_path / "folder")
    console = Console("127.0.0.1", 0)
    with running(tmp_path / "folder", console=console) as server:
        server.console = console
        yield server


def entered(client, user="alice", secret=None):
    """Log in; whether that was right."""
    given = {"user": user, "password": secret or password(user)}
    return client.post("/login", data=given, follow_redirects=False).status_code == 303


def is_in(client):
    return client.get("/", follow_redirects=False).headers["location"] != "/login"


def test_a_port_that_is_taken_is_an_error_that_names_the_flag():
    first = Console("127.0.0.1", 0)
    first.bind()
    second = Console("127.0.0.1", first.port)
    with pytest.raises(OperationalError) as told:
        second.bind()
    asyncio.run(first.stop())
    assert told.value.message == f"--console 127.0.0.1:{first.port}: Address already in use"


def test_one_port_for_clients_and_browsers_is_an_error_that_names_the_flag(
    capsys, folder_of_survey
):
    with socket.create_server(("127.0.0.1", 0)) as free:
        where = f"127.0.0.1:{free.getsockname()[1]}"
    command = ["serve", str(folder_of_survey), "--state", str(folder_of_survey / "state")]
    assert run([*command, "--listen", where, "--console", where]) == 2
    assert f"--listen {where}: Address already in use" in capsys.readouterr().err


def test_a_console_for_ones_own_machine_listens_there_alone(capsys, folder_of_survey):
    policy = str(folder_of_survey / "cps1988.yaml")
    assert run(["console", policy, "--listen", "0.0.0.0:0"]) == 2
    assert "serve --console has users" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_prints_where_it_is_and_ends_when_told(folder_of_survey):
    policy, state = folder_of_survey / "cps1988.yaml", folder_of_survey / "state"
    ours, theirs = os.pipe()
    command = ["console", policy, "--state", state, "--listen", "127.0.0.1:0"]
    with open(ours) as out:
        process = forked.Process(command, theirs, theirs)
        os.close(theirs)
        address = re.search(r"http://127\.0\.0\.1:\d+/login\?token=\S+", out.readline())[0]
        assert "Ctrl-C" in out.readline()
        with httpx2.Client(trust_env=False) as client:
            assert client.get(address).headers["location"] == "/"
            base = address.partition("/login")[0]
            assert client.get(base).headers["location"] == "/d/cps1988/ask"
        process.terminate()
        assert process.wait(30) == 0


@pytest.mark.slow
def test_beside_a_server_its_log_says_where_it_is_and_both_end_together(folder_of_survey):
    with spawned(folder_of_survey, "--console", "127.0.0.1:0") as server:
        told = next(line for line in server.log if '"listening"' in line)
        url = re.search(r'"console": "([^"]+)"', told)[1]
        with httpx2.Client(base_url=url, headers={"origin": url[:-1]}, trust_env=False) as client:
            assert entered(client)
            who = '"session began", "user": "alice", "database": "cps1988", "address": "127.0.0.1"'
            until(lambda: any(who in line for line in server.log))
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(30) == 0


@pytest.mark.slow
def test_under_tls_cookies_are_for_tls_alone_and_a_renewed_certificate_is_served(tmp_path):
    certificate(tmp_path)
    prepare(tmp_path / "folder")
    files = tmp_path / "cert.pem", tmp_path / "key.pem"
    console = Console("127.0.0.1", 0, files)
    with running(tmp_path / "folder", console=console):
        trusting = ssl.create_default_context(cafile=files[0])
        url = console.url.replace("127.0.0.1", "localhost")
        given = {"user": "alice", "password": password("alice")}
        headers = {"origin": url[:-1]}
        with httpx2.Client(base_url=url, headers=headers, verify=trusting) as client:
            reply = client.post("/login", data=given, follow_redirects=False)
            assert "Secure" in reply.headers["set-cookie"].split("; ")
            assert "max-age" in reply.headers["strict-transport-security"]
        certificate(tmp_path)
        console.renew(files)
        trusting = ssl.create_default_context(cafile=files[0])
        with httpx2.Client(base_url=url, verify=trusting) as client:
            assert client.get("/login").status_code == 200


def test_connections_that_stall_shut_nobody_out(server_of_our_own, monkeypatch):
    """They make place for others, and are closed after a while."""
    monkeypatch.setattr(service, "CONNECTIONS", 8)
    monkeypatch.setattr(service, "PATIENCE", 1.0)
    address = ("127.0.0.1", server_of_our_own.console.port)
    with contextlib.ExitStack() as stack:
        stalled = [stack.enter_context(socket.create_connection(address)) for _ in range(20)]
        for each in stalled[:-4]:
            with contextlib.suppress(OSError):
                each.sendall(b"GET /login HTTP/1.1\r\nHost: x\r\n")
        for each in stalled[-4:]:
            each.sendall(b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx")
        with stranger(server_of_our_own) as client:
            assert client.get("/login").status_code == 200
        for each in stalled:
            each.settimeout(30)
            with contextlib.suppress(ConnectionError):
                while each.recv(1000):
                    pass


@pytest.mark.slow
def test_wrong_passwords_that_wait_keep_nobody_waiting(server_of_our_own):
    """However many: they wait in no thread that others need."""
    loop = server_of_our_own.loop
    with ThreadPoolExecutor(40) as threads, contextlib.ExitStack() as stack:
        loop.call_soon_threadsafe(loop.set_default_executor, ThreadPoolExecutor(2))
        alice, *others = [stack.enter_context(stranger(server_of_our_own)) for _ in range(41)]
        guesses = [
            threads.submit(entered, each, f"nobody {n % 4}", "guess")
            for n, each in enumerate(others)
        ]
        until(lambda: sum(each.done() for each in guesses) >= 16)  # the others wait, to 16 seconds
        assert entered(alice)
        assert not all(each.done() for each in guesses)


def test_no_variable_of_the_environment_lets_anybody_in(server_of_our_own, tmp_path, monkeypatch):
    """
    Such as libpq's file of passwords, or its address of another server.
    """
    (tmp_path / "passwords").write_text(f"*:*:*:alice:{password('alice')}\n")
    (tmp_path / "passwords").chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "passwords"))
    monkeypatch.setenv("PGHOSTADDR", "127.0.0.2")
    with stranger(server_of_our_own) as client:
        reply = client.post("/login", data={"user": "alice", "password": ""})
        assert reply.status_code == 401
        assert "a name and a password are needed" in reply.text.casefold()
        assert entered(client)


def test_who_is_taken_out_or_has_a_new_password_is_out_at_once(server_of_our_own):
    users = server_of_our_own.folder / "users.yaml"
    with stranger(server_of_our_own) as alice, stranger(server_of_our_own) as bob:
        assert entered(alice)
        assert entered(bob, "bob")
        text = users.read_text()
        new = re.sub(r'(alice:\n +password: )"[^"]+"', rf'\1"{scram_verifier("new")}"', text)
        users.write_text(new.replace("  bob:", "  robert:"))
        until(lambda: not is_in(alice) and not is_in(bob))
        assert not entered(alice)
        assert entered(alice, secret="new")
        assert not entered(bob, "bob")


def test_who_only_stays_shuts_nobody_out(server_of_our_own, monkeypatch):
    """Neither by guesses that wait in threads that all share, nor by connections."""
    monkeypatch.setattr(service, "CONNECTIONS", 4)
    free, loop = threading.Event(), server_of_our_own.loop
    for _ in range(64):
        loop.call_soon_threadsafe(loop.run_in_executor, None, free.wait)
    address = ("127.0.0.1", server_of_our_own.console.port)
    with contextlib.ExitStack() as stack:
        stack.callback(free.set)
        idle = [
            stack.enter_context(socket.create_connection(address, 10, ("127.0.0.2", 0)))
            for _ in range(8)
        ]
        with stranger(server_of_our_own) as client:
            assert entered(client)
        assert idle[0].recv(1) == b""


def test_a_visit_leaves_nothing_behind(server_of_our_own, monkeypatch):
    with tempfile.TemporaryDirectory() as folder, stranger(server_of_our_own) as client:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        assert not entered(client, secret="wrong")
        assert list(Path(folder).iterdir()) == []
        assert entered(client)
        assert len(list(Path(folder).iterdir())) == 1
        text = client.get("/nowhere").text
        token = re.search('name="csrf-token" content="([^"]+)"', text)[1]
        client.post("/logout", data={"csrf": token})
        assert COOKIE not in client.cookies
        assert list(Path(folder).iterdir()) == []


@pytest.fixture
def visit(folder_of_survey):
    """A visit over an embedded engine, in an event loop of its own; and the way to wait for it."""
    policy, state = folder_of_survey / "cps1988.yaml", folder_of_survey / "state"
    backend = Embedded([policy], state)
    with (
        contextlib.closing(backend),
        ThreadPoolExecutor() as threads,
        asyncio.Runner() as runner,
    ):
        yield Visit(Credentials("", backend.token, ""), backend, threads), runner.run


COUNT = "SELECT COUNT(*) AS n FROM cps1988 WITH UTILITY (500, 0.05)"


def test_sessions_are_opened_when_they_are_needed_and_closed_when_they_are_not(visit):
    one, wait = visit
    assert wait(one.execute("cps1988", COUNT)).measured == 1
    assert wait(one.execute("cps1988", COUNT, LOOK)).inferred == 1
    assert len(one.lanes) == 2
    wait(one.rest(time.monotonic() + visits.UNUSED - 1))
    assert len(one.lanes) == 2
    wait(one.rest(time.monotonic() + visits.UNUSED + 1))
    assert one.lanes == {}
    assert wait(one.execute("cps1988", COUNT)).inferred == 1


def test_a_connection_that_is_lost_is_made_again(visit):
    one, wait = visit

    class Lost:
        def execute(self, text):
            raise OperationalError("the connection is lost")

        def close(self):
            self.closed = True

    lost = Lost()
    one.lanes["cps1988", "work"] = Lane(lost)
    with pytest.raises(OperationalError):
        wait(one.execute("cps1988", COUNT))
    assert lost.closed
    assert wait(one.execute("cps1988", COUNT)).measured == 1


def test_after_its_end_a_visit_opens_nothing(visit):
    one, wait = visit
    wait(one.end())
    with pytest.raises(OperationalError, match="logged out"):
        wait(one.execute("cps1988", COUNT))


def test_a_user_has_a_share_of_the_threads_over_all_visits(folder_of_survey):
    """However many pages one user loads, others' are made."""
    policy, state = folder_of_survey / "cps1988.yaml", folder_of_survey / "state"
    free, began = threading.Event(), []

    def work():
        began.append(1)
        free.wait(60)

    async def crowd():
        found = visits.Visits(backend, threads)
        (_, one), (_, two) = [
            await found.enter(Credentials("", backend.token, "")) for _ in range(2)
        ]
        tasks = [asyncio.create_task(each.thread(work)) for each in (one, two) * 20]
        while len(began) < visits.THREADS_OF_USER:
            await asyncio.sleep(0.01)
        other = Visit(Credentials("other", "", ""), backend, threads)
        assert await other.thread(lambda: len(began)) == visits.THREADS_OF_USER
        free.set()
        await asyncio.gather(*tasks)

    backend = Embedded([policy], state)
    with contextlib.closing(backend), ThreadPoolExecutor(2 * visits.THREADS_OF_USER) as threads:
        asyncio.run(crowd())
