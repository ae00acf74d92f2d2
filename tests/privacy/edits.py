"""An edit for each key of the table of keys: a key without one fails a test.

An edit changes a document in place, for better or worse, and may make it wrong: what matters is
what happens then.  Some change the order of things, or the white space of a condition, only.
"""

from proxy.policy.keys import POLICY, USERS
from proxy.policy.table import Either, Many, Named, Record
from tests.privacy.documents import DAYS, EXPRESSIONS, QUERIES, ZONES, compared, form, leveled
from tests.privacy.drafts import (
    GROUP_NAMES,
    USER_NAMES,
    axis,
    cell,
    guard,
    levels,
    limits,
    membership,
    where,
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


def _toggle(part, key, values, rng):
    """Set a key to one of some values, or leave it out."""
    options = [value for value in values if value != part.get(key)]
    if key in part and rng.random() < 0.3:
        del part[key]
    else:
        part[key] = rng.choice(options)


def _axis(document, rng, kinds=("text", "integer", "date")):
    """Return one of the attributes, of some kinds if there is one."""
    fitting = [n for n, spec in document["attributes"].items() if form(spec) in kinds]
    name = rng.choice(fitting or list(document["attributes"]))
    return name, document["attributes"][name]


@edits("dataset")
def _dataset(document, rng):
    document["dataset"] = rng.choice(("people", "persons"))


@edits("description")
def _description(document, rng):
    _toggle(document, "description", ("People.", "All of them."), rng)


@edits("source", "source.path")
def _path(document, rng):
    document["source"] = dict(reversed(document["source"].items()))
    document["source"]["path"] = rng.choice(("s0.csv", "s1.csv", "s2.csv"))


@edits("source.engine")
def _engine(document, rng):
    document["source"]["engine"] = rng.choice(("duckdb", "postgres"))


@edits("source.table")
def _table(document, rng):
    _toggle(document["source"], "table", ("people", "source"), rng)


@edits("source.query")
def _query(document, rng):
    _toggle(document["source"], "query", tuple(QUERIES), rng)


@edits("source.dsn")
def _dsn(document, rng):
    _toggle(document["source"], "dsn", ("host=a", "host=b"), rng)


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
    _, spec = _axis(document, rng)
    types = {"text": ("text",), "integer": ("integer", "decimal"), "date": ("date", "timestamp")}
    _toggle(spec, "type", (*types[form(spec)], "text"), rng)


@edits("attributes.<attribute>.range")
def _range(document, rng):
    name, spec = _axis(document, rng, ("integer",))
    if name == "n":
        kept = {key: spec[key] for key in ("outside", "nulls", "expression") if key in spec}
        document["attributes"][name] = {
            "range": rng.choice(([0, 1], [0, 2], [1, 2], [-1, 0])),
            **kept,
        }


@edits("attributes.<attribute>.edges")
def _edges(document, rng):
    name, spec = _axis(document, rng, ("integer",))
    if name == "n":
        kept = {key: spec[key] for key in ("outside", "nulls", "expression") if key in spec}
        document["attributes"][name] = {
            "edges": rng.choice(([0, 3, 6], [0, 1, 6], [0, 1, 2])),
            **kept,
        }


@edits("attributes.<attribute>.values")
def _values(document, rng):
    name, spec = _axis(document, rng, ("text",))
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
    name, _ = _axis(document, rng, ("text",))
    if name in "ab":
        path = rng.choice(("values.csv", "turned.csv"))
        document["attributes"][name] = {"values": {"path": path, "column": "v"}}


@edits("attributes.<attribute>.values.column")
def _values_column(document, rng):
    name, _ = _axis(document, rng, ("text",))
    if name in "ab":
        column = rng.choice(("v", "v2"))
        document["attributes"][name] = {"values": {"path": "values.csv", "column": column}}


@edits("attributes.<attribute>.from", "attributes.<attribute>.to")
def _from_to(document, rng):
    name, spec = _axis(document, rng, ("date",))
    if name == "day":
        spec["from"], spec["to"] = rng.choice(
            (DAYS, (DAYS[0], DAYS[0]), ("2024-02-29", DAYS[0]), (DAYS[0], "2024-03-03"))
        )


@edits("attributes.<attribute>.bin")
def _bin(document, rng):
    _, spec = _axis(document, rng, ("date",))
    _toggle(spec, "bin", ("day", "week"), rng)


@edits("attributes.<attribute>.levels")
def _levels(document, rng):
    name, spec = _axis(document, rng, ("text",))
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
    name, spec = _axis(document, rng, ("text",))
    if name in "ab" and "expression" not in spec:
        _toggle(spec, "column", ("a", "b"), rng)


@edits("attributes.<attribute>.expression")
def _expression(document, rng):
    _, spec = _axis(document, rng)
    kind = form(spec)
    spec.pop("column", None)
    if kind == "date":
        spec["expression"] = rng.choice(tuple(EXPRESSIONS[kind]))
    else:
        _toggle(spec, "expression", tuple(EXPRESSIONS[kind]), rng)


@edits("attributes.<attribute>.cut")
def _cut(document, rng):
    _, spec = _axis(document, rng)
    _toggle(spec, "cut", ("refuse", "snap"), rng)


@edits("attributes.<attribute>.outside")
def _axis_outside(document, rng):
    _, spec = _axis(document, rng)
    _toggle(spec, "outside", ("group", "drop", "clamp", "error"), rng)


@edits("attributes.<attribute>.nulls")
def _axis_nulls(document, rng):
    _, spec = _axis(document, rng)
    _toggle(spec, "nulls", ("group", "drop", "error"), rng)


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
    _toggle(_measure(document), "utility", ({"half_width": 60, "delta": 0.05},), rng) if (
        "utility" not in _measure(document)
    ) else _measure(document).pop("utility")


@edits("measures.<measure>.utility.half_width", "measures.<measure>.utility.delta")
def _measure_width(document, rng):
    width, delta = rng.choice((60, 90, 300)), rng.choice((0.05, 0.2))
    _measure(document)["utility"] = {"half_width": width, "delta": delta}


@edits("measures.<measure>.column")
def _measure_column(document, rng):
    measure = _measure(document)
    if "expression" not in measure:
        _toggle(measure, "column", ("pay", "n"), rng)


@edits("measures.<measure>.expression")
def _measure_expression(document, rng):
    measure = _measure(document)
    measure.pop("column", None)
    _toggle(measure, "expression", tuple(EXPRESSIONS["measure"]), rng)


@edits("measures.<measure>.nulls")
def _measure_nulls(document, rng):
    _toggle(_measure(document), "nulls", ("group", "drop", "error"), rng)


@edits("privacy", "privacy.budget")
def _budget(document, rng):
    document["privacy"] = dict(reversed(document["privacy"].items()))
    document["privacy"]["budget"] = rng.choice((0.01, 0.01, 0.5, 1, 2))


@edits("privacy.unit")
def _unit_edit(document, rng):
    document["privacy"]["unit"] = (
        "row"
        if document["privacy"]["unit"] != "row" and rng.random() < 0.5
        else {"column": rng.choice(("person", "house")), "max_rows": rng.choice((1, 2))}
    )


def _unit_of(document):
    if document["privacy"]["unit"] == "row":
        document["privacy"]["unit"] = {"column": "house", "max_rows": 1}
    return document["privacy"]["unit"]


@edits("privacy.unit.column")
def _unit_column(document, rng):
    _unit_of(document)["column"] = rng.choice(("person", "house"))


@edits("privacy.unit.max_rows")
def _unit_rows(document, rng):
    _unit_of(document)["max_rows"] = rng.choice((1, 2, 3))


@edits("privacy.unit.seed")
def _unit_seed(document, rng):
    _unit_of(document)["seed"] = rng.choice(("0", "b", "c"))


@edits("privacy.cells")
def _cells(document, rng):
    rules = document["privacy"].setdefault("cells", [])
    if rules and rng.random() < 0.4:
        rules.pop(rng.randrange(len(rules)))
    elif rules and rng.random() < 0.3:
        rules.reverse()
    else:
        rules.append(cell(document, rng))


def _rule(document, rng):
    rules = document["privacy"].setdefault("cells", [])
    if not rules:
        rules.append(cell(document, rng))
    return rng.choice(rules)


@edits("privacy.cells[].where")
def _cells_where(document, rng):
    rule = _rule(document, rng)
    text = str(rule["where"])
    if "--" in text and rng.random() < 0.8:  # a remark takes more away, or less
        rule["where"] = rule["where"].other
    elif "x  y" in text or "x y" in text:
        old, new = ("x  y", "x y") if "x  y" in text else ("x y", "x  y")
        rule["where"] = spaced(rule["where"], old, new, document)
    else:
        rule["where"] = where(document, rng)


def spaced(condition, old, new, document):
    """Return a condition with other white space in its literal, if it is a simple one."""
    name, how, _ = str(condition).split(" ", 2)
    if how in ("=", "<>") and str(condition) == f"{name} {how} '{old}'":
        return compared(name, how, new)
    return condition


@edits("privacy.cells[].budget")
def _cells_budget(document, rng):
    _rule(document, rng)["budget"] = document["privacy"]["budget"] * rng.choice((0.1, 0.3, 0.8))


@edits("privacy.guards")
def _guards(document, rng):
    guards = document["privacy"].setdefault("guards", [])
    if guards and rng.random() < 0.5:
        guards.pop()
    else:
        guards.append(guard(document, rng))


def _guard(document, rng):
    guards = document["privacy"].setdefault("guards", [])
    if not guards:
        guards.append(guard(document, rng))
    return rng.choice(guards)


@edits("privacy.guards[].claim")
def _claim(document, rng):
    _guard(document, rng)["claim"] = f"COUNT(*) BETWEEN 0 AND {rng.choice((0, 1, 3, 5))}"


@edits("privacy.guards[].for_each")
def _for_each(document, rng):
    names = list(document["attributes"])
    _guard(document, rng)["for_each"] = rng.sample(names, rng.randint(1, len(names)))


@edits("privacy.guards[].confidence")
def _confidence(document, rng):
    _guard(document, rng)["confidence"] = rng.choice((0.3, 0.5, 0.9, 0.99))


@edits("privacy.floor")
def _floor(document, rng):
    _toggle(document["privacy"], "floor", (0.0001, 0.001, 0.01), rng)


@edits("privacy.rows", "privacy.rows.total", "privacy.rows.analyst")
def _rows(document, rng):
    rows = ({"total": 50}, {"total": 50, "analyst": 20}, {"total": 200, "analyst": 200})
    _toggle(document["privacy"], "rows", rows, rng)


@edits("privacy.per", "privacy.per.day", "privacy.per.week")
def _per(document, rng):
    budget = document["privacy"]["budget"]
    pairs = ((0.5, None), (0.9, None), (0.5, 0.8), (None, 0.9))
    options = [
        {name: budget * part for name, part in zip(("day", "week"), pair, strict=True) if part}
        for pair in pairs
    ]
    _toggle(document["privacy"], "per", options, rng)


@edits("privacy.allocation")
def _allocation(document, rng):
    _toggle(document["privacy"], "allocation", ("topup", "paper"), rng)


@edits("privacy.history")
def _history(document, rng):
    _toggle(document["privacy"], "history", ("own", "shared"), rng)


@edits("analysts")
def _analysts(document, rng):
    listed = document.setdefault("analysts", {})
    user = rng.choice(USER_NAMES)
    if user in listed and rng.random() < 0.5:
        del listed[user]
    else:
        listed[user] = limits(document, rng)


@edits("groups")
def _groups_edit(document, rng):
    listed = document.setdefault("groups", {})
    group = rng.choice(GROUP_NAMES)
    if group in listed and rng.random() < 0.5:
        del listed[group]
    else:
        listed[group] = limits(document, rng)


def _limit(document, part, rng):
    names = USER_NAMES if part == "analysts" else GROUP_NAMES
    listed = document.setdefault(part, {})
    return listed.setdefault(rng.choice(list(listed) or names), limits(document, rng))


def _limit_edits(part, name):
    @edits(f"{part}.<{name}>.budget")
    def _limit_budget(document, rng):
        budget = document["privacy"]["budget"]
        _toggle(
            _limit(document, part, rng), "budget", (budget * 0.1, budget * 0.4, budget * 0.7), rng
        )

    @edits(f"{part}.<{name}>.spend")
    def _limit_spend(document, rng):
        _toggle(_limit(document, part, rng), "spend", (True, False), rng)

    @edits(f"{part}.<{name}>.history")
    def _limit_history(document, rng):
        _toggle(_limit(document, part, rng), "history", ("own", "shared"), rng)


_limit_edits("analysts", "analyst")
_limit_edits("groups", "group")


@edits("utility", "utility.half_width", "utility.delta")
def _utility(document, rng):
    pairs = ({"half_width": 30, "delta": 0.1}, {"half_width": 60, "delta": 0.05})
    _toggle(document, "utility", pairs, rng)


@edits("timezone")
def _timezone(document, rng):
    _toggle(document, "timezone", ZONES, rng)


@edits("public")
def _public(document, rng):
    tables = document.setdefault("public", {})
    name = rng.choice(("frail", "places"))
    if name in tables and rng.random() < 0.3:
        del tables[name]
    else:
        tables[name] = {"path": rng.choice(("frail.csv", "others.csv"))}


@edits("public.<table>.path")
def _public_path(document, rng):
    tables = document.setdefault("public", {})
    tables[rng.choice(list(tables) or ["frail"])] = {
        "path": rng.choice(("frail.csv", "others.csv"))
    }


@edits("state")
def _state(document, rng):
    _toggle(document, "state", (".privacy-proxy", "elsewhere"), rng)


@edits("partition", "partition.column", "partition.grain")
def _partition(document, rng):
    if "partition" in document and rng.random() < 0.7:
        del document["partition"]
    else:
        name, _ = _axis(document, rng, ("date",))
        document["partition"] = {"column": name, "grain": rng.choice(("day", "month"))}


@edits("records")
def _records(document, rng):
    _toggle(document, "records", ("mutable", "immutable"), rng)


# --- users ---------------------------------------------------------------------------------------


@edits("users", into=USER_EDITS)
def _users(users, rng):
    name = rng.choice(USER_NAMES)
    if name in users and len(users) > 1 and rng.random() < 0.5:
        del users[name]
    else:
        users[name] = {"roles": ["analyst"], "groups": membership(rng)}


def _user(users, rng):
    return users[rng.choice(list(users))]


@edits("users.<user>.password", into=USER_EDITS)
def _password(users, rng):
    _user(users, rng)["password"] = rng.choice(("one", "two"))


@edits("users.<user>.roles", into=USER_EDITS)
def _roles(users, rng):
    _user(users, rng)["roles"] = rng.choice((["analyst"], ["analyst", "auditor"], ["steward"]))


@edits("users.<user>.groups", into=USER_EDITS)
def _user_groups(users, rng):
    _user(users, rng)["groups"] = membership(rng)


@edits("users.<user>.datasets", into=USER_EDITS)
def _datasets(users, rng):
    _toggle(_user(users, rng), "datasets", (["people"], ["others"]), rng)


@edits(
    "users.<user>.utility",
    "users.<user>.utility.half_width",
    "users.<user>.utility.delta",
    into=USER_EDITS,
)
def _user_utility(users, rng):
    pairs = ({"half_width": 30, "delta": 0.1}, {"half_width": 60, "delta": 0.05})
    _toggle(_user(users, rng), "utility", pairs, rng)
