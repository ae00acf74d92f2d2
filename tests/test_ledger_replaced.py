"""The files of a ledger that is in use are deleted, moved or replaced: nothing more is told."""

import os
import random
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from proxy.errors import Error
from tests.test_ledger import COUNT, Measurement, create, measure, reopen

ROOT = Path(__file__).parents[1]
LOOP = """
import pathlib, sys, time
from tests.test_ledger import measure, reopen
ledger = reopen(pathlib.Path(sys.argv[1]))
for i in range(10**9):
    begin = time.monotonic()
    if i % 2:
        ledger.note("inferred", "ann", str(i))
        print(begin, "free", flush=True)
    else:
        print(begin, measure(ledger, answers=(i,), cost=3), flush=True)
"""


def deleted(path):
    path.unlink()


def moved(path):
    path.rename(path.with_name("aside"))


def replaced(path):
    """By a copy of itself, as a backup tool puts one back."""
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").rename(path)


def emptied(path):
    path.with_name("empty").touch()
    path.with_name("empty").rename(path)


def away(path):
    """With its whole folder."""
    path.parent.rename(path.parent.with_name("away"))


def exchanged(path):
    """With its whole folder, for a copy."""
    shutil.copytree(path.parent, path.parent.with_name("copy"))
    away(path)
    path.parent.with_name("copy").rename(path.parent)


WAYS = {
    **{f"{name} {way.__name__}": (name, way) for name in ("ledger", "ledger-wal")
       for way in (deleted, moved, replaced)},
    **{f"anchor {way.__name__}": ("anchor", way) for way in (deleted, moved, emptied)},
    **{f"folder {way.__name__}": ("ledger", way) for way in (away, exchanged)},
}  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "state").mkdir()
    create(tmp_path / "state").close()
    return tmp_path / "state"


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_told_once_a_file_is_gone(folder, way):
    """
    At random moments of two processes: what a process began afterwards it never tells, it ends
    with words instead; and all that was told is in the file that was there.
    """
    name, act = WAYS[way]
    rng = random.Random(way)
    told = []
    with ExitStack() as ends:
        children = [
            ends.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", LOOP, folder],
                    cwd=ROOT,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            for _ in range(2)
        ]
        for child in children:
            ends.callback(child.kill)
        lines = [child.stdout.readline() for child in children]
        time.sleep(rng.random() * 0.2)
        held = {
            path.name: os.open(path, os.O_RDONLY) for path in folder.iterdir() if path.is_file()
        }
        act(folder / name)
        when = time.monotonic()
        for child, first in zip(children, lines, strict=True):
            out, err = (
                child.stdout.read(),
                child.stderr.read(),
            )  # communicate loses what is buffered
            child.wait(30)
            told += [line.split() for line in (first + out).splitlines()]
            assert child.returncode == 1
            last = err.strip().splitlines()
            assert any("proxy.errors." in line for line in last), err
    assert max(float(begin) for begin, _ in told) < when
    kept = folder.parent / "kept"
    kept.mkdir()
    for each in ("ledger", "ledger-wal"):  # a hard link would have kept them as well
        with open(held[each], "rb") as file:
            (kept / each).write_bytes(file.read())
    with closing(reopen(kept, anchor=None)) as ledger:
        rows = {row.id for row in ledger.measurements()}
    assert {int(id) for _, id in told if id != "free"} <= rows


@pytest.mark.parametrize("way", WAYS)
def test_every_use_fails_and_charges_nothing(folder, way):
    """
    A statement, a free one, a report: each says what happened; the error is the proxy's.
    """
    name, act = WAYS[way]
    with closing(reopen(folder)) as ledger:
        measure(ledger)
        ledger.note("inferred", "ann")
        act(folder / name)
        for use in (
            lambda: measure(ledger),
            lambda: ledger.note("inferred", "ann"),
            *([] if name == "anchor" else [ledger.sequence, ledger.policy, ledger.measurements]),
        ):
            with pytest.raises(Error, match=r"in use|anchor|is not what|another") as caught:
                use()
            assert caught.value.hint
        if name == "anchor":
            assert ledger.verify()


@pytest.mark.parametrize("way", WAYS)
def test_between_the_commit_and_the_answer(folder, way):
    """
    What is gone by then was not told.
    """
    name, act = WAYS[way]
    with closing(reopen(folder)) as ledger:
        measure(ledger)

        def told():
            with ledger.transaction() as tx:
                tx.append(Measurement(COUNT, 1.0, (1,)))
                tx.audit("measured", "ann", cost=3)
                act(folder / name)

        with pytest.raises(Error, match=r"in use|anchor"):
            told()


@pytest.mark.parametrize("way", [way for way in WAYS if way.startswith("anchor")])
def test_an_anchor_that_goes_after_the_commit(folder, way, monkeypatch):
    """
    What it does not know is not told.
    """
    with closing(reopen(folder)) as ledger:
        measure(ledger)

        def synced(future):
            future.result()
            WAYS[way][1](folder / "anchor")

        monkeypatch.setattr("proxy.ledger.stored.synced", synced)
        with pytest.raises(Error, match="the anchor cannot be written"):
            measure(ledger)


def test_notes_that_are_gone_are_missed(folder):
    """
    The file of free statements, its folder.
    """
    for act in (deleted, moved, replaced):
        with closing(reopen(folder)) as ledger:
            ledger.note("inferred", "ann")
            (path,) = (folder / "ledger.notes").glob("*.jsonl")
            act(path)
            with pytest.raises(Error, match="while it was in use; nothing was told"):
                ledger.note("inferred", "ann")
            ledger.note("inferred", "ann")  # into a file of its own
        shutil.rmtree(folder / "ledger.notes")
