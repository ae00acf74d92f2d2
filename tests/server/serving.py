"""Servers for tests, over the survey of 1988: in a process of their own, or in this one."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psycopg

from proxy.engine import init
from proxy.policy import scram_verifier
from proxy.server.limits import Limits
from proxy.server.serve import Options, Server
from tests.loops import loop_in_thread
from tests.server import forked, templates

ROOT = Path(__file__).parents[2]
PEOPLE = {"alice": "analyst", "bob": "analyst", "sam": "steward"}
COUNT = "SELECT COUNT(*) AS n FROM cps1988 WITH UTILITY (500, 0.05)"
REGIONS = (
    "SELECT region, COUNT(*) AS n FROM cps1988 GROUP BY region ORDER BY region "
    "WITH UTILITY (500, 0.05)"
)
NAMES = ["midwest", "northeast", "south", "west"]


def password(user):
    return f"{user}'s secret"


def prepare(folder, budget="2", datasets=("cps1988",)):
    """Put policies, users and states into a folder; bob may see the first dataset only."""
    shutil.copytree(_prepared(budget, datasets).name, folder, dirs_exist_ok=True)


@cache
def _prepared(budget, datasets):
    """Return a folder of which copies are taken, so that each state is made once."""
    kept = tempfile.TemporaryDirectory(prefix="prepared-")
    folder = Path(kept.name)
    for dataset in datasets:
        text = (ROOT / "policies" / f"{dataset}.yaml").read_text()
        text = text.replace("../examples/", "")  # whose place beside the policy is protected
        shutil.copy(ROOT / "examples" / f"{dataset}.csv.gz", folder)
        text = text.replace("budget: 1.0", f"budget: {budget}").replace(
            "  alice: {budget: 0.5}\n", ""
        )
        (folder / f"{dataset}.yaml").write_text(text)
        init(folder / f"{dataset}.yaml", folder / "state")
    write_users(folder, datasets)
    return kept


def write_users(folder, datasets):
    """Write the users file; bob may see the first dataset only."""
    lines = ["users:"]
    for name, role in PEOPLE.items():
        lines.append(f"  {name}:")
        lines.append(f'    password: "{scram_verifier(password(name))}"')
        lines.append(f"    roles: [{role}]")
        if name == "bob":
            lines.append(f"    datasets: [{datasets[0]}]")
    (folder / "users.yaml").write_text("\n".join(lines) + "\n")


@dataclass
class Running:
    """A server that runs, and how to reach it."""

    port: int
    folder: Path
    metrics: int = 0
    process: forked.Process | None = None  # None: it runs in this process
    server: Server | None = None
    loop: asyncio.AbstractEventLoop | None = None
    host: str = "127.0.0.1"

    def dsn(self, user="alice", dataset="cps1988", **more):
        values = {"host": self.host, "port": self.port, "user": user, "dbname": dataset}
        return psycopg.conninfo.make_conninfo(**values | {"password": password(user)} | more)

    def url(self, user="alice", **change):
        parts = {"password": password(user), "dbname": "cps1988", **change}
        secret = parts["password"].replace(" ", "%20")
        return f"postgresql://{user}:{secret}@{self.host}:{self.port}/{parts['dbname']}"

    def connect(self, user="alice", dataset="cps1988", autocommit=True, **more):
        return psycopg.connect(self.dsn(user, dataset, **more), autocommit=autocommit)

    def environment(self, user="alice", dataset="cps1988"):
        return os.environ | {
            "PGHOST": self.host,
            "PGPORT": str(self.port),
            "PGUSER": user,
            "PGPASSWORD": password(user),
            "PGDATABASE": dataset,
        }


@contextlib.contextmanager
def spawned(folder, *options, whole=False):
    """Run the command ``serve`` in a process of its own; ``whole``: it starts its templates."""
    command = ["serve", folder, "--listen", "127.0.0.1:0", "--state", folder / "state"]
    ours, theirs = os.pipe()
    with open(ours) as log:
        try:
            lines = () if whole else templates.lines().values()
            options = [*command, "--metrics-port", "0", *options]
            process = forked.Process(options, 1, theirs, lines=lines)
        finally:
            os.close(theirs)
        try:
            lines = []
            for line in log:
                lines.append(line)
                if '"listening"' in line:
                    break
            else:
                raise AssertionError("".join(lines))
            told = json.loads(lines[-1])
            reader = threading.Thread(target=lambda: lines.extend(log), daemon=True)
            reader.start()
            running = Running(told["port"], folder, told["metrics_port"], process)
            running.log = lines
            yield running
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()
            process.wait()


@contextlib.contextmanager
def running(folder, **options):
    """Run a server in a thread of this process; only clients that wait in Python can reach it."""
    limits = options.pop("limits", Limits(connections=50))
    server = Server([folder], Options(port=0, state=folder / "state", limits=limits, **options))
    with loop_in_thread() as loop, templates.forked(templates.lines()):
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(60)
        try:
            yield Running(server.port, folder, server=server, loop=loop)
        finally:
            asyncio.run_coroutine_threadsafe(server.stop(), loop).result(60)
