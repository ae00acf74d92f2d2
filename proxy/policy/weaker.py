"""What a new policy protects less than an old one: the difference a steward must agree to.

Both are compared as ``proxy.protection`` gives them, since the old one comes from a ledger: the
cells that conditions mean, and what each user may do, in names.  A change that cannot be shown to
be at least as strict is listed; an empty list means: as strict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from proxy.policy.kinds import decimal
from proxy.policy.model import guard_cap
from proxy.policy.regions import contains

Protection = Mapping[str, Any]
UNCAPPED: dict[str, Any] = {"budget": None, "spend": True, "history": "shared"}
UNLISTED = "*"  # stands for a user whom neither the policy nor the users file names
PROMISES = {
    "public": "what it holds is taken to be nobody's, and protects nobody",
    "trusted": "each of its rows is taken to be of its own unit alone, unseen",
}
GROUP = "@"  # begins the cap of a group


def weaker(old: Protection, new: Protection) -> list[str]:
    """Return a sentence for each change that lowers protection.

    Raises:
        ValueError: the two are not of one version.
    """
    if old["version"] != new["version"]:
        raise ValueError(f"protection of versions {old['version']} and {new['version']}")
    rules: tuple[Callable[[Protection, Protection], Iterator[str]], ...] = (
        _dataset, _attributes, _measures, _budgets, _unit, _cells, _guards, _limits, _caps,
    )  # fmt: skip
    found = [sentence for rule in rules for sentence in rule(old, new)]
    for entries, sentence in _users(old["users"], new["users"]):
        if not any(each.startswith(entry) for each in found for entry in entries):
            found.append(sentence)
    return found


def gains(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return what users may do and might not before, both as a protection has its users."""
    return [sentence for _, sentence in _users(old, new)]


def _users(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield each gain of a user, after the beginnings of sentences that say the same."""
    # without a users file, those that it had listed may ask like anybody else
    gone = {} if new[UNLISTED].get("refused") else dict.fromkeys(old, new[UNLISTED])
    for name, after in (gone | dict(new)).items():
        before = old.get(name, old[UNLISTED])
        who = "a user who is not listed" if name == UNLISTED else f"user {name}"
        entries = (f"analysts.{name}.", *(f"groups.{group}." for group in before["groups"]))
        for gain in _gains(before, after):
            yield entries, f"{who}: {gain}"


def _gains(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Yield what one user gains: another history, spending, a cap that binds no longer."""
    if before["own"] is not None:  # what is set aside: nobody else's answers, and no more
        if after["own"] is None or after["history"] != before["history"]:
            yield f"the history is {after['history']}, it was {before['history']}"
        elif _raised(before["own"], after["own"]):
            yield f"the history's budget is {_number(after['own'])}, it was {before['own']}"
    if after["spend"] and not before["spend"]:
        yield "spending is on, it was off"
    if before["own"] is None:
        for cap, budget in before["caps"].items():
            # the cap of a group binds what its members spend together; one's own only oneself;
            # in a history of one's own, what was spent in the shared one does not count
            caps = after["caps"].items() if after["own"] is None else ()
            same = [b for c, b in caps if c == cap or not cap.startswith(GROUP)]
            if not any(Fraction(b) <= Fraction(budget) for b in same):
                yield f"the cap {cap} of {_number(budget)} no longer binds"


def _dataset(old: Protection, new: Protection) -> Iterator[str]:
    """Another dataset, or other records in it."""
    if old["dataset"] != new["dataset"]:
        yield f"dataset is {new['dataset']}, it was {old['dataset']}"
    for key in ("engine", "table", "query"):
        if old["source"][key] != new["source"][key]:
            yield f"source.{key} has changed: a record may be another thing"
    for key, promise in PROMISES.items():
        for name in sorted({*new["source"].get(key, ())} - {*old["source"].get(key, ())}):
            yield f"source.{key} has {name}: {promise}"
    if new["records"] == "mutable" and new["partition"]:
        before, after = (each["partition"] or [None, None] for each in (old, new))
        if before[:2] != after[:2]:
            yield f"no record leaves its {after[1]} of {after[0]}: costs are carried over by period"
    if (old["records"], new["records"]) == ("mutable", "immutable"):
        yield "records are immutable now: a new snapshot carries costs over cell by cell"


def _attributes(old: Protection, new: Protection) -> Iterator[str]:
    """Another domain, in whatever way."""
    before, after = old["attributes"], new["attributes"]
    for name in sorted(before.keys() - after.keys()):
        yield f"attribute {name} is gone: other cells than those that paid"
    for name in sorted(after.keys() - before.keys()):
        yield f"attribute {name} is new: other cells than those that paid"
    for name in sorted(before.keys() & after.keys()):
        changed = [key for key in before[name] if before[name][key] != after[name].get(key)]
        if changed:
            yield f"attribute {name} has another domain: {', '.join(changed)}"


def _measures(old: Protection, new: Protection) -> Iterator[str]:
    """A new measure, a wider clip, another quantum."""
    for name, after in new["measures"].items():
        before = old["measures"].get(name)
        if before is None:
            yield f"measure {name} is new: more of each record can be asked"
            continue
        low, high = map(Fraction, before["clip"])
        new_low, new_high = map(Fraction, after["clip"])
        if new_low < low or new_high > high:
            yield (
                f"measure {name}: the clip is [{decimal(new_low)}, {decimal(new_high)}], "
                f"it was [{decimal(low)}, {decimal(high)}]"
            )
        for key in ("quantum", "nulls", "source"):
            if before[key] != after[key]:
                yield f"measure {name}: {key} is {after[key]}, it was {before[key]}"


def _budgets(old: Protection, new: Protection) -> Iterator[str]:
    """A larger budget, in all or by period."""
    if _raised(old["budget"], new["budget"]):
        yield f"privacy.budget is {_number(new['budget'])}, it was {_number(old['budget'])}"
    for period, before in old["per"].items():
        if _raised(before, new["per"].get(period)):
            yield (
                f"privacy.per.{period} is {_number(new['per'].get(period))}, "
                f"it was {_number(before)}"
            )
    if old["per"] and old["timezone"] != new["timezone"]:
        yield f"timezone is {new['timezone']}, it was {old['timezone']}: periods begin anew"


def _unit(old: Protection, new: Protection) -> Iterator[str]:
    """Other units, or fewer rows charged for."""
    before, after = old["unit"], new["unit"]
    if after["column"] != before["column"]:
        yield f"privacy.unit is {after['column'] or 'row'}, it was {before['column'] or 'row'}"
        return
    if after["max_rows"] < before["max_rows"]:
        yield f"privacy.unit.max_rows is {after['max_rows']}, it was {before['max_rows']}"
    if after["seed"] != before["seed"]:
        yield "privacy.unit.seed has changed: other rows of each unit are kept"


def _cells(old: Protection, new: Protection) -> Iterator[str]:
    """A smaller budget of some cells that is dropped or raised, by the cells that it means."""
    zones = old["timezone"], new["timezone"]
    domain = old["attributes"].keys() | new["attributes"].keys()
    changed = {
        name
        for name in domain
        if old["attributes"].get(name) != new["attributes"].get(name) or zones[0] != zones[1]
    }
    for rule in old["cells"]:
        now = min(
            [Fraction(new["budget"])]
            + [
                Fraction(each["budget"])
                for each in new["cells"]
                if rule["region"] is not None and contains(each["region"], rule["region"], changed)
            ]
        )
        if now > Fraction(rule["budget"]):
            where = f"cells where {rule['where']}"
            if zones[0] != zones[1]:
                where = f"records that were in {where} in the time zone {zones[0]}"
            yield f"the budget of {where} is {decimal(now)}, it was {_number(rule['budget'])}"


def _guards(old: Protection, new: Protection) -> Iterator[str]:
    """A guard that is removed, or lets cells pay more."""
    for guard in old["guards"]:
        same = [_cap(g) for g in new["guards"] if set(g["for_each"]) == set(guard["for_each"])]
        if not same or min(same) > _cap(guard):
            yield (
                f"the guard COUNT(*) BETWEEN {guard['low']} AND {guard['high']} for each "
                f"{', '.join(guard['for_each'])}, confidence {_number(guard['confidence'])}, is "
                f"{'looser' if same else 'gone'}"
            )


def _limits(old: Protection, new: Protection) -> Iterator[str]:
    """A lower floor, shared histories by default."""
    before, after = Fraction(old["floor"]), Fraction(new["floor"])
    # With a budget smaller by as much, as by default, histories grow no longer.
    if after < min(before, before / Fraction(old["budget"]) * Fraction(new["budget"])):
        yield f"privacy.floor is {_number(new['floor'])}, it was {_number(old['floor'])}"
    if (old["history"], new["history"]) == ("own", "shared"):
        yield "privacy.history is shared, it was own"


def _caps(old: Protection, new: Protection) -> Iterator[str]:
    """A cap that is raised or dropped, spending allowed, a history of one's own given up."""
    for kind in ("analysts", "groups"):
        for name, before in old[kind].items():
            default = UNCAPPED | ({"history": new["history"]} if kind == "analysts" else {})
            after = new[kind].get(name, default)
            if after["history"] == "own" and after["budget"] is None:
                after = after | {"budget": "0"}  # nothing is set aside
            where = f"{kind}.{name}"
            if before["budget"] is not None and _raised(before["budget"], after["budget"]):
                yield (
                    f"{where}.budget is {_number(after['budget'])}, "
                    f"it was {_number(before['budget'])}"
                )
            if after["spend"] and not before["spend"]:
                yield f"{where}.spend is on, it was off"
            if (before["history"], after["history"]) == ("own", "shared"):
                yield f"{where}.history is shared, it was own"


def _raised(before: str, after: str | None) -> bool:
    """Whether a limit is larger or gone."""
    return after is None or Fraction(after) > Fraction(before)


def _cap(guard: Protection) -> float:
    """Return the cost that a guard allows a cell; of two guards the larger is the looser."""
    return guard_cap(guard["low"], guard["high"], Fraction(guard["confidence"]))


def _number(text: str | None) -> str:
    """Return a number of the protection as people write it."""
    return "unlimited" if text is None else decimal(Fraction(text))
