"""Random policies and users: right ones, of all that the search can say."""

import datetime

from tests.privacy.documents import (
    DAYS,
    SEEN,
    ZONES,
    Where,
    both,
    compared,
    either,
    form,
    leveled,
    listed,
    remarked,
)

USER_NAMES = ("ann", "bob", "cat")
GROUP_NAMES = ("lab", "press")
BUDGETS = (0.5, 1, 1, 2)


def policy(rng):
    """Return a random policy that is right."""
    document = {
        "dataset": "people",
        "source": {"engine": "duckdb", "path": "s0.csv"},
        "max_records": 100,
        "outside": rng.choice(("drop", "drop", "group")),
        "nulls": rng.choice(("drop", "drop", "group")),
        "attributes": {},
        "measures": {"pay": {"clip": [0, 10], "quantum": rng.choice((1, 2, 5))}},
        "privacy": {"budget": rng.choice(BUDGETS), "unit": _unit(rng)},
        "public": {"frail": {"path": "frail.csv"}},
        "records": rng.choice(("immutable", "immutable", "mutable")),
        "utility": {"half_width": 40, "delta": 0.1},
    }
    for name in rng.sample(("a", "b", "a", "b", "n", "day"), 6):
        if name not in document["attributes"] and len(document["attributes"]) < rng.choice((2, 3)):
            document["attributes"][name] = axis(name, rng)
    if rng.random() < 0.5:
        document["timezone"] = rng.choice(ZONES)
    privacy = document["privacy"]
    if rng.random() < 0.6:
        privacy["cells"] = [cell(document, rng) for _ in range(rng.choice((1, 1, 2)))]
    if rng.random() < 0.15:
        privacy["guards"] = [guard(document, rng)]
    if rng.random() < 0.06:
        privacy["per"] = {"day": privacy["budget"] * 0.9}
    if rng.random() < 0.5:
        document["analysts"] = {
            user: limits(document, rng) for user in USER_NAMES[: rng.choice((1, 2))]
        }
    if rng.random() < 0.3:
        document["groups"] = {group: limits(document, rng) for group in GROUP_NAMES[:1]}
    if rng.random() < 0.15:
        privacy["history"] = "own"
        for listed in (
            *document.get("analysts", {}).values(),
            *document.get("groups", {}).values(),
        ):
            listed.setdefault("history", "shared")
    return document


def people(rng):
    """Return random users."""
    return {user: {"roles": ["analyst"], "groups": membership(rng)} for user in USER_NAMES}


def membership(rng):
    return [group for group in GROUP_NAMES if rng.random() < 0.25]


def _unit(rng):
    if rng.random() < 0.75:
        return "row"
    return {"column": rng.choice(("person", "house")), "max_rows": rng.choice((1, 1, 2))}


def axis(name, rng):
    """Return a random axis."""
    if name == "day":
        return {"from": DAYS[0], "to": DAYS[1], "expression": SEEN}
    if name == "n":
        return rng.choice(
            ({"type": "integer", "range": [0, 1]}, {"edges": [0, 3, 6]}, {"values": [0, 1]})
        )
    spec = {"values": rng.choice((["x", "y"], ["x", "y"], ["x  y", "x", "x y"]))}
    if rng.random() < 0.15:
        spec = {"values": {"path": "values.csv", "column": "v"}}
    elif rng.random() < 0.6:
        spec["levels"] = {f"kind_{name}": levels(spec["values"], rng)}
    return spec


def levels(values, rng):
    """Return a random partition of values under two labels."""
    values = rng.sample(values, len(values))
    cut = rng.randint(1, len(values) - 1)
    return {"frail": values[:cut], "well": values[cut:]}


def where(document, rng):
    """Return a random condition on the attributes of a document."""
    found = _where(document, rng)
    roll = rng.random()
    if roll < 0.15:
        return both(found, _where(document, rng))
    if roll < 0.25:
        return either(found, _where(document, rng))
    if roll < 0.35:
        return rng.choice(remarked(found, _where(document, rng)))
    return found


def _where(document, rng):
    options = [
        compared(level, rng.choice(("=", "<>")), rng.choice(list(labels)))
        for _, level, labels in leveled(document)
    ] * 8
    for name, spec in document["attributes"].items():
        match form(spec):
            case "text":
                values = spec["values"] if isinstance(spec["values"], list) else ["x", "y"]
                options.append(compared(name, rng.choice(("=", "=", "<>")), rng.choice(values)))
                options.append(compared(name, "IN", rng.sample(values, 1)))
                if name == "a":
                    tables = [t for t in document.get("public", {}) if t != "places"]
                    options += [listed("a", table) for table in tables] * 6
            case "integer":
                low = spec["edges"][1] if "edges" in spec else 1
                options.append(compared(name, ">=", low))
            case "date":
                day = rng.choice(DAYS)
                options.append(compared(name, ">=", datetime.date.fromisoformat(day)))
                if rng.random() < 0.1:
                    options.append(_clock(name))
    return rng.choice(options)


def _clock(name):
    return Where(f"{name} >= current_date - 5", lambda shown: None, clock=True)


def cell(document, rng):
    """Return a random smaller budget."""
    budget = document["privacy"]["budget"]
    return {"where": where(document, rng), "budget": budget * rng.choice((0.1, 0.1, 0.3, 0.6))}


def guard(document, rng):
    """Return a random guard."""
    names = list(document["attributes"])
    claim = f"COUNT(*) BETWEEN 0 AND {rng.choice((0, 1, 3))}"
    return {"claim": claim, "for_each": rng.sample(names, 1), "confidence": rng.choice((0.5, 0.9))}


def limits(document, rng):
    """Return random limits of an analyst or a group."""
    budget = document["privacy"]["budget"] * rng.choice((0.1, 0.3))
    return rng.choice(
        ({"budget": budget}, {"budget": budget, "history": "own"}, {"spend": False},
         {"history": "shared"}, {"budget": budget, "history": "shared"})
    )  # fmt: skip


def population(rng, count):
    """Return raw rows of people, the same in three sources: as they are, changed, and some."""

    def person(i):
        return {
            "id": i,
            "a": rng.choice(("x", "x", "y", "y", "x  y", "x y", "w")),
            "b": rng.choice("xxyyw"),
            "n": rng.choice(("0", "0", "1", "1", "3", "7", None)),
            "seen": rng.choice(("2024-03-01 02:00:00+00:00", "2024-03-01 20:00:00+00:00",
                                "2024-03-02 03:00:00+00:00", None)),
            "pay": rng.choice(("10", "10", "10", "0", "-10", "20", None)),
            "person": f"p{i // 2}",
            "house": f"h{i // 4}",
        }  # fmt: skip

    first = [person(i) for i in range(count)]
    second = [person(i) | {key: row[key] for key in ("person", "house")}
              for i, row in enumerate(first)]  # fmt: skip
    return {"s0.csv": first, "s1.csv": second, "s2.csv": second[count // 2 :]}
