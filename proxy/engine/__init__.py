"""A SQL text enters, a result leaves: read ``engine.py`` first.

What the doors use is named here; the modules inside import one another directly.  A name is
imported when it is first used, so that a door that is only remote waits for no inference.
"""

from typing import TYPE_CHECKING

from proxy.lazy import lazy

if TYPE_CHECKING:
    from proxy.engine.answers import Answer, Explanation, Origin, Posterior, Result
    from proxy.engine.beginning import init
    from proxy.engine.engine import Engine
    from proxy.engine.reports import BudgetReport, HistoryLine, RuleReport
    from proxy.engine.session import Session
    from proxy.sql.program import Column

__all__ = [
    "Answer",
    "BudgetReport",
    "Column",
    "Engine",
    "Explanation",
    "HistoryLine",
    "Origin",
    "Posterior",
    "Result",
    "RuleReport",
    "Session",
    "init",
]

MODULES = {
    "Answer": "proxy.engine.answers",
    "BudgetReport": "proxy.engine.reports",
    "Column": "proxy.sql.program",
    "Engine": "proxy.engine.engine",
    "Explanation": "proxy.engine.answers",
    "HistoryLine": "proxy.engine.reports",
    "Origin": "proxy.engine.answers",
    "Posterior": "proxy.engine.answers",
    "Result": "proxy.engine.answers",
    "RuleReport": "proxy.engine.reports",
    "Session": "proxy.engine.session",
    "init": "proxy.engine.beginning",
}

__getattr__ = lazy(__name__, MODULES)
