"""Lives of datasets: random acts of stewards, analysts and accidents, and what each person lost.

A life is a sequence of steps on one folder: a policy is edited, applied, rebuilt; public files,
users and sources change; files are lost and put back; analysts ask.  After each measurement the
accountant adds up what every record has lost by *all* measurements that were ever drawn,

    Σ |Δ answer| / scale,

Δ by brute force: the record is taken out of the raw rows, and the rows are put into cells by
``documents``, which shares no line with the proxy; the scale is what the sampler was asked for.
The claim: it is within the strictest limit that any policy in force had for that record since the
steward last agreed to a weaker one, whatever the proxy's own accounts say.

The cube is a double: it remembers of which rows and which policy it was built.  Everything that
remembers (ledger, anchor, policy, steward's acts, engine) is the product's.
"""

import datetime
import json
import shutil
from collections import Counter
from contextlib import suppress
from copy import deepcopy
from random import Random

import proxy.steward as steward
from proxy.engine import Engine
from proxy.errors import Error, InsufficientBudgetError, StateError
from proxy.policy import scram_verifier
from tests.privacy import drafts, edits, edits_of_limits  # noqa: F401
from tests.privacy.accountant import Account, Violation
from tests.privacy.documents import Force, Unreadable, written
from tests.privacy.double import START

VERIFIERS = {name: scram_verifier(name, 1, b"salt") for name in ("one", "two")}
FILES = {"cube": ["cube-*"], "ledger": ["ledger.sqlite*"], "anchor": ["anchor"],
         "key": ["source.key"], "all": ["cube-*", "ledger.sqlite*", "anchor", "source.key"],
         "disk": []}  # fmt: skip
LOSSES = ("cube", "cube", "ledger", "anchor", "anchor", "key", "all", "disk")  # disk: the folder


class Recorder:
    """A sampler without noise that tells the accountant what was drawn, for whom."""

    def __init__(self, world):
        self.world, self.account = world, world.account

    def draw(self, scale, count):
        family, build = self.world.read.pop()
        if family.rows != count:
            raise Violation("crash", "noise for what was not read")
        self.account.measure(family, scale, build, self.world.asking)
        return [0] * count


def _literal(value):
    """A value as SQL."""
    if isinstance(value, datetime.date):
        return f"DATE '{value}'"
    return f"'{value}'" if isinstance(value, str) else str(value)


def _equal(name, value, edges):
    """That a column is in the cell of a value, as SQL."""
    if edges is None:
        return f"{name} = {_literal(value)}"
    return f"{name} >= {value} AND {name} < {edges[edges.index(value) + 1]}"


class World:
    """A folder with a policy, its files and its state; every step of a life is a method."""

    def __init__(self, folder, seed, doubles):
        rng = Random(f"world {seed}")
        self.folder, self.doubles = folder, doubles
        self.document = drafts.policy(rng)
        self.users = drafts.people(rng) if rng.random() < 0.7 else None
        self.sources = drafts.population(rng, 12)
        self.public = {
            "frail.csv": [["a"], ["x"]],
            "others.csv": [["a"], ["y"], ["w"]],
            "values.csv": [["v", "v2"], ["x", "y"], ["y", "x"]],
            "turned.csv": [["v", "v2"], ["y", "x"], ["x", "y"]],
        }
        self.accounts, self.engines, self.asked = {}, [], []
        self.sessions = {}  # (engine, user) -> session
        self.away = None  # the users file, while it is
        self.read, self.asking = [], ""
        self.victim = self._victim(rng)
        self.trace, self.counts = [], Counter()
        doubles.world = self
        self._write()

    def _victim(self, rng):
        """Return a row that is in the cube at the beginning, often one that may lose least."""
        force, people = self.force(), self.sources[self.document["source"]["path"]]
        with suppress(Unreadable):
            inside = [i for i, row in enumerate(people) if force.cell(row)]
            least = min((force.limit(people[i]) for i in inside), default=0)
            if rng.random() < 0.6:
                inside = [i for i in inside if force.limit(people[i]) == least]
            return rng.choice(inside or [0])
        return 0

    # --- files -----------------------------------------------------------------------------------

    @property
    def policy(self):
        return self.folder / "people.yaml"

    @property
    def state(self):
        base = self.folder / self.document.get("state", ".privacy-proxy")
        return base / self.document["dataset"]

    @property
    def account(self):
        return self.accounts.setdefault(self.state, Account())

    def force(self, _=None):
        """Return the policy as its files say it now."""
        return Force(deepcopy(self.document), deepcopy(self.public), deepcopy(self.users or {}))

    def rows(self, name):
        """Return the rows of a source as they are now."""
        return tuple(map(dict, self.sources[name]))

    def _write(self):
        self.policy.write_text(written(self.document))
        for name, rows in self.public.items():
            (self.folder / name).write_text("".join(",".join(row) + "\n" for row in rows))
        for name, people in self.sources.items():
            columns = [column for column in people[0] if column != "id"]
            lines = [",".join(str(row[c] or "") for c in columns) for row in people]
            (self.folder / name).write_text("\n".join([",".join(columns), *lines, ""]))
        path = self.folder / "users.yaml"
        if self.users is None:
            path.unlink(missing_ok=True)
        else:
            written_users = {
                name: user | {"password": VERIFIERS[user.get("password", "one")]}
                for name, user in self.users.items()
            }
            path.write_text(json.dumps({"users": written_users}))

    def run(self, step, seed):
        """Take one step; an error of the proxy is a refusal."""
        rng = Random(seed)
        name, _, what = step.partition(":")
        try:
            said = getattr(self, name)(rng, *([what] if what else []))
        except Error as error:
            said = f"{type(error).__name__}: {error.message}"
            self.counts["refused", step] += 1
        except Violation:
            self.trace.append(f"{step}: {self.counts.get('doing', '')}")
            raise
        except Exception as error:
            raise Violation("crash", f"{type(error).__name__}: {error}") from error
        self.trace.append(f"{step}: {said}")

    # --- steps of analysts -----------------------------------------------------------------------

    def ask(self, rng, user=None):
        """A statement by somebody, new or asked before."""
        user = rng.choice(("", *drafts.USER_NAMES)) if user is None else user
        if self.asked and rng.random() < 0.4:
            text, width = rng.choice(self.asked)
        else:
            text, width = self.statement(rng, user)
            self.asked.append((text, width))
        return self._asked(self.engine(rng), user, text, width)

    def stale(self, rng, user=None):
        """A statement by somebody whose connection was opened before others."""
        if not self.engines:
            return "there is none"
        user = rng.choice(("", *drafts.USER_NAMES)) if user is None else user
        said = self._asked(self.engines[0], user, *self.statement(rng, user))
        with suppress(Error):  # what a connection is refused, it is after it looked again
            self.engines[0].read_users()
            said += "; " + self._asked(self.engines[0], user, *self.statement(rng, user))
        return said

    def drain(self, rng, user=""):
        """All that the cell of one person has left, by somebody without a cap, or a user."""
        people = self.sources[self.document["source"]["path"]]
        row = people[self.victim % len(people)]
        try:
            force = self.force()
            limits = [force.limit(row), force.user_limit(user), force.own_limit(user)]
        except KeyError:
            return "no table that a condition reads"
        text, width = self._about(row, 9, rng), 2.75 / (0.95 * min(filter(None, limits)))
        said = [self._asked(self.engine(rng, 0), user, text, width)]
        with suppress(Error):
            said.append(self._asked(self.engines[-1], user, text, width / 10))
        return "; ".join(said)

    def _asked(self, engine, user, text, width):
        """Execute a statement; if it is too dear, at what is left."""
        key = id(engine), user
        session = self.sessions[key] = self.sessions.get(key) or engine.session(user)
        self.asking = user
        for squeeze in (0.97, 0.8, 0.5, None):
            try:
                result = session.execute(f"{text} WITH UTILITY ({width:.6g}, 0.05)")
                break
            except InsufficientBudgetError as error:
                if squeeze is None or error.left < 1e-3 or error.requested <= error.left:
                    raise
                width *= error.requested / error.left / squeeze
        self.counts["asked"] += 1
        return f"{user} {text} WITH UTILITY ({width:.3g}, 0.05): {result.cost:.4f}"

    def engine(self, rng, old=0.3):
        """Return an engine, now and then one that was opened before."""
        if self.engines and rng.random() < old:
            return rng.choice(self.engines)
        made = Engine.open(self.policy, sampler=Recorder(self))
        made._clock = START.astimezone  # no midnight comes between
        self.account.accept(self.force())
        self.engines.append(made)
        if len(self.engines) > 2:
            self.engines.pop(0).close()
        return made

    def statement(self, rng, user):
        """Return a statement about somebody's cells, and a width that costs most of their limit."""
        force = self.force()
        people = self.sources[self.document["source"]["path"]]
        row = people[self.victim % len(people)] if rng.random() < 0.7 else rng.choice(people)
        try:
            found = force.limit(row), force.user_limit(user), force.own_limit(user)
            limits = [limit for limit in found if limit]
        except KeyError:  # no table that a condition reads
            limits = [force.whole]
        width = 2.75 / (min(limits) * rng.choice((0.1, 0.4, 0.8, 0.8, 0.8))) + 0.2
        what = "COUNT(*)"
        if self.document["measures"] and rng.random() < 0.2:
            what, width = "SUM(pay)", 10 * width
        text = self._about(row, rng.choice((0, 1, 1, 2, 9, 9)), rng, what)
        if rng.random() < 0.1:
            text += f" GROUP BY {rng.choice(list(force.axes))}"
        return text, width

    def _about(self, row, most, rng, what="COUNT(*)"):
        """Return a statement about the cells of a row, by so many conditions at most."""
        force, shown = self.force(), {}
        edges = {name: axis[2] for name, axis in force.axes.items() if axis[2]}
        if rows := force.rows([row]):
            with suppress(Unreadable):
                shown = force.shown(rows[0]) if force.cell(rows[0]) else {}
        parts = [
            _equal(name, value, edges.get(name))
            for name, value in shown.items()
            if value is not None and not name.startswith("table")
        ]
        parts = rng.sample(parts, min(most, len(parts)))
        where = f" WHERE {' AND '.join(parts)}" if parts else ""
        return f"SELECT {what} FROM {self.document['dataset']}{where}"

    # --- steps of stewards -----------------------------------------------------------------------

    def edit(self, rng, only=""):
        """A random edit of a random key."""
        done = []
        if self.account.accepted and (only or rng.random() < 0.75):
            self.document = deepcopy(self.account.accepted[-1].document)
        for _ in range(rng.choice((1, 1, 1, 2))):
            key = only if only in edits.EDITS else edits.chosen(rng, only)
            edits.EDITS[key](self.document, rng)
            done.append(key)
            self.counts["edited", key] += 1
        self._write()
        return ", ".join(done) + "\n" + written(self.document)

    def edit_limits(self, rng):
        """A random edit of what may be spent."""
        return self.edit(rng, "privacy.")

    def undo(self, rng):
        """The policy's file is again what is in force."""
        if not self.account.accepted:
            return "nothing"
        self.document = deepcopy(self.account.accepted[-1].document)
        self._write()
        return "as it was"

    def edit_users(self, rng):
        """A random edit of a random key of the users file."""
        if self.users is None:
            self.users = drafts.people(rng)
        key = rng.choice(list(edits.USER_EDITS))
        edits.USER_EDITS[key](self.users, rng)
        self._write()
        return f"{key}: {self.users}"

    def users_gone(self, rng):
        """The users file is away, or there again as it was."""
        self.users, self.away = self.away, self.users
        self._write()
        return f"{self.users}"

    def edit_public(self, rng):
        """A public file has other rows, or the same in another order."""
        name = rng.choice((*["frail.csv"] * 4, "others.csv", "values.csv"))
        head, *rows = self.public[name]
        if name == "values.csv":
            rows.reverse()
        else:
            options = [[["x"]], [["y"]], [["w"]], [["x"], ["y"]]]
            rows = rng.choice([option for option in options if option != rows])
        self.public[name] = [head, *rows]
        self._write()
        return f"{name}: {rows}"

    def move(self, rng):
        """The source has other values of the same people, where records may change, and these."""
        said = [force.document for force in self.account.accepted[-1:]]
        if any(document.get("records") == "immutable" for document in said):
            return self.grow(rng)
        name = self.document["source"]["path"]
        fresh = drafts.population(rng, len(self.sources["s0.csv"]))["s0.csv"]
        kept = ["id", "person", "house"]
        kept += ["seen"] if any("partition" in document for document in said) else []
        self.sources[name] = [
            fresh[row["id"] % len(fresh)] | {k: row[k] for k in kept} for row in self.sources[name]
        ]
        self._write()
        return name

    def grow(self, rng):
        """There are new people."""
        name = self.document["source"]["path"]
        last = max(row["id"] for rows in self.sources.values() for row in rows)
        for row in drafts.population(rng, 3)["s0.csv"]:
            last += 1
            self.sources[name].append(row | {"id": last})
        self._write()
        return name

    def init(self, rng):
        """Make the state; on an empty folder that is a new budget, as everybody is told."""
        empty = not any((self.state / n).exists() for n in ("ledger.sqlite", "anchor"))
        empty = empty and not list(self.state.glob("cube-*"))
        people, accepted = self._same_people(), False
        try:
            steward.init(self.policy)
        except StateError as error:
            if "second budget" not in error.message or rng.random() < 0.6:
                raise
            steward.init(self.policy, accept_second_budget=True)
            accepted = True
        finally:
            if empty and (self.state / "ledger.sqlite").exists():
                self.accounts[self.state] = Account() if accepted or not people else people
                self.account.accept(self.force())
        self.account.accept(self.force())
        return "a new budget" if empty else "goes on"

    def _same_people(self):
        """Return the account of another state beside this one that has read the same file."""
        for state, account in self.accounts.items():
            paths = [force.document["source"]["path"] for force in account.accepted]
            beside = state.parent == self.state.parent and (state / "ledger.sqlite").exists()
            if state != self.state and beside and self.document["source"]["path"] in paths:
                return account
        return None

    def apply(self, rng):
        """Apply the policy; where it is weaker, agree or put it back."""
        try:
            report = steward.apply(self.policy)
        except StateError as error:
            if "protects less" not in error.message or rng.random() < 0.6:
                self.undo(rng)
                raise
            report = steward.apply(self.policy, accept_weaker=True)
            if self.account.backup:
                self.account.backup = (*self.account.backup[:2], False)
        self.account.accept(self.force(), weaker=bool(report.changes))
        return f"applied {report.applied}, weaker: {report.changes}"

    def rebuild(self, rng):
        """Read the source again."""
        report = steward.rebuild(self.policy)
        self.account.accept(self.force())
        return f"snapshot {report.snapshot}, carried {report.carried}"

    def backup(self, rng):
        """Copy the ledger."""
        target = self.folder / f"backup-{len(self.trace)}"
        steward.backup(self.policy, target)
        self.account.backup = target, list(self.account.accepted), True
        return target.name

    def lose(self, rng, what=""):
        """Files are gone."""
        what = what or rng.choice(LOSSES)
        if what in ("ledger", "all", "disk"):
            self._close()
        if what == "disk":
            shutil.rmtree(self.state, ignore_errors=True)
        for pattern in FILES[what]:
            for path in self.state.glob(pattern):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        return what

    def restore(self, rng):
        """Put a backup back; without the anchor only if all is charged."""
        if not self.account.backup:
            return "no backup"
        target, accepted, good = self.account.backup
        anchor = (self.state / "anchor").exists()
        if not anchor and not good:
            return "a weaker policy was agreed to since, which nothing remembers"
        self._close()
        everything, weaker = not anchor or rng.random() < 0.3, False
        try:
            steward.restore(self.policy, target, charge_all=everything)
        except StateError as error:
            if "another policy was in force" not in error.message or rng.random() < 0.6:
                raise
            steward.restore(self.policy, target, charge_all=everything, accept_weaker=True)
            weaker = True
        if weaker or not anchor:  # what was agreed to since is forgotten, as the steward is told
            self.account.accepted = list(accepted)
        return f"{target.name}, anchor {anchor}, weaker {weaker}"

    def rename(self, rng):
        """An attribute has another name, or its own again; conditions and guards go with it."""
        axes = self.document["attributes"]
        old = "c" if "c" in axes else rng.choice(list(axes))
        new = axes[old].get("column", "a") if old == "c" else "c"
        if new in axes or (new == "c" and not {"column", "expression"} & axes[old].keys()):
            if new in axes:
                return "the name is taken"
            axes[old]["column"] = old
        self.document["attributes"] = {new if n == old else n: spec for n, spec in axes.items()}
        for part in ("cells", "guards"):
            self.document["privacy"].pop(part, None)
        self._write()
        return f"{old} is {new}"

    def copy_cube(self, rng):
        """The cube of the newest snapshot is kept, or what was kept is put over that of another."""
        there, kept = sorted(self.state.glob("cube-*")), self.folder / "kept.duckdb"
        if not there:
            return "no cube"
        if kept.exists():
            shutil.copy(kept, there[-1])
            kept.unlink()
            return f"over {there[-1].name}"
        shutil.copy(there[-1], kept)
        return f"kept {there[-1].name}"

    def copy_state(self, rng):
        """The folder of the state is copied."""
        shutil.rmtree(self.folder / "copied", ignore_errors=True)
        if not self.state.exists():
            return "no state"
        shutil.copytree(self.state, self.folder / "copied")
        return "copied"

    def old_state(self, rng):
        """The copy of the state is put back, with the anchor that there is."""
        self._close()
        if not (self.folder / "copied").exists() or not (self.state / "anchor").exists():
            return "no copy"
        shutil.copy(self.state / "anchor", self.folder / "anchor")
        shutil.rmtree(self.state)
        shutil.copytree(self.folder / "copied", self.state)
        shutil.copy(self.folder / "anchor", self.state / "anchor")
        return "put back"

    def restart(self, rng):
        """All connections end."""
        self._close()
        return "ended"

    def look(self, rng):
        """The steward looks at things, which changes nothing."""
        steward.guards(self.policy)
        steward.audit(self.policy)
        return ", ".join(steward.verify(self.policy)) or "agrees"

    def _close(self):
        for engine in self.engines:
            engine.close()
        self.engines = []

    def close(self):
        """End the life."""
        self._close()
