"""Privileges: what a user may do, see and spend, and which history serves them.

Roles come from ``users.yaml`` beside the policy: analysts query, and see what they were told;
auditors see everybody's statements; stewards see budgets and change policies.  A session that
names no user has all roles: the embedded connection has the data in its own process and is no
boundary against whoever runs it; one that names a user takes that user's place.

Invariant: the shares of the histories in every budget add up to 1, and what a session is refused
or shown depends on the statements of its own history only; and on what another history had spent
beyond its share when the policy gave it that share, which no statement of it moves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from msgspec import Struct

from proxy.errors import InsufficientPrivilegeError
from proxy.ledger import SHARED
from proxy.policy import Analyst, Policy, Users, Utility, load_users
from proxy.policy.weaker import UNLISTED

ANALYST, STEWARD, AUDITOR = "analyst", "steward", "auditor"
ALL = frozenset({ANALYST, STEWARD, AUDITOR})
OWN = "own:"  # begins the name of an analyst's own history
GROUP = "@"  # begins the name of a group in it

MEANING = {
    ANALYST: "may ask about the data",
    STEWARD: "may change policies",
    AUDITOR: "may see the statements of others",
}


class Cap(Struct, frozen=True):
    """A limit on what the statements of some users spend together, alpha of a row."""

    name: str
    budget: Fraction
    users: tuple[str, ...]
    group: str | None = None  # whose members they are


class Privileges(Struct, frozen=True):
    """What a user may do, see and spend."""

    user: str
    roles: frozenset[str] = ALL
    history: str = SHARED  # the name of the history that serves them
    share: Fraction = Fraction(1)  # of every budget, set aside for this history
    apart: Mapping[str, str] = {}  # users whom another than SHARED serves
    spend: bool = True
    caps: tuple[Cap, ...] = ()
    utility: Utility | None = None

    def require(self, role: str) -> None:
        """Require a role of the user.

        Raises:
            InsufficientPrivilegeError: the user does not have the role.
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

    def history_of(self, user: str) -> str:
        """Return the name of the history that serves a user."""
        return self.apart.get(user, SHARED)


def users_of(policy: Policy) -> Users | None:
    """Return the users file beside a policy, if there is one."""
    path = Path(policy.path).with_name("users.yaml")
    return load_users(path) if path.exists() else None


def privileges_of(policy: Policy, users: Users | None, user: str) -> Privileges:
    """Return the privileges of a user in a dataset.

    Raises:
        InsufficientPrivilegeError: the user is not listed, or may not use the dataset.
    """
    listed = users.get(user) if users and user else None
    if user and users and listed is None and user not in policy.analysts:
        raise InsufficientPrivilegeError(
            f'there is no user "{user}"', hint=f"users are listed in {users.path.name}"
        )
    if listed and not listed.may_see(policy.dataset):
        raise InsufficientPrivilegeError(f'"{user}" may not use the dataset {policy.dataset}')
    history = _history(policy, users, user)
    names = {*policy.analysts, *(users.users if users else ())}
    served = {name: _history(policy, users, name) for name in sorted(names | {user} - {""})}
    return Privileges(
        user,
        listed.roles if listed else frozenset({ANALYST}) if user else ALL,
        history,
        share(policy, history),
        {name: each for name, each in served.items() if each != SHARED},
        all(limit.spend for _, limit in _limits(policy, users, user)),
        tuple(_caps(policy, users, user, served)),
        listed.utility if listed else None,
    )


def _limits(policy: Policy, users: Users | None, user: str) -> list[tuple[str, Analyst]]:
    """Return the policy's limits of an analyst, and of the groups that they are in."""
    listed = users.get(user) if users else None
    groups = [g for g in (listed.groups if listed else ()) if g in policy.groups]
    limits = [(user, policy.analysts[user])] if user in policy.analysts else []
    return limits + [(GROUP + group, policy.groups[group]) for group in groups]


def _history(policy: Policy, users: Users | None, user: str) -> str:
    """Return the history of a user: their own, their group's own, or the shared one."""
    limits = _limits(policy, users, user)
    for name, limit in limits:
        if limit.history == "own":
            return OWN + name
    if user and not limits and policy.privacy.history == "own":
        return OWN + user
    return SHARED


def _caps(
    policy: Policy, users: Users | None, user: str, served: Mapping[str, str]
) -> Iterator[Cap]:
    """Yield the caps that ration what a user spends; within an own history, only the user's own."""
    rows = policy.privacy.unit.max_rows  # a unit pays for each of them
    for name, limit in _limits(policy, users, user):
        if limit.budget is None or limit.history != SHARED:
            continue
        if name == user:
            yield Cap(f"analyst {user}", limit.budget / rows, (user,))
        elif served.get(user, SHARED) == SHARED:
            group = name.removeprefix(GROUP)
            members = _members(users, group, served)
            yield Cap(f"group {group}", limit.budget / rows, members, group)


def _members(users: Users | None, group: str, served: Mapping[str, str]) -> tuple[str, ...]:
    """Return the members of a group who spend in the shared history."""
    everyone = users.users.items() if users else ()
    return tuple(n for n, user in everyone if group in user.groups and served[n] == SHARED)


def access(policy: Policy, users: Users | None) -> dict[str, dict[str, Any]]:
    """Return the privileges of every user as JSON, by name; of a user not listed, by ``*``."""
    names = {*policy.analysts, UNLISTED}
    names |= {n for n, u in (users.users if users else {}).items() if u.may_see(policy.dataset)}
    privileges = {name: _access(policy, users, name) for name in sorted(names)}
    privileges[UNLISTED]["refused"] = users is not None
    return privileges


def _access(policy: Policy, users: Users | None, user: str) -> dict[str, Any]:
    """Return the privileges of one user as JSON."""
    listed = users.get(user) if users else None
    limits = _limits(policy, users, user)
    history = _history(policy, users, user)
    own = None if history == SHARED else str(share(policy, history) * policy.privacy.budget)
    caps = {n: str(c.budget) for n, c in limits if c.budget is not None and c.history == SHARED}
    return {
        "roles": sorted(listed.roles) if listed else [ANALYST],
        "groups": sorted(listed.groups) if listed else [],
        "history": "own" if history == OWN + user else history,
        "own": own,  # alpha that is set aside, None in the shared history
        "caps": caps,
        "spend": all(limit.spend for _, limit in limits),
    }


def histories(policy: Policy) -> list[str]:
    """Return the names of the histories that a policy gives a budget."""
    own = [name for name, limit in policy.analysts.items() if limit.history == "own"]
    own += [GROUP + name for name, limit in policy.groups.items() if limit.history == "own"]
    return [SHARED, *(OWN + name for name in own)]


def share(policy: Policy, history: str) -> Fraction:
    """Return the part of every budget that is set aside for a history; the parts add up to 1."""
    if history == SHARED:
        budget = policy.shared_budget
    else:
        name = history.removeprefix(OWN)
        if name.startswith(GROUP):
            limit = policy.groups.get(name.removeprefix(GROUP))
        else:
            limit = policy.analysts.get(name)
        own = limit is not None and limit.history == "own"
        budget = (limit.budget if limit and own else None) or Fraction(0)
    return budget / policy.privacy.budget
