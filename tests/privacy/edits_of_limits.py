"""The edits of what may be spent, by whom and where, and of who the users are."""

import datetime

from tests.privacy.documents import DAYS, ZONES, compared
from tests.privacy.drafts import (
    GROUP_NAMES,
    USER_NAMES,
    axis,
    cell,
    guard,
    limits,
    membership,
    where,
)
from tests.privacy.edits import USER_EDITS, axis_of, edits, toggled

WISHES = (
    {"half_width": 30, "delta": 0.1},
    {"half_width": 60, "delta": 0.05},
    {"percent": 5, "delta": 0.1},
)


@edits("privacy", "privacy.budget")
def _budget(document, rng):
    document["privacy"] = dict(reversed(document["privacy"].items()))
    budget = document["privacy"]["budget"] = rng.choice((0.01, 0.01, 0.5, 1, 2))
    parts = [*document["privacy"].get("cells", ()), *document.get("analysts", {}).values()]
    for part in (*parts, *document.get("groups", {}).values()):
        if rng.random() < 0.9 and part.get("budget", 0) > budget:  # else it is refused
            part["budget"] = budget / 4


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
    toggled(document["privacy"], "floor", (0.0001, 0.001, 0.01), rng)


@edits("privacy.history_size", "privacy.history_size.total", "privacy.history_size.analyst")
def _history_size(document, rng):
    sizes = ({"total": 50}, {"total": 50, "analyst": 20}, {"total": 200, "analyst": 200})
    toggled(document["privacy"], "history_size", sizes, rng)


@edits("privacy.per", "privacy.per.day", "privacy.per.week")
def _per(document, rng):
    budget = document["privacy"]["budget"]
    pairs = ((0.5, None), (0.9, None), (0.5, 0.8), (None, 0.9))
    options = [
        {name: budget * part for name, part in zip(("day", "week"), pair, strict=True) if part}
        for pair in pairs
    ]
    toggled(document["privacy"], "per", options, rng)


@edits("privacy.strategy")
def _strategy(document, rng):
    strategies = ("topup", "paper", "pieces", "hierarchy", "auto")
    toggled(document["privacy"], "strategy", strategies, rng)


@edits("privacy.warm_up", *(f"privacy.warm_up[].{key}" for key in ("attributes", "alpha",
       "strategy", "measure")))  # fmt: skip
def _warm_up(document, rng):
    names, budget = sorted(document["attributes"]), document["privacy"]["budget"]
    wanted = {"attributes": rng.sample(names, 1), "alpha": budget * rng.choice((0.1, 0.3))}
    more = rng.choice(({}, {"strategy": "pieces"}, {"strategy": "hierarchy"}))
    if document.get("measures") and rng.random() < 0.5:
        more = more | {"measure": rng.choice(sorted(document["measures"]))}
    toggled(document["privacy"], "warm_up", ([], [wanted | more]), rng)


@edits("workload")
def _workload(document, rng):
    toggled(document, "workload", ("asked.sql", "other.sql"), rng)


@edits("privacy.history")
def _history(document, rng):
    toggled(document["privacy"], "history", ("own", "shared"), rng)


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
        toggled(
            _limit(document, part, rng), "budget", (budget * 0.1, budget * 0.4, budget * 0.7), rng
        )

    @edits(f"{part}.<{name}>.spend")
    def _limit_spend(document, rng):
        toggled(_limit(document, part, rng), "spend", (True, False), rng)

    @edits(f"{part}.<{name}>.history")
    def _limit_history(document, rng):
        toggled(_limit(document, part, rng), "history", ("own", "shared"), rng)


_limit_edits("analysts", "analyst")
_limit_edits("groups", "group")


@edits("utility", "utility.half_width", "utility.percent", "utility.delta")
def _utility(document, rng):
    toggled(document, "utility", WISHES, rng)


@edits(
    "utilities",
    "utilities.<number>.half_width",
    "utilities.<number>.percent",
    "utilities.<number>.delta",
)
def _utilities(document, rng):
    name = rng.choice(("SUM(*)", "AVG(*)", "QUANTILE(*)"))
    toggled(document.setdefault("utilities", {}), name, WISHES, rng)


@edits("timezone")
def _timezone(document, rng):
    toggled(document, "timezone", ZONES, rng)


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
    toggled(document, "state", (".privacy-proxy", "elsewhere"), rng)


@edits("ledger")
def _ledger(document, rng):
    """To a server that is not there, or with a password: the ledger is still that in the file."""
    toggled(document, "ledger", ("postgresql://[::1]:1/none", "postgresql://a:b@[::1]:1/none"), rng)


@edits("partition", "partition.column", "partition.grain", "partition.closes")
def _partition(document, rng):
    """Nearly always one that is right: of rows that keep their day, or never change at all."""
    if "partition" in document and rng.random() < 0.5:
        del document["partition"]
        return
    if rng.random() < 0.9:
        document["attributes"].setdefault("day", axis("day", rng))
    name, spec = axis_of(document, rng, ("date",))
    document["partition"] = {"column": name, "grain": rng.choice(("day", "month"))}
    # between the days that there are, as a rule: some periods are closed, and some are not
    day = datetime.date.fromisoformat(rng.choice(DAYS))
    closes = (datetime.date.today() - day).days
    document["partition"]["closes"] = rng.choice((0, closes, closes, closes))
    if rng.random() < 0.9:
        document["records"] = rng.choice(("immutable", "mutable"))
        document["privacy"]["unit"] = "row"
        spec |= {"nulls": "drop", "outside": "drop"}


@edits("records")
def _records(document, rng):
    toggled(document, "records", ("mutable", "immutable"), rng)


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
    toggled(_user(users, rng), "datasets", (["people"], ["others"]), rng)


@edits(
    "users.<user>.utility",
    "users.<user>.utility.half_width",
    "users.<user>.utility.percent",
    "users.<user>.utility.delta",
    into=USER_EDITS,
)
def _user_utility(users, rng):
    toggled(_user(users, rng), "utility", WISHES, rng)
