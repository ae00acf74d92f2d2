"""A SQL text enters, a result leaves: read ``engine.py`` first.

What the doors use is named here; the modules inside import one another directly.
"""

from proxy.engine.answers import Answer
from proxy.engine.engine import Engine
from proxy.engine.reports import BudgetReport, HistoryLine, RuleReport
from proxy.engine.result import Result
from proxy.engine.session import Session
from proxy.sql.program import Column
from proxy.steward import init

__all__ = [
    "Answer",
    "BudgetReport",
    "Column",
    "Engine",
    "HistoryLine",
    "Result",
    "RuleReport",
    "Session",
    "init",
]
