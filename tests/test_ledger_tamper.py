"""What is changed behind the ledger's back is refused or found; a backup gives no budget back."""

import os
import shutil
import sqlite3
import threading
from contextlib import closing
from datetime import date
from hashlib import sha256

import psycopg
import pytest
from msgspec.structs import replace

from proxy.errors import IntegrityError, OperationalError, StateError
from proxy.ledger import Closing, Measurement
from proxy.ledger.anchor import FileAnchor, Mark
from proxy.ledger.notes import first
from proxy.ledger.postgres import PostgresPlace
from proxy.ledger.restore import restore
from proxy.ledger.sqlite import SQLiteLedger
from proxy.ledger.witness import Witness
from tests.test_ledger import BY_SEX, COUNT, SERVER, create, lose, measure, reopen, server

DAY = date(2026, 2, 1)
TRIGGERS = "SELECT name FROM sqlite_master WHERE type = 'trigger'"


def notes(folder):
    """The folder of the free statements."""
    return folder / "ledger.notes"


@pytest.fixture
def postgres_folder(cluster, tmp_path):
    """A folder whose ledger is in PostgreSQL."""
    (tmp_path / SERVER).write_text(cluster.database())
    return tmp_path


@pytest.fixture
def ledger(folder):
    with closing(create(folder)) as made:
        yield made


def tamper(folder, *statements):
    """Run statements with the triggers gone, and put them back."""
    if url := server(folder):
        with psycopg.connect(url) as raw:
            raw.execute("SET search_path = ledger_people")
            raw.execute("SET session_replication_role = replica")
            for statement in statements:
                assert raw.execute(statement.replace("x'", "'\\x")).rowcount
        return
    with closing(sqlite3.connect(folder / "ledger")) as raw:
        triggers = raw.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
        triggers = triggers.fetchall()
        for name, _ in triggers:
            raw.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            assert raw.execute(statement).rowcount
        for _, sql in triggers:
            raw.execute(sql)
        raw.commit()


def columns(folder):
    """Yield table, column and type of each column."""
    if url := server(folder):
        with psycopg.connect(url) as raw:
            yield from raw.execute(
                "SELECT table_name, column_name, data_type FROM information_schema.columns "
                "WHERE table_schema = 'ledger_people' AND table_name <> 'versions'"
            ).fetchall()
        return
    with closing(sqlite3.connect(folder / "ledger")) as raw:
        for table in ("audit", "measurements", "snapshots", "policies", "ledger"):
            for row in raw.execute(f"PRAGMA table_info({table})"):
                yield table, row[1], row[2]


def refused(folder):
    """Yield statements that a database refuses: all but a refinement, and a new row."""
    tables = ("audit", "measurements", "snapshots", "policies", "domains", "ledger")
    for table, column, _ in columns(folder):
        if (table, column) not in {("measurements", c) for c in ("answers", "hash")}:
            yield f'UPDATE {table} SET "{column}" = "{column}"'
    yield from (f"DELETE FROM {table}" for table in tables)
    yield "UPDATE measurements SET answers = family"
    yield "UPDATE measurements SET scale = scale * 2, sequence = 9"
    yield "UPDATE measurements SET scale = scale / 2"
    if server(folder):
        yield from (f"TRUNCATE {table} CASCADE" for table in tables)
        rest = 'time, kind, "user", statement, cost, answers, detail, covers, spent, notes, hash'
        yield f"INSERT INTO audit SELECT 0, {rest} FROM audit LIMIT 1"
    else:
        yield from (f"INSERT OR REPLACE INTO {t} SELECT * FROM {t} LIMIT 1" for t in tables[:5])


def test_the_database_itself_refuses_changes(ledger, folder):
    """
    UPDATE, DELETE, TRUNCATE and INSERT OR REPLACE of anything but a refinement abort.
    """
    measure(ledger)
    with ledger.transaction() as tx:
        tx.describe_snapshot(1, {"axes": []}, "coding")
        tx.audit("migrate", "op")
    if url := server(folder):
        raw = psycopg.connect(url, options="-c search_path=ledger_people")
    else:
        raw = sqlite3.connect(folder / "ledger")
    errors = (sqlite3.IntegrityError, psycopg.errors.RaiseException)
    with closing(raw):
        for statement in refused(folder):
            with pytest.raises(errors, match=r"append-only|keeps|never|smaller"):
                raw.execute(statement)
            raw.rollback()
        raw.execute("UPDATE measurements SET scale = scale / 2, sequence = 9")
        raw.rollback()
    assert ledger.verify() == []


def many(ledger):
    """Write a row of every kind."""
    measure(ledger, BY_SEX, (1, 2))
    measure(ledger)
    with ledger.transaction() as tx:
        closing = Closing("day", DAY, DAY, "cells")
        tx.new_snapshot("p", {"shared": 50}, {"axes": []}, "coding", closing)
        tx.append(Measurement(COUNT, 2.0, (4,), "own", 2))
        tx.audit("rebuild", "op", cost=1)


@pytest.mark.slow
def test_every_changed_field_is_found(tmp_path):
    """
    Each column of each table, changed in the first row, is a problem that ``verify`` names.
    """
    (tmp_path / "good").mkdir()
    with closing(create(tmp_path / "good")) as ledger:
        ledger.note("inferred", "ann")
        many(ledger)
    for table, column, kind in columns(tmp_path / "good"):
        copy = tmp_path / f"{table}-{column}"
        shutil.copytree(tmp_path / "good", copy)
        change = {
            "INTEGER": f"{column} + 1000",
            "REAL": f"{column} * 1.0000001",
            "TEXT": f"coalesce({column}, '') || ' '",
            "BLOB": f"CAST({column} || x'00' AS BLOB)",
        }[kind]
        key = "created" if table == "ledger" else "sequence"
        first = f"{key} = (SELECT min({key}) FROM {table})"
        tamper(copy, f"UPDATE {table} SET {column} = {change} WHERE {first}")
        with closing(SQLiteLedger(copy / "ledger", None, 1, lambda: 0)) as bad:
            assert bad.verify() != [], (table, column)


def test_every_changed_field_is_found_in_postgresql(postgres_folder):
    """
    And none, once it is put back.
    """
    with closing(create(postgres_folder)) as ledger:
        ledger.note("inferred", "ann")
        many(ledger)
        with psycopg.connect(server(postgres_folder)) as raw:
            raw.execute("SET search_path = ledger_people")
            raw.execute("SET session_replication_role = replica")
            for table, column, kind in columns(postgres_folder):
                name = f'"{column}"'
                change = {
                    "bigint": f"{name} + 1000",
                    "double precision": f"{name} * 1.0000001",
                    "text": f"coalesce({name}, '') || ' '",
                    "bytea": f"{name} || '\\x00'",
                }[kind]
                key = "created" if table == "ledger" else "sequence"
                first = f"{key} = (SELECT min({key}) FROM {table})"
                raw.execute(f"CREATE TEMP TABLE kept AS SELECT * FROM {table}")
                raw.execute(f"UPDATE {table} SET {name} = {change} WHERE {first}")
                raw.commit()
                assert ledger.verify() != [], (table, column)
                raw.execute(f"DELETE FROM {table}")
                raw.execute(f"INSERT INTO {table} SELECT * FROM kept")
                raw.execute("DROP TABLE kept")
                raw.commit()
        assert ledger.verify() == []


@pytest.mark.parametrize(
    "statements, problem",
    [
        (["DELETE FROM audit WHERE sequence = 2"], "lines are missing"),
        (["DELETE FROM measurements WHERE id = 1"], "measurements 1: the row is missing"),
        (["DELETE FROM audit WHERE sequence = 4"], "no audit line knows"),
        (
            [
                "INSERT INTO measurements SELECT 4, sequence, history, snapshot, scale, family,"
                " answers, hash FROM measurements WHERE id = 1"
            ],
            "measurements 4: no audit line knows the row",
        ),
        (
            [
                "UPDATE measurements SET id = -1 WHERE id = 1",
                "UPDATE measurements SET id = 1 WHERE id = 2",
                "UPDATE measurements SET id = 2 WHERE id = -1",
            ],
            "measurements 1: the row is not what its audit line covers",
        ),
    ],
)
def test_rows_left_out_added_or_moved_are_found(ledger, folder, statements, problem):
    """
    Even where each row by itself is whole.
    """
    for i in range(3):
        measure(ledger, answers=(i,))
    tamper(folder, *statements)
    assert problem in "\n".join(ledger.verify())


def test_a_changed_answer_is_not_served(ledger, folder):
    """
    Reading a row checks its hash.
    """
    measure(ledger)
    tamper(folder, "UPDATE measurements SET answers = x'0109'")
    with pytest.raises(IntegrityError, match="row 1 of the ledger's measurements was changed"):
        ledger.measurements()


def test_an_old_answer_put_back_is_found(ledger, folder):
    """
    A refined row whose old content, hash and all, is put back: the last line that covers it tells.
    """
    measure(ledger)
    with ledger._connections.use() as raw:
        ((answers, hash),) = raw.execute("SELECT answers, hash FROM measurements").fetchall()
    answers, hash = answers.hex(), hash.hex()
    with ledger.transaction() as tx:
        tx.replace(1, 1.0, (70,))
        tx.audit("refined", "ann", cost=3)
    old = f"sequence = 2, scale = 4, answers = x'{answers}', hash = x'{hash}'"
    tamper(folder, f"UPDATE measurements SET {old}")
    assert ledger.verify() == ["measurements 1: the row is not what its audit line covers"]


def test_a_ledger_that_does_not_hold_together_at_its_head_is_not_opened(ledger, folder):
    """
    The last line is re-hashed at every open.
    """
    measure(ledger)
    tamper(folder, "UPDATE audit SET cost = 1 WHERE sequence = 2")
    with pytest.raises(IntegrityError, match="does not hold together at line 2"):
        reopen(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.replace(b"ann", b"eve", 1),
        lambda data: data.replace(b"SELECT", b"SELEKT", 1),
        lambda data: data.split(b"\n", 1)[1],
        lambda data: b"",
        lambda data: data.rsplit(b"\n", 2)[0] + b"\n",
        lambda data: b"\n".join(reversed(data[:-1].split(b"\n"))) + b"\n",
        lambda data: data + data.split(b"\n")[0] + b"\n",
        None,
    ],
)
def test_changed_free_statements_are_found(ledger, folder, change):
    """
    A line changed, moved, added or cut, and a file that is gone, once a charge has chained them.
    """
    ledger.note("inferred", "ann", "SELECT 1")
    ledger.note("inferred", "ann", "SELECT 2")
    measure(ledger)
    assert ledger.verify() == []
    (path,) = notes(folder).iterdir()
    if change:
        path.write_bytes(change(path.read_bytes()))
    else:
        path.unlink()
    assert path.name in "\n".join(ledger.verify())


def test_a_file_of_free_statements_forged_whole_is_found(ledger, folder):
    """
    One whose own chain is right, and which is not the one that was chained.
    """
    ledger.note("inferred", "ann", "SELECT 1")
    measure(ledger)
    (path,) = notes(folder).iterdir()
    body = path.read_bytes().rsplit(b",", 1)[0][1:].replace(b"ann", b"eve")
    digest = sha256(first(path.name) + body).hexdigest()
    path.write_text(f'[{body.decode()},"{digest}"]\n')
    assert next(ledger.notes()).user == "eve"
    assert ledger.verify() == [f"{path.name}: it does not hold the 1 lines that were chained"]


def test_a_line_torn_by_a_crash_is_no_problem(ledger, folder):
    """
    A last line without its end was never relied upon.
    """
    ledger.note("inferred", "ann")
    measure(ledger)
    (path,) = notes(folder).iterdir()
    with path.open("ab") as file:
        file.write(b'[[17,"infer')
    assert ledger.verify() == []
    assert len(list(ledger.notes())) == 1


# --- the anchor --------------------------------------------------------------------------------


def roll_back(folder, saved):
    """Put an older copy of the ledger in the place of the ledger."""
    if url := server(folder):
        return PostgresPlace("people", folder / "none", folder / "anchor", url).put(saved, None)
    for suffix in ("-wal", "-shm"):
        (folder / f"ledger{suffix}").unlink(missing_ok=True)
    shutil.copy(saved, folder / "ledger")


def test_an_older_ledger_is_refused(ledger, folder):
    """
    At open, and in a process that has it open, before anything is charged or let out.
    """
    measure(ledger)
    ledger.backup(folder / "old")
    measure(ledger)
    ledger.close()
    roll_back(folder, folder / "old")
    with pytest.raises(IntegrityError, match="behind its anchor: line 2 of 3") as caught:
        reopen(folder)
    assert "ledger restore" in caught.value.hint
    with closing(reopen(folder, anchor=None)) as unaware:
        unaware._witness = Witness(folder / "anchor")
        with pytest.raises(IntegrityError, match="behind"):
            measure(unaware)
        assert unaware.sequence() == 2
        assert "behind its anchor" in unaware.verify()[0]


def test_another_history_of_the_same_length_is_refused(ledger, folder):
    """
    The anchor holds the hash, not only the number; also where the other history is longer.
    """
    ledger.backup(folder / "old")
    measure(ledger)
    ledger.close()
    roll_back(folder, folder / "old")
    with closing(reopen(folder, anchor=None)) as fork:
        measure(fork)
        with pytest.raises(IntegrityError, match="line 2 is not what its anchor saw"):
            reopen(folder)
        measure(fork)
    with pytest.raises(IntegrityError, match="line 2 is not what its anchor saw"):
        reopen(folder)


def test_a_ledger_ahead_of_its_anchor_is_repaired(ledger, folder):
    """
    A process that died between commit and anchor: the anchor follows at the next open.
    """
    shutil.copy(folder / "anchor", folder / "before")
    measure(ledger, cost=5)
    ledger.close()
    shutil.copy(folder / "before", folder / "anchor")
    reopen(folder).close()
    mark = FileAnchor(folder / "anchor").read()[0]
    assert (mark.sequence, mark.spent) == (2, {"shared": 5})


def test_what_is_read_was_seen_by_the_anchor(ledger, folder):
    """
    A row whose writer died before the anchor is anchored by its first reader, in a transaction
    or not, before it can be let out.
    """
    reader = reopen(folder)
    shutil.copy(folder / "anchor", folder / "before")
    measure(ledger)
    shutil.copy(folder / "before", folder / "anchor")
    assert len(reader.measurements()) == 1
    assert FileAnchor(folder / "anchor").read()[0].sequence == 2
    measure(ledger)
    shutil.copy(folder / "before", folder / "anchor")
    with reader.transaction() as tx:
        assert len(tx.measurements()) == 2
    assert FileAnchor(folder / "anchor").read()[0].sequence == 3
    reader.close()


def test_an_anchor_that_is_gone_or_foreign_is_refused(ledger, folder):
    """
    Neither is made anew silently.
    """
    measure(ledger)
    (folder / "anchor").rename(folder / "gone")
    for use in (lambda: reopen(folder), lambda: measure(ledger)):
        with pytest.raises(IntegrityError, match="missing or damaged"):
            use()
    (folder / "anchor").write_bytes(b"x" * 5000)
    with pytest.raises(IntegrityError, match="missing or damaged"):
        reopen(folder)
    (folder / "anchor").unlink()
    (folder / "other").mkdir()
    create(folder / "other").close()
    shutil.copy(folder / "other" / "anchor", folder / "anchor")
    with pytest.raises(IntegrityError, match="belongs to another ledger"):
        reopen(folder)
    assert ledger.sequence() == 2


@pytest.mark.parametrize("step, charged", [("prepare", 0), ("_sync", 5), ("confirm", 5)])
def test_an_answer_is_not_let_out_before_the_anchor_has_it(ledger, monkeypatch, step, charged):
    """
    An anchor that cannot be written fails the statement.  What was charged by then stands, and
    can be read once the anchor can be written.
    """

    def fails(*mark):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ledger._witness._anchor, step, fails)
    monkeypatch.setattr(ledger._witness._anchor, "advance", fails)
    with pytest.raises(OperationalError, match="anchor cannot be written: No space"):
        measure(ledger, cost=5)
    assert ledger.spent_by("ann") == charged
    if charged:
        with pytest.raises(OperationalError, match="anchor cannot be written"):
            ledger.measurements()
    monkeypatch.undo()
    assert len(ledger.measurements()) == bool(charged)
    measure(ledger, cost=5)
    assert ledger.spent_by("ann") == charged + 5
    assert not FileAnchor(ledger._witness._anchor.path).read()[0].pending
    assert ledger.verify() == []


def test_a_process_that_died_before_its_commit_stands_in_nobodys_way(ledger, folder):
    """
    Its mark is pending, one transaction ahead of the ledger: the ledger opens, and the mark of
    the next transaction takes the place, whichever is longer.  Two behind is behind.
    """
    measure(ledger)
    anchor = FileAnchor(folder / "anchor")
    committed = anchor.read()[0]
    for ahead, lines in ((1, 3), (3, 1)):
        lost = Mark(ledger.id, ledger.sequence() + ahead, "f" * 64, {"shared": 99})
        anchor.prepare(lost, ledger.sequence())()
        assert anchor.read() == [replace(lost, pending=True), committed]
        with closing(reopen(folder)) as other:
            assert other.verify() == []
            assert anchor.read() == [replace(lost, pending=True), committed]
            anchor.prepare(lost, ledger.sequence())()  # and died again
            assert anchor.read()[1] == committed
            with other.transaction() as tx:
                for _ in range(lines):
                    tx.audit("x", "ann")
        before, committed = committed, anchor.read()[0]
        assert (committed.sequence, committed.pending) == (ledger.sequence(), False)
        assert anchor.read() == [committed, before]
    ledger.backup(folder / "old")
    measure(ledger)
    anchor.prepare(replace(lost, sequence=ledger.sequence() + 1), ledger.sequence())()
    ledger.close()
    roll_back(folder, folder / "old")
    with pytest.raises(IntegrityError, match="behind its anchor"):
        reopen(folder)


def test_a_mark_is_durable_before_its_answer_is_let_out(ledger, folder, monkeypatch):
    """
    On the way of a commit the anchor's file is synced after the mark is written; so it is for
    the first reader of a row.
    """
    events = []
    monkeypatch.setattr("proxy.ledger.anchor.sync", lambda file: events.append("sync"))
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda *a: events.append("write") or pwrite(*a))
    reader = reopen(folder)
    events.clear()
    measure(ledger)
    assert events == ["write", "sync", "write"]
    reader.measurements()
    assert events == ["write", "sync", "write", "sync"]
    reader.measurements()
    ledger.measurements()
    assert len(events) == 4
    reader.close()


def test_a_torn_anchor_keeps_its_other_copy(folder):
    """
    Whatever is cut from the copy that was written last, the one before is read; a mark that is
    not newer changes nothing.
    """
    anchor = FileAnchor(folder / "anchor")
    assert anchor.read() == []
    marks = [Mark("id", i, f"{i:064x}", {f"user{j}": i for j in range(400)}) for i in range(1, 6)]
    for mark in marks:
        anchor.advance(mark)
        anchor.advance(marks[0])
        assert anchor.read()[0] == mark
    assert anchor.read() == [marks[4], marks[3]]
    for cut in (1, 3000, 4500):
        copied = folder / f"cut{cut}"
        shutil.copy(folder / "anchor", copied)
        with copied.open("r+b") as file:
            data = file.read()
            file.seek(data.index(marks[4].hash.encode()) + cut)
            file.write(b"\0")
        assert FileAnchor(copied).read() == [marks[3]]


@pytest.mark.parametrize("look", [1, 2, 3])
@pytest.mark.parametrize("begun", [2, 3, 4, 5])
def test_both_copies_are_read_at_one_moment(tmp_path, monkeypatch, look, begun):
    """
    However a reader's looks fall among the marks of others, one that it reads came about: else a
    ledger that is opened while two others write would be taken for one without an anchor.
    """
    anchor, pread, done, looks = FileAnchor(tmp_path / "anchor"), os.pread, threading.Event(), []
    marks = [Mark("id", i, f"{i:064x}", {}) for i in range(begun + 1)]
    anchor.advance(marks[1])

    def write():  # the last transaction stays open
        for mark in marks[2:]:
            anchor.prepare(mark, mark.sequence - 1)()
            if mark is not marks[-1]:
                anchor.confirm(mark)
        done.set()

    writer = threading.Thread(target=write)

    def interrupted(*args):
        data = pread(*args)
        if threading.current_thread() is not writer:
            looks.append(data)
            if len(looks) == look:
                writer.start()
                done.wait(0.2)
        return data

    monkeypatch.setattr(os, "pread", interrupted)
    seen = FileAnchor(anchor.path).read()
    writer.join()
    assert any(replace(mark, pending=False) in marks[1:-1] for mark in seen)


@pytest.mark.parametrize("confirmed", [True, False])
def test_a_mark_that_comes_late_takes_no_newer_ones_place(tmp_path, confirmed):
    """
    Not even where that is still pending: it came about, since another was begun after it.
    """
    anchor = FileAnchor(tmp_path / "anchor")
    marks = [Mark("id", i, f"{i:064x}", {}) for i in range(5)]
    anchor.advance(marks[1])
    for mark in marks[2:4]:
        anchor.prepare(mark, mark.sequence - 1)()
    if confirmed:
        anchor.confirm(marks[2])
    anchor.advance(marks[1])
    assert anchor.read() == [
        replace(marks[3], pending=True),
        replace(marks[2], pending=not confirmed),
    ]


# --- backup and restore ------------------------------------------------------------------------


def back(folder, **options):
    options = {"anchor": folder / "anchor", "dataset": "people", "user": "op"} | options
    if url := server(folder):
        options["target"] = PostgresPlace("people", folder / "none", folder / "anchor", url)
    return restore(folder / "ledger", folder / "backup", **options)[0]


def test_a_backup_is_a_whole_ledger(ledger, folder):
    """
    Taken while a transaction is open; never written over another file.
    """
    measure(ledger)
    with ledger.transaction() as tx:
        tx.audit("x", "ann")
        ledger.backup(folder / "backup")
    with closing(SQLiteLedger.open(folder / "backup", dataset="people")) as copied:
        assert (copied.sequence(), len(copied.measurements()), copied.verify()) == (2, 1, [])
    assert os.stat(folder / "backup").st_mode & 0o777 == 0o600
    with pytest.raises(StateError, match="cannot be made"):
        ledger.backup(folder / "backup")


def test_a_restored_ledger_charges_the_gap_to_every_cell(ledger, folder):
    """
    Spent 5 at the backup and 12 (and 3 in a new history) at the anchor: every cell starts at 12 and
    3, and the old rows are out of use, of closed periods too.
    """
    measure(ledger, cost=5)
    with ledger.transaction() as tx:
        tx.new_snapshot("p1", {"shared": 1}, closing=Closing("day", DAY, DAY, "cells"))
        tx.audit("rebuild", "op")
    ledger.backup(folder / "backup")
    measure(ledger, cost=7, snapshot=2)
    measure(ledger, cost=3, history="own", snapshot=2)
    gone = ledger.sequence()
    ledger.close()
    lose(folder)
    with closing(back(folder)) as restored:
        assert restored.spent() == {"shared": 12, "own": 3}
        snapshot = restored.snapshot()
        assert (snapshot.bases, snapshot.fingerprint) == ({"shared": 12, "own": 3}, "p1")
        assert (snapshot.closing, snapshot.same) == (Closing("day", DAY, None, "cells"), {})
        with pytest.raises(IntegrityError, match="not the current"), restored.transaction() as tx:
            tx.replace(1, 1.0, (1,))
        with pytest.raises(ValueError, match="below"), restored.transaction() as tx:
            tx.new_snapshot("p", {"shared": 11, "own": 3})
        assert restored.sequence() == gone + 1
        last = list(restored.audit())[-1]
        assert (last.kind, last.user, last.cost) == ("restore", "op", 10)
        assert last.detail["charged"] == {"shared": 12, "own": 3}
        measure(restored, snapshot=restored.snapshot().id)
        assert restored.verify() == []
    with closing(reopen(folder)) as again:
        assert again.sequence() == gone + 2


def test_a_restored_ledger_that_lost_the_race_with_the_anchor_opens(ledger, folder):
    """
    A crash after the new file is in place and before the anchor follows.
    """
    ledger.backup(folder / "backup")
    measure(ledger)
    measure(ledger)
    ledger.close()
    shutil.copy(folder / "anchor", folder / "before")
    back(folder).close()
    shutil.copy(folder / "before", folder / "anchor")
    with closing(reopen(folder)) as again:
        assert again.sequence() == 4
        assert again.verify() == []
    assert FileAnchor(folder / "anchor").read()[0].sequence == 4


def test_a_backup_of_the_last_state_costs_nothing(ledger, folder):
    """
    No gap: rows stay in use, and the line says what was done.
    """
    measure(ledger, cost=5)
    ledger.backup(folder / "backup")
    ledger.close()
    with closing(back(folder)) as restored:
        assert (restored.spent(), restored.snapshot().id) == ({"shared": 5}, 1)
        assert [line.kind for line in restored.audit()] == ["init", "measured", "restore"]
        assert restored.verify() == []


def test_without_an_anchor_the_operator_says_what_to_charge(ledger, folder):
    """
    Less than the backup itself had spent is never taken.
    """
    measure(ledger, cost=5)
    ledger.backup(folder / "backup")
    ledger.close()
    (folder / "anchor").unlink()
    with pytest.raises(StateError, match="anchor is missing"):
        back(folder)
    with closing(back(folder, charge=lambda _: {"shared": 4, "own": 9})) as restored:
        assert restored.snapshot().bases == {"shared": 5, "own": 9}
        assert restored.verify() == []
    assert FileAnchor(folder / "anchor").read()[0].spent == {"shared": 5, "own": 9}


def test_the_old_ledger_is_kept(tmp_path):
    """
    Restoring over a ledger, healthy or damaged, moves it aside.
    """
    ledger = create(tmp_path)
    ledger.backup(tmp_path / "backup")
    measure(ledger)
    ledger.close()
    (tmp_path / "ledger").write_bytes(b"damaged " * 1000)
    back(tmp_path).close()
    back(tmp_path).close()
    aside = sorted(p.stat().st_size for p in tmp_path.glob("ledger.replaced-*"))
    assert len(aside) == 2
    assert aside[0] == 8000
    with closing(reopen(tmp_path)) as restored:
        assert restored.sequence() == 4  # init, measured, and two restores, one of them again
        assert restored.verify() == []


def test_a_ledger_in_use_is_not_replaced(tmp_path):
    """
    A process that has it open would go on with the old one.
    """
    ledger = create(tmp_path)
    ledger.backup(tmp_path / "backup")
    measure(ledger)
    with pytest.raises(OperationalError, match="in use"):
        back(tmp_path)
    assert ledger.verify() == []
    assert sorted(p.name for p in tmp_path.glob("ledger*") if "-" not in p.name) == ["ledger"]
    ledger.close()


def test_a_wrong_backup_is_refused(ledger, folder):
    """
    One that is missing, changed, of another ledger, or of a history that the anchor never saw.
    """
    with pytest.raises(StateError, match="no backup"):
        back(folder)
    ledger.backup(folder / "backup")
    measure(ledger)
    ledger.backup(folder / "second")
    ledger.close()
    with closing(back(folder)):
        pass
    shutil.copy(folder / "second", folder / "fork")
    with closing(SQLiteLedger.open(folder / "fork", dataset="people")) as fork:
        for _ in range(5):
            measure(fork)
        fork.backup(folder / "third")
    (folder / "third").replace(folder / "backup")
    with pytest.raises(IntegrityError, match="not of the history"):
        back(folder)
    (folder / "other").mkdir()
    with closing(create(folder / "other")) as other:
        (folder / "backup").unlink()
        other.backup(folder / "backup")
    with pytest.raises(IntegrityError, match="another ledger"):
        back(folder)
    (folder / "second").replace(folder / "backup")
    with closing(sqlite3.connect(folder / "backup")) as raw:
        for (name,) in raw.execute(TRIGGERS).fetchall():
            raw.execute(f"DROP TRIGGER {name}")
        raw.execute("UPDATE measurements SET answers = x'0100'")
        raw.commit()
    with pytest.raises(IntegrityError, match="does not verify"):
        back(folder)
    with closing(reopen(folder)) as kept:
        assert kept.verify() == []
