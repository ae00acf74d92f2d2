"""What a data steward does to a dataset's state, and sees of it."""

from proxy.cube import Report
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
from proxy.steward.recovery import RestoreReport, backup, restore
from proxy.steward.snapshots import RebuildReport, open_cube

__all__ = [
    "ApplyReport",
    "ChangedPolicyError",
    "CheckReport",
    "GuardReport",
    "RebuildReport",
    "Report",
    "RestoreReport",
    "apply",
    "arranged",
    "audit",
    "backup",
    "check",
    "guards",
    "init",
    "ledger_in_force",
    "open_cube",
    "rebuild",
    "restore",
    "same_policy",
    "take_users",
    "upgrade",
    "verify",
]
