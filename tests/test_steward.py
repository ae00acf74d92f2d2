"""A steward's acts: none gives budget back, and none is half done, wherever it is killed."""

import os
import shutil
import subprocess
import sys

import pytest

import proxy.cube
from proxy import protection
from proxy.cube.sources.duckdb import FileSource
from proxy.errors import (
    InsufficientBudgetError,
    IntegrityError,
    OperationalError,
    PolicyError,
    SourceError,
    StateError,
)
from proxy.steward import apply, audit, backup, check, guards, init, rebuild, restore, verify
from proxy.steward.twins import same_place
from tests.searches import share
from tests.small import DOMAIN, PRIVACY, Small, count

COST = 0.2187254167320134  # of the first count within 10, with confidence 90%
IMMUTABLE = "records: immutable\n"
OWN = "analysts: {ann: {budget: 0.4, history: own}}\n"


@pytest.fixture
def small(tmp_path):
    """A folder with a few people."""
    small = Small(tmp_path)
    small.data((0, "a", 5), (5, "a", 4), (9, "b", 7))
    return small


def left(engine, user=""):
    """What the policy's first budget has left in its dearest cell."""
    return engine.budget(user).rules[0].left


def kinds(small):
    return [line.kind for line in audit(small.policy)]


# --- init ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_init_can_be_done_again_after_a_build_that_failed(small):
    """
    There is no ledger before there is a cube, though the policy was wrong and had to be changed.
    """
    narrow = DOMAIN.replace("[0, 9]", "[0, 8]").replace("outside: drop", "outside: error")
    small.write(domain=narrow)
    with pytest.raises(SourceError, match="age"):
        init(small.policy)
    with pytest.raises(StateError, match="there is no ledger"):
        small.engine()
    small.write()
    assert init(small.policy).kept == 16
    assert count(small.engine()).rows == [(16,)]
    assert kinds(small) == ["init", "measured"]


@pytest.mark.slow
def test_init_never_starts_a_second_budget(small):
    """
    Not over a state that is there, nor where its ledger is gone: with anchor, or with cube only.
    """
    count(small.made())
    with pytest.raises(StateError, match="already the state"):
        init(small.policy)
    (small.state / "ledger.sqlite").unlink()
    with pytest.raises(StateError, match="gone"):
        init(small.policy)
    (small.state / "anchor").unlink()
    with pytest.raises(StateError, match="gone"):
        init(small.policy)
    assert not (small.state / "ledger.sqlite").exists()


# --- apply ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_weaker_policy_is_applied_only_if_that_is_accepted(small):
    """
    Said in words, audited with them; what was spent stays spent.
    """
    count(small.made())
    small.write(PRIVACY.replace("budget: 1", "budget: 2"))
    with pytest.raises(StateError, match="changed since it was applied"):
        small.engine()
    with pytest.raises(StateError, match=r"(?s)nothing was changed.*budget is 2, it was 1"):
        apply(small.policy)
    report = apply(small.policy, accept_weaker=True)
    assert (report.applied, report.changes) == (True, ("privacy.budget is 2, it was 1",))
    assert left(small.engine()) == pytest.approx(2 - COST)
    line = audit(small.policy)[-1]
    assert (line.kind, line.detail["weaker"]) == ("policy", ["privacy.budget is 2, it was 1"])
    assert not apply(small.policy).applied


@pytest.mark.slow
def test_a_stricter_policy_needs_no_accepting(small):
    """
    And the cube stays.
    """
    count(small.made())
    small.write(PRIVACY.replace("budget: 1", "budget: 0.5"))
    assert apply(small.policy).rebuilt is None
    assert left(small.engine()) == pytest.approx(0.5 - COST)
    assert count(small.engine()).cost == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "people"),
    [
        ("range: [0, 9]", "range: [0, 5]", 9),
        ("values: [a, b]", "values: [b, a, c]", 16),
        ("max_records: 1000", "max_records: 999", 16),
        ("{engine: duckdb, path: people.csv}",
         "{engine: duckdb, path: people.csv, query: SELECT * FROM source WHERE town = 'a'}", 9),
    ],
)  # fmt: skip
def test_where_the_cells_change_the_cube_is_rebuilt(small, old, new, people):
    """
    Domain, source or bound: a new snapshot, in which every cell starts at the most.
    """
    running = small.made()
    count(running, "age = 9")
    small.write(domain=DOMAIN.replace(old, new))
    report = apply(small.policy, accept_weaker=True)
    assert report.rebuilt.bases == {"shared": pytest.approx(COST)}
    assert [path.name for path in small.state.glob("cube*")] == ["cube-2.duckdb"]
    engine = small.engine()
    assert left(engine) == pytest.approx(1 - COST)
    assert count(engine).rows == [(people,)]
    with pytest.raises(StateError, match="another policy"):
        count(running, "age = 9")


@pytest.mark.slow
def test_a_larger_bound_on_records_leaves_the_cube(small):
    """
    It rebuilds nothing.
    """
    count(small.made())
    small.write(domain=DOMAIN.replace("1000", "2000"))
    assert apply(small.policy).rebuilt is None
    assert count(small.engine()).cost == 0


def test_giving_up_an_own_history_gives_no_budget_back(small):
    """
    She spent 0.22 of her 0.4: the shared history gets the rest of 1, and not all of it.
    """
    count(small.made(rest=OWN), user="ann")
    small.write()
    apply(small.policy, accept_weaker=True)
    engine = small.engine()
    assert left(engine, "ann") == left(engine) == pytest.approx(1 - COST)


@pytest.mark.slow
def test_a_new_own_history_gets_what_the_shared_one_has_left(small):
    """
    0.87 is spent: of her 0.4 there is 0.13, and for the others nothing.
    """
    engine = small.made()
    for where in ("true", "age < 5", "age < 3", "age < 1"):
        count(engine, where)
    spent = 1 - left(engine)
    assert spent > 0.6
    small.write(rest=OWN)
    apply(small.policy)
    engine = small.engine()
    assert left(engine, "ann") == pytest.approx(1 - spent)
    assert left(engine) == 0
    with pytest.raises(InsufficientBudgetError):
        count(engine, within=8)


def test_an_own_budget_that_is_lowered_gives_the_others_what_is_left(small):
    """
    She spent 0.22, and is now given 0.1.
    """
    count(small.made(rest=OWN), user="ann")
    small.write(rest=OWN.replace("0.4", "0.1"))
    apply(small.policy)
    engine = small.engine()
    assert left(engine, "ann") == 0
    assert left(engine) == pytest.approx(1 - COST)


@pytest.mark.slow
def test_cell_budgets_hold_over_all_histories(small):
    """
    After a rebuild every cell has paid what the dearest had: her part of 0.5 is gone with it,
    and what she has paid beyond it is taken from the others' part.
    """
    rest = "analysts: {ann: {budget: 0.5, history: own}}\n"
    privacy = 'privacy: {budget: 1, unit: row, cells: [{where: "age < 2", budget: 0.5}]}\n'
    engine = small.made(privacy, rest)
    count(engine, "age = 9", user="ann")
    count(engine, "age = 8", user="ann")
    count(engine, "age = 9 AND town = 'a'", user="ann")
    spent = 0.5 - left(engine, "ann")
    assert spent > 0.25
    assert engine.budget().rules[1].budget == 0.25
    rebuild(small.policy)
    assert engine.budget().rules[1].budget == pytest.approx(0.5 - spent)
    assert engine.budget("ann").rules[1].left == 0


# --- rebuild -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_in_a_new_snapshot_every_cell_starts_with_the_most_that_any_has_paid(small):
    """
    In running engines too, which read the new data and infer nothing from older answers.
    """
    running = small.made()
    count(running, "age = 9")
    count(running, "age = 9 AND town = 'b'", 9)
    count(running, "age = 0", 11)
    spent = 1 - left(running)
    small.data((0, "a", 2))
    report = rebuild(small.policy)
    assert (report.snapshot, report.survey.kept, report.carried) == (2, 2, False)
    assert report.bases == {"shared": pytest.approx(spent)}
    for engine in (running, small.engine()):
        assert left(engine) == pytest.approx(1 - spent)
        assert engine.budget().numbers == 0
    fresh = count(running, "age = 0", 11)
    assert fresh.cost > 0
    assert fresh.rows == [(2,)]
    assert left(running) == pytest.approx(1 - spent - fresh.cost)
    assert [path.name for path in small.state.glob("cube*")] == ["cube-2.duckdb"]
    assert kinds(small) == ["init", *["measured"] * 3, "rebuild", "measured"]


@pytest.mark.slow
@pytest.mark.parametrize("rest", [OWN, OWN + IMMUTABLE])
def test_own_histories_start_with_their_own_most(small, rest):
    """
    Again after a further rebuild in which they did nothing; and where cells go on, with theirs.
    """
    engine = small.made(rest=rest)
    count(engine, user="ann")
    count(engine, "age = 9", 9)
    before = left(engine, "ann"), left(engine)
    for _ in range(2):
        rebuild(small.policy)
        assert (left(engine, "ann"), left(engine)) == before


@pytest.mark.slow
def test_where_records_never_change_every_cell_goes_on(small):
    """
    With `unit: row` and `records: immutable`; answers are not inferred from all the same.
    """
    engine = small.made(rest=IMMUTABLE)
    count(engine, "age = 9")
    for snapshot in (2, 3):
        report = rebuild(small.policy)
        assert (report.snapshot, report.carried) == (snapshot, True)
        assert report.bases == {}
    assert left(engine) == pytest.approx(1 - COST)
    assert engine.budget().numbers == 0
    others = count(engine, "age < 9")
    assert others.cost > 0
    assert left(engine) == pytest.approx(1 - COST)
    again = count(engine, "age = 9")
    assert again.cost > 0
    assert left(engine) == pytest.approx(1 - COST - again.cost)
    assert left(small.engine()) == left(engine)


@pytest.mark.slow
def test_another_way_to_read_records_ends_cell_by_cell(small, monkeypatch):
    """
    Where expressions of policies have come to mean something else, records may be in other cells.
    """
    with monkeypatch.context() as before:
        before.setattr(protection, "CODING", protection.CODING - 1)
        count(small.made(rest=IMMUTABLE), "age = 9")
    report = rebuild(small.policy)
    assert (report.carried, report.bases) == (False, {"shared": pytest.approx(COST)})
    assert rebuild(small.policy).carried


@pytest.mark.slow
def test_what_was_carried_cell_by_cell_is_in_the_base_of_a_snapshot_that_is_not(small):
    """
    Two snapshots of records that never change, then they do.
    """
    engine = small.made(rest=IMMUTABLE)
    count(engine, "age = 9")
    rebuild(small.policy)
    count(engine, "age = 9")
    spent = 1 - left(engine)
    small.write()
    apply(small.policy)
    assert rebuild(small.policy).bases == {"shared": pytest.approx(spent)}
    assert left(small.engine()) == pytest.approx(1 - spent)


@pytest.mark.slow
def test_other_cells_do_not_go_on_though_records_never_change(small):
    """
    What a new cell holds may have paid in any of the old ones.
    """
    count(small.made(rest=IMMUTABLE), "age = 9")
    small.write(rest=IMMUTABLE, domain=DOMAIN.replace("values: [a, b]", "values: [a, b, c]"))
    report = apply(small.policy, accept_weaker=True).rebuilt
    assert (report.carried, report.bases) == (False, {"shared": pytest.approx(COST)})


@pytest.mark.slow
def test_units_do_not_go_on_cell_by_cell(small):
    """
    A unit's new rows may be in other cells than its old ones.
    """
    engine = small.made("privacy: {budget: 1, unit: {column: unit, max_rows: 2}}\n", IMMUTABLE)
    count(engine, "age = 9")
    assert not rebuild(small.policy).carried
    assert left(engine) == pytest.approx(0.5 - COST)


@pytest.mark.slow
def test_two_at_once_do_not_share_a_snapshot(small, monkeypatch):
    """
    The slower one changes nothing, though it read the same data.
    """
    small.made()
    real = proxy.cube.build

    def slow(*args):
        monkeypatch.setattr(proxy.cube, "build", real)
        rebuild(small.policy)
        return real(*args)

    monkeypatch.setattr(proxy.cube, "build", slow)
    with pytest.raises(StateError, match="meanwhile"):
        rebuild(small.policy)
    assert [path.name for path in small.state.glob("*cube*")] == ["cube-2.duckdb"]
    assert count(small.engine()).rows == [(16,)]


@pytest.mark.slow
def test_a_policy_that_is_applied_meanwhile_stops_a_rebuild(small, monkeypatch):
    """
    The cube is of the old one.
    """
    small.made()
    real = proxy.cube.build

    def slow(*args):
        small.write(PRIVACY.replace("1", "0.5"))
        apply(small.policy)
        return real(*args)

    monkeypatch.setattr(proxy.cube, "build", slow)
    with pytest.raises(StateError, match="meanwhile"):
        rebuild(small.policy)
    assert left(small.engine()) == 0.5


def test_a_rebuild_that_fails_changes_nothing(small):
    """
    The old cube goes on serving.
    """
    engine = small.made()
    count(engine)
    os.unlink(small.folder / "people.csv")
    with pytest.raises(PolicyError, match=r"yaml:\d+: source: .*people\.csv does not exist"):
        rebuild(small.policy)
    assert [path.name for path in small.state.glob("*cube*")] == ["cube-1.duckdb"]
    assert count(engine, "age < 5").rows == [(5,)]


KILLED = """
import os, sys
import proxy.cube, proxy.steward as acts, proxy.steward.snapshots as steward
act, step, policy = sys.argv[1:]
place = proxy.cube if step == "build" else steward
real = getattr(place, step)
def last(*args):
    if step == "build":
        real(*args)
    os._exit(9)
setattr(place, step, last)
if act == "apply":
    acts.apply(policy, accept_weaker=True)
else:
    acts.rebuild(policy)
"""
STEPS = ("build", "sync_folder", "RebuildReport")  # and what has come before them


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("act", share(1, ["apply", "rebuild"]))
def test_killed_at_any_step_it_gives_no_budget_back(small, act, step):
    """
    Before the commit everything is as it was, after it as it should be; and it can be done again.
    """
    count(small.made(), "age = 9")
    if act == "apply":
        small.write(domain=DOMAIN.replace("[0, 9]", "[0, 10]"))
    done = subprocess.run([sys.executable, "-c", KILLED, act, step, str(small.policy)], check=False)
    assert done.returncode == 9
    committed = step == "RebuildReport"
    if act == "apply" and not committed:
        with pytest.raises(StateError, match="changed since it was applied"):
            small.engine()
        small.write()
    engine = small.engine()
    assert left(engine) == pytest.approx(1 - COST)
    assert (count(engine, "age = 9", 20).cost == 0) != committed
    spent = 1 - left(engine)
    small.data((0, "a", 2))
    assert rebuild(small.policy).bases == {"shared": pytest.approx(spent)}
    assert count(engine).rows == [(2,)]
    assert verify(small.policy) == []


# --- backup and restore --------------------------------------------------------------------------


@pytest.mark.slow
def test_a_restored_backup_charges_what_was_spent_since_and_finds_its_cube(small):
    """
    Its snapshot is a new one of the same data.
    """
    engine = small.made()
    count(engine)
    backup(small.policy, small.folder / "backup")
    count(engine, "age = 9")
    engine.close()
    report = restore(small.policy, small.folder / "backup")
    assert (report.missed, report.charged) == (True, {"shared": pytest.approx(2 * COST)})
    engine = small.engine()
    assert left(engine) == pytest.approx(1 - 2 * COST)
    assert count(engine, within=20).rows == [(16,)]
    assert verify(small.policy) == []


@pytest.mark.slow
def test_a_restore_takes_over_users_who_gain_nothing(small):
    """
    What was taken over of a users file since the backup binds again.
    """
    small.users(ann="roles: [analyst]")
    small.made(rest="groups: {few: {budget: 0.1}}\n").close()
    backup(small.policy, small.folder / "backup")
    small.users(ann="roles: [analyst], groups: [few]")
    small.engine().close()
    (small.state / "ledger.sqlite").unlink()
    restore(small.policy, small.folder / "backup")
    small.users(ann="roles: [analyst]")
    with pytest.raises(StateError, match="gives more"):
        small.engine()


@pytest.mark.slow
def test_a_backup_as_new_as_the_ledger_charges_nothing(small):
    """
    Snapshot, cube and answers stay; a cube that a killed rebuild has left is not taken.
    """
    engine = small.made()
    count(engine)
    engine.close()
    shutil.copy(small.state / "cube-1.duckdb", small.state / "cube-2.duckdb")
    backup(small.policy, small.folder / "backup")
    report = restore(small.policy, small.folder / "backup")
    assert (report.missed, report.charged) == (False, {"shared": pytest.approx(COST)})
    assert sorted(path.name for path in small.state.glob("cube*")) == [
        "cube-1.duckdb",
        "cube-2.duckdb",
    ]
    assert count(small.engine()).cost == 0


@pytest.mark.slow
def test_a_backup_from_before_a_rebuild_gets_the_newest_cube(small):
    """
    The people of the newest data, and no budget back.
    """
    engine = small.made()
    backup(small.policy, small.folder / "backup")
    count(engine)
    engine.close()
    for people in (3, 2):
        small.data((0, "a", people))
        rebuild(small.policy)
    restore(small.policy, small.folder / "backup")
    engine = small.engine()
    assert left(engine) == pytest.approx(1 - COST)
    assert count(engine, within=20).rows == [(2,)]


@pytest.mark.slow
def test_a_source_that_changes_while_it_is_read_gives_no_cube(small, monkeypatch):
    """
    Its fingerprint would be that of other people.
    """
    small.made()
    group = FileSource.group

    def slow(source, *of):
        group(source, *of)
        small.data((0, "a", 1))

    monkeypatch.setattr(FileSource, "group", slow)
    with pytest.raises(SourceError, match="changed while it was read"):
        rebuild(small.policy)
    assert [path.name for path in small.state.glob("*cube*")] == ["cube-1.duckdb"]
    assert count(small.engine()).rows == [(16,)]


@pytest.mark.slow
def test_a_restore_without_a_source_says_what_to_do(small):
    """
    And that can be done: `init`, with what was charged.
    """
    engine = small.made()
    backup(small.policy, small.folder / "backup")
    count(engine)
    engine.close()
    shutil.rmtree(small.state)
    (small.folder / "people.csv").rename(small.folder / "away.csv")
    report = restore(small.policy, small.folder / "backup", charge_all=True)
    assert report.cube.startswith("missing")
    with pytest.raises(StateError, match="privacy-proxy init"):
        small.engine()
    (small.folder / "away.csv").rename(small.folder / "people.csv")
    assert init(small.policy).again
    assert left(small.engine()) == 0


@pytest.mark.slow
def test_a_history_that_the_backup_does_not_know_keeps_its_base(small):
    """
    Her first answer was lost with the ledger, but not what it cost: after a rebuild neither.
    """
    engine = small.made(rest=OWN)
    backup(small.policy, small.folder / "backup")
    count(engine, user="ann")
    engine.close()
    restore(small.policy, small.folder / "backup")
    rebuild(small.policy)
    engine = small.engine()
    assert left(engine, "ann") == pytest.approx(0.4 - COST)
    assert left(engine) == pytest.approx(0.6)


@pytest.mark.slow
def test_without_an_anchor_only_the_whole_budget_is_enough(small):
    """
    Of every history; a refusal says so.
    """
    engine = small.made(rest=OWN)
    count(engine, user="ann")
    engine.close()
    backup(small.policy, small.folder / "backup")
    (small.state / "anchor").unlink()
    with pytest.raises(IntegrityError, match="anchor is missing"):
        small.engine()
    with pytest.raises(StateError, match="not known"):
        restore(small.policy, small.folder / "backup")
    report = restore(small.policy, small.folder / "backup", charge_all=True)
    assert report.charged == {"own:ann": pytest.approx(0.4), "shared": pytest.approx(0.6)}
    engine = small.engine()
    assert (left(engine, "ann"), left(engine)) == (0, 0)


def test_a_ledger_in_use_is_not_replaced(small):
    """
    What the running proxy charges would be lost.
    """
    engine = small.made()
    count(engine)
    backup(small.policy, small.folder / "backup")
    with pytest.raises(OperationalError, match="in use"):
        restore(small.policy, small.folder / "backup")
    assert count(engine).cost == 0


# --- what it is shown ----------------------------------------------------------------------------


@pytest.mark.slow
def test_check_says_what_has_changed_and_who_else_spends_on_the_source(small):
    """
    The same file under another name has a budget of its own, and people pay both.
    """
    small.write()
    assert check(small.policy).state == "not made yet"
    small.made()
    assert (check(small.policy).state, check(small.policy).twins) == ("in force", ())
    small.write(PRIVACY.replace("1", "2"))
    report = check(small.policy)
    assert report.changes == ("privacy.budget is 2, it was 1",)
    assert report.state == "changed since it was applied"
    other = DOMAIN.replace("dataset: people", "dataset: folk") + PRIVACY
    (small.folder / "folk.yaml").write_text(other.replace("people.csv", "./people.csv"))
    (small.folder / "else.yml").write_text(other.replace("people.csv", "other.csv"))
    (small.folder / "broken.yaml").write_text("[")
    assert check(small.policy).twins == ("folk.yaml (folk)",)


@pytest.mark.slow
def test_check_says_whether_the_source_is_the_one_that_the_cube_holds(small):
    """
    The ledger keeps a keyed fingerprint of the source, of each snapshot; without its key, which
    is in nobody's reach but the state's owner's, it tells nothing.
    """
    small.made()
    assert check(small.policy).moved is False
    source = small.folder / "people.csv"
    source.write_text(source.read_text() + source.read_text().splitlines()[-1] + "\n")
    assert check(small.policy).moved is True
    rebuild(small.policy)
    assert check(small.policy).moved is False
    (key,) = small.folder.glob(".privacy-proxy/*/source.key")
    assert key.stat().st_mode & 0o777 == 0o600
    key.unlink()
    assert check(small.policy).moved is None


@pytest.mark.slow
def test_guards_say_how_certain_anyone_can_be(small):
    """
    1 - exp(-6 · 0.2187), and over both histories: what the dearest cell has paid in all.
    """
    claim = '{claim: "COUNT(*) BETWEEN 0 AND 5", for_each: [age], confidence: 0.95}'
    engine = small.made(f"privacy: {{budget: 1, unit: row, guards: [{claim}]}}\n", OWN)
    assert [(g.spent, g.bound) for g in guards(small.policy)] == [(0, 0)]
    count(engine, "age = 9")
    (guard,) = guards(small.policy)
    assert (guard.claim, guard.for_each) == ("COUNT(*) BETWEEN 0 AND 5", ("age",))
    assert guard.cap == pytest.approx(0.49928871)
    assert guard.spent == pytest.approx(COST)
    assert guard.left == pytest.approx(0.49928871 - COST)
    assert guard.bound == pytest.approx(0.730814, abs=1e-6)
    second = count(engine, "age > 5", 20, user="ann").cost
    (guard,) = guards(small.policy)
    assert guard.spent == pytest.approx(COST + second)
    rebuild(small.policy)
    assert guards(small.policy)[0].spent == guard.spent


def test_the_audit_log_has_free_statements_too(small):
    """
    Measured, inferred and refused, by time.
    """
    engine = small.made()
    count(engine, user="ann")
    count(engine, user="bob")
    with pytest.raises(InsufficientBudgetError):
        count(engine, within=1)
    lines = audit(small.policy)
    assert [(line.kind, line.user, line.seq) for line in lines[1:]] == [
        ("measured", "ann", 2),
        ("inferred", "bob", 0),
        ("refused", "", 0),
    ]


@pytest.mark.slow
def test_a_policy_whose_conditions_do_not_compile_is_never_applied(small):
    """
    Nor made: the error has file and line.
    """
    wrong = PRIVACY.replace("row}", 'row, cells: [{where: "size < 2", budget: 0.1}]}')
    small.write(wrong)
    with pytest.raises(PolicyError, match=r"people\.yaml:\d+: privacy\.cells"):
        init(small.policy)
    small.made()
    small.write(wrong)
    with pytest.raises(PolicyError, match=r"people\.yaml:\d+: privacy\.cells"):
        apply(small.policy)


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        ("host=a dbname=d|data", "host=a dbname=d|data", True),
        ("host=a dbname=d|data", "host=b dbname=d|public.Data", True),
        ("host=a dbname=d|data", "postgresql://b/d|data", True),
        ("host=a dbname=d|data", "service=s|data", True),
        ("host=a dbname=d|data", "host=a dbname=e|data", False),
        ("host=a dbname=d|data", "host=a dbname=d|other", False),
        ("host=a dbname=d|data", "host=a dbname=d|s.data", False),
    ],
)
def test_a_table_of_postgresql_is_known_by_any_address(one, two, same):
    """
    Its database has many; that of another name, or another table, is another source.
    """
    found = [
        {"engine": "postgres", "path": None, "query": None, "dsn": dsn, "table": table}
        for dsn, table in (each.split("|") for each in (one, two))
    ]
    assert same_place(*found) is same
    whole = {"engine": "duckdb", "path": "d.duckdb", "query": None}
    assert same_place(whole | {"table": "main.T"}, whole | {"table": "t"})
