"""A double of the cube: it remembers of which policy and rows it was built, and counts nobody.

With it, evaluators and documents are used again, so that thousands of lives take minutes.
"""

import hashlib
import json
import sys
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import proxy.cube
import proxy.policy.document
from proxy.cube.file import digest
from proxy.domain import Domain
from proxy.errors import IntegrityError, SourceError, StateError
from proxy.sql.evaluator.evaluator import Evaluator
from proxy.sql.evaluator.worker import Database
from tests.privacy.documents import Force, Unreadable

KEPT = 24  # evaluators, documents


@dataclass(frozen=True, eq=False)
class Build:
    """What a cube was built of: a policy, and the rows that the source had."""

    force: Force
    rows: tuple  # raw, each with its "id"
    domain: Domain  # in the order in which its cells were written

    def kept(self, without=lambda row: False):
        """The records of the cube: (row, codes, quanta), at most so many of a unit."""
        found, units = [], Counter()
        for raw, row in self.mixed:
            if without(raw):
                continue
            codes = self.force.cell(row)
            if codes is None:
                continue
            unit = self.force.unit and raw[self.force.unit]
            units[unit] += 1
            if self.force.unit and (unit is None or units[unit] > self.force.most):
                continue
            found.append((raw, self.placed(codes), self.force.quanta(row)))
        return found

    def closed(self, taken):
        """The rows whose cells are before a day."""
        axis = self.domain.axis[taken.column]
        before = self.domain.attributes[axis].before(taken.before)
        return [raw for raw, codes, _ in self.kept() if before[codes[axis]]]

    def placed(self, codes):
        """Codes in the order of the document as codes in the order of the domain."""
        return tuple(places[codes[at]] for at, places in self._order)

    @cached_property
    def _order(self):
        """Of each axis of the domain: its place in the document, and the code of each code."""
        names = list(self.force.axes)
        found = []
        for axis in self.domain.attributes:
            texts = [str(value).removesuffix(" 00:00:00") for value in axis.values]
            places = [texts.index(str(value)) for value in self.force.axes[axis.name][1]]
            found.append((names.index(axis.name), [*places, len(texts)]))
        return found

    @property
    def mixed(self):
        """The rows in an order that their content and the seed alone decide."""
        seed = "" if self.force.unit is None else self.force.privacy["unit"].get("seed", "0")

        def place(pair):
            text = repr([seed, sorted((k, str(v)) for k, v in pair[1].items() if k != "id")])
            return hashlib.md5(text.encode()).digest(), pair[0]["id"]

        pairs = [(raw, found) for raw in self.rows for found in self.force.rows([raw])]
        return sorted(pairs, key=place)


class Doubles:
    """Takes the place of the cube's builder, of its file, and of new evaluators, in all modules."""

    def __init__(self):
        self.world = None
        self.builds = []
        self.evaluators, self.documents = {}, {}
        self._read = proxy.policy.document.read
        self.undo = []

    def __enter__(self):
        doubles = self

        class Cube(DoubleCube):
            @classmethod
            def open(cls, path, domain, ledger_id, origin=""):
                return cls(path, domain, ledger_id, origin, doubles)

        self._replace(proxy.cube.build, self.build)
        self._replace(proxy.cube.faults, lambda policy, sources: [])
        self._replace(proxy.cube.verify, lambda path, ledger_id, origin: None)
        self._replace(proxy.cube.Cube, Cube)
        self._replace(Evaluator, self.evaluator)
        self._replace(proxy.policy.document.read, self.document)
        return self

    def __exit__(self, *_):
        for module, name, value in self.undo:
            setattr(module, name, value)
        for made in self.evaluators.values():
            made.end()

    def _replace(self, old, new):
        for name, module in list(sys.modules.items()):
            if name.startswith("proxy"):
                for key, value in list(vars(module).items()):
                    if value is old:
                        self.undo.append((module, key, value))
                        setattr(module, key, new)

    def build(
        self, policy, path, ledger_id, progress=None, key=b"", origin=lambda *of: "", taken=None
    ):
        """Write a cube of the policy's source as it is now, but for what is taken over."""
        force = self.world.force(Path(policy.path))
        build = Build(force, self.world.rows(Path(policy.source.path).name), policy.domain)
        try:
            if taken:
                old = self.builds[json.loads(taken.path.read_text())["build"]]
                own = {row["id"] for row in build.closed(taken)}
                there = [row for row in build.rows if row["id"] not in own]
                self.world.counts["taken"] += 1
                build = replace(build, rows=(*old.closed(taken), *there))
            kept = build.kept()
        except Unreadable as error:
            raise SourceError(f"{error}: the policy says error") from None
        if len(kept) > policy.max_records:
            raise SourceError("more records than max_records")
        self.builds.append(build)
        meta = {
            "ledger": ledger_id,
            "origin": origin(proxy.cube.fingerprint(policy, key), recipe(policy), cells(kept)),
            "domain": digest(policy.domain),
            "max_records": policy.max_records,
            "build": len(self.builds) - 1,
        }
        path.write_text(json.dumps(meta))
        return proxy.cube.Report(len(build.rows), len(kept), 0, 0, (), ())

    def evaluator(self, domain, sandbox=None):
        """Return an evaluator that was made for the same domain and the same public files."""
        key = repr((domain, self.world.public, self.world.document.get("public")))
        found = self.evaluators.pop(key, None)
        if found is None and len(self.evaluators) < KEPT:
            found = Shared(domain, Database())
        elif found is None:  # the one that was used longest ago gives its DuckDB away
            found = Shared(domain, self.evaluators.pop(next(iter(self.evaluators))).emptied())
        self.evaluators[key] = found
        return found

    def document(self, path, text=None):
        """Return what was read of the same text before."""
        if text is not None:
            return self._read(path, text)
        key = str(path), path.read_bytes() if path.exists() else b""
        if key not in self.documents:
            if len(self.documents) > KEPT:
                self.documents.clear()
            self.documents[key] = self._read(path)
        return self.documents[key]


def cells(kept):
    """Return what cells have, as a text."""
    return repr(sorted(Counter((codes, quanta) for _, codes, quanta in kept).items(), key=repr))


def recipe(policy):
    """Return how rows are read; all sources here have the same columns."""
    return f"recipe {policy.source.table} {policy.source.query}"


class Shared(Evaluator):
    """An evaluator that outlives its engine."""

    def close(self):
        """It is not the engine's to end."""

    def emptied(self):
        """Return the DuckDB without a table."""
        for table in (*self._tables, *(table for table, _ in self._public.values())):
            self._sandbox.run(f"DROP TABLE {table}", [])
        return self._sandbox

    def end(self):
        super().close()


class DoubleCube:
    """A cube file of the double: as the real one, it knows its ledger, domain and origin."""

    def __init__(self, path, domain, ledger_id, origin, doubles):
        if not path.exists():
            raise StateError("there is no cube yet", hint="privacy-proxy init builds it")
        meta = json.loads(path.read_text())
        if meta["ledger"] != ledger_id:
            raise IntegrityError("the cube belongs to another ledger")
        if meta["domain"] != digest(domain):
            raise StateError("the cube was built for other attributes or measures")
        if meta["origin"] != origin:
            raise StateError("the cube was built from another source than its snapshot says")
        self.id, self.max_records = str(meta["build"]), meta["max_records"]
        self._doubles = doubles

    def answer(self, family):
        """Return nobody: what the answers are is of no account."""
        build = self._doubles.builds[int(self.id)]
        self._doubles.world.read.append((family, build))
        return [0] * family.rows
