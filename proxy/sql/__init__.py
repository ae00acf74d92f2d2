"""SQL to linear queries and back: parse, bind, compile, post-process.  No data, no privacy.

``statement.compile_statement`` is the way in: ``parse`` makes a tree, ``bind`` resolves names and
finds the release points, ``compile`` makes linear queries of them, with the text's own expressions
evaluated over the public domain in the ``evaluator``'s DuckDB; ``expression`` and ``types`` say
what an expression means.  ``postprocess`` is the way back.
"""

from proxy.sql.compile.release_point import space
from proxy.sql.evaluator.evaluator import Evaluator
from proxy.sql.parse.grammar import split
from proxy.sql.parse.parameters import bind_parameters
from proxy.sql.postprocess import draw, parameters, postprocess
from proxy.sql.program import (
    Column,
    Command,
    Companion,
    GroupColumn,
    Number,
    Origin,
    Program,
    Release,
    Request,
    Rows,
)
from proxy.sql.statement import compile_statement

__all__ = [
    "Column",
    "Command",
    "Companion",
    "Evaluator",
    "GroupColumn",
    "Number",
    "Origin",
    "Program",
    "Release",
    "Request",
    "Rows",
    "bind_parameters",
    "compile_statement",
    "draw",
    "parameters",
    "postprocess",
    "space",
    "split",
]
