"""What a data steward does to a dataset's state, and sees of it.

A name is imported when it is first used: who only asks waits for none of what makes and inspects.
"""

from typing import TYPE_CHECKING

from proxy.lazy import lazy

if TYPE_CHECKING:
    from proxy.cube import Report, Rule
    from proxy.steward.changes import (
        ApplyReport,
        ChangedPolicyError,
        apply,
        arranged,
        init,
        me,
        rebuild,
        same_policy,
        take_users,
        upgrade,
    )
    from proxy.steward.editing import Fault, Review, Text, adopt, review, text_of
    from proxy.steward.inspection import (
        CheckReport,
        GuardReport,
        audit,
        check,
        guards,
        ledger_in_force,
        sql_for,
        verify,
    )
    from proxy.steward.loading import loaded
    from proxy.steward.over_time import Curves, curves
    from proxy.steward.person import Person, people
    from proxy.steward.prices import Price
    from proxy.steward.recovery import RestoreReport, backup, restore
    from proxy.steward.snapshots import RebuildReport, cube_of, open_cube
    from proxy.steward.spent import HeatMap, LimitReport, Spending, in_steps, spending

__all__ = [
    "ApplyReport",
    "ChangedPolicyError",
    "CheckReport",
    "Curves",
    "Fault",
    "GuardReport",
    "HeatMap",
    "LimitReport",
    "Person",
    "Price",
    "RebuildReport",
    "Report",
    "RestoreReport",
    "Review",
    "Rule",
    "Spending",
    "Text",
    "adopt",
    "apply",
    "arranged",
    "audit",
    "backup",
    "check",
    "cube_of",
    "curves",
    "guards",
    "in_steps",
    "init",
    "ledger_in_force",
    "loaded",
    "me",
    "open_cube",
    "people",
    "rebuild",
    "restore",
    "review",
    "same_policy",
    "spending",
    "sql_for",
    "take_users",
    "text_of",
    "upgrade",
    "verify",
]

MODULES = {
    "ApplyReport": "proxy.steward.changes",
    "ChangedPolicyError": "proxy.steward.changes",
    "CheckReport": "proxy.steward.inspection",
    "Curves": "proxy.steward.over_time",
    "Fault": "proxy.steward.editing",
    "GuardReport": "proxy.steward.inspection",
    "HeatMap": "proxy.steward.spent",
    "LimitReport": "proxy.steward.spent",
    "Person": "proxy.steward.person",
    "Price": "proxy.steward.prices",
    "RebuildReport": "proxy.steward.snapshots",
    "Report": "proxy.cube",
    "RestoreReport": "proxy.steward.recovery",
    "Review": "proxy.steward.editing",
    "Rule": "proxy.cube",
    "Spending": "proxy.steward.spent",
    "Text": "proxy.steward.editing",
    "adopt": "proxy.steward.editing",
    "apply": "proxy.steward.changes",
    "arranged": "proxy.steward.changes",
    "audit": "proxy.steward.inspection",
    "backup": "proxy.steward.recovery",
    "check": "proxy.steward.inspection",
    "cube_of": "proxy.steward.snapshots",
    "curves": "proxy.steward.over_time",
    "guards": "proxy.steward.inspection",
    "in_steps": "proxy.steward.spent",
    "init": "proxy.steward.changes",
    "ledger_in_force": "proxy.steward.inspection",
    "loaded": "proxy.steward.loading",
    "me": "proxy.steward.changes",
    "open_cube": "proxy.steward.snapshots",
    "people": "proxy.steward.person",
    "rebuild": "proxy.steward.changes",
    "restore": "proxy.steward.recovery",
    "review": "proxy.steward.editing",
    "same_policy": "proxy.steward.changes",
    "spending": "proxy.steward.spent",
    "sql_for": "proxy.steward.inspection",
    "take_users": "proxy.steward.changes",
    "text_of": "proxy.steward.editing",
    "upgrade": "proxy.steward.changes",
    "verify": "proxy.steward.inspection",
}

__getattr__ = lazy(__name__, MODULES)
