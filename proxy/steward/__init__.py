"""What a data steward does to a dataset's state, and sees of it."""

from proxy.cube import Report, Rule
from proxy.steward.changes import (
    ApplyReport,
    ChangedPolicyError,
    apply,
    arranged,
    init,
    rebuild,
    same_policy,
    take_users,
    upgrade,
)
from proxy.steward.inspection import (
    CheckReport,
    GuardReport,
    audit,
    check,
    guards,
    ledger_in_force,
    verify,
)
from proxy.steward.loading import loaded
from proxy.steward.people import Person, people
from proxy.steward.prices import Price
from proxy.steward.recovery import RestoreReport, backup, restore
from proxy.steward.snapshots import RebuildReport, open_cube

__all__ = [
    "ApplyReport",
    "ChangedPolicyError",
    "CheckReport",
    "GuardReport",
    "Person",
    "Price",
    "RebuildReport",
    "Report",
    "RestoreReport",
    "Rule",
    "apply",
    "arranged",
    "audit",
    "backup",
    "check",
    "guards",
    "init",
    "ledger_in_force",
    "loaded",
    "open_cube",
    "people",
    "rebuild",
    "restore",
    "same_policy",
    "take_users",
    "upgrade",
    "verify",
]
