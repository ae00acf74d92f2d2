"""Policies as documents, and what they mean, worked out anew: no line of the proxy is used.

A document is what stands in the YAML file: dicts, lists and scalars.  ``Force`` is a document with
the public files and the users beside it, which is all that a promise is made of: in which cell a
record is, and what it, a unit or a user may lose.  The language is small on purpose: conditions
are written together with their truth (``Where``), expressions with their value (``EXPRESSIONS``).
"""

import datetime
import json
import math
from dataclasses import dataclass, field
from functools import cached_property
from zoneinfo import ZoneInfo

COLUMNS = ("a", "b", "n", "seen", "pay", "person", "house")
DAYS = ("2024-03-01", "2024-03-02")
ZONES = ("UTC", "Asia/Tokyo", "America/New_York")
SEEN = "seen"


class Unreadable(Exception):
    """The source has a value where a rule says ``error``, or a rule does not fit an axis."""


class Where(str):
    """A condition: SQL text, and its truth (True, False, None) of what a cell shows."""

    def __new__(cls, text, truth, clock=False):
        made = super().__new__(cls, text)
        made.truth, made.clock = truth, clock
        return made

    def __reduce__(self):
        return Where, (str(self), self.truth, self.clock)

    def __deepcopy__(self, memo):
        return self


def compared(name, how, value):
    """A column compared with a value: =, <>, >=, IN."""
    tests = {
        "=": lambda v: v == value,
        "<>": lambda v: v != value,
        ">=": lambda v: v >= value,
        "IN": lambda v: v in value,
    }

    def literal(one):
        if isinstance(one, datetime.date):
            return f"DATE '{one}'"
        return f"'{one}'" if isinstance(one, str) else str(one)

    shown = f"({', '.join(map(literal, value))})" if how == "IN" else literal(value)
    test = tests[how]
    return Where(f"{name} {how} {shown}", lambda s: None if s.get(name) is None else test(s[name]))


def listed(name, table):
    """A column that is in a column of the same name of a public table."""

    def truth(shown):
        members = shown[f"table {table}"]
        return None if shown.get(name) is None else shown[name] in members

    return Where(f"{name} IN (SELECT {name} FROM {table})", truth)


def both(one, two):
    """One and the other."""

    def truth(shown):
        found = one.truth(shown), two.truth(shown)
        return False if False in found else None if None in found else True

    return Where(f"({one}) AND ({two})", truth)


def either(one, two):
    """One or the other, two lines apart."""

    def truth(shown):
        found = one.truth(shown), two.truth(shown)
        return True if True in found else None if None in found else False

    return Where(f"{one}\n OR {two}", truth)


def remarked(one, two):
    """One or the other, with a remark between that ends with its line; and all in one line."""
    text = f"{one} -- as before\n OR {two}"  # blanks in values stay as they are
    more, less = Where(text, either(one, two).truth), Where(text.replace("\n", " "), one.truth)
    more.other, less.other = less, more
    return more, less


def local(row, zone):
    """The time at which a row was seen, in a zone."""
    if row["seen"] is None:
        return None
    return datetime.datetime.fromisoformat(row["seen"]).astimezone(ZoneInfo(zone))


def number(column):
    """A column as an integer."""
    return lambda row, _: None if row[column] is None else int(row[column])


def _swapped(row, _):
    return {"x": "y", "y": "x"}.get(row["a"], row["a"])


EXPRESSIONS = {  # text -> value of a row, in a time zone; by the kind of the axis
    "text": {
        "CASE a WHEN 'x' THEN 'y' WHEN 'y' THEN 'x' ELSE a END": _swapped,
        "a": lambda row, _: row["a"],
        "b": lambda row, _: row["b"],
    },
    "integer": {
        "CAST(n AS INTEGER) + 1": lambda row, _: None if row["n"] is None else int(row["n"]) + 1,
        "1 - CAST(n AS INTEGER)": lambda row, _: None if row["n"] is None else 1 - int(row["n"]),
        "CAST(n AS INTEGER)": number("n"),
    },
    "date": {
        SEEN: local,
        f"{SEEN} + INTERVAL '9 hours'": lambda row, zone: (
            None if row["seen"] is None else local(row, zone) + datetime.timedelta(hours=9)
        ),
    },
    "measure": {
        "10 - CAST(pay AS INTEGER)": lambda row, _: (
            None if row["pay"] is None else 10 - int(row["pay"])
        ),
        "CAST(pay AS INTEGER)": number("pay"),
    },
}
VALUE_OF = {text: value for kind in EXPRESSIONS.values() for text, value in kind.items()}
QUERIES = {  # text -> what becomes of a row, None: it is left out
    "SELECT * FROM source WHERE n <> '0'": lambda row: row if row["n"] not in (None, "0") else None,
    "SELECT b AS a, a AS b, n, seen, pay, person, house FROM source": lambda row: (
        row | {"a": row["b"], "b": row["a"]}
    ),
}


def written(document):
    """The YAML of a document; JSON is YAML."""
    return json.dumps(document) + "\n"


def form(spec):
    """The kind of an axis: text, integer or date."""
    if "from" in spec:
        return "date"
    if "range" in spec or "edges" in spec:
        return "integer"
    values = spec.get("values")
    whole = isinstance(values, list) and all(isinstance(value, int) for value in values)
    return "integer" if whole else "text"


def leveled(document):
    """Yield (attribute, level, labels) of a document."""
    for name, spec in document["attributes"].items():
        for level, labels in spec.get("levels", {}).items():
            yield name, level, labels


@dataclass(frozen=True, eq=False)
class Force:
    """A policy that is in force, with all that it rests on."""

    document: dict
    public: dict  # file -> rows of values, the header first
    users: dict = field(default_factory=dict)

    @cached_property
    def key(self):
        """What two equal ones have in common."""
        return written(self.document), repr(self.public), repr(self.users)

    @property
    def privacy(self):
        return self.document["privacy"]

    @property
    def unit(self):
        """The column of the unit, None for rows."""
        unit = self.privacy["unit"]
        return None if unit == "row" else unit["column"]

    @property
    def most(self):
        """How many rows of a unit are kept."""
        return 1 if self.unit is None else self.privacy["unit"]["max_rows"]

    @cached_property
    def zone(self):
        return self.document.get("timezone", "UTC")

    # --- cells -----------------------------------------------------------------------------------

    @cached_property
    def axes(self):
        """The cells of each axis: name -> (kind, values or lower edges, edges or None)."""
        return {name: self._axis(spec) for name, spec in self.document["attributes"].items()}

    def _axis(self, spec):
        kind = form(spec)
        if kind == "date":
            first, last = map(datetime.date.fromisoformat, (spec["from"], spec["to"]))
            days = range((last - first).days + 1)
            return kind, [first + datetime.timedelta(days=i) for i in days], None
        if "range" in spec:
            low, high = spec["range"]
            return kind, list(range(low, high + 1)), None
        if "edges" in spec:
            return kind, spec["edges"][:-1], spec["edges"]
        values = spec["values"]
        if isinstance(values, dict):
            head, *rows = self.public[values["path"]]
            at = head.index(values["column"])
            values = list(dict.fromkeys(row[at] for row in rows))
        return kind, values, None

    def rows(self, rows):
        """Rows of the source, as the policy's query gives them."""
        query = self.document["source"].get("query")
        change = QUERIES[query] if query else lambda row: row
        return [found for row in rows if (found := change(row)) is not None]

    def cell(self, row):
        """The codes of a row, in the order of the attributes; None where it is left out.

        Raises:
            Unreadable: a rule says ``error``, or cannot be followed.
        """
        codes = tuple(self._code(name, row) for name in self.axes)
        values = [self._measured(name, row) for name in self.document.get("measures", {})]
        if None in codes or "drop" in values:
            return None
        return codes

    def _rule(self, spec, which):
        return spec.get(which, self.document[which])

    def _code(self, name, row):
        kind, cells, edges = self.axes[name]
        spec = self.document["attributes"][name]
        value = self._value(spec, name, row)
        if kind == "date" and value is not None:
            value = value.date()
        elif kind == "integer" and value is not None:
            value = int(value)
        if value is None:
            rule = self._rule(spec, "nulls")
        else:
            if edges is not None:
                found = [i for i, low in enumerate(cells) if low <= value < edges[i + 1]]
            else:
                found = [i for i, each in enumerate(cells) if each == value]
            if found:
                return found[0]
            rule = self._rule(spec, "outside")
            if rule == "clamp":
                if kind == "text":
                    raise Unreadable("texts cannot be clamped")
                return 0 if value < cells[0] else len(cells) - 1
        if rule == "error":
            raise Unreadable(name)
        return len(cells) if rule == "group" else None

    def _value(self, spec, name, row):
        if "expression" in spec:
            return VALUE_OF[spec["expression"]](row, self.zone)
        return row[spec.get("column", name)]

    def _measured(self, name, row):
        """The quanta of a row, None: it has no value, or "drop"."""
        spec = self.document["measures"][name]
        value = self._value(spec, name, row)
        if value is None:
            rule = self._rule(spec, "nulls")
            if rule == "error":
                raise Unreadable(name)
            return None if rule == "group" else "drop"
        low, high = spec["clip"]
        exact = min(max(int(value), low), high) / spec["quantum"]
        return int(math.copysign(math.floor(abs(exact) + 0.5), exact))

    def quanta(self, row):
        """The quanta of each measure."""
        return tuple(self._measured(name, row) for name in self.document.get("measures", {}))

    def shown(self, row):
        """What the cell of a row shows: columns, levels; and the public tables."""
        shown = {}
        for (name, (_, cells, _)), code in zip(self.axes.items(), self.cell(row), strict=True):
            shown[name] = cells[code] if code < len(cells) else None
        for name, level, labels in leveled(self.document):
            owner = [label for label, members in labels.items() if shown[name] in members]
            shown[level] = owner[0] if owner else None
        for table, spec in self.document.get("public", {}).items():
            _, *rows = self.public[spec["path"]]
            shown[f"table {table}"] = {row[0] for row in rows}
        return shown

    # --- what may be lost ------------------------------------------------------------------------

    @cached_property
    def whole(self):
        """What any row may lose, wherever it is."""
        privacy = self.privacy
        limits = [privacy["budget"], *privacy.get("per", {}).values()]
        return min([limit / self.most for limit in limits] + [_cap(g) for g in self.guards])

    @property
    def guards(self):
        return self.privacy.get("guards", [])

    def limit(self, row):
        """What a row may lose."""
        try:
            rows = self.rows([row])
            cell = self.cell(rows[0]) if rows else None
        except Unreadable:
            cell = None
        if cell is None:  # it is in no cell, and was promised what all are
            return self.whole
        shown = self.shown(rows[0])
        smaller = [r["budget"] for r in self.privacy.get("cells", []) if r["where"].truth(shown)]
        return min([self.whole, *smaller])

    @property
    def unit_limit(self):
        """What all rows of a unit may lose together."""
        return min([self.privacy["budget"], *self.privacy.get("per", {}).values()])

    def history(self, user):
        """Whose answers a user infers from: "own …" or "shared"."""
        default = self.privacy.get("history", "shared")
        listed = self._listed(user)
        for name, spec in listed:
            if spec.get("history", default) == "own":
                return f"own {name}"
        return f"own {user}" if user and not listed and default == "own" else "shared"

    def _listed(self, user):
        """What the document says of a user, and of the groups that they are in."""
        analysts, groups = (self.document.get(part, {}) for part in ("analysts", "groups"))
        listed = [(user, analysts[user])] if user in analysts else []
        return listed + [(f"@{g}", groups[g]) for g in self._groups(user) if g in groups]

    def _groups(self, user):
        return self.users.get(user, {}).get("groups", [])

    def user_limit(self, user):
        """What any row may lose by one user's statements; None where the policy does not say."""
        if user not in self.users and user not in self.document.get("analysts", {}):
            return None
        listed, own = self._listed(user), self.history(user)
        caps = [
            spec["budget"]
            for name, spec in listed
            if "budget" in spec and (own == "shared" or name == user != own.removeprefix("own "))
        ]
        if any(spec.get("spend") is False for _, spec in listed):
            caps.append(0)
        return min(caps) / self.most if caps else None

    def own_limit(self, user):
        """What any row may lose by the history of a user; None where it is the shared one."""
        own = self.history(user)
        if own == "shared":
            return None
        budgets = [spec["budget"] for name, spec in self._listed(user) if own == f"own {name}"]
        return (budgets[0] if budgets else 0) / self.most  # 0: nothing is set aside for it

    def together(self, user):
        """Yield (cap, members) of the groups of which a user spends in the shared history."""
        for name, spec in self._listed(user):
            if name.startswith("@") and "budget" in spec and self.history(user) == "shared":
                members = [u for u in self.users if name[1:] in self._groups(u)]
                yield (
                    spec["budget"] / self.most,
                    [u for u in members if self.history(u) == "shared"],
                )


def _cap(guard):
    """The cost that a guard allows a cell: ln(1/(1-γ))/(U-L+1)."""
    _, _, low, _, high = guard["claim"].split()
    return math.log(1 / (1 - guard["confidence"])) / (int(high) - int(low) + 1)
