"""Charge, answer and audit line are one transaction; what is written is read back."""

import sqlite3
import stat
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256

import numpy as np
import psycopg
import pytest

from proxy.errors import IntegrityError, OperationalError, StateError
from proxy.inference.family import Family
from proxy.inference.query import Factor, LinearQuery
from proxy.inference.space import Space
from proxy.ledger import Closing, Measurement
from proxy.ledger.postgres import PostgresLedger
from proxy.ledger.sqlite import SQLiteLedger

SERVER = "server"  # a file of a folder whose ledger is in PostgreSQL: the URL
SPACE = Space((3, 2))
COUNT = Family(LinearQuery.count(SPACE))
BY_SEX = Family(
    LinearQuery.count(SPACE, Factor((0,), np.array([1, 0, 1]))),
    (1,),
    np.array([0, 1], dtype=np.int32),
    2,
)


class Clock:
    """Microseconds since 1970 that stand still."""

    def __init__(self):
        self.time = datetime(2026, 3, 1, 12, tzinfo=UTC)

    def __call__(self):
        return int(self.time.timestamp()) * 10**6


def server(folder):
    """The URL of the database that has a folder's ledger; None where that is a file."""
    return (folder / SERVER).read_text() if (folder / SERVER).exists() else None


def create(folder, **options):
    """A new ledger, in a folder's file or in its database."""
    begin = {"dataset": "people", "protection": {"budget": 1.0}, "digest": "d1"}
    begin |= {"fingerprint": "f1", "user": "op", "anchor": folder / "anchor"} | options
    if url := server(folder):
        return PostgresLedger.create(url, folder, **begin)
    return SQLiteLedger.create(folder / "ledger", **begin)


def reopen(folder, **options):
    options = {"anchor": folder / "anchor", "dataset": "people"} | options
    if url := server(folder):
        return PostgresLedger.open(url, folder, **options)
    return SQLiteLedger.open(folder / "ledger", **options)


def lose(folder):
    """Take the ledger away from what is beside it."""
    if url := server(folder):
        with psycopg.connect(url) as connection:
            connection.execute("DROP SCHEMA ledger_people CASCADE")
    else:
        (folder / "ledger").unlink()


def measure(ledger, family=COUNT, answers=(7,), cost=5, user="ann", scale=4.0, **fields):
    with ledger.transaction() as tx:
        id = tx.append(Measurement(family, scale, answers, **fields))
        tx.audit("measured", user, "SELECT 1", cost)
    return id


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def ledger(folder, clock):
    with closing(create(folder, clock=clock)) as made:
        yield made


def content(row):
    return (row.id, row.sequence, row.scale, row.answers, row.history, row.snapshot)


def test_a_measurement_comes_back(ledger, folder):
    """
    All its fields, from this ledger and from another one on the same file.
    """
    assert measure(ledger) == 1
    assert measure(ledger, BY_SEX, (3, -4), scale=0.1, history="ann") == 2
    for reader in (ledger, reopen(folder)):
        first, second = reader.measurements()
        assert content(first) == (1, 2, 4.0, (7,), "shared", 1)
        assert content(second) == (2, 3, 0.1, (3, -4), "ann", 1)
        assert second.family.query == BY_SEX.query
        assert second.family.labels.tolist() == [0, 1]
        assert [row.id for row in reader.measurements(after=2)] == [2]
        assert reader.sequence() == 3
        reader.close()


def test_an_exception_undoes_everything(ledger):
    """
    Row, charge, audit line, policy and snapshot of a transaction that failed are not there.
    """
    measure(ledger)
    with pytest.raises(ZeroDivisionError), ledger.transaction() as tx:  # noqa: PT012
        tx.append(Measurement(COUNT, 1.0, (1,)))
        tx.apply_policy("d2", {})
        tx.new_snapshot("f2", {"shared": 9})
        tx.audit("measured", "ann", cost=5)
        raise ZeroDivisionError
    assert (ledger.sequence(), len(ledger.measurements()), ledger.spent_by("ann")) == (2, 1, 5)
    assert (ledger.protection().digest, ledger.snapshot().fingerprint) == ("d1", "f1")
    assert ledger.spent() == {"shared": 5}
    assert ledger.verify() == []


@pytest.mark.parametrize(
    "write",
    [
        lambda tx: tx.append(Measurement(COUNT, 1.0, (1,))),
        lambda tx: tx.new_snapshot("f2", {}),
        lambda tx: tx.apply_policy("d2", {}),
        lambda tx: tx.replace(1, 1.0, (1,)),
    ],
)
def test_no_row_without_an_audit_line(ledger, write):
    """
    A transaction that ends with a row that no line covers is rolled back.
    """
    measure(ledger)
    with pytest.raises(ValueError, match="without the audit line"), ledger.transaction() as tx:
        write(tx)
    assert ledger.measurements()[0].scale == 4.0
    assert ledger.verify() == []


@pytest.mark.parametrize(
    "wrong",
    [
        lambda tx: tx.append(Measurement(COUNT, 1.0, (1, 2))),
        lambda tx: tx.append(Measurement(COUNT, 1.0, (1,), id=4)),
        lambda tx: tx.append(Measurement(COUNT, 0.0, (1,))),
        lambda tx: tx.append(Measurement(COUNT, float("inf"), (1,))),
        lambda tx: tx.append(Measurement(COUNT, float("nan"), (1,))),
        lambda tx: tx.append(Measurement(COUNT, 1.0, (2**63,))),
        lambda tx: tx.append(Measurement(COUNT, 1.0, (1,), snapshot=2)),
        lambda tx: tx.replace(2, 1.0, (1,)),
        lambda tx: tx.replace(1, 4.0, (1,)),
        lambda tx: tx.replace(1, 1.0, (1, 2)),
        lambda tx: tx.append(Measurement(COUNT, 1.0, (1,))) and tx.audit("measured", "ann"),
    ],
)
def test_a_wrong_row_is_the_callers_bug(ledger, wrong):
    """
    Not one answer a row, an unusable scale, an old snapshot, no refinement, no cost.
    """
    measure(ledger)
    with pytest.raises((ValueError, IntegrityError), match=r"\w"), ledger.transaction() as tx:
        wrong(tx)
    assert ledger.sequence() == 2


def test_a_refinement_takes_the_place_of_its_row(ledger):
    """
    The row has the new scale and answers, is seen as changed, and its charge adds up.
    """
    measure(ledger)
    measure(ledger, BY_SEX, (1, 2))
    with ledger.transaction() as tx:
        tx.replace(1, 2.5, (8,))
        tx.audit("refined", "bob", cost=3, spent={"shared": 9})
    (row,) = ledger.measurements(after=3)
    assert content(row) == (1, 4, 2.5, (8,), "shared", 1)
    assert len(ledger.measurements()) == 2
    assert ledger.spent() == {"shared": 10}  # never less than it was
    assert (ledger.spent_by("bob"), ledger.answers_by("bob"), ledger.spent_by()) == (3, 1, 13)
    assert ledger.verify() == []


def test_spending_is_summed_by_user_and_time(ledger, clock):
    """
    5 yesterday and 7 today by ann, 11 today by bob; refusals cost nothing.
    """
    measure(ledger, cost=5)
    clock.time += timedelta(days=1)
    today = clock.time
    measure(ledger, BY_SEX, (1, 2), cost=7)
    measure(ledger, cost=11, user="bob")
    with ledger.transaction() as tx:
        tx.audit("refused", "ann")
        assert (tx.spent_by("ann", today), tx.spent_by("ann"), tx.spent_by()) == (7, 12, 23)
    assert ledger.spent_by("ann", today) == 7
    assert ledger.spent_by("ann", today + timedelta(seconds=1)) == 0
    assert ledger.spent_by(since=today) == 18
    assert ledger.spent_by("eve") == 0
    assert ledger.spending(today) == {"ann": 7, "bob": 11}
    assert (ledger.answers_by("ann"), ledger.answers_by(), ledger.answers_by("ann", today)) == (
        3, 4, 2,
    )  # fmt: skip


def test_what_is_spent_is_what_the_engine_says_or_more(ledger):
    """
    Without a word from the engine the costs of a history add up; with one, it is taken.
    """
    measure(ledger, cost=5)
    measure(ledger, cost=5)
    measure(ledger, cost=2, history="own")
    assert ledger.spent() == {"shared": 10, "own": 2}
    with ledger.transaction() as tx:
        tx.append(Measurement(COUNT, 1.0, (1,)))
        tx.audit("measured", "ann", cost=9, spent={"shared": 12})
    assert ledger.spent() == {"shared": 12, "own": 2}


def test_a_snapshot_begins_where_the_last_one_ended(ledger):
    """
    Bases never fall; an older snapshot can be looked up.
    """
    with ledger.transaction() as tx:
        assert tx.new_snapshot("f2", {"shared": 6}) == 2
        assert tx.append(Measurement(COUNT, 1.0, (1,), snapshot=2)) == 1
        tx.audit("rebuild", "op", cost=1)
    with pytest.raises(ValueError, match="below"), ledger.transaction() as tx:
        tx.new_snapshot("f3", {"shared": 5})
    with pytest.raises(ValueError, match="below"), ledger.transaction() as tx:
        tx.new_snapshot("f3", {"own": 50})
    with ledger.transaction() as tx:
        tx.new_snapshot("f4", {"shared": 9})
        tx.audit("rebuild", "op")
    assert (ledger.snapshot().id, ledger.snapshot(2).id) == (3, 2)
    assert (ledger.snapshot(2).fingerprint, ledger.snapshot(2).bases) == ("f2", {"shared": 6})
    assert ledger.verify() == []


def closed(ledger, before, taken=None, column="day"):
    """Begin a snapshot in which periods are closed."""
    with ledger.transaction() as tx:
        tx.new_snapshot("f", {}, closing=Closing(column, before, taken, "cells"))
        tx.audit("rebuild", "op")


def test_cells_are_the_same_as_long_as_each_snapshot_took_them_over(ledger):
    """
    Of an older snapshot those before the earliest day since, and none past one that read all.
    """
    days = [date(2026, month, 1) for month in range(1, 8)]
    assert (ledger.snapshot().closing, ledger.snapshot().same) == (None, {})
    for at, taken in ((1, None), (3, days[1]), (4, days[3])):  # 2, 3, 4
        closed(ledger, days[at], taken)
    assert ledger.snapshot().closing == Closing("day", days[4], days[3], "cells")
    assert ledger.snapshot().same == {3: days[3], 2: days[1]}
    closed(ledger, days[5], days[2])  # by whom had not all that was closed
    assert ledger.snapshot().same == {4: days[2], 3: days[2], 2: days[1]}
    assert ledger.snapshot(3).same == {2: days[1]}
    closed(ledger, days[6])
    closed(ledger, days[6], days[6])
    assert ledger.snapshot().same == {6: days[6]}
    assert ledger.verify() == []


def test_cells_of_a_period_are_charged_since_it_was_last_read(ledger):
    """
    Beside what they had paid then; of periods that were taken over, what the snapshot before said.
    """

    def begin(taken, *paid):
        with ledger.transaction() as tx:
            day = date(2026, 1, 1)
            closing = Closing("day", day, day if taken else None, "cells", paid)
            tx.new_snapshot("f", {}, {"attributes": [["sex"], ["day"]]}, "", closing)
            tx.audit("rebuild", "op")
        assert ledger.snapshot().closing == closing
        return ledger.snapshot().periods

    assert begin(False, (5, {})) == ((5, 2, {}),)
    assert begin(True, (2, None), (3, {"own": 4})) == ((2, 2, {}), (3, 3, {"own": 4}))
    found = begin(True, (3, None), (1, {}), (1, {"own": 6}))
    assert found == ((2, 2, {}), (1, 3, {"own": 4}), (1, 4, {}), (1, 4, {"own": 6}))
    assert ledger.snapshot().axis == 1
    assert begin(False, (5, {"own": 6})) == ((5, 5, {"own": 6}),)
    with pytest.raises(IntegrityError, match="damaged"):
        begin(True, (4, None), (2, {}))


def test_the_snapshot_changes_within_a_transaction(ledger):
    """
    What was current before ``new_snapshot`` is not after it.
    """
    with ledger.transaction() as tx:
        tx.append(Measurement(COUNT, 1.0, (1,)))
        tx.new_snapshot("f2", {})
        with pytest.raises(IntegrityError, match="not the current"):
            tx.append(Measurement(COUNT, 1.0, (1,)))
        tx.audit("rebuild", "op", cost=1)


def test_the_last_policy_holds(ledger):
    """
    Policies are kept, the last one applied is the one in force.
    """
    assert ledger.protection().protection == {"budget": 1.0}
    with ledger.transaction() as tx:
        tx.apply_policy("d2", {"budget": 2.0, "ünicode": ["x"]})
        tx.audit("policy", "sam")
        assert tx.protection().digest == "d2"
    assert ledger.protection().protection == {"budget": 2.0, "ünicode": ["x"]}
    assert ledger.protection().sequence == 2


def test_the_audit_log_says_who_when_what_and_how_much(ledger, clock):
    """
    Every field, of the first line too; pages make no difference.
    """
    measure(ledger, BY_SEX, (1, 2))
    with ledger.transaction() as tx:
        for i in range(2100):
            tx.audit("x", "ann", f"s{i}", detail={"i": i})
    lines = list(ledger.audit())
    assert [line.seq for line in lines] == list(range(1, 2103))
    assert (lines[0].kind, lines[0].user, lines[0].time) == ("init", "op", clock.time)
    assert (lines[1].statement, lines[1].cost, lines[1].answers) == ("SELECT 1", 5, 2)
    assert (lines[-1].statement, lines[-1].detail) == ("s2099", {"i": 2099})
    assert next(ledger.audit(after=2)).statement == "s0"
    assert ledger.verify() == []


def test_any_text_can_be_audited(ledger):
    """
    A statement with a NUL, a quote, a lone surrogate: it is charged, written, and verifies.
    """
    text = "SELECT 'ü\0\ud800\n\"'"
    with ledger.transaction() as tx:
        tx.audit("refused", text, text)
    ledger.note("refused", text, text)
    assert list(ledger.audit())[-1].statement == "SELECT 'ü\0\\ud800\n\"'"
    assert next(iter(ledger.notes())).statement == text
    assert ledger.verify() == []


def test_free_statements_have_files_of_their_own(ledger, folder, clock):
    """
    They are readable at once, do not move the sequence, and are chained at the next charge.
    """
    ledger.note("inferred", "ann", "SELECT 2", {"source": "history"})
    ledger.note("refused", "bob")
    other = reopen(folder, clock=clock)
    other.note("inferred", "eve")
    assert ledger.sequence() == 1
    assert sorted((n.user, n.kind, n.statement) for n in ledger.notes()) == [
        ("ann", "inferred", "SELECT 2"), ("bob", "refused", ""), ("eve", "inferred", ""),
    ]  # fmt: skip
    assert {(n.seq, n.time) for n in other.notes()} == {(0, clock.time)}
    measure(ledger)
    measure(ledger)
    heads = [line.notes for line, _ in ledger.lines(0, 9)]
    assert [head is not None for head in heads] == [False, True, False]  # said once
    assert ",2," in heads[1]
    assert ledger.verify() == []
    other.close()


@pytest.mark.parametrize("length", [10_000, 10_001, 900_000])
def test_of_a_long_free_statement_the_beginning_is_kept(ledger, length):
    """
    With its length and its hash: it pays nothing for the disk that it takes.
    """
    text = ("SELECT /* é */ " * length)[:length]
    ledger.note("inferred", "ann", text)
    (note,) = ledger.notes()
    if length == 10_000:
        assert note.statement == text
    else:
        assert note.statement.startswith(text[:10_000])
        assert len(note.statement) < 10_200
        assert f"{length:,} characters" in note.statement
        assert sha256(text.encode()).hexdigest() in note.statement
    measure(ledger)
    assert ledger.verify() == []


def test_only_the_owner_can_read(tmp_path):
    """
    Ledger, log, anchor and notes have mode 0600, their folder 0700.
    """
    with closing(create(tmp_path)) as ledger:
        measure(ledger)
        ledger.note("inferred", "ann")
        modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in tmp_path.rglob("*")}
    assert modes.pop("ledger.notes") == 0o700
    assert len(modes) == 5
    assert set(modes.values()) == {0o600}


def test_nothing_makes_a_ledger_silently(folder):
    """
    Opening what is not there is an error that says what to do, and leaves nothing behind.
    """
    before = list(folder.iterdir())
    with pytest.raises(StateError, match="privacy-proxy init"):
        reopen(folder)
    assert list(folder.iterdir()) == before


def test_a_ledger_is_never_made_twice(ledger, folder):
    """
    Neither over one that is there, nor where an anchor tells of one that was.
    """
    with pytest.raises(StateError, match="exists already"):
        create(folder)
    measure(ledger)
    ledger.close()
    lose(folder)
    with pytest.raises(StateError, match="with it what was spent"):
        create(folder)
    assert not (folder / "ledger").exists()
    with pytest.raises(StateError, match="with it what was spent"):
        reopen(folder)


def test_an_init_that_died_can_be_repeated(ledger, folder):
    """
    An anchor that saw no charge does not stand in the way.
    """
    ledger.close()
    lose(folder)
    create(folder).close()
    with closing(reopen(folder)) as again:
        measure(again)
        assert again.verify() == []


def test_a_ledger_of_another_dataset_is_refused(tmp_path):
    """
    And so is a file that is no ledger.
    """
    create(tmp_path).close()
    with pytest.raises(StateError, match="'people', not of 'others'"):
        reopen(tmp_path, dataset="others")
    with closing(sqlite3.connect(tmp_path / "empty")) as raw:
        raw.execute("CREATE TABLE t (x)")
    with pytest.raises(StateError, match="not a ledger"):
        SQLiteLedger.open(tmp_path / "empty", dataset="people")
    (tmp_path / "text").write_text("no ledger at all, but long enough to be looked at" * 9)
    with pytest.raises(IntegrityError, match="not a database"):
        SQLiteLedger.open(tmp_path / "text", dataset="people")


def test_a_closed_ledger_says_so(ledger):
    """
    Reading or writing after close is a StateError; closing twice is nothing.
    """
    ledger.close()
    ledger.close()
    with pytest.raises(StateError, match="closed"):
        ledger.sequence()
    with pytest.raises(StateError, match="closed"), ledger.transaction():
        pass


def test_waiting_for_the_lock_ends(ledger, folder):
    """
    In the same process, and in another connection: nothing is charged, and the message says so.
    """
    other = reopen(folder, timeout=0.05)
    with ledger.transaction() as tx:
        tx.audit("x", "ann")
        with pytest.raises(OperationalError, match="locked by other statements"):
            measure(other)
        assert other.sequence() == 1  # readers do not wait
    mine = reopen(folder, timeout=0.05)
    with mine.transaction(), pytest.raises(OperationalError, match="locked"), mine.transaction():
        pass
    measure(mine)
    mine.close()
    other.close()
