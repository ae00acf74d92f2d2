"""A running proxy as an engine: what ``proxy.connect("postgresql://…")`` talks to, over psycopg.

A session sends texts with literals, as the embedded one compiles them, so that both mean the same;
the answers come beside the rows, as JSON in the DETAIL of a notice, and an error comes back as the
leaf of the PEP 249 tree that the engine raised.  Nothing is computed here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus as Status

import proxy.errors as errors
from proxy.engine.answers import Answer, Explanation, Origin, Posterior, Result
from proxy.errors import Error, InsufficientBudgetError, NotSupportedError, SQLSyntaxError
from proxy.settings import ANSWERS, MAX_COST, UTILITY, Settings, given
from proxy.sql.parse import grammar as language
from proxy.sql.parse.first_word import first_word
from proxy.sql.parse.parameters import bind_parameters
from proxy.sql.program import Column

NAMES = {  # PostgreSQL's short names of types, in ours
    "int2": "smallint",
    "int4": "integer",
    "int8": "bigint",
    "float4": "real",
    "float8": "double precision",
    "bool": "boolean",
    "varchar": "text",
    "name": "text",
}
AMOUNTS = re.compile(r"requested (\S+), spent (\S+), left (\S+)")


class Remote:
    """A proxy at the other end of a wire."""

    policy = None  # which the proxy keeps to itself

    def __init__(self, url: str) -> None:
        self._url = url
        self._connections: list[psycopg.Connection] = []

    def session(
        self,
        user: str | None = None,
        utility: tuple[float, float] | str | None = None,
        dialect: str = "postgres",
        max_cost: float | str | None = None,
    ) -> RemoteSession:
        """Return a new session; it logs in.

        Raises:
            OperationalError, ProgrammingError: there is no proxy, or it does not let us in.
            UtilityError: the utility or the limit on the cost makes no sense.
        """
        if dialect != "postgres":
            raise NotSupportedError(
                f"the dialect {dialect} is not supported by a running proxy",
                hint="leave out dialect=, and write PostgreSQL's",
            )
        wish = None if utility is None else given(utility)
        most = Settings(cost=max_cost).text(MAX_COST)
        with translated():
            known = conninfo_to_dict(self._url)
            options = f"{known.get('options') or ''} -c {ANSWERS}=on"
            if wish is not None:
                options += f" -c {UTILITY}={_escaped(str(wish))}"
            if most:
                options += f" -c {MAX_COST}={_escaped(most)}"
            more = {"user": user} if user else {}
            conninfo = make_conninfo(self._url, options=options.strip(), **more)
            connection = psycopg.connect(conninfo, autocommit=True)
        self._connections.append(connection)
        return RemoteSession(connection)

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections:
            connection.close()


class RemoteSession:
    """One connection to a proxy."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection
        self._notices: list[tuple[str, str | None]] = []
        connection.add_notice_handler(
            lambda notice: self._notices.append(
                (notice.message_primary or "", notice.message_detail)
            )
        )

    def execute(self, text: str, parameters: Any = None) -> Result:
        """Run one statement."""
        if parameters is not None:
            text = bind_parameters(text, parameters)
        _check_one(text)
        if first_word(text, ";") == "COPY":  # its rows would be read by nobody, and be paid for
            raise NotSupportedError("COPY is not supported here", hint="run its query itself")
        self._notices.clear()
        with translated():
            cursor = self._connection.execute(text.encode())
            rows = cursor.fetchall() if cursor.description else []
        columns = tuple(
            Column(column.name, NAMES.get(column.type_display, column.type_display))
            for column in cursor.description or ()
        )
        return self._result(columns, rows, cursor.statusmessage or "")

    def execute_script(self, text: str) -> list[Result]:
        """Run the statements of a text, one after the other."""
        return [self.execute(each) for each in language.split(text)]

    def _result(self, columns: tuple[Column, ...], rows: list[tuple[Any, ...]], tag: str) -> Result:
        """Return a result with what the notices said of it."""
        said: dict[str, Any] = {}
        plain = []
        for message, detail in self._notices:
            if detail is not None and detail.startswith('{"answers":'):
                said = json.loads(detail)
            elif not message.startswith("privacy: "):
                plain.append(message)
        if not columns:  # of a cursor that was opened: its rows come later, without their answers
            said |= {"answers": [], "places": [], "explanations": []}
        answers = [
            [_answer(each) for each in row] for row in said.get("answers", [[] for _ in rows])
        ]
        return Result(
            columns,
            rows,
            answers,
            float(said.get("cost", 0.0)),
            float(said.get("left", "nan")),
            tuple(plain),
            tag,
            said.get("places", [[] for _ in rows]),
            str(said.get("left_of", "")),
            int(said.get("numbers", 0)),
            int(said.get("measured", 0)),
            explanations=[
                [each and _explanation(each) for each in row]
                for row in said.get("explanations", [])
            ],
        )

    @property
    def in_transaction(self) -> bool:
        """Whether a BEGIN has no end yet."""
        return self._connection.info.transaction_status in (Status.INTRANS, Status.INERROR)

    def cancel(self) -> None:
        """Stop the running statement, from another thread, unless it is committed already."""
        with suppress(psycopg.Error):  # it has ended, or the proxy is gone: nothing to stop
            self._connection.cancel_safe(timeout=5)

    def close(self) -> None:
        """Log out."""
        self._connection.close()


def _answer(told: dict[str, Any]) -> Answer:
    """Return an answer as it was sent; NaN and infinity are texts there."""
    return Answer(
        estimate=float(told["estimate"]),
        low=float(told["low"]),
        high=float(told["high"]),
        confidence=float(told["confidence"]),
        source=str(told["source"]),
        cost=float(told["cost"]),
    )


def _explanation(told: dict[str, Any]) -> Explanation:
    """Return an explanation as it was sent."""
    posterior = told["posterior"]
    return Explanation(
        Posterior(
            values=tuple(map(float, posterior["values"])),
            below=tuple(map(float, posterior["below"])),
            zero=float(posterior["zero"]),
            step=float(posterior["step"]),
        ),
        tuple(_origin(each) for each in told["origins"]),
    )


def _origin(told: dict[str, Any]) -> Origin:
    """Return an origin as it was sent: a time is a text there."""
    time, weights = told["time"], told["weights"]
    return Origin(
        kind=str(told["kind"]),
        numbers=int(told["numbers"]),
        share=float(told["share"]),
        statement=told["statement"],
        time=datetime.fromisoformat(time) if time else None,
        sequence=told["sequence"],
        weights=(float(weights[0]), float(weights[1])) if weights else None,
    )


def _escaped(value: str) -> str:
    """Return a value as libpq's options take it."""
    return re.sub(r"([\\\s])", r"\\\1", value)


def _check_one(text: str) -> None:
    """Raise if a text is several statements; what it is otherwise, the proxy says."""
    try:
        several = ";" in text and len(language.split(text)) > 1
    except Error:
        return
    if several:
        raise SQLSyntaxError("expected one statement")


@contextmanager
def translated() -> Iterator[None]:
    """Raise the errors of the driver as ours."""
    try:
        yield
    except psycopg.Error as error:
        raise ours(error) from error


def ours(error: psycopg.Error) -> Error:
    """Return the error of our tree that a server's error was."""
    told = error.diag
    message, detail = told.message_primary or str(error).strip(), told.message_detail
    amounts = AMOUNTS.fullmatch(detail or "")
    if error.sqlstate == InsufficientBudgetError.sqlstate and amounts:
        requested, spent, left = map(float, amounts.groups())
        return InsufficientBudgetError(
            message, requested=requested, spent=spent, left=left, hint=told.message_hint
        )
    position = int(told.statement_position) if told.statement_position else None
    found = _class(error)(message, detail=detail, hint=told.message_hint, position=position)
    if isinstance(found, errors.DataError) and error.sqlstate:
        found.sqlstate = error.sqlstate
    return found


def _class(error: psycopg.Error) -> type[Error]:
    """Return the leaf with the SQLSTATE, or else the class of PEP 249 with the same name."""
    if error.sqlstate:
        for leaf in _leaves(errors.DatabaseError):
            known = leaf.__dict__.get("sqlstate")
            if known == error.sqlstate and leaf not in (
                InsufficientBudgetError,
                errors.PolicyError,
            ):
                return leaf
    for base in type(error).__mro__:
        found = getattr(errors, base.__name__, None)
        if isinstance(found, type) and issubclass(found, Error):
            return found
    return errors.DatabaseError


def _leaves(tree: type[Error]) -> Iterator[type[Error]]:
    for branch in tree.__subclasses__():
        yield from _leaves(branch)
        yield branch
