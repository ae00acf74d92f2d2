"""Who asks a statement: whose budget it takes, with which settings, and whether it is to go on."""

from __future__ import annotations

from fractions import Fraction

from proxy.engine.bill import Bill
from proxy.errors import QueryCanceledError
from proxy.ledger import Protection
from proxy.policy import Policy, Users
from proxy.privileges import Privileges
from proxy.settings import MAX_COST, UTILITY, Settings, Wishes
from proxy.sql.program import Program


class Asker:
    """One user with settings, whose statements run one at a time."""

    def __init__(
        self,
        policy: Policy,
        user: str,
        users: Users | None,
        privileges: Privileges,
        settings: Settings,
    ) -> None:
        self._policy = policy
        self.user = user
        self.users = users  # the file that says what they may
        self.privileges = privileges
        self.settings = settings
        self.agreed: Protection | None = None  # the ledger's, with which the users file agrees
        self.bill: Bill | None = None  # of the statement that runs
        self._canceled = False

    def cancel(self) -> None:
        """Stop the running statement, from another thread, unless it is committed already."""
        self._canceled = True

    def check_canceled(self) -> None:
        """Raise if the running statement was canceled."""
        if self._canceled:
            raise QueryCanceledError("canceling statement due to user request")

    def wishes(self) -> Wishes:
        """Return the session's own defaults: SET privacy.utility, or those it was opened with."""
        chosen: Wishes = self.settings.value(UTILITY)
        chosen.check(self._policy)
        return chosen

    def limit(self, program: Program) -> Fraction | None:
        """Return the most alpha that a statement may cost: what it says, or SET privacy.max_cost.

        The lesser holds, so that no text passes what a session was given.
        """
        limits = (self.settings.value(MAX_COST), program.max_cost)
        return min((limit for limit in limits if limit is not None), default=None)
