"""What operators see: metrics in Prometheus' text format, and whether the server is well.

    GET /metrics    counters, gauges and times; ``serve`` sets them
    GET /health     200 while every mirror takes connections, else 503

Invariant: no label holds a text of a client, save the names of users and datasets, which
are those of files.  What only grows begins at 0, for every value that its labels can have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
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
    host: str, port: int, metrics: Metrics, healthy: Callable[[], Awaitable[bool]]
) -> asyncio.Server:
    """Answer HTTP GET on a port of this host."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(5):
                request = (await reader.readline()).split()
                while (await reader.readline()).strip():
                    pass
            path = request[1] if len(request) > 1 and request[0] == b"GET" else b""
            well = await healthy() if path in (b"/metrics", b"/health") else False
            if path == b"/metrics":
                status, body = "200 OK", generate_latest(metrics.registry).decode()
            elif path == b"/health":
                status, body = ("200 OK", "ok\n") if well else ("503 Service Unavailable", "ill\n")
            else:
                status, body = "404 Not Found", "there are /metrics and /health\n"
            kind = CONTENT_TYPE_LATEST
            head = f"HTTP/1.0 {status}\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n"
            writer.write((head + body).encode())
            await writer.drain()
        except (TimeoutError, ConnectionError, ValueError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    return await asyncio.start_server(answer, host, port, limit=8192)
