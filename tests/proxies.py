"""Proxies on one ledger: processes with state folders and clients of their own; they may be killed.

``python -m tests.proxies FOLDER`` imports everything once, and forks a proxy for each line on its
input, [number, life, first, statements], whose id it prints.  Each of the two clients of a proxy
appends [statement, cost] (cost null: refused or failed, then with the error's name) to a file in
FOLDER/told, in one write, once the statement has returned.  When there is a file FOLDER/finish,
they ask what all proxies are asked, write that to FOLDER/told/final_NUMBER_CLIENT, and end.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
from contextlib import contextmanager, suppress
from pathlib import Path

import proxy
from proxy.engine import Engine
from proxy.errors import Error
from proxy.ledger import postgres  # noqa: F401  # before the fork
from proxy.policy import load
from proxy.state import state_folder
from proxy.steward import init
from tests.privacy.crowd import statement
from tests.privacy.worlds import DOMAIN, people

ROOT = Path(__file__).parents[1]
CLIENTS = 2
USERS = ("ann", "bob")
BUDGET = 150
PRIVACY = f"""
privacy: {{budget: {BUDGET}, unit: row, floor: 0.005}}
analysts: {{ann: {{budget: 100}}}}
"""
WIDEST, NARROWEST = 60, 0.2  # half-widths: what the first statements ask for, and the last
LAST = 40  # statements that every client of every proxy is asked at the end


def made(folder, url, count):
    """Make a policy with its ledger in a database, and the state folders of some proxies."""
    folder.mkdir()
    text = f"{DOMAIN}{PRIVACY}ledger: {url}\n"
    policy = folder / "people.yaml"
    policy.write_text(text)
    rows = people(random.Random(1), 60)
    lines = [",".join(map(str, row)) for row in rows]
    (folder / "people.csv").write_text("\n".join(["age,sex,town,pay,person", *lines, ""]))
    (folder / "told").mkdir()
    init(policy, folder / "state0")
    key = state_folder(load(policy), folder / "state0") / "source.key"
    for number in range(1, count):
        other = state_folder(load(policy), folder / f"state{number}")
        other.mkdir(mode=0o700, parents=True)
        (other / key.name).write_bytes(key.read_bytes())
        (other / key.name).chmod(0o600)
        init(policy, folder / f"state{number}")
    return policy


@contextmanager
def nursery(folder):
    """The process that forks proxies: a function that starts one and returns its id."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.proxies", folder],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        started = []

        def start(*numbers):
            process.stdin.write(json.dumps(numbers) + "\n")
            process.stdin.flush()
            started.append(int(process.stdout.readline()))
            return started[-1]

        try:
            yield start
        finally:
            for each in started:
                with suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
            process.stdin.close()


def asked(rng, name, place, of):
    """A statement that no other client sends; the later, the nearer."""
    text = statement(rng, name).rpartition(" WITH ")[0]
    wide = WIDEST * (NARROWEST / WIDEST) ** (place / of) * rng.choice((1, 1, 2, 4))
    if "SUM" in text:
        wide *= 8
    return f"{text} WITH UTILITY ({wide:.3g}, {rng.choice((0.3, 0.1, 0.02))})"


def told(cursor, text):
    """What a client is told: every value, and every number with its ends."""
    try:
        cursor.execute(text)
    except Error as error:
        return type(error).__name__
    numbers = [(a.estimate, a.low, a.high) for row in cursor.answers for a in row if a is not None]
    return [[list(map(str, row)) for row in cursor.fetchall()], numbers]


def last_words(cursor):
    """What a client is told of what every client is asked at the end, without spending."""
    cursor.execute("SET privacy.spend = off")
    rng = random.Random("everybody")
    return [told(cursor, asked(rng, f"last_{i}", 0, 1)) for i in range(LAST)]


def client(engine, folder, name, place, first, statements):
    """One client: its own session, its own questions, and at the end everybody's."""
    rng = random.Random(name)
    file = os.open(
        folder / "told" / f"{name}_{place}.jsonl", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600
    )
    cursor = proxy.Connection(engine, user=USERS[place]).cursor()
    for i in range(statements):
        text = asked(rng, f"{name}_{place}_{i}", first + i, first + statements)
        try:
            cursor.execute(text)
            line = [text, cursor.cost]
        except Error as error:
            line = [text, None, type(error).__name__]
        os.write(file, (json.dumps(line) + "\n").encode())
    while not (folder / "finish").exists():
        time.sleep(0.02)
    answers = last_words(cursor)
    draft = folder / "told" / f"draft_{name}_{place}"
    draft.write_text(json.dumps(answers))
    draft.rename(folder / "told" / f"final_{name}_{place}")


def run(folder, number, life, first, statements):
    """One proxy."""
    while True:
        try:
            engine = Engine.open(folder / "people.yaml", folder / f"state{number}")
            break
        except proxy.OperationalError:  # the server may just be away
            time.sleep(0.1)
    threads = [
        threading.Thread(
            target=client, args=(engine, folder, f"p{number}_{life}", place, first, statements)
        )
        for place in range(CLIENTS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    engine.close()


def main(folder):
    """Fork a proxy for each line."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            try:
                run(Path(folder), *json.loads(line))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        print(child, flush=True)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1])
