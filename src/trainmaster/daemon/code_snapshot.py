"""Code snapshots: a job runs the code as it was at submission.

Every job has its own files: what one writes into its copy, even in place and as root, no other job sees.
Where the file system can (Btrfs, XFS), a copy shares its blocks with the source until one of them is
written to, and takes next to no space; elsewhere it takes its full size.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from pathspec import GitIgnoreSpec

from trainmaster.daemon.service_api import RequestError
from trainmaster.model.units import MIB
from trainmaster.text.formatting import size

MOST_BYTES = 200 * MIB
MOST_FILES = 20_000
IGNORE_FILE = ".trainmasterignore"
NEVER = frozenset(
    (
        *(".git", ".hg", ".svn", ".trainmaster", ".venv", "venv", "node_modules", "__pycache__"),
        *(".mypy_cache", ".pytest_cache", ".ruff_cache", ".ipynb_checkpoints", ".tox"),
    )
)
"""Folders that never hold code of the user."""
COPIED_NS = 946_684_800 * 10**9
"""Modification time of copied files: a file with another time was written by the job."""
FICLONE = 0x40049409
"""The ioctl of Linux that lets two files share blocks until one is written to."""
PIECE = 1 << 20
GIT_S = 60
NOT_IGNORED = ("--cached", "--others", "--exclude-standard")
"""Flags of `git ls-files`: what is tracked, and what is new and not ignored."""


def keep_code(workdir: Path, into: Path) -> None:
    """Copy what the folder holds now to `into`, all or nothing; a RequestError where it is too much.

    In a Git work tree: what is tracked, and what is new and not ignored. Elsewhere: everything but caches
    and environments. `.trainmasterignore` leaves out more. `into` must not exist, or be an earlier copy.
    """
    if not workdir.is_dir():
        raise RequestError(
            f"The working directory {workdir} does not exist any more: submit from another."
        )
    found = _chosen(workdir, _own_folders(workdir, into))
    _check_limits(workdir, found)
    with _complete(into, workdir) as making:
        making.mkdir()
        for path, seen in found.items():
            _copy(workdir / path, making / path, is_link=stat.S_ISLNK(seen.st_mode))


def copy_again(kept: Path, into: Path) -> None:
    """Another copy of one that was just made and not run yet, for a job submitted together with it."""
    with _complete(into, kept) as making:
        shutil.copytree(kept, making, symlinks=True, copy_function=_copy_file)


@contextlib.contextmanager
def _complete(into: Path, source: Path) -> Iterator[Path]:
    """A folder to write to that becomes `into`, in place of an earlier copy, only when it is complete."""
    into.parent.mkdir(parents=True, exist_ok=True)
    making = into.with_name(f"{into.name}.{uuid4().hex}.new")
    try:
        yield making
        if into.exists():
            shutil.rmtree(into)
        making.rename(into)
    except OSError as error:  # shutil.Error is one
        raise RequestError(
            f"The code in {source} could not be copied: {error.strerror or error}"
            f" ({error.filename}). Free some space, or submit with snapshot: false."
        ) from error
    finally:
        shutil.rmtree(making, ignore_errors=True)


def is_as_copied(path: Path) -> bool:
    """Whether this file or link of a copy is as it was copied: the job has not written to it."""
    try:
        seen = path.lstat()
    except FileNotFoundError:
        return False
    return not stat.S_ISDIR(seen.st_mode) and seen.st_mtime_ns == COPIED_NS


# -- choosing ------------------------------------------------------------------------------------------


def _own_folders(workdir: Path, into: Path) -> frozenset[Path]:
    """Folders of the manager's own that may lie inside: its state is not part of the code."""
    state = into.absolute().parent.parent.parent
    base = workdir.resolve()
    own = {into.absolute().resolve()}
    if base in state.resolve().parents:
        own.add(state.resolve())
    return frozenset(own)


def _chosen(workdir: Path, own: frozenset[Path]) -> dict[str, os.stat_result]:
    """Files and symbolic links to be kept, by their path in the folder."""
    patterns = GitIgnoreSpec.from_lines(_ignore_lines(workdir))
    listed = listed_by_git(workdir, *NOT_IGNORED)
    base = str(workdir.resolve())
    inside = tuple(f"{os.path.relpath(each, base)}/" for each in own if Path(base) in each.parents)
    found: dict[str, os.stat_result] = {}
    paths = (
        _walked(workdir, "", patterns, own) if listed is None else _expanded(workdir, listed, own)
    )
    for path in paths:
        if patterns.match_file(path) or path.startswith(inside):
            continue
        if NEVER.intersection(path.split("/")[:-1]):
            continue
        with contextlib.suppress(OSError):  # deleted meanwhile
            seen = os.lstat(workdir / path)
            if stat.S_ISLNK(seen.st_mode) or stat.S_ISREG(seen.st_mode):
                found[path] = seen
        if len(found) > MOST_FILES:
            break
    return found


def _ignore_lines(workdir: Path) -> list[str]:
    try:
        return (workdir / IGNORE_FILE).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def listed_by_git(workdir: Path, *which: str) -> list[str] | None:
    """What Git lists of these kinds, relative to the folder; None where there is no Git or no work tree."""
    command = ["git", "-c", "core.fsmonitor=false", "-C", str(workdir), "ls-files", "-z"]
    try:
        done = subprocess.run(
            [*command, *which],
            capture_output=True,
            timeout=GIT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None
    return list(dict.fromkeys(os.fsdecode(each) for each in done.stdout.split(b"\0") if each))


def _expanded(workdir: Path, listed: list[str], own: frozenset[Path]) -> Iterator[str]:
    """What Git lists, with the files of repositories inside, which it names as folders only."""
    for path in listed:
        place = workdir / path
        if path.endswith("/") or (place.is_dir() and not place.is_symlink()):
            name = path.rstrip("/")
            inner = listed_by_git(place, *NOT_IGNORED)
            if inner is None or not (place / ".git").exists():
                yield from _walked(workdir, name, GitIgnoreSpec([]), own)
            else:
                yield from (f"{name}/{each}" for each in _expanded(place, inner, own))
        else:
            yield path


def _walked(
    workdir: Path, start: str, patterns: GitIgnoreSpec, own: frozenset[Path]
) -> Iterator[str]:
    """Every file below, folders in the order of their names."""
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
            elif (
                entry.name not in NEVER
                and not patterns.match_file(f"{path}/")
                and Path(entry.path).resolve() not in own
            ):
                todo.append(path)


def _check_limits(workdir: Path, found: Mapping[str, os.stat_result]) -> None:
    total = sum(seen.st_size for seen in found.values())
    if len(found) <= MOST_FILES and total <= MOST_BYTES:
        return
    weights: Counter[str] = Counter()
    too_many = len(found) > MOST_FILES
    for path, seen in found.items():
        first, slash, _ = path.partition("/")
        weights[first + slash] += 1 if too_many else seen.st_size
    where, weight = weights.most_common(1)[0]
    if too_many:
        said = f"holds more than {MOST_FILES:,} files, {weight:,} of them in {where}"
    else:
        said = (
            f"holds {size(total)}, more than the {size(MOST_BYTES)} that are copied;"
            f" {where} alone has {size(weight)}"
        )
    raise RequestError(
        f"The working directory {workdir} {said}: name what the program does not need in"
        f" {IGNORE_FILE}, or submit with snapshot: false."
    )


# -- copying -------------------------------------------------------------------------------------------


def _copy(source: Path, target: Path, *, is_link: bool) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        if is_link:
            os.symlink(os.readlink(source), target)
            os.utime(target, ns=(COPIED_NS, COPIED_NS), follow_symlinks=False)
        else:
            _copy_file(source, target)
    except FileNotFoundError as gone:
        if str(gone.filename) == str(target):
            raise
        # Deleted while it was being copied: leave it out.
    except PermissionError as refused:
        raise RequestError(
            f"{source} cannot be read: change its permissions, or name it in {IGNORE_FILE}."
        ) from refused


def _copy_file(source: str | Path, target: str | Path) -> None:
    """Give the target the source's content and rights, as a file of its own."""
    with Path(source).open("rb") as reading, Path(target).open("wb") as writing:
        if not _share_blocks(reading.fileno(), writing.fileno()):
            _copy_bytes(reading, writing, source)
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


def _copy_bytes(reading: BinaryIO, writing: BinaryIO, source: str | Path) -> None:
    copied = 0
    while piece := reading.read(PIECE):
        copied += len(piece)
        if copied > MOST_BYTES:
            raise RequestError(
                f"{source} grows while it is being copied: name it in {IGNORE_FILE}, or submit"
                " with snapshot: false."
            )
        writing.write(piece)
