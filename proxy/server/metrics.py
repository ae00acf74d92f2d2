"""What operators see: counters in Prometheus' text format, and whether the server is well.

    GET /metrics    the counters
    GET /health     200 while every mirror takes connections, else 503

Invariant: no label holds a text of a client, save the names of users and datasets.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
PREFIX = "privacy_proxy_"
HELP = {
    "connections": ("gauge", "Sessions that are open."),
    "mirrors_up": ("gauge", "Mirrors that take connections."),
    "policies_broken": ("gauge", "Policies that cannot be served, or not as they are now."),
    "logins_total": ("counter", "Logins by outcome."),
    "reloads_total": ("counter", "Readings of policies and users after the first, by outcome."),
    "statements_total": (
        "counter",
        "Statements that the engine ran: measured, inferred, public, refused, canceled, failed.",
    ),
    "cost_total": ("counter", "Privacy cost of what was measured, in alpha."),
    "budget": ("gauge", "Privacy budget of the policy, in alpha."),
    "budget_left": ("gauge", "What is left in the cell that has least, by history, in alpha."),
    "statement_seconds": ("histogram", "Time from a statement to its answer."),
}


class Metrics:
    """The counters of one server."""

    def __init__(self) -> None:
        self._values: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()
        self._times: Counter[float] = Counter()
        self._sum = 0.0
        self._count = 0

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Count."""
        self._values[name, tuple(sorted(labels.items()))] += amount  # type: ignore[assignment]

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        self._values[name, tuple(sorted(labels.items()))] = value  # type: ignore[assignment]

    def time(self, seconds: float) -> None:
        """Count one statement's time."""
        self._sum += seconds
        self._count += 1
        for bucket in BUCKETS:
            self._times[bucket] += seconds <= bucket

    def text(self) -> str:
        """Return all of them in Prometheus' text format."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterable[str]:
        for name, (kind, what) in HELP.items():
            yield f"# HELP {PREFIX}{name} {what}"
            yield f"# TYPE {PREFIX}{name} {kind}"
            if kind == "histogram":
                for bucket in BUCKETS:
                    yield f'{PREFIX}{name}_bucket{{le="{bucket:g}"}} {self._times[bucket]}'
                yield f'{PREFIX}{name}_bucket{{le="+Inf"}} {self._count}'
                yield f"{PREFIX}{name}_sum {self._sum:.6f}"
                yield f"{PREFIX}{name}_count {self._count}"
            for (mine, labels), value in sorted(self._values.items()):
                if mine == name:
                    yield f"{PREFIX}{name}{_labels(labels)} {value:.12g}"


def _labels(labels: tuple[tuple[str, str], ...]) -> str:
    if not labels:
        return ""
    escaped = (
        (key, value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n"))
        for key, value in labels
    )
    return "{" + ",".join(f'{key}="{value}"' for key, value in escaped) + "}"


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
                status, body = "200 OK", metrics.text()
            elif path == b"/health":
                status, body = ("200 OK", "ok\n") if well else ("503 Service Unavailable", "ill\n")
            else:
                status, body = "404 Not Found", "there are /metrics and /health\n"
            kind = "text/plain; version=0.0.4; charset=utf-8"
            head = f"HTTP/1.0 {status}\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n"
            writer.write((head + body).encode())
            await writer.drain()
        except (TimeoutError, ConnectionError, ValueError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    return await asyncio.start_server(answer, host, port, limit=8192)
