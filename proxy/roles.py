"""Who a session is for: what its user may do, see and spend, and which history serves it.

Roles come from ``users.yaml`` beside the policy: analysts query, and see what they were told;
auditors see everybody's statements; stewards see budgets and change policies.  Where there is no
such file, or a session names no user, whoever runs the process has all roles: the embedded
connection has the data in its own process and is no boundary against that person.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from proxy.errors import InsufficientPrivilegeError, PolicyError
from proxy.ledger import SHARED
from proxy.policy import Analyst, Policy, Users, Utility, load_users

ANALYST, STEWARD, AUDITOR = "analyst", "steward", "auditor"
ALL = frozenset({ANALYST, STEWARD, AUDITOR})
OWN = "own:"  # begins the name of an analyst's own history
GROUP = "@"  # begins the name of a group in it

MEANING = {
    ANALYST: "may ask about the data",
    STEWARD: "may change policies",
    AUDITOR: "may see the statements of others",
}


@dataclass(frozen=True)
class Cap:
    """A limit on what the statements of some users spend together, alpha."""

    name: str
    budget: Fraction
    users: tuple[str, ...]


@dataclass(frozen=True)
class Standing:
    """What a user may do, see and spend."""

    user: str
    roles: frozenset[str] = ALL
    history: str = SHARED  # the name of the history that serves them
    members: tuple[str, ...] = ()  # whose statements that history serves, where it is an own one
    spend: bool = True
    caps: tuple[Cap, ...] = ()
    utility: Utility | None = None

    def require(self, role: str) -> None:
        """Refuse what needs a role that the user has not.

        Raises:
            InsufficientPrivilegeError: the user has not the role.
        """
        if role not in self.roles:
            raise InsufficientPrivilegeError(
                f"{self.user or 'this user'} is no {role}",
                hint=f"whoever has the role {role} in users.yaml {MEANING[role]}",
            )

    @property
    def sees(self) -> str | None:
        """Whose statements the user may see: None for everybody's."""
        return None if AUDITOR in self.roles else self.user


def users_of(policy: Policy) -> Users | None:
    """Return the users file beside a policy, if there is one."""
    path = Path(policy.path).with_name("users.yaml")
    return load_users(path) if path.exists() else None


def standing(policy: Policy, users: Users | None, user: str) -> Standing:
    """Return the standing of a user in a dataset.

    Raises:
        InsufficientPrivilegeError: nobody knows the user, or the dataset is not open to them.
    """
    known = users.get(user) if users and user else None
    if user and users and known is None and user not in policy.analysts:
        raise InsufficientPrivilegeError(
            f'there is no user "{user}"', hint=f"users are listed in {users.path.name}"
        )
    if known and not known.may_see(policy.dataset):
        raise InsufficientPrivilegeError(f'"{user}" may not use the dataset {policy.dataset}')
    groups = [g for g in (known.groups if known else ()) if g in policy.groups]
    limits = [(user, policy.analysts[user])] if user in policy.analysts else []
    limits += [(GROUP + group, policy.groups[group]) for group in groups]
    history = _history(policy, user, limits)
    caps = []
    for name, limit in limits:
        if limit.budget is not None and limit.history == SHARED:
            members = (user,) if name == user else _members(users, name.removeprefix(GROUP))
            what = f"analyst {user}" if name == user else f"group {name.removeprefix(GROUP)}"
            caps.append(Cap(what, limit.budget, members))
    return Standing(
        user,
        known.roles if known else ALL if not user or not users else frozenset({ANALYST}),
        history,
        _members(users, history.removeprefix(OWN + GROUP))
        if history.startswith(OWN + GROUP)
        else (user,),
        all(limit.spend for _, limit in limits),
        tuple(caps),
        known.utility if known else None,
    )


def _history(policy: Policy, user: str, limits: list[tuple[str, Analyst]]) -> str:
    """Return the history of a user: their own, their group's own, or the shared one."""
    for name, limit in limits:
        if limit.history == "own":
            return OWN + name
    if user and not limits and policy.privacy.history == "own":
        return OWN + user
    return SHARED


def _members(users: Users | None, group: str) -> tuple[str, ...]:
    if users is None:
        return ()
    return tuple(name for name, user in users.users.items() if group in user.groups)


def budget_of(policy: Policy, history: str) -> Fraction:
    """Return what the cells may pay in one history, alpha."""
    if history == SHARED:
        return policy.shared_budget
    name = history.removeprefix(OWN)
    if name.startswith(GROUP):
        return policy.groups[name.removeprefix(GROUP)].budget or Fraction(0)
    limit = policy.analysts.get(name)
    return (limit.budget if limit else None) or Fraction(0)


def honoured(policy: Policy) -> None:
    """Refuse what a policy asks for and nothing here does yet.

    Raises:
        PolicyError: the policy has such a key.
    """
    if policy.partition is not None:
        raise PolicyError(
            "partitions are not supported yet", file=str(policy.path), key="partition"
        )
    if policy.source.engine != "duckdb":
        raise PolicyError(
            f"the engine {policy.source.engine} is not supported yet; duckdb is",
            file=str(policy.path),
            key="source.engine",
        )
