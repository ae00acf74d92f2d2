"""Whatever becomes of a policy, its files and its state, nobody loses more than was promised."""

from collections import Counter
from random import Random
from types import SimpleNamespace

import pytest

import proxy.cube
import proxy.policy as policies
import proxy.protection
from proxy.cube import Cube, build
from proxy.domain import Domain
from proxy.errors import Error
from proxy.ledger.sqlite import SQLiteLedger
from proxy.policy.regions import HASH
from proxy.protection import coding
from proxy.steward import changes, snapshots
from tests.privacy import edits
from tests.privacy.accountant import Violation
from tests.privacy.builds import Build, Doubles
from tests.privacy.histories import World
from tests.privacy.lives import live, turned
from tests.privacy.worlds import counts
from tests.searches import share


@pytest.fixture
def lives(tmp_path):
    """A way to live lives, one after the other: a seed, an empty folder each."""
    with Doubles() as doubles:
        yield lambda seed, **how: live(tmp_path / str(seed), seed, doubles, **how)


def test_every_key_has_an_edit():
    """
    A key that is added to the table needs one, so that the search knows it.
    """
    assert sorted(edits.EDITS) == sorted(edits.paths())
    assert sorted(edits.USER_EDITS) == sorted(edits.user_paths())


@pytest.mark.parametrize("part", share(1, range(16), 5))
def test_a_hundred_and_sixty_lives(part, lives):
    """
    Random edits, acts, accidents and statements: no record, unit or user loses more than the
    strictest promise since a weaker one was agreed to, and nothing fails but by refusing
    (half of them in the slow run).
    """
    for seed in range(10 * part, 10 * (part + 1)):
        lives(seed)


@pytest.mark.parametrize("part", share(0, range(40), 1))
def test_two_thousand_lives(part, lives):
    """
    The same over 2,000 lives (100 in the slow run).
    """
    for seed in range(1_000 + 50 * part, 1_000 + 50 * (part + 1)):
        lives(seed)


@pytest.mark.audit
@pytest.mark.parametrize("part", range(100))
def test_fifty_thousand_lives(part, lives):
    """
    The same over 50,000 lives.
    """
    for seed in range(10_000 + 500 * part, 10_000 + 500 * (part + 1)):
        lives(seed)


def test_a_life_is_alike_again(lives):
    """
    What is found can be found again: a life depends on its seed alone.
    """
    one, two = (lives(3).counts for _ in range(2))
    assert one == two


# --- what the search rests on --------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("part", share(1, range(4)))
def test_the_reference_puts_records_where_the_cube_does(part, tmp_path):
    """
    Cells, counts and sums of random policies: two readings of the same words.
    """
    compared = 0
    for seed in range(15 * part, 15 * (part + 1)):
        with Doubles() as doubles:
            world = World(fresh(tmp_path / str(seed)), seed, doubles)
            for key in ("attributes", "outside", "attributes.<attribute>.expression", "timezone"):
                edits.EDITS[key](world.document, Random(seed))
            world.document["privacy"]["unit"] = (
                "row"  # which rows of a unit are kept, is its hash's
            )
            world._write()
        try:
            policy = policies.load(world.policy)
            build(policy, world.folder / "cube", "reference")
        except Error:
            continue
        made = Build(world.force(), world.rows(policy.source.path.name), policy.domain)
        real = Cube.open(world.folder / "cube", policy.domain, "reference")
        kept = made.kept()
        assert Counter(codes for _, codes, _ in kept) == counts(real)
        if policy.domain.measures:
            sums = sum(quanta[0] or 0 for _, _, quanta in kept)
            assert int(real._parts[1].sum()) == sums
        compared += 1
    assert compared > 5


def fresh(folder):
    """A new folder."""
    folder.mkdir()
    return folder


# --- planted faults ------------------------------------------------------------------------------


def by_position(monkeypatch):
    """Axes are what they are by their place: two policies in another order are the same."""

    def layout(domain):
        named = sorted([a.name, sorted(map(str, a.values)), a.null] for a in domain.attributes)
        return {"attributes": named, "measures": [m.name for m in domain.measures]}

    monkeypatch.setattr(Domain, "layout", property(layout))
    monkeypatch.setattr(Domain, "ordered_as", lambda domain, _: domain)


def by_text(monkeypatch):
    """A condition is its words, white space made alike; its cells are not looked at."""

    def words(rule, *_):
        return [SimpleNamespace(axes=(), array=" ".join(rule.where.split()))]

    def as_json(tensors, _):
        return [{"axes": [], "shape": [], "cells": HASH + text} for _, text in tensors]

    monkeypatch.setattr(proxy.protection, "region", words)
    monkeypatch.setattr(proxy.protection, "region_json", as_json)


def without_zone(monkeypatch):
    """The time zone is left out of what decides a record's cell."""
    for module in (changes, snapshots):
        monkeypatch.setattr(module, "coding", lambda value: coding(value | {"timezone": ""}))


def budget_of_the_file(monkeypatch):
    """A restore charges the budget that the policy's file has."""
    monkeypatch.setattr(SQLiteLedger, "protections", lambda _: [])


def another_source(monkeypatch):
    """The cube of a snapshot is built of whatever the source is now."""
    monkeypatch.setattr(proxy.cube, "fingerprint", lambda policy, key: "the source")


def by_name(monkeypatch):
    """Another name is other people."""
    monkeypatch.setattr(changes, "twins", lambda policy, folder: [])


def as_it_was(monkeypatch):
    """A period that is read again goes on with what it had paid when it was read before."""
    monkeypatch.setattr(snapshots, "_paid", lambda reads, old, policy, closing: closing.paid)


PLANTED = [  # the fault, and a turn that meets it; the first three are soonest found
    (by_text, ("drain", "edit_public", "drain")),
    (by_name, ("drain", "edit:dataset", "init", "drain")),
    (another_source, ("drain", "lose:cube", "move", "init", "drain")),
    (by_text, ("drain", "edit:attributes.<attribute>.levels", "apply", "drain")),
    (without_zone, ("drain", "edit:timezone", "apply", "rebuild", "drain")),
    (
        budget_of_the_file,
        ("backup", "drain", "lose:anchor", "edit:privacy.budget", "restore", "undo", "drain"),
    ),
    (by_position, ("drain", "edit:attributes", "apply", "rebuild", "drain")),
    (as_it_was, ("edit:partition", "apply", "drain", "move", "rebuild", "drain")),
]


@pytest.mark.parametrize(("plant", "turn"), share(3, PLANTED))
def test_a_planted_fault_is_caught(plant, turn, lives, monkeypatch):
    """
    Within a hundred short lives that meet it; and nothing is, in the same life, without it.
    """
    with monkeypatch.context() as planted:
        plant(planted)
        found = next((seed for seed in range(100) if caught(lives, seed, turn)), None)
    assert found is not None
    assert not caught(lives, found, turn)


def caught(lives, seed, turn):
    """Whether somebody lost too much in a life of one turn."""
    try:
        lives(seed, taken=turned(turn, seed))
    except Violation as violation:
        return violation.kind != "crash"
    return False
