"""The protected data as cell counts: the only part of the proxy that reads private data.

``build`` reads a policy's source once and writes a cube: one row for each non-empty cell, with its
count of records and its exact sums of quanta.  ``Cube`` opens it and answers families of linear
queries, exactly; ``verify`` reads it to its end.  ``survey`` tells the data steward what each rule
of the policy meets in the data, ``faults`` what of the policy does not fit it.  What comes out of
here is exact, hence as secret as the data; only the engine may call it.

A name is imported when it is first used: who only asks waits for none of what builds.
"""

from typing import TYPE_CHECKING

from proxy.lazy import lazy

if TYPE_CHECKING:
    from proxy.cube.building import Look, Report, Rule, build, fingerprint, survey, surveyed
    from proxy.cube.cells import Cube
    from proxy.cube.file import records, verify
    from proxy.cube.sources.coded import faults
    from proxy.cube.sources.source import Taken, tables_read
    from proxy.cube.sources.warehouse import sql_for

__all__ = [
    "Cube",
    "Look",
    "Report",
    "Rule",
    "Taken",
    "build",
    "faults",
    "fingerprint",
    "records",
    "sql_for",
    "survey",
    "surveyed",
    "tables_read",
    "verify",
]

MODULES = {
    "Cube": "proxy.cube.cells",
    "Look": "proxy.cube.building",
    "Report": "proxy.cube.building",
    "Rule": "proxy.cube.building",
    "Taken": "proxy.cube.sources.source",
    "build": "proxy.cube.building",
    "faults": "proxy.cube.sources.coded",
    "fingerprint": "proxy.cube.building",
    "records": "proxy.cube.file",
    "sql_for": "proxy.cube.sources.warehouse",
    "survey": "proxy.cube.building",
    "surveyed": "proxy.cube.building",
    "tables_read": "proxy.cube.sources.source",
    "verify": "proxy.cube.file",
}

__getattr__ = lazy(__name__, MODULES)
