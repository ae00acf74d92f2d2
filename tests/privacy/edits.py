"""An edit for each key of the table of keys: a key without one fails a test.

An edit changes a document in place, for better or worse, and may make it wrong: what matters is
what happens then.  Some change the order of things, or the white space of a condition, only.
"""

from proxy.policy.keys import POLICY, USERS
from proxy.policy.table import Either, Many, Named, Record
from tests.privacy.documents import DAYS, EXPRESSIONS, QUERIES, form, leveled
from tests.privacy.drafts import (
    axis,
    levels,
)

EDITS = {}  # key of the policy -> edit(document, rng)
USER_EDITS = {}  # key of users.yaml -> edit(users, rng)
OFTEN = {  # how often, beside others once: what decides cells and limits
    "attributes": 20, "attributes.<attribute>.levels": 20, "attributes.<attribute>.expression": 8,
    "attributes.<attribute>.outside": 3, "attributes.<attribute>.nulls": 3, "source.path": 15,
    "privacy.cells[].where": 15, "privacy.cells": 6, "privacy.budget": 6, "privacy.unit": 10,
    "analysts": 10, "groups": 4, "timezone": 25, "records": 4, "public.<table>.path": 10,
    "source.query": 4, "outside": 4, "nulls": 4, "attributes.<attribute>.column": 5,
    "attributes.<attribute>.values": 5, "attributes.<attribute>.values.path": 3,
    "privacy.unit.max_rows": 4, "privacy.history": 3,
}  # fmt: skip


def paths(kind=POLICY, path=""):
    """Yield every key below a kind of the table, as `privacy.cells[].where`."""
    match kind:
        case Record(keys):
            for key in keys:
                here = f"{path}.{key.name}" if path else key.name
                yield here
                yield from paths(key.kind, here)
        case Named(of=of, what=what):
            yield from paths(of, f"{path}.<{what}>")
        case Many(of=of):
            yield from paths(of, f"{path}[]")
        case Either(kinds):
            for each in kinds:
                yield from paths(each, path)


def user_paths():
    """Yield every key of the users file."""
    return paths(USERS)


def chosen(rng, only=""):
    """Return a random key of the policy, of those that begin so."""
    keys = [key for key in EDITS if key.startswith(only)]
    return rng.choices(keys, [OFTEN.get(key, 1) for key in keys])[0]


def edits(*keys, into=EDITS):
    """Declare the edit of keys."""

    def declare(function):
        for key in keys:
            into[key] = function
        return function

    return declare


# --- edits ---------------------------------------------------------------------------------------


def toggled(part, key, values, rng):
    """Set a key to one of some values, or leave it out."""
    options = [value for value in values if value != part.get(key)]
    if key in part and (not options or rng.random() < 0.3):
        del part[key]
    elif options:
        part[key] = rng.choice(options)


def axis_of(document, rng, kinds=("text", "integer", "date")):
    """Return one of the attributes, of some kinds if there is one."""
    fitting = [n for n, spec in document["attributes"].items() if form(spec) in kinds]
    name = rng.choice(fitting or list(document["attributes"]))
    return name, document["attributes"][name]


@edits("dataset")
def _dataset(document, rng):
    document["dataset"] = rng.choice(("people", "persons"))


@edits("description")
def _description(document, rng):
    toggled(document, "description", ("People.", "All of them."), rng)


@edits("source", "source.path")
def _path(document, rng):
    document["source"] = dict(reversed(document["source"].items()))
    document["source"]["path"] = rng.choice(("s0.csv", "s1.csv", "s2.csv"))


@edits("source.engine")
def _engine(document, rng):
    document["source"]["engine"] = rng.choice(("duckdb", "postgres"))


@edits("source.table")
def _table(document, rng):
    toggled(document["source"], "table", ("people", "source"), rng)


@edits("source.query")
def _query(document, rng):
    toggled(document["source"], "query", tuple(QUERIES), rng)


@edits("source.dsn")
def _dsn(document, rng):
    toggled(document["source"], "dsn", ("host=a", "host=b"), rng)


@edits("source.public", "source.trusted")
def _promises(document, rng):
    toggled(document["source"], rng.choice(("public", "trusted")), (["people"], ["source"]), rng)


@edits("source.url")
def _url(document, rng):
    toggled(document["source"], "url", ("mysql+pymysql://a/b", "mysql+pymysql://a/c"), rng)


@edits("source.master")
def _master(document, rng):
    toggled(document["source"], "master", ("local[*]", "sc://a"), rng)


@edits("max_records")
def _records_bound(document, rng):
    document["max_records"] = rng.choice((80, 100, 200))


@edits("outside")
def _outside(document, rng):
    document["outside"] = rng.choice(("group", "drop", "clamp", "error"))


@edits("nulls")
def _nulls(document, rng):
    document["nulls"] = rng.choice(("group", "drop", "error"))


@edits("attributes")
def _attributes(document, rng):
    axes = document["attributes"]
    names = list(axes)
    roll = rng.random()
    if roll < 0.7:
        rng.shuffle(names)
        if names == list(axes):
            names.reverse()
    elif roll < 0.85 and len(names) > 1:
        names.remove(rng.choice(names))
    else:
        names.insert(rng.randint(0, len(names)), rng.choice(("a", "b", "n", "day")))
    document["attributes"] = {name: axes.get(name) or axis(name, rng) for name in names}


@edits("attributes.<attribute>.type")
def _type(document, rng):
    _, spec = axis_of(document, rng)
    types = {"text": ("text",), "integer": ("integer", "decimal"), "date": ("date", "timestamp")}
    toggled(spec, "type", (*types[form(spec)], "text"), rng)


@edits("attributes.<attribute>.range")
def _range(document, rng):
    name, spec = axis_of(document, rng, ("integer",))
    if name == "n":
        kept = {key: spec[key] for key in ("outside", "nulls", "expression") if key in spec}
        document["attributes"][name] = {
            "range": rng.choice(([0, 1], [0, 2], [1, 2], [-1, 0])),
            **kept,
        }


@edits("attributes.<attribute>.edges")
def _edges(document, rng):
    name, spec = axis_of(document, rng, ("integer",))
    if name == "n":
        kept = {key: spec[key] for key in ("outside", "nulls", "expression") if key in spec}
        document["attributes"][name] = {
            "edges": rng.choice(([0, 3, 6], [0, 1, 6], [0, 1, 2])),
            **kept,
        }


@edits("attributes.<attribute>.values")
def _values(document, rng):
    name, spec = axis_of(document, rng, ("text",))
    if isinstance(spec.get("values"), list):
        roll = rng.random()
        if roll < 0.5:
            rng.shuffle(spec["values"])
        elif name in "ab" and roll < 0.8:
            spec["values"] = rng.choice((["x", "y"], ["y", "x"], ["x", "y", "w"]))
        elif name in "ab":
            document["attributes"][name] = {"values": {"path": "values.csv", "column": "v"}}


@edits("attributes.<attribute>.values.path")
def _values_path(document, rng):
    name, _ = axis_of(document, rng, ("text",))
    if name in "ab":
        path = rng.choice(("values.csv", "turned.csv"))
        document["attributes"][name] = {"values": {"path": path, "column": "v"}}


@edits("attributes.<attribute>.values.column")
def _values_column(document, rng):
    name, _ = axis_of(document, rng, ("text",))
    if name in "ab":
        column = rng.choice(("v", "v2"))
        document["attributes"][name] = {"values": {"path": "values.csv", "column": column}}


@edits("attributes.<attribute>.from", "attributes.<attribute>.to")
def _from_to(document, rng):
    name, spec = axis_of(document, rng, ("date",))
    if name == "day":
        spec["from"], spec["to"] = rng.choice(
            (DAYS, (DAYS[0], DAYS[0]), ("2024-02-29", DAYS[0]), (DAYS[0], "2024-03-03"))
        )


@edits("attributes.<attribute>.bin")
def _bin(document, rng):
    _, spec = axis_of(document, rng, ("date",))
    toggled(spec, "bin", ("day", "week"), rng)


@edits("attributes.<attribute>.levels")
def _levels(document, rng):
    name, spec = axis_of(document, rng, ("text",))
    rules = str(document["privacy"].get("cells"))
    used = [axis for axis, level, _ in leveled(document) if level in rules]
    if used and rng.random() < 0.8:  # what a smaller budget rests on
        name, spec = used[0], document["attributes"][used[0]]
    if not isinstance(spec.get("values"), list):
        return
    level = f"kind_{name}"
    before = spec.get("levels", {}).get(level)
    if before and rng.random() < 0.6:  # the members change places
        spec["levels"][level] = dict(zip(before, reversed(before.values()), strict=True))
    else:
        spec["levels"] = {level: levels(spec["values"], rng)}


@edits("attributes.<attribute>.column")
def _column(document, rng):
    name, spec = axis_of(document, rng, ("text",))
    if name in "ab" and "expression" not in spec:
        toggled(spec, "column", ("a", "b"), rng)


@edits("attributes.<attribute>.expression")
def _expression(document, rng):
    _, spec = axis_of(document, rng)
    kind = form(spec)
    spec.pop("column", None)
    if kind == "date":
        spec["expression"] = rng.choice(tuple(EXPRESSIONS[kind]))
    else:
        toggled(spec, "expression", tuple(EXPRESSIONS[kind]), rng)


@edits("attributes.<attribute>.cut")
def _cut(document, rng):
    _, spec = axis_of(document, rng)
    toggled(spec, "cut", ("refuse", "snap"), rng)


@edits("attributes.<attribute>.outside")
def _axis_outside(document, rng):
    _, spec = axis_of(document, rng)
    toggled(spec, "outside", ("group", "drop", "clamp", "error"), rng)


@edits("attributes.<attribute>.nulls")
def _axis_nulls(document, rng):
    _, spec = axis_of(document, rng)
    toggled(spec, "nulls", ("group", "drop", "error"), rng)


@edits("measures")
def _measures(document, rng):
    if document["measures"] and rng.random() < 0.4:
        document["measures"] = {}
    else:
        document["measures"].setdefault("pay", {"clip": [0, 10], "quantum": 1})


def _measure(document):
    return document["measures"].setdefault("pay", {"clip": [0, 10], "quantum": 1})


@edits("measures.<measure>.clip")
def _clip(document, rng):
    _measure(document)["clip"] = rng.choice(([0, 10], [0, 20], [-10, 10]))


@edits("measures.<measure>.quantum")
def _quantum(document, rng):
    _measure(document)["quantum"] = rng.choice((1, 2, 5))


@edits("measures.<measure>.utility")
def _measure_utility(document, rng):
    toggled(_measure(document), "utility", ({"half_width": 60, "delta": 0.05},), rng) if (
        "utility" not in _measure(document)
    ) else _measure(document).pop("utility")


@edits(
    "measures.<measure>.utility.half_width",
    "measures.<measure>.utility.percent",
    "measures.<measure>.utility.delta",
)
def _measure_width(document, rng):
    width, delta = rng.choice((60, 90, 300)), rng.choice((0.05, 0.2))
    which = rng.choice(("half_width", "percent"))
    _measure(document)["utility"] = {which: width, "delta": delta}


@edits("measures.<measure>.column")
def _measure_column(document, rng):
    measure = _measure(document)
    if "expression" not in measure:
        toggled(measure, "column", ("pay", "n"), rng)


@edits("measures.<measure>.expression")
def _measure_expression(document, rng):
    measure = _measure(document)
    measure.pop("column", None)
    toggled(measure, "expression", tuple(EXPRESSIONS["measure"]), rng)


@edits("measures.<measure>.nulls")
def _measure_nulls(document, rng):
    toggled(_measure(document), "nulls", ("group", "drop", "error"), rng)
