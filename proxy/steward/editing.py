"""A policy that somebody edits: what is wrong with it, what it would change, and adopting it.

A text is read as if it were in the policy's file; nothing is written before it is adopted.  What
names a file or a database of the machine stays as it is there: who may edit a policy need not be
who may choose what this process opens.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

import proxy.files as files
from proxy.errors import Error, OperationalError, PolicyError, ProgrammingError, StateError
from proxy.policy.document import Item
from proxy.policy.edits import Edit, edits, resources
from proxy.policy.faults import Faults
from proxy.state import state_folder
from proxy.steward.changes import ApplyReport, apply, arranged, intention, opened
from proxy.steward.loading import loaded

KEPT = ".before"  # ends the name of the file that was there

STATE = ("dataset", "state", "ledger")  # keys by which a policy finds its state

_turn = threading.Lock()


class Fault(Struct, frozen=True):
    """Something that is wrong with a policy: where, what, and what to do."""

    line: int | None
    key: str | None
    message: str
    hint: str | None = None
    file: str | None = None  # where it is another one


class Review(Struct, frozen=True):
    """What a policy's text would be, in force."""

    faults: tuple[Fault, ...]
    edits: tuple[Edit, ...] = ()
    weaker: tuple[str, ...] = ()  # how it protects less than what is in force
    rebuilds: bool = False
    new: bool = False  # whether it means anything else than what is in force


class Text(Struct, frozen=True):
    """What is in a policy's file, and its digest."""

    text: str
    digest: str


def text_of(policy: Path) -> Text:
    """Return what is in a policy's file.

    Raises:
        OperationalError: it cannot be read.
    """
    try:
        data = files.read(policy)
    except FileNotFoundError:
        raise OperationalError(f"there is no file {policy.name}") from None
    return Text(data.decode("utf-8", "replace"), hashlib.sha256(data).hexdigest())


def review(policy: Path, text: str, state: str | Path | None = None) -> Review:
    """Return all that is wrong with a text, or what applying it would change.

    Raises:
        Error: the state cannot be opened, or the file be read.
    """
    before = text_of(policy).text
    changed: list[Edit] = []
    with suppress(PolicyError):
        changed = edits(policy, before, text)
    try:
        _require_resources(policy, before, text)
        _require_state(policy, changed)
        new = loaded(policy, absent=True, text=text)
    except PolicyError as error:
        faults = sorted(
            (_fault(each, policy) for each in (error, *error.others)),
            key=lambda fault: (fault.file is not None, fault.line or 0),
        )
        return Review(tuple(faults), tuple(changed))
    folder = state_folder(new, state)
    with opened(new, folder) as ledger:
        if new.dataset != ledger.dataset:
            raise ProgrammingError(f"the dataset is {ledger.dataset}; its ledger keeps the name")
        found = intention(arranged(new, ledger), folder, ledger)
    return Review((), tuple(changed), found.weaker, not found.fits, found.new)


def adopt(
    policy: Path,
    text: str,
    digest: str,
    user: str,
    accepted: Collection[str] = (),
    state: str | Path | None = None,
) -> ApplyReport:
    """Put a text in the place of a policy's file, and in force; the file before stays beside it.

    Where it cannot be put in force the file is as it was.

    Raises:
        StateError: the file is not the one of the digest, or the text protects less than what is in
            force, and not all of that was accepted.
        Error: the text is wrong, or cannot be written.
    """
    policy = policy.resolve()
    with _turn:
        old = files.read(policy)
        if hashlib.sha256(old).hexdigest() != digest:
            raise StateError(
                "the policy's file has changed since this was begun; nothing was changed",
                hint="load the page again, and make your changes to the file as it is now",
            )
        found = review(policy, text, state)
        if found.faults:
            raise ProgrammingError(f"line {found.faults[0].line}: {found.faults[0].message}")
        if missing := [each for each in found.weaker if each not in accepted]:
            raise StateError(
                "the policy protects less than the one in force, and not all of that was accepted; "
                "nothing was changed",
                detail="; ".join(missing),
                hint="check it again, and accept what protects less",
            )
        _write(policy.with_name(policy.name + KEPT), old)
        _write(policy, text.encode())
        try:
            return apply(policy, state, accept_weaker=found.weaker, user=user)
        except BaseException:
            if files.read(policy) == text.encode():
                _write(policy, old)
            raise


def _require_resources(policy: Path, before: str, text: str) -> None:
    """Refuse a text that names files or databases which the file does not name.

    Raises:
        PolicyError: it does; all of them.
    """
    known = {(key.rpartition(".")[2], item.value.text) for key, item in _of(policy, before).items()}
    faults = Faults(str(policy))
    for key, item in resources(policy, text).items():
        if (key.rpartition(".")[2], item.value.text) not in known:
            faults.add(item.error("what names a file or a database is changed where the file is"))
    for error in faults.errors:
        error.hint = "edit the policy's file on its own machine, then privacy-proxy apply"
    faults.finish()


def _require_state(policy: Path, changed: Collection[Edit]) -> None:
    """Refuse a text that finds another state than the file does, such as another dataset's.

    Raises:
        PolicyError: it does.
    """
    for key, line, _, _ in changed:
        if key in STATE:
            raise PolicyError(
                f"{key} stays as it is in the file",
                file=str(policy),
                line=line,
                key=key,
                hint="by it the policy finds its ledger",
            )


def _of(policy: Path, text: str) -> dict[str, Item]:
    with suppress(PolicyError):
        return resources(policy, text)
    return {}


def _fault(error: Error, policy: Path) -> Fault:
    """Return an error of a policy without the path of its file."""
    file, line, key = (getattr(error, name, None) for name in ("file", "line", "key"))
    where = ":".join(str(part) for part in (file, line) if part is not None)
    message = error.message.removeprefix(f"{where}: ")
    message = message.removeprefix(f"{key}: ") if key else message
    other = Path(file).name if file and Path(file) != policy else None
    return Fault(line, key, message, error.hint, other)


def _write(path: Path, data: bytes) -> None:
    """Put data in the place of a file.

    Raises:
        OperationalError: this process may not write there.
    """
    try:
        files.replace(path, data)
    except OSError as error:
        raise OperationalError(
            f"{path.name} cannot be written: {error.strerror}; nothing was changed",
            hint="the account of this process needs to write the policy's folder; or edit the file "
            "on its own machine, then privacy-proxy apply",
        ) from error
