"""Files of a state: made for the owner of their folder, and for nobody else.

Root may work on a state that is somebody else's: what is made there belongs to the owner of the
folder, who could not read it otherwise.  Whoever cannot give files to that owner is told who must
run the command, before anything is touched.  What may not be opened is never called damaged.
"""

from __future__ import annotations

import errno
import logging
import os
import pwd
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from proxy.errors import OperationalError, StateError

OTHERS = 0o077  # what a mode lets group and others do

_log = logging.getLogger(__name__)
_told: set[str] = set()  # warnings that this process has given


def enter(folder: Path) -> None:
    """Do what every door does before it opens a state: see whose it is, and who may see it.

    Raises:
        StateError: it is somebody else's.
    """
    require_own(folder)
    if folder.exists():
        _warn_if_open(folder)


def require_own(path: Path) -> None:
    """Refuse a folder, or a file, if what is made of it could not be left to its owner.

    Raises:
        StateError: it belongs to somebody else, and we may not give files away.
    """
    there, visible = _nearest(path)
    owner = os.stat(there)
    if not visible or (there == path and not _can_give(there, owner)):
        raise StateError(
            f"{there} belongs to {_name(owner.st_uid)}, and this is {_name(os.geteuid())}: nothing "
            "was touched",
            hint=_as(owner.st_uid),
        )


def make_folder(folder: Path) -> None:
    """Make a folder for the owner of the one around it alone, and those on the way to it."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=0o700 if each == folder else 0o777, exist_ok=True)
        give(each, each.parent)


def create(path: Path, like: Path | None = None, flags: int = os.O_EXCL) -> int:
    """Make a file for the owner of its folder (or of ``like``) alone; return it, open."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | flags, 0o600)
    try:
        give(file, like or path.parent)
    except BaseException:
        os.close(file)
        raise
    return file


def replace(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Put a content in the place of a file's at once, for whom the file is; durable at the end.

    Where that fails the file is as it was.  ``mode`` is that of a new one.

    Raises:
        OSError: it cannot be written; the error names the file.
    """
    draft = path.with_name(f".{token_hex(8)}")
    try:
        there = path.exists()
        descriptor = create(draft, path if there else path.parent)
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, path.stat().st_mode & 0o777 if there else mode)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        draft.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        with suppress(OSError):
            draft.unlink()


def write(path: Path, data: bytes) -> None:
    """Write a file that a person has named, whole or not at all; what is no file just gets it.

    Raises:
        OSError: it cannot be written; the error names the file.
    """
    path = path.resolve()  # a link stays one
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    umask = os.umask(0o077)
    os.umask(umask)
    replace(path, data, 0o666 & ~umask)


def special(path: Path) -> str | None:
    """Return what is at a path, where it is neither a file nor a folder: opening it may hang."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return None
    kinds = {
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(mode))


def give(file: int | Path, like: Path) -> None:
    """Let a file, or a folder, of root's belong to whom another belongs."""
    owner, now = os.stat(like), os.stat(file)
    if os.geteuid() == 0 and now.st_uid != owner.st_uid:
        os.chown(file, owner.st_uid, owner.st_gid)


def read(path: Path) -> bytes:
    """Return what is in a file.

    Raises:
        OperationalError: we may not read it, or cannot.
    """
    with opening(path):
        return path.read_bytes()


@contextmanager
def opening(path: Path) -> Iterator[None]:
    """Let whoever may not open a file know whose it is.

    Raises:
        OperationalError: we may not open it, or it cannot be read, though it is there.
    """
    try:
        yield
    except PermissionError:
        raise denied(path) from None
    except FileNotFoundError:
        raise
    except OSError as error:
        raise OperationalError(f"{path} cannot be read: {error.strerror}") from error


def denied(path: Path) -> OperationalError:
    """Return the error of whoever may not open a file: whose it is, who we are, what to do."""
    path, _ = _nearest(path)
    owner, me = os.stat(path).st_uid, os.geteuid()
    hint = _as(owner)
    if owner == me:
        hint = f"its mode is in the way: chmod u+rwX {path}"
    elif os.stat(path.parent).st_uid == me:
        hint = f"let it belong to whom its folder belongs: sudo chown -R {me} {path}"
    return OperationalError(
        f"{path} may not be opened: it belongs to {_name(owner)}, and this is {_name(me)}",
        hint=hint,
    )


def refused(*paths: Path) -> OperationalError | None:
    """Return the error for the first of some files that is there and may not be opened."""
    for path in paths:
        there, visible = _nearest(path)
        allowed = os.access(there, os.R_OK | os.W_OK, effective_ids=True)
        read_only = os.statvfs(there).f_flag & os.ST_RDONLY
        if not visible or (there == path and not allowed and not read_only):
            return denied(path)
    return None


BLOCK = 2**16
ROOM = 2**20  # bytes that a folder should take
FULL = {  # errno -> what it says of a folder, and what to do
    errno.ENOSPC: ("the disk that {} is on is full", "make room there"),
    errno.EDQUOT: ("the disk quota for {} is used up", "make room there, or raise the quota"),
    errno.EFBIG: (
        "files in {} may not grow further: this process has a limit on the size of a file",
        "raise it (`ulimit -f`, or LimitFSIZE= of the service)",
    ),
    errno.EROFS: ("the file system that {} is on is read-only", "mount it read-write"),
}


def no_room(folder: Path) -> OperationalError | None:
    """Return the error for a folder in which nothing more can be written; SQLite does not say why.

    A file without a name is written there, and is gone again.
    """
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            for _ in range(ROOM // BLOCK):
                file.write(bytes(BLOCK))
            os.fsync(file.fileno())
    except OSError as error:
        return full(folder, error)
    return None


def full(folder: Path, error: OSError | str) -> OperationalError | None:
    """Return the error for a folder that takes nothing more, if that is what an error says.

    ``error`` may be the text of one of DuckDB's, which ends with what the system said.
    """
    for code, (what, do) in FULL.items():
        if os.strerror(code) in error if isinstance(error, str) else error.errno == code:
            return OperationalError(
                what.format(folder),
                hint=f"{do}, and do it again; nothing was charged and nothing was released",
            )
    return None


def remedy(error: OSError) -> str | None:
    """Return what to do about an error of the system, where that is known."""
    what = FULL.get(error.errno or 0)
    return what and f"{what[1]}, and do it again"


def _nearest(path: Path) -> tuple[Path, bool]:
    """Return a path, or what is nearest to it of the folders around; False where it is hidden."""
    visible = True
    for each in (path, *path.absolute().parents):
        try:
            os.stat(each)
        except OSError as error:
            visible = visible and error.errno != errno.EACCES
        else:
            return each, visible
    raise StateError(f"{path} cannot be looked at")


def _can_give(path: Path, owner: os.stat_result) -> bool:
    """Whether files that we make can be left to an owner; a change to what is so already tells."""
    if owner.st_uid == os.geteuid():
        return True
    try:
        os.chown(path, owner.st_uid, owner.st_gid)
    except OSError:
        return False
    return True


def _warn_if_open(folder: Path) -> None:
    """Log once where others than the owner may read or change a state folder, or what is in it."""
    found = []
    with opening(folder):
        inside = list(folder.iterdir())
    for path in (folder, *inside):
        with suppress(FileNotFoundError):
            if path.stat().st_mode & OTHERS:
                found.append(path.resolve())
    if not found:
        return
    what = ", ".join(str(path) for path in found[:3]) + (", ..." if found[3:] else "")
    within = all(path.is_relative_to(folder.resolve()) for path in found)
    closing = f"-R go= {folder}" if within else f"go= {' '.join(map(str, found))}"
    text = f"others than the owner may read or change {what}: chmod {closing}"
    if text not in _told:
        _told.add(text)
        _log.warning("%s", text)


def _name(user: int) -> str:
    """Return what a user is called."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"


def _as(user: int) -> str:
    """Return the hint to be somebody else."""
    try:
        account = pwd.getpwuid(user).pw_name
    except KeyError:
        account = f"'#{user}'"
    return f"run it as its owner: sudo -u {account} privacy-proxy ..."
