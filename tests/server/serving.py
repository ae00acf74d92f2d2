"""A server for tests: the survey of 1988 with a large budget, in this process, on a free port."""

import asyncio
import contextlib
import threading
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from proxy.engine import init
from proxy.policy import scram_verifier
from proxy.server.mirror import Limits
from proxy.server.serve import Options, Server

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


def prepare(folder, budget="1000", datasets=("cps1988",)):
    """Make policies, users and states in a folder; bob may see the first dataset only."""
    for dataset in datasets:
        text = (ROOT / "policies" / f"{dataset}.yaml").read_text()
        text = text.replace("../examples/", f"{ROOT}/examples/")
        text = text.replace("budget: 1.0", f"budget: {budget}").replace(
            "  alice: {budget: 0.5}\n", ""
        )
        (folder / f"{dataset}.yaml").write_text(text)
        init(folder / f"{dataset}.yaml", folder / "state")
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

    server: Server
    loop: asyncio.AbstractEventLoop
    folder: Path
    host: str = "127.0.0.1"
    opened: list = field(default_factory=list)

    @property
    def port(self):
        return self.server.port

    def dsn(self, user="alice", dataset="cps1988", **more):
        return psycopg.conninfo.make_conninfo(
            host=self.host,
            port=self.port,
            user=user,
            password=password(user),
            dbname=dataset,
            **more,
        )

    def connect(self, user="alice", dataset="cps1988", autocommit=True, **more):
        return psycopg.connect(self.dsn(user, dataset, **more), autocommit=autocommit)

    def environment(self, user="alice", dataset="cps1988"):
        return {
            "PGHOST": self.host,
            "PGPORT": str(self.port),
            "PGUSER": user,
            "PGPASSWORD": password(user),
            "PGDATABASE": dataset,
        }

    def engine(self, dataset="cps1988"):
        return self.server._engines[dataset]


@contextlib.contextmanager
def running(folder, **options):
    """Run a server over what ``prepare`` made."""
    limits = options.pop("limits", Limits(connections=50))
    server = Server(
        [folder], Options(port=0, state=folder / "state", limits=limits, metrics_port=0, **options)
    )
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(60)
        try:
            yield Running(server, loop, folder)
        finally:
            asyncio.run_coroutine_threadsafe(server.stop(), loop).result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
