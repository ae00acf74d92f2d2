"""A policy whose ledger is in PostgreSQL: every command, several machines, and moves to and fro."""

import shutil

import psycopg
import pytest

from proxy.cli import run
from proxy.engine import Engine
from proxy.errors import Error, IntegrityError, OperationalError, PolicyError, StateError
from proxy.policy import load
from proxy.state import state_folder
from proxy.steward import apply, audit, backup, check, init, rebuild, restore, verify
from tests.small import DOMAIN, Silent, Small
from tests.test_lost import FOLK, copied, every_command

PRIVACY = "privacy: {budget: 9, unit: row}\n"
SQL = "SELECT COUNT(*) FROM people WITH UTILITY (4, 0.05)"


@pytest.fixture
def small(tmp_path, cluster):
    """Sixteen people, and a policy that names a database of its own."""
    small = Small(tmp_path)
    small.data((0, "a", 8), (1, "b", 8))
    small.url = cluster.database()
    small.ledger = f"ledger: {small.url}\n"
    return small


def ask(small, sql=SQL, state=None):
    """The value and the cost of a statement, at the proxy of a state."""
    engine = Engine.open(small.policy, state, sampler=Silent())
    try:
        result = engine.session().execute(sql)
        return result.rows[0][0], result.cost
    finally:
        engine.close()


def machine(small, name, key=True):
    """The state of another machine, with the first one's key."""
    base = small.folder / name
    folder = state_folder(load(small.policy), base)
    folder.mkdir(parents=True)
    if key:
        shutil.copy(small.state / "source.key", folder)
    return base


def test_every_command_works_on_it(small, capsys):
    """
    As for a ledger in a file, and without one; the state folder has no ledger.
    """
    small.made(PRIVACY, small.ledger).close()
    assert ask(small) == (16, pytest.approx(0.654, abs=1e-3))
    assert ask(small)[1] == 0
    policy = str(small.policy)
    for command in every_command(policy):
        command = [str(small.folder / part) if part == "never" else part for part in command]
        assert run(command) == 0, (command, capsys.readouterr().err)
    assert run(["check", policy]) == 0
    assert run(["ledger", "restore", policy, str(small.folder / "never")]) == 0
    assert run(["audit", policy, "--verify"]) == 0
    assert run(["init", policy]) == 2
    assert "already the state" in capsys.readouterr().err
    assert [line.kind for line in audit(small.policy)][:2] == ["init", "measured"]
    assert not list(small.state.glob("ledger.sqlite*"))


def test_a_second_machine_follows_the_same_ledger(small):
    """
    It needs the key by which the data are known to be the same; nothing is charged for it, and what
    one machine measured is free at the other.
    """
    small.made(PRIVACY, small.ledger).close()
    cost = ask(small)[1]
    without = machine(small, "without", key=False)
    with pytest.raises(StateError, match="other proxies use the ledger") as caught:
        init(small.policy, without)
    assert "source.key" in caught.value.hint
    second = machine(small, "second")
    with pytest.raises(IntegrityError, match="missing or damaged"):
        ask(small, state=second)
    assert init(small.policy, second).again
    assert ask(small, state=second) == (16, 0)
    kinds = [line.kind for line in audit(small.policy)]
    assert kinds == ["init", "measured", "cube"]
    assert cost > 0
    assert verify(small.policy) == verify(small.policy, second) == []


def test_a_second_machine_with_other_data_begins_a_snapshot(small):
    """
    In which every cell starts with the most that any had paid, and the first machine is told so.
    """
    small.made(PRIVACY, small.ledger).close()
    cost = ask(small)[1]
    second = machine(small, "second")
    small.data((0, "a", 9), (1, "b", 8))
    report = init(small.policy, second)
    assert (report.snapshot, report.bases) == (2, {"shared": pytest.approx(cost)})
    with pytest.raises(StateError, match=r"cube of snapshot 2 .* not there"):
        ask(small)


def test_a_cube_that_one_machine_rebuilt_is_built_at_the_others_by_init(small):
    """
    From the same data, for the same snapshot, at no further cost.
    """
    small.made(PRIVACY, small.ledger).close()
    second = machine(small, "second")
    init(small.policy, second)
    ask(small)
    small.data((0, "a", 10), (1, "b", 8))
    rebuild(small.policy)
    with pytest.raises(StateError, match="privacy-proxy init"):
        ask(small, state=second)
    report = init(small.policy, second)
    assert (report.snapshot, report.again) == (2, True)
    ask(small, "SELECT COUNT(*) FROM people WITH UTILITY (8, 0.05)")
    assert ask(small, "SELECT COUNT(*) FROM people WITH UTILITY (8, 0.05)", second) == (18, 0)
    assert verify(small.policy) == verify(small.policy, second) == []


def test_a_policy_is_in_force_on_every_machine(small):
    """
    Applied on one, it is missed on another until its file is the same.
    """
    small.made(PRIVACY, small.ledger).close()
    second = machine(small, "second")
    init(small.policy, second)
    small.write(PRIVACY.replace("9", "8"), small.ledger)
    assert apply(small.policy, second).applied
    ask(small)
    small.write(PRIVACY, small.ledger)
    with pytest.raises(StateError, match="has changed since it was applied"):
        ask(small)


def test_a_ledger_moves_into_postgresql_and_back(small):
    """
    By a backup and a restore; nothing is lost, charged or free again, and each step that is left
    out is refused with the way.
    """
    small.made(PRIVACY).close()
    cost = ask(small)[1]
    ask(small)
    first, second = small.folder / "first", small.folder / "second"
    backup(small.policy, first)
    small.write(PRIVACY, small.ledger)
    for act in (ask, lambda small: init(small.policy), lambda small: verify(small.policy)):
        with pytest.raises(StateError, match="has one in a file") as caught:
            act(small)
        assert "ledger backup" in caught.value.hint
    assert not restore(small.policy, first).missed
    assert ask(small) == (16, 0)
    assert [p for p in small.state.glob("ledger.sqlite.replaced-*")]
    assert verify(small.policy) == []
    near = ask(small, SQL.replace("(4", "(3"))[1]
    backup(small.policy, second)
    small.write(PRIVACY)
    with pytest.raises(StateError, match="was in PostgreSQL"):
        ask(small)
    assert not restore(small.policy, second).missed
    assert ask(small, SQL.replace("(4", "(3")) == (16, 0)
    assert verify(small.policy) == []
    kinds = [line.kind for line in audit(small.policy) if line.seq]
    assert kinds == ["init", "measured", "restore", "measured", "restore"]
    assert 0 < near < 2 * cost


def test_a_backup_that_is_older_is_charged(small):
    """
    What was spent since, on whichever machine, is charged to every cell.
    """
    small.made(PRIVACY, small.ledger).close()
    second = machine(small, "second")
    init(small.policy, second)
    backup(small.policy, small.folder / "old")
    cost = ask(small, state=second)[1]
    report = restore(small.policy, small.folder / "old")
    assert report.missed
    assert report.charged == {"shared": pytest.approx(cost)}
    assert init(small.policy, second).again
    assert verify(small.policy) == verify(small.policy, second) == []


def test_another_database_is_no_second_budget(small, cluster):
    """
    The anchor knows that there was a ledger.
    """
    small.made(PRIVACY, small.ledger).close()
    ask(small)
    small.write(PRIVACY, f"ledger: {cluster.database()}\n")
    for act in (lambda: init(small.policy), lambda: ask(small)):
        with pytest.raises(StateError, match="is gone, and with it what was spent"):
            act()


def test_the_same_people_under_another_name_are_found_there_too(small):
    """
    Where the other ledger is in the same database; where it is not, its source is not known.
    """
    small.made(PRIVACY, small.ledger).close()
    (small.folder / "folk.csv").write_text("age,town,unit\n1,a,u\n")
    other = FOLK.replace("people.csv", "folk.csv")
    small.write(domain=other, rest=small.ledger)
    assert check(small.policy).twins == ()
    small.write(domain=copied(small, FOLK), rest=small.ledger)
    assert any("over a copy" in twin for twin in check(small.policy).twins)
    with pytest.raises(StateError, match="second budget"):
        init(small.policy)
    small.write(domain=other)
    assert any("source is not known" in twin for twin in check(small.policy).twins)


SECRET = "a password has no place in a policy"


@pytest.mark.parametrize(
    "url, why",
    [
        ("postgresql://ann:secret@host/ledgers", SECRET),
        ("postgresql://ann:@host/ledgers", SECRET),
        ("postgresql://host/ledgers?password=secret", SECRET),
        ("postgresql://host/ledgers?pass%77ord=secret", SECRET),
        ("postgresql://host/ledgers?sslpassword=secret", SECRET),
        ("host=db dbname=ledgers", "postgresql://host/database is expected"),
        ("mysql://host/ledgers", "postgresql://host/database is expected"),
        ("postgresql://[::1/ledgers", "postgresql://host/database is expected"),
    ],
)
def test_a_url_that_has_a_password_or_is_none_is_refused(small, url, why):
    """
    With the ways to give one; the message does not have it.
    """
    small.write(rest=f'ledger: "{url}"\n')
    with pytest.raises(PolicyError, match=why) as caught:
        load(small.policy)
    assert "secret" not in str(caught.value)
    if why == SECRET:
        assert "PGPASSFILE" in caught.value.message


def test_a_password_comes_from_the_environment(small, monkeypatch, tmp_path):
    """
    By PGPASSWORD, PGPASSFILE, or a service; nothing of it gets into a message.
    """
    with psycopg.connect(small.url) as raw:
        address = {"host": raw.info.host, "port": raw.info.port, "dbname": raw.info.dbname}
    service = tmp_path / "services"
    lines = [f"{key}={value}" for key, value in (address | {"user": "postgres"}).items()]
    service.write_text("\n".join(["[ledgers]", *lines, "password=secret", ""]))
    monkeypatch.setenv("PGSERVICEFILE", str(service))
    small.made(rest="ledger: postgresql:///?service=ledgers\n").close()
    assert ask(small)[0] == 16
    service.write_text(service.read_text().replace(f"port={address['port']}", "port=1"))
    with pytest.raises(OperationalError, match="cannot be reached") as caught:
        ask(small)
    assert "secret" not in str(caught.value)
    with pytest.raises(Error, match="cannot be reached"):
        check(small.policy)


def test_two_datasets_of_one_database_have_budgets_of_their_own(small):
    """
    Each in its schema.
    """
    small.made(PRIVACY, small.ledger).close()
    cost = ask(small)[1]
    (small.folder / "folk.csv").write_text("age,town,unit\n1,a,u\n")
    domain = DOMAIN.replace("dataset: people", "dataset: folk").replace("people.csv", "folk.csv")
    small.made(PRIVACY, small.ledger, domain).close()
    assert ask(small, SQL.replace("people", "folk")) == (1, cost)
