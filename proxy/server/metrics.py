"""What operators see: metrics in Prometheus' text format, and whether the server is well.

    GET /metrics    counters, gauges and times; ``serve`` sets them
    GET /health     200: the server is alive, its loop answers
    GET /ready      200 if every dataset can be asked, else 503; its parts in JSON

Invariant: no label holds a text of a client, save the names of users and datasets, which
are those of files.  What only grows begins at 0, for every value that its labels can have.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
PLAIN = "text/plain; charset=utf-8"
Parts = Mapping[str, Mapping[str, str]]  # by dataset and part
Ready = Callable[[Parts], bool]
OUTCOMES = ("measured", "inferred", "public", "refused", "canceled", "failed")
SOURCES = ("measured", "inferred")


class Metrics:
    """The metrics of one server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        gauge = partial(Gauge, namespace="privacy_proxy", registry=self.registry)
        counter = partial(Counter, namespace="privacy_proxy", registry=self.registry)
        self.connections = gauge("connections", "Sessions that are open.")
        self.mirrors_up = gauge("mirrors_up", "Mirrors that take connections.")
        self.ready = gauge("ready", "Parts of a dataset: 1 is well, 0 is not.", ["dataset", "part"])
        self.waiting = gauge("waiting", "Statements that wait for their turn.")
        self.workers = gauge("workers", "Worker processes, by what they do.", ["state"])
        self.planners = gauge("planners", "Planner processes, by what they do.", ["state"])
        self.policies_broken = gauge("policies_broken", "Policies that are not served as they are.")
        self.logins = counter("logins", "Logins by outcome.", ["outcome"])
        self.reloads = counter("reloads", "Readings of changed files, by outcome.", ["outcome"])
        self.statements = counter(
            "statements", f"Statements by outcome: {', '.join(OUTCOMES)}.", ["dataset", "outcome"]
        )
        self.numbers = counter(
            "numbers",
            f"Numbers of statements that were answered, by source: {', '.join(SOURCES)}.",
            ["dataset", "user", "source"],
        )
        self.cost = counter("cost", "What statements cost, in alpha.", ["dataset"], unit="nats")
        self.budget = gauge("budget", "Budget of the policy, in alpha.", ["dataset"], unit="nats")
        left = "What is left in the cell that has least, by history, in alpha."
        self.budget_left = gauge("budget_left", left, ["dataset", "history"], unit="nats")
        self.statement_duration = Histogram(
            "statement_duration_seconds",
            "Time from a statement to its answer.",
            namespace="privacy_proxy",
            buckets=BUCKETS,
            registry=self.registry,
        )
        for outcome in ("accepted", "failed", "dropped"):
            self.logins.labels(outcome)
        for outcome in ("done", "failed"):
            self.reloads.labels(outcome)

    def show_parts(self, datasets: Mapping[str, Mapping[str, str]]) -> None:
        """Show which parts of each dataset are well."""
        self.ready.clear()
        for name, parts in datasets.items():
            for part, state in parts.items():
                self.ready.labels(name, part).set(state == "ok")

    def keep_datasets(self, names: Iterable[str]) -> None:
        """Remove the gauges of datasets that are served no longer; counters stay."""
        kept = set(names)
        for gauge in (self.budget, self.budget_left, self.ready):
            for sample in [each for family in gauge.collect() for each in family.samples]:
                if sample.labels["dataset"] not in kept:
                    gauge.remove(*sample.labels.values())

    def add_dataset(self, name: str, budget: float, users: Iterable[str]) -> None:
        """Show a dataset's budget, and its counters from 0, without which rates miss the first.

        ``users`` are those who may see it.
        """
        self.budget.labels(name).set(budget)
        self.cost.labels(name)
        for outcome in OUTCOMES:
            self.statements.labels(name, outcome)
        for user in users:
            for source in SOURCES:
                self.numbers.labels(name, user, source)


async def serve(
    host: str, port: int, metrics: Metrics, datasets: Callable[[], Awaitable[Parts]], ready: Ready
) -> asyncio.Server:
    """Bind a port of this host for HTTP GET; the caller begins to serve.

    ``datasets`` says what their parts are, and ``ready`` whether that is well.
    """

    async def page(path: bytes) -> tuple[str, str, str]:
        if path == b"/health":
            return "200 OK", PLAIN, "ok\n"
        if path == b"/ready":
            parts = await datasets()
            status = "200 OK" if ready(parts) else "503 Service Unavailable"
            return status, "application/json", json.dumps(parts) + "\n"
        if path == b"/metrics":
            await datasets()
            return "200 OK", CONTENT_TYPE_LATEST, generate_latest(metrics.registry).decode()
        return "404 Not Found", PLAIN, "there are /metrics, /health and /ready\n"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(5):
                request = (await reader.readline()).split()
                while (await reader.readline()).strip():
                    pass
            path = request[1] if len(request) > 1 and request[0] == b"GET" else b""
            status, kind, body = await page(path)
            head = f"HTTP/1.0 {status}\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n"
            writer.write((head + body).encode())
            await writer.drain()
        except (TimeoutError, ConnectionError, ValueError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    return await asyncio.start_server(answer, host, port, limit=8192, start_serving=False)
