"""What a data steward does to a dataset's state, and sees of it."""

from proxy.cube import Report
from proxy.steward.acts import (
    ApplyReport,
    RebuildReport,
    RestoreReport,
    apply,
    backup,
    init,
    open_cube,
    other_policy,
    rebuild,
    restore,
)
from proxy.steward.looks import CheckReport, GuardReport, audit, check, guards, verify

__all__ = [
    "ApplyReport",
    "CheckReport",
    "GuardReport",
    "RebuildReport",
    "Report",
    "RestoreReport",
    "apply",
    "audit",
    "backup",
    "check",
    "guards",
    "init",
    "open_cube",
    "other_policy",
    "rebuild",
    "restore",
    "verify",
]
