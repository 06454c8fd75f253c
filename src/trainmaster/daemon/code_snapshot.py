"""Code snapshots: a job runs the code as it was at submission.

Every job has its own files: what one writes into its copy, even in place and as root, no other job sees.
Where the file system can (Btrfs, XFS), a copy shares its blocks with the source until one of them is
written to, and takes next to no space; elsewhere it takes its full size. What is ignored, such as data, is
not copied: where the job's node sees the folder, the copy has links to it.

It runs in a process of its own (`file_worker.py`), as the job's user where the manager is root: folders of
users may hang, or hold anything.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import stat
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from trainmaster.daemon.ignore_patterns import IgnorePatterns, patterns_of
from trainmaster.daemon.request_errors import RequestError
from trainmaster.durable_files import sync
from trainmaster.engines.copied_files import CACHES, COPIED_NS
from trainmaster.engines.local.privileges import give_folder, open_job_folder
from trainmaster.model.launch_spec import Account
from trainmaster.model.units import MIB
from trainmaster.text.formatting import size

MOST_LISTED = 64 * MIB
"""Bytes that Git may answer with."""
IGNORE_FILE = ".trainmasterignore"
MOST_PATTERNS = 1 * MIB
"""Bytes of an ignore file."""
STATE = frozenset((".git", ".hg", ".svn", ".trainmaster"))
ENVIRONMENTS = frozenset((".venv", "venv", "node_modules"))
NEVER = STATE | CACHES | ENVIRONMENTS
"""Folders that never hold code of the user."""
FICLONE = 0x40049409
"""The ioctl of Linux that lets two files share blocks until one is written to."""
PIECE = 1 << 20
GIT_S = 60
NOT_IGNORED = ("--cached", "--others", "--exclude-standard")
"""Flags of `git ls-files`: what is tracked, and what is new and not ignored."""
IGNORED = ("--others", "--ignored", "--exclude-standard", "--directory")
SYNCED_ONE_BY_ONE = 200
"""Up to so many files are written to the disk one by one; beyond that, the whole file system is at once."""


@dataclass(frozen=True, slots=True)
class CopyLimits:
    """How much is copied at most."""

    bytes: int = 200 * MIB
    files: int = 20_000


@dataclass(frozen=True, slots=True)
class Chosen:
    """What of a folder is copied, and what is not."""

    copied: Mapping[str, os.stat_result]
    ignored: tuple[str, ...]
    """Files and whole folders that ignore files leave out."""


def keep_code(
    workdir: Path, into: Path, *, links: bool = True, most: CopyLimits | None = None
) -> tuple[str, ...]:
    """Copy what the folder holds now to `into`, all or nothing; a RequestError where it is too much.

    In a Git work tree: what is tracked, and what is new and not ignored. Elsewhere: everything but caches
    and environments. `.trainmasterignore` leaves out more. `links`: link to what is ignored. `into` must
    not exist, or be an earlier copy. Returns what was left out.
    """
    with _complete(into, workdir) as making:
        making.mkdir()
        return fill(workdir, making, into, links=links, most=most or CopyLimits())


def fill(
    workdir: Path, making: Path, into: Path, *, links: bool, most: CopyLimits
) -> tuple[str, ...]:
    """Copy what the folder holds now into an empty one, which becomes `into`; what was left out."""
    chosen = choose(workdir, into, most)
    with _told(workdir):
        for path, seen in chosen.copied.items():
            if stat.S_ISLNK(seen.st_mode):
                _copy_link(workdir, path, making)
            else:
                _copy(workdir / path, making / path, most.bytes)
        for path in chosen.ignored if links else ():
            _link(str(workdir.absolute() / path), making / path)
        _sync(making, len(chosen.copied))
    return () if links else chosen.ignored


def copy_again(kept: Path, into: Path) -> None:
    """Another copy of one that was just made and not run yet, for a job submitted together with it."""
    with _complete(into, kept) as making:
        fill_again(kept, making)


def fill_again(kept: Path, making: Path) -> None:
    """The same, into a folder that may be there already."""
    with _told(kept):
        copy = partial(shutil.copytree, symlinks=True, copy_function=_copy_file, dirs_exist_ok=True)
        copy(kept, making)
        _sync(making, SYNCED_ONE_BY_ONE + 1)


# -- for other users: they fill a folder of their own, and root puts it in its place ---------------------


def begin_copy(into: Path, account: Account) -> Path:
    """An empty folder of this account's, beside the one that it is to become."""
    with _told(into):
        open_job_folder(into.parent)
        making = _beside(into)
        give_folder(making, account)
    return making


def settle_copy(making: Path, into: Path) -> None:
    """Put it in its place. The folder around is ours: what is moved there is what was made."""
    with _told(into):
        _put_in_place(making, into)


@contextlib.contextmanager
def _complete(into: Path, source: Path) -> Iterator[Path]:
    """A folder to write to that becomes `into`, in place of an earlier copy, only when it is complete."""
    with _told(source):
        into.parent.mkdir(parents=True, exist_ok=True)
        making = _beside(into)
        try:
            yield making
            _put_in_place(making, into)
        finally:
            shutil.rmtree(making, ignore_errors=True)


def _beside(into: Path) -> Path:
    return into.with_name(f"{into.name}.{uuid4().hex}.new")


def _put_in_place(making: Path, into: Path) -> None:
    if into.exists():
        shutil.rmtree(into)
    making.rename(into)
    for folder in (into.parent, into.parent.parent):
        sync(folder)


@contextlib.contextmanager
def _told(source: Path) -> Iterator[None]:
    """A RequestError where the machine refuses something of it."""
    try:
        yield
    except OSError as error:  # shutil.Error is one
        raise RequestError(
            f"The code in {source} could not be copied: {error.strerror or error}"
            f" ({error.filename}). Free some space, or submit with --no-snapshot (snapshot: false)."
        ) from error


def remove_incomplete(jobs: Path) -> int:
    """Remove copies that a crash left half made; how many."""
    found = [*jobs.glob("*/code.*.new"), *jobs.glob("*/brought.*.new")]
    for path in found:
        shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):
            path.parent.rmdir()
    return len(found)


# -- choosing ------------------------------------------------------------------------------------------


def choose(workdir: Path, into: Path, most: CopyLimits) -> Chosen:
    """What of the folder would be copied to `into`, and what is ignored; a RequestError if it is too much."""
    if not workdir.is_dir():
        raise RequestError(
            f"The working directory {workdir} does not exist any more: submit from another."
        )
    own = _own_folders(workdir, into)
    patterns = patterns_of(_ignore_lines(workdir))
    listed = listed_by_git(workdir, *NOT_IGNORED)
    base = str(workdir.resolve())
    inside = tuple(f"{os.path.relpath(each, base)}/" for each in own if Path(base) in each.parents)
    ignored = [] if listed is None else listed_by_git(workdir, *IGNORED) or []
    found: dict[str, os.stat_result] = {}
    paths = (
        _walked(workdir, "", patterns, own, ignored)
        if listed is None
        else _expanded(workdir, listed, own)
    )
    for path in paths:
        if path.startswith(inside) or NEVER.intersection(path.split("/")[:-1]):
            continue
        if patterns.excludes(path):
            ignored.append(patterns.excluded_part(path))
            continue
        with contextlib.suppress(OSError):  # deleted meanwhile
            seen = os.lstat(workdir / path)
            if stat.S_ISLNK(seen.st_mode) or stat.S_ISREG(seen.st_mode):
                found[path] = seen
        if len(found) > most.files:
            break
    _check_limits(workdir, found, most)
    return Chosen(found, _links(workdir, ignored, inside)[: most.files])


def _links(workdir: Path, ignored: list[str], inside: tuple[str, ...]) -> tuple[str, ...]:
    """Of what is ignored, the paths to link to: no caches, nothing of the manager's, no path twice."""
    found: list[str] = []
    for path in sorted({each.rstrip("/") for each in ignored}):
        if (STATE | CACHES).intersection(path.split("/")) or f"{path}/".startswith(inside):
            continue
        if any(each.startswith(f"{path}/") for each in inside):
            continue
        if found and path.startswith(f"{found[-1]}/"):
            continue
        if os.path.lexists(workdir / path):
            found.append(path)
    return tuple(found)


def _own_folders(workdir: Path, into: Path) -> frozenset[Path]:
    """Folders of the manager's own that may lie inside: its state is not part of the code."""
    state = into.absolute().parent.parent.parent
    base = workdir.resolve()
    own = {into.absolute().resolve()}
    if base in state.resolve().parents:
        own.add(state.resolve())
    return frozenset(own)


def _ignore_lines(workdir: Path) -> list[str]:
    try:
        content = read_regular(workdir / IGNORE_FILE, MOST_PATTERNS)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RequestError(f"{workdir / IGNORE_FILE} cannot be read: {error.strerror}.") from None
    return content.decode("utf-8", "replace").splitlines()


def read_regular(path: Path, most: int) -> bytes:
    """The content of an ordinary file that is not larger; OSError for what could block or never end."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as reading:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(0, "it is not an ordinary file", str(path))
        content = reading.read(most + 1)
    if len(content) > most:
        raise OSError(0, f"it is larger than {size(most)}", str(path))
    return content


def listed_by_git(workdir: Path, *which: str) -> list[str] | None:
    """What Git lists of these kinds, relative to the folder; None where there is no Git or no work tree."""
    if not any(os.path.lexists(each / ".git") for each in (workdir, *workdir.absolute().parents)):
        return None
    safe = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")  # nothing is run
    command = ["git", *safe, "-C", str(workdir), "ls-files", "-z", *which]
    try:
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as git:
            assert git.stdout is not None
            said = git.stdout.read(MOST_LISTED)
            if len(said) == MOST_LISTED:  # more than may be copied in any case
                git.kill()
                said = said.rpartition(b"\0")[0]
            elif git.wait(GIT_S) != 0:
                return None
    except OSError:
        return None
    return list(dict.fromkeys(os.fsdecode(each) for each in said.split(b"\0") if each))


def _expanded(workdir: Path, listed: list[str], own: frozenset[Path]) -> Iterator[str]:
    """What Git lists, with the files of repositories inside, which it names as folders only."""
    for path in listed:
        place = workdir / path
        if path.endswith("/") or (not place.is_symlink() and place.is_dir()):
            name = path.rstrip("/")
            inner = listed_by_git(place, *NOT_IGNORED)
            if inner is None or not (place / ".git").exists():
                yield from _walked(workdir, name, IgnorePatterns(), own, [])
            else:
                yield from (f"{name}/{each}" for each in _expanded(place, inner, own))
        else:
            yield path


def _walked(
    workdir: Path, start: str, patterns: IgnorePatterns, own: frozenset[Path], ignored: list[str]
) -> Iterator[str]:
    """Every file below, folders in the order of their names; folders that are left out go to `ignored`."""
    todo = [start]
    while todo:
        folder = todo.pop()
        try:
            with os.scandir(workdir / folder) as entries:
                listed = sorted(entries, key=lambda each: each.name)
        except OSError:
            continue
        for entry in listed:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if not entry.is_dir(follow_symlinks=False):
                yield path
            elif entry.name in ENVIRONMENTS or patterns.excludes(path, is_folder=True):
                ignored.append(path)
            elif entry.name not in NEVER and Path(entry.path).resolve() not in own:
                todo.append(path)


def _check_limits(workdir: Path, found: Mapping[str, os.stat_result], most: CopyLimits) -> None:
    """A RequestError that names what is large, where a folder holds more than is copied."""
    total = sum(seen.st_size for seen in found.values())
    if len(found) <= most.files and total <= most.bytes:
        return
    weights: Counter[str] = Counter()
    too_many = len(found) > most.files
    for path, seen in found.items():
        first, slash, _ = path.partition("/")
        weights[first + slash] += 1 if too_many else seen.st_size
    where, weight = weights.most_common(1)[0]
    if too_many:
        said = f"holds more than {most.files:,} files, {weight:,} of them in {where}"
    else:
        said = (
            f"holds {size(total)}, more than the {size(most.bytes)} that are copied;"
            f" {where} alone has {size(weight)}"
        )
    raise RequestError(
        f"The working directory {workdir} {said}: name what the program does not need in"
        f" {IGNORE_FILE}, or submit with --no-snapshot (snapshot: false)."
    )


# -- copying -------------------------------------------------------------------------------------------


def _copy_link(workdir: Path, path: str, making: Path) -> None:
    """A link as it is; one that leads out of the folder by a relative path becomes absolute."""
    try:
        to = os.readlink(workdir / path)
    except FileNotFoundError:
        return  # deleted meanwhile
    base = str(workdir.absolute())
    place = os.path.normpath(os.path.join(base, os.path.dirname(path), to))
    leaves = place != base and not place.startswith(f"{base}/")
    _link(place if leaves else to, making / path)


def _link(to: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.symlink(to, target)
        os.utime(target, ns=(COPIED_NS, COPIED_NS), follow_symlinks=False)


def _copy(source: Path, target: Path, most: int) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        _copy_file(source, target, most)
    except FileNotFoundError as gone:
        if str(gone.filename) == str(target):
            raise
        # Deleted while it was being copied: leave it out.
    except PermissionError as refused:
        raise RequestError(
            f"{source} cannot be read: change its permissions, or name it in {IGNORE_FILE}."
        ) from refused


def _copy_file(source: str | Path, target: str | Path, most: int = 1 << 62) -> None:
    """Give the target the source's content and rights, as a file of its own."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    with open(os.open(source, flags), "rb") as reading, Path(target).open("wb") as writing:
        if not _share_blocks(reading.fileno(), writing.fileno()):
            _copy_bytes(reading, writing, source, most)
        writing.flush()
        rights = stat.S_IMODE(os.fstat(reading.fileno()).st_mode) & 0o777
        os.fchmod(writing.fileno(), rights | stat.S_IRUSR | stat.S_IWUSR)
        os.utime(writing.fileno(), ns=(COPIED_NS, COPIED_NS))


def _share_blocks(source: int, target: int) -> bool:
    """Let the target share the source's blocks; whether this file system can."""
    try:
        fcntl.ioctl(target, FICLONE, source)
    except OSError:
        return False
    return True


def _copy_bytes(reading: BinaryIO, writing: BinaryIO, source: str | Path, most: int) -> None:
    copied = 0
    while piece := reading.read(PIECE):
        copied += len(piece)
        if copied > most:
            raise RequestError(
                f"{source} grows while it is being copied: name it in {IGNORE_FILE}, or submit"
                " with --no-snapshot (snapshot: false)."
            )
        writing.write(piece)


# -- writing to the disk ---------------------------------------------------------------------------------


def _sync(folder: Path, files: int) -> None:
    """Write the folder and all in it to the disk."""
    if files > SYNCED_ONE_BY_ONE:
        _sync_file_system(folder)
        return
    for base, _, names in os.walk(folder):
        for name in names:
            path = Path(base, name)
            if not path.is_symlink():
                sync(path)
        sync(Path(base))


def _sync_file_system(folder: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.syncfs(fd) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(folder))
    finally:
        os.close(fd)
