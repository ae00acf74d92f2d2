"""The temporary views of a session: the engine knows them, the mirror keeps their version.

The mirror has one number, a setting of its session, for each set of views that the session has had.
So CREATE and DROP are taken back with the transaction or the savepoint, and go with the session.
Where the mirror's catalogs are read, the views stand in them as tables that nobody may read, which
end with the transaction.  Invariant: no other session ever sees a view, its name or its columns.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from proxy.server.mirror.mirror import SCHEMA, text
from proxy.sql.parse.views import Views

SETTING = f"{SCHEMA}.views"
CATALOG = re.compile(r"pg_|information_schema|::\s*reg", re.IGNORECASE)
KEPT = 1000  # sets of views


@dataclass
class Versions:
    """The sets of views that a session has had, by their numbers."""

    datasets: dict[str, str] = field(default_factory=dict)  # of every view that there may be
    _known: dict[str, Views] = field(default_factory=dict)
    _count: int = 0

    def at(self, version: str) -> Views:
        """Return the views of a version; none for one that is not known."""
        return self._known.get(version, {})

    def add(self, views: Views, before: Views, dataset: str) -> str:
        """Return the statement that makes these views the session's."""
        for name, view in views.items():
            if before.get(name) is not view:
                self.datasets[name] = dataset
        self._count += 1
        self._known[str(self._count)] = views
        if len(self._known) > KEPT:
            del self._known[next(iter(self._known))]
        return f"SET {SETTING} = '{self._count}'"

    def keep(self, version: str) -> None:
        """Forget all other versions: no transaction is open that could come back to them."""
        views = self.at(version)
        self._known = {version: views} if views else {}
        self.datasets = {name: self.datasets[name] for name in views}


def shown(views: Views) -> str:
    """Return the statement that puts views into the catalogs, until the transaction ends."""
    columns = {
        name: [[column.name, column.type] for column in view.columns]
        for name, view in views.items()
    }
    return f"SELECT {SCHEMA}.show_views({text(json.dumps(columns))})"
