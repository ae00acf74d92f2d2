"""A crowd of clients on one state: processes with threads, each writing down what it was told.

``python -m tests.privacy.crowd POLICY STATE FOLDER PROCESSES THREADS STATEMENTS SEED [LIMIT]``
imports everything once, forks the processes and prints their ids.  A client appends a line
[statement, cost] (cost null: refused or failed, then with the error's name) to a file of its own
in FOLDER, in one write, once the statement has returned.  LIMIT is the largest file, in bytes,
that a process may write: a disk that is full.
"""

import json
import os
import random
import resource
import signal
import sys
import threading
import time
from pathlib import Path

import opendp.prelude  # noqa: F401  # loaded once, before the fork

from proxy.engine import Engine
from proxy.errors import Error
from tests.privacy.worlds import SEXES, TOWNS

AGGREGATES = ("COUNT(*)", "COUNT(*)", "SUM(pay)", "COUNT(*), SUM(age)", "SUM(age) - COUNT(*)")


def statement(rng, name):
    """A statement that no other client sends: its first column's name is its own."""
    number = rng.choice(AGGREGATES)
    first, *rest = number.split(", ")
    text = f"SELECT {', '.join([f'{first} AS {name}', *rest])} FROM people"
    if rng.random() < 0.8:
        text += f" WHERE sex = '{rng.choice(SEXES)}'"
        text += rng.choice(("", f" AND age <= {rng.randint(0, 2)}", " AND age = 1"))
        text += rng.choice(("", f" AND town = '{rng.choice(TOWNS)}'"))
    if rng.random() < 0.2:
        text += " GROUP BY town"
    wide = rng.choice((1, 3, 9, 30)) * (8 if "SUM" in number else 1)
    if rng.random() < 0.1 and "SUM" not in number:
        return f"{text} WITH UTILITY (80 PERCENT, 0.2)"
    return f"{text} WITH UTILITY ({wide}, {rng.choice((0.3, 0.1, 0.02))})"


def client(engine, file, rng, name, statements):
    """Send statements, and write down what each was told to have cost."""
    session = engine.session(rng.choice(("ann", "bob", None)))
    for i in range(statements):
        text = statement(rng, f"{name}_{i}")
        try:
            line = [text, session.execute(text).cost]
        except Error as error:
            line = [text, None, type(error).__name__]
        os.write(file, (json.dumps(line) + "\n").encode())


def process(number, policy, state, folder, threads, statements, seed, limit):
    """One process: its engine, its threads."""
    engine = Engine.open(policy, state)
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    name = f"n{seed}_{number}"
    file = os.open(Path(folder) / f"{name}.jsonl", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    pool = [
        threading.Thread(
            target=client,
            args=(engine, file, random.Random(f"{name} {i}"), f"{name}_{i}", statements),
        )
        for i in range(threads)
    ]
    for thread in pool:
        thread.start()
    for thread in pool:
        thread.join()
    engine.close()


def main(policy, state, folder, *numbers):
    """Fork the processes, say who they are, and wait for them."""
    processes, threads, statements, seed, limit = (int(n) for n in [*numbers, 0][:5])
    children = []
    for number in range(processes):
        child = os.fork()
        if not child:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            process(number, policy, state, folder, threads, statements, seed, limit)
            os._exit(0)
        children.append(child)
    print(*children, flush=True)  # noqa: T201
    deadline = time.monotonic() + 1200
    for child in children:
        os.waitpid(child, 0)
    assert time.monotonic() < deadline


if __name__ == "__main__":
    main(*sys.argv[1:])
