"""The state of one statement being bound, and the two ways back into the recursion.

Every part of ``bind`` takes a ``Binding``; ``query.Binder`` alone knows how queries and the items
of FROM are bound, and so ties the recursion of subqueries once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from sqlglot import exp

from proxy.errors import StatementTooComplexError
from proxy.policy import Policy
from proxy.sql import types
from proxy.sql.bind.relations import BoundQuery, Cte, ProtectedRows, Relation, Scope
from proxy.sql.compile.coefficients import Coefficients
from proxy.sql.compile.columns import Axis, MeasureColumn, PerBranch, Public, at_branch
from proxy.sql.compile.groups import Key
from proxy.sql.compile.release_point import ReleasePoint
from proxy.sql.evaluator.evaluator import Evaluator
from proxy.sql.expression.typed import TypedSql
from proxy.sql.parse.tree import conjuncts
from proxy.sql.program import Cell, Derived

MAX_POINTS = 200


class Mark(NamedTuple):
    """How much was bound at some time."""

    points: int
    withs: int
    derived: int
    notices: int
    ctes: int
    systems: dict[str, str]
    reads_protected: int


class Chosen(NamedTuple):
    """A result that chooses rows, as constants; what must be released for it first."""

    bound: BoundQuery
    first: dict[str, tuple[Binding, BoundQuery]]
    max_cost: Fraction | None


@dataclass
class Binding(ABC):
    """One statement being bound: its release points, and the WITH definitions of its SQL."""

    policy: Policy
    evaluator: Evaluator
    text: str
    hide_empty: bool = False
    points: list[ReleasePoint] = field(default_factory=list)
    withs: list[str] = field(default_factory=list)  # WITH definitions, in order
    systems: dict[str, str] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)
    derived: list[Derived] = field(default_factory=list)
    max_cost: Fraction | None = None  # of the whole statement, alpha
    reads_protected: int = 0  # references to anything that is not public
    count: int = 0  # of generated names
    constants: int = 0  # constant expressions evaluated so far
    released: Mapping[str, Sequence[Sequence[Cell]]] | None = None  # results that choose rows
    first: dict[str, tuple[Binding, BoundQuery]] = field(default_factory=dict)  # to be released
    chosen: dict[str, Chosen] = field(default_factory=dict)  # by key, of the whole statement
    ctes: list[Cte] = field(default_factory=list)  # that are bound

    @abstractmethod
    def query(self, node: exp.Expr, scope: Scope) -> BoundQuery:
        """Return a bound query.

        Raises:
            NotSupportedError: its form is not supported.
        """

    @abstractmethod
    def apart(self) -> Binding:
        """Return a binding of another statement under the same policy."""

    @abstractmethod
    def source(self, node: exp.Expr, scope: Scope) -> tuple[str, ProtectedRows | Relation]:
        """Return the name and the meaning of an item of FROM."""

    @cached_property
    def coefficients(self) -> Coefficients:
        """Expressions over the policy's domain."""
        return Coefficients(self.policy.domain, self.evaluator, self.notices)

    def add(
        self, where: tuple[exp.Expr, ...], keys: Sequence[Key], grouped: bool, branches: int
    ) -> ReleasePoint:
        """Return a new release point.

        Raises:
            StatementTooComplexError: there are too many.
        """
        if len(self.points) == MAX_POINTS:
            raise StatementTooComplexError(f"the statement has more than {MAX_POINTS} aggregations")
        point = ReleasePoint(
            len(self.points), self.coefficients, where, tuple(keys), grouped, branches
        )
        self.points.append(point)
        self.reads_protected += 1
        return point

    def mark(self) -> Mark:
        """Return where the binding is, to come back to."""
        return Mark(
            len(self.points), len(self.withs), len(self.derived), len(self.notices),
            len(self.ctes), dict(self.systems), self.reads_protected,
        )  # fmt: skip

    def back_to(self, mark: Mark) -> None:
        """Forget what was bound since."""
        del self.points[mark.points :], self.withs[mark.withs :], self.derived[mark.derived :]
        del self.notices[mark.notices :]
        for cte in self.ctes[mark.ctes :]:
            cte.relation = None
        del self.ctes[mark.ctes :]
        self.systems = dict(mark.systems)
        self.reads_protected = mark.reads_protected

    def limit(self, cost: Fraction | None) -> None:
        """Let the statement cost no more than this, if it is less than what was said before."""
        self.max_cost = min((x for x in (self.max_cost, cost) if x is not None), default=None)

    def never(self, where: Iterable[exp.Expr]) -> bool:
        """Return whether one of these conditions is constant and never true."""
        parts = [part for conjunct in where for part in conjuncts(conjunct)]
        fixed = [p for p in parts if not p.find(Axis, MeasureColumn, Public, PerBranch)]
        return any(not self.coefficients.indicator(p, "WHERE").array.any() for p in fixed)

    def kind_of(self, node: exp.Expr) -> TypedSql:
        """Return an empty column of the type of a column of protected rows."""
        node = at_branch(node, 0)
        kind = self.coefficients.kind(node)
        kind = "text" if kind == "unknown" else kind
        return TypedSql(types.literal(kind, None), kind)

    def fresh(self, letter: str) -> str:
        """Return an unused name."""
        self.count += 1
        return f"{letter}{self.count}"
