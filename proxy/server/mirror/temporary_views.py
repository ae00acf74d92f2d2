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
MAX_VERSIONS = 1000  # sets of views


@dataclass
class Versions:
    """The sets of views that a session has had, by their numbers."""

    datasets: dict[str, str] = field(default_factory=dict)  # by the name of each possible view
    _by_version: dict[str, Views] = field(default_factory=dict)
    _count: int = 0

    def at(self, version: str) -> Views:
        """Return the views of a version; none for an unknown version."""
        return self._by_version.get(version, {})

    def add(self, views: Views, before: Views, dataset: str) -> str:
        """Record a set of views; return the statement that makes it the session's."""
        for name, view in views.items():
            if before.get(name) is not view:
                self.datasets[name] = dataset
        self._count += 1
        self._by_version[str(self._count)] = views
        if len(self._by_version) > MAX_VERSIONS:
            del self._by_version[next(iter(self._by_version))]
        return f"SET {SETTING} = '{self._count}'"

    def keep(self, version: str) -> None:
        """Forget all other versions: no transaction is open that could come back to them."""
        views = self.at(version)
        self._by_version = {version: views} if views else {}
        self.datasets = {name: self.datasets[name] for name in views}


def shown(views: Views) -> str:
    """Return the statement that puts views into the catalogs, until the transaction ends."""
    columns = {
        name: [[column.name, column.type] for column in view.columns]
        for name, view in views.items()
    }
    return f"SELECT {SCHEMA}.show_views({text(json.dumps(columns))})"
