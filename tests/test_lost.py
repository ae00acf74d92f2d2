"""States that are lost, copied or renamed: no road leads to a second budget unnoticed."""

import shutil
from contextlib import closing

import duckdb
import pytest

from proxy.cli import run
from proxy.errors import InsufficientBudgetError, StateError
from proxy.steward import apply, audit, backup, check, init, restore
from tests.small import DOMAIN, PRIVACY, Small

SQL = "SELECT COUNT(*) FROM people WITH UTILITY (4, 0.05)"
LEAVES = ("anchor", "cube-1.duckdb", "ledger.sqlite.notes", "ledger.sqlite-wal")


@pytest.fixture
def small(tmp_path):
    """Sixteen people, and a policy that is written by each test."""
    small = Small(tmp_path)
    small.data((0, "a", 8), (1, "b", 8))
    return small


def every_command(policy):
    """Return a call of each command that needs a ledger."""
    return (
        *(["budget", policy], ["history", policy], ["guards", policy], ["audit", policy]),
        *(["audit", policy, "--verify"], ["apply", policy], ["rebuild", policy]),
        *(["query", policy, SQL], ["explain", policy, SQL]),
        ["ledger", "backup", policy, "never"],
    )


@pytest.mark.slow
@pytest.mark.parametrize("left", [*LEAVES, "", "state"])
def test_where_a_ledger_is_lost_the_way_back_is_a_backup(small, capsys, left):
    """
    Whatever of it is left, every command names `ledger restore` before `init`, or instead of it.
    """
    engine = small.made()
    engine.session().execute(SQL)
    engine.session().execute(SQL)  # free, and in the notes
    engine.close()
    for path in list(small.state.iterdir()):
        if path.name == left or (left == "state" and path.name != "ledger.sqlite"):
            continue
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    if left == "ledger.sqlite-wal":
        (small.state / left).write_bytes(b"what was not written back")
    if not left:
        small.state.rmdir()
    commands = [*every_command(str(small.policy))]
    for command in commands if not left else [*commands, ["init", str(small.policy)]]:
        assert run(command) == 2
        error = capsys.readouterr().err
        assert "privacy-proxy ledger restore" in error
        assert ("is gone" in error) == bool(left)
        if left:
            assert "init" not in error
        else:
            assert error.index("ledger restore") < error.index("Only a dataset that never had")


@pytest.mark.slow
def test_a_ledger_that_was_made_since_gives_way_to_a_backup(small, capsys):
    """
    Whether it has spent or not: the refusal says how, and then the whole budget is charged.
    """
    small.made().close()
    copy = small.folder / "backup"
    backup(small.policy, copy)
    for spend in (False, True):
        shutil.rmtree(small.state)
        engine = small.made()
        if spend:
            for width in (60, 50, 40, 30):
                engine.session().execute(SQL.replace("(4", f"({width}"))
        engine.close()
        assert run(["ledger", "restore", str(small.policy), str(copy)]) == 2
        error = capsys.readouterr().err
        assert "--charge-all" in error
        assert ("put back the anchor" in error) != spend
        assert restore(small.policy, copy, charge_all=True).charged["shared"] == 1
        assert [p for p in small.state.iterdir() if ".replaced-" in p.name]
        assert "restore" in [line.kind for line in audit(small.policy)]
        with closing(small.engine()) as engine, pytest.raises(InsufficientBudgetError):
            engine.session().execute(SQL)
        assert run(["audit", str(small.policy), "--verify"]) == 0
        capsys.readouterr()


FOLK = DOMAIN.replace("dataset: people", "dataset: folk")
SAME = {  # how the other dataset comes by the same people
    "the name": lambda world: FOLK,
    "a copy": lambda world: copied(world, FOLK),
    "its data have grown": lambda world: grown(world, FOLK),
    "a pattern": lambda world: FOLK.replace("people.csv", "peop*.csv"),
    "a pattern that finds a copy": lambda world: copied(world, FOLK, "c*.csv"),
    "a hard link": lambda world: linked(world, FOLK),
    "a query": lambda world: FOLK.replace(
        "path: people.csv", 'path: people.csv, query: "SELECT * FROM source"'
    ),
    "its ledger is gone": lambda world: gone(world, FOLK),
    "its ledger is damaged": lambda world: damaged(world, FOLK),
}


def copied(world, text, path="copy.csv"):
    shutil.copy(world.folder / "people.csv", world.folder / "copy.csv")
    return text.replace("people.csv", path)


def linked(world, text):
    (world.folder / "d").mkdir()
    (world.folder / "d/linked.csv").hardlink_to(world.folder / "people.csv")
    (world.folder / "d/more.csv").write_text("age,town,unit\n2,a,u\n")
    return text.replace("people.csv", "d/*.csv")


def grown(world, text):
    world.data((0, "a", 9), (1, "b", 8))
    return text


def gone(world, text):
    (world.folder / ".privacy-proxy/people/ledger.sqlite").unlink()
    return text


def damaged(world, text):
    for path in (world.folder / ".privacy-proxy/people").glob("ledger.sqlite*"):
        shutil.rmtree(path) if path.is_dir() else path.write_bytes(b"damaged" * 1000)
    return text


@pytest.mark.slow
@pytest.mark.parametrize("how", SAME)
def test_a_renamed_dataset_has_no_second_budget_unless_that_is_accepted(small, capsys, how):
    """
    Nor does another policy over the same file, or a copy; it is refused, `check` tells, and what is
    accepted is in the audit log.
    """
    small.made().close()
    small.write(domain=SAME[how](small))
    assert any("people" in twin for twin in check(small.policy).twins)
    with pytest.raises(StateError, match="second budget") as refused:
        init(small.policy)
    assert "--accept-second-budget" in refused.value.hint
    assert not small.state.exists()
    assert run(["init", str(small.policy), "--accept-second-budget"]) == 0
    capsys.readouterr()
    assert audit(small.policy)[0].detail["second_budget_beside"] == ["people"]


@pytest.mark.parametrize("path", ["d/1.csv", "c/1.csv", "?/*.csv", "moved/*.csv"])
def test_one_file_of_a_pattern_is_enough_for_a_second_budget(small, path):
    """
    Where it is the same file, or a copy of one; what nobody has read is nobody's.
    """
    for folder in ("c", "d", "else"):
        (small.folder / folder).mkdir()
    (small.folder / "d/1.csv").write_text("age,town,unit\n1,a,u\n")
    (small.folder / "d/2.csv").write_text("age,town,unit\n2,a,v\n")
    (small.folder / "else/1.csv").write_text("age,town,unit\n3,a,w\n")
    shutil.copy(small.folder / "d/1.csv", small.folder / "c/1.csv")
    pattern = "d/1.csv" if path.startswith("moved") else "d/*.csv"
    small.made(domain=DOMAIN.replace("people.csv", pattern)).close()
    if path.startswith("moved"):
        (small.folder / "d").rename(small.folder / "moved")
    small.write(domain=FOLK.replace("people.csv", "else/*.csv"))
    assert check(small.policy).twins == ()
    small.write(domain=FOLK.replace("people.csv", f"'{path}'"))
    with pytest.raises(StateError, match="second budget"):
        init(small.policy)


@pytest.mark.parametrize("view", ["SELECT * FROM people", "SELECT unit, town, age FROM old"])
def test_a_view_is_the_tables_that_it_is_made_of(small, view):
    """
    Also through another view; a view of another table has people of its own.
    """
    with duckdb.connect(str(small.folder / "all.duckdb")) as connection:
        for table in ("people", "others"):
            connection.execute(f"CREATE TABLE {table} AS SELECT 1 AS age, 'a' AS town, 'u' AS unit")
        connection.execute("CREATE VIEW old AS SELECT * FROM people WHERE age < 5")
        connection.execute(f"CREATE VIEW seen AS {view}")
        connection.execute("CREATE VIEW apart AS SELECT * FROM others")
    mine, folk, apart = (
        text.replace("path: people.csv", f"path: all.duckdb, table: {table}")
        for text, table in ((DOMAIN, "people"), (FOLK, "seen"), (FOLK, "apart"))
    )
    privacy = "privacy: {budget: 1, unit: {column: unit, max_rows: 1}}\n"
    small.made(privacy, domain=mine).close()
    small.write(privacy, domain=apart)
    assert check(small.policy).twins == ()
    small.write(privacy, domain=folk)
    with pytest.raises(StateError, match="second budget"):
        init(small.policy)


@pytest.mark.slow
@pytest.mark.parametrize("other", ["file", "table"])
def test_other_people_have_a_budget_of_their_own(small, other):
    """
    Another file, or another table of the same database, is another source.
    """
    domain, mine = FOLK, DOMAIN
    if other == "file":
        (small.folder / "folk.csv").write_text("age,town,unit\n1,a,u\n")
        domain = FOLK.replace("people.csv", "folk.csv")
    else:
        with duckdb.connect(str(small.folder / "all.duckdb")) as connection:
            for table in ("people", "folk"):
                connection.execute(f"CREATE TABLE {table} AS SELECT 1 AS age, 'a' AS town")
        mine, domain = (
            text.replace("path: people.csv", f"path: all.duckdb, table: {table}")
            for text, table in ((DOMAIN, "people"), (FOLK, "folk"))
        )
    small.made(domain=mine).close()
    small.write(domain=domain)
    assert check(small.policy).twins == ()
    init(small.policy)
    assert "second_budget_beside" not in audit(small.policy)[0].detail


@pytest.mark.slow
def test_a_policy_that_turns_to_the_source_of_another_protects_less(small):
    """
    As it is applied it would give the other's people a second budget.
    """
    small.made().close()
    (small.folder / "folk.csv").write_text("age,town,unit\n1,a,u\n")
    small.made(domain=FOLK.replace("people.csv", "folk.csv")).close()
    small.write(PRIVACY, domain=FOLK)
    with pytest.raises(StateError, match="protects less") as refused:
        apply(small.policy)
    assert "people of people" in refused.value.detail
    assert apply(small.policy, accept_weaker=True).applied
    weaker = [line.detail["weaker"] for line in audit(small.policy) if "weaker" in line.detail]
    assert "people of people" in weaker[-1][0]
