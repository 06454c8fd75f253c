"""Files of jobs on a node that does not see the manager's folder: what was sent, and what became of it.

A job has a folder of its own there, in the layout of the manager's. What no run needs is kept for the next
one of the job as long as there is room.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, replace
from hashlib import sha256
from pathlib import Path

from trainmaster.durable_files import write_whole
from trainmaster.engines.local import ownership
from trainmaster.engines.local.journal import BOOT
from trainmaster.engines.local.privileges import OPEN, closed_place, gone, is_known, is_users
from trainmaster.engines.ray.file_tree import Entry, Tree, entries_of, is_inside
from trainmaster.engines.ray.folder_below import FolderWriter, finish, folder_of, open_below, opened
from trainmaster.engines.ray.node_cache import NodeCache
from trainmaster.engines.ray.staged_values import Changes, Lacking, NoRoom, Piece, Wanted
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import Account, LaunchSpec
from trainmaster.text.formatting import size

RECORD = "staged.json"
"""In a job's folder: which attempt its files were sent for, and whether all that it wrote was brought."""
INCOMING = "incoming"
"""In a job's folder: files that are on their way."""
SENT = ".sent.json"
"""After a tree's name: what was sent."""
PART_OF_DISK = 10
"""What no run needs takes up to a tenth of the disk."""
FULL = (errno.ENOSPC, errno.EDQUOT)
DIGEST = re.compile("[0-9a-f]{64}")
CHANGED = "changed"
"""In the place of the digest of a file that is not what was sent."""
NO_ROOM = "its disk is full: {} has {} left, and {} more are needed."
CLOSED = (
    "{} is closed to the users of jobs: set TRAINMASTER_NODE_DATA in the environment of its raylet to a"
    " folder that everybody can enter."
)


@dataclass(slots=True)
class _Record:
    """Which run a job's files were sent for."""

    attempt: int
    places: dict[str, tuple[str, str]]
    """By the tree's name: its path at the manager, and its place here."""
    account: Account | None
    is_settled: bool = False
    """Whether all that it wrote was brought to the manager: it may be removed."""


class StagedJobs:
    """All below the folder of the node's launcher."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._jobs = folder / "jobs"
        self._cache = NodeCache(folder / "cache")
        self._lock = threading.Lock()
        """While folders of jobs are counted or removed: calls come in several threads."""
        self._placing: dict[str, threading.Lock] = {}
        """By place: tasks of an array share their code, and may be sent it at once."""

    # -- what is sent --------------------------------------------------------------------------------------

    def stage(self, run: Run, spec: LaunchSpec, trees: Sequence[Tree]) -> tuple[Lacking, ...]:
        """Put the files of a run in their places, if all of them are here; else those that are not.

        NoRoom where there is not enough for them.
        """
        _refuse_outsiders(trees)
        record = _Record(
            run.attempt, {tree.name: (tree.source, tree.place) for tree in trees}, spec.account
        )
        self._open(run, self._here(record, spec))
        self._write(run.job, record)  # from now on nothing of it is removed to make room
        present = [self._present(tree) for tree in trees]
        lacking = self._lacking(run, trees, present)
        self._make_room(trees, present, lacking)
        if lacking:
            return lacking
        try:
            with _told_if_full(self._folder):
                for tree in trees:
                    with self._placing.setdefault(tree.place, threading.Lock()):
                        self._place(run, tree, self._present(tree), spec.account)
        except FileNotFoundError:  # another run's files took the place of what was kept
            return self._lacking(run, trees, [self._present(tree) for tree in trees])
        shutil.rmtree(self._incoming(run), ignore_errors=True)
        self._drop(self._most_kept())
        return ()

    def _lacking(
        self, run: Run, trees: Sequence[Tree], present: Sequence[Mapping[str, Entry]]
    ) -> tuple[Lacking, ...]:
        return tuple(
            Lacking(number, index)
            for number, tree in enumerate(trees)
            for index, entry in enumerate(tree.entries)
            if entry.is_file and not self._has(run, entry, present[number])
        )

    def put(self, run: Run, pieces: Sequence[Piece]) -> None:
        """Take parts of files, each file from its beginning."""
        _refuse_outsiders_in(piece.entry for piece in pieces)
        with _told_if_full(self._folder):
            for piece in pieces:
                self._take(run, piece)

    def _take(self, run: Run, piece: Piece) -> None:
        entry = piece.entry
        if entry.digest:
            part = self._cache.begun(entry.digest)
        else:
            whole = self._ready(run, entry)
            part = whole.with_suffix(".part")
        part.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        opened = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(opened, piece.data, piece.offset)
            if piece.offset + len(piece.data) < entry.size:
                return
            os.ftruncate(opened, entry.size)
        finally:
            os.close(opened)
        if entry.digest:
            self._cache.finish(entry.digest)
        else:
            part.replace(whole)

    def _has(self, run: Run, entry: Entry, present: Mapping[str, Entry]) -> bool:
        if _is_there(entry, present):
            return True
        if entry.digest:
            return self._cache.has(entry.digest)
        try:
            return self._ready(run, entry).stat().st_size == entry.size
        except FileNotFoundError:
            return False

    def _present(self, tree: Tree) -> dict[str, Entry]:
        """What is there now: with its digest as it was sent, or with `CHANGED` for what the job wrote.

        Times and sizes alone say nothing of that: another node may have written as much in one moment.
        """
        sent = self._sent(tree.place)
        return {
            path: replace(
                entry, digest=sent[path].digest if entry.is_as(sent.get(path)) else CHANGED
            )
            for path, entry in entries_of(self._jobs / tree.place, tree.name).items()
        }

    def _place(
        self, run: Run, tree: Tree, present: Mapping[str, Entry], account: Account | None
    ) -> None:
        """Make the folder what it is at the manager; one that another run uses only gets what it lacks."""
        folder = self._jobs / tree.place
        is_shared = self._is_used(tree.place, but=run.job)
        if not folder.exists():
            _make_own(folder, account)
        wanted = {entry.path: entry for entry in tree.entries}
        with FolderWriter(folder, account) as writer:
            if not is_shared:
                for path in reversed([path for path in present if path not in wanted]):
                    writer.remove(path)
            for entry in tree.entries:
                if _is_there(entry, present) or (is_shared and entry.path in present):
                    continue
                if entry.is_folder:
                    writer.make_folder(entry.path, entry.mode)
                elif entry.link is not None:
                    writer.make_link(entry.path, entry.link, entry.mtime_ns)
                else:
                    writer.put_file(entry.path, self._made_ready(run, entry, account))
        found = entries_of(folder, tree.name)
        placed = [
            replace(entry, digest=wanted[path].digest)
            for path, entry in found.items()
            if path in wanted and (not is_shared or entry.is_as(wanted[path]))
        ]
        self._note_sent(tree.place, placed)

    def _made_ready(self, run: Run, entry: Entry, account: Account | None) -> Path:
        ready = self._ready(run, entry)
        if entry.digest:
            ready.parent.mkdir(mode=0o700, exist_ok=True)
            shutil.copyfile(self._cache.path_of(entry.digest), ready)
        finish(ready, entry.mode, entry.mtime_ns, account)
        return ready

    def _open(self, run: Run, here: LaunchSpec) -> None:
        """The job's folder, and those of its trees; what another job of its number left is set aside."""
        if is_users(here.account) and not is_known(here.account):
            raise NoRoom(f"{gone(here.account)}.")  # else another gets them
        self._cache.open()
        if is_users(here.account):
            if closed := closed_place(str(self._folder.parent)):
                raise NoRoom(CLOSED.format(closed))
            self._folder.chmod(OPEN)
        job_folder = self._jobs / run.job
        job_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        ownership.prepare_job_folder(job_folder, here)

    # -- what is brought -----------------------------------------------------------------------------------

    def here(self, run: Run, spec: LaunchSpec) -> LaunchSpec:
        """What a run is launched with here: its folders where they were sent."""
        record = self._record(run.job)
        return spec if record is None or record.attempt != run.attempt else self._here(record, spec)

    def changes(self, run: Run, trees: Sequence[str]) -> tuple[Changes, ...] | None:
        """What it has changed in these trees; None where nothing of it was sent here."""
        record = self._record(run.job)
        if record is None or record.attempt != run.attempt:
            return None
        return tuple(
            self._changes(name, place, record.account)
            for name, (_, place) in record.places.items()
            if name in trees
        )

    def _changes(self, tree: str, place: str, account: Account | None) -> Changes:
        sent, now = self._sent(place), entries_of(self._jobs / place, tree)
        written = tuple(entry for path, entry in now.items() if not entry.is_as(sent.get(path)))
        removed = tuple(path for path in sent if path not in now)
        unchanged = tuple(path for path, entry in now.items() if entry.is_as(sent.get(path)))
        left_out = tuple(_unreadable(self._jobs / place, written, account))
        written = tuple(each for each in written if each.path not in {*left_out})
        return Changes(tree, written, removed, unchanged, left_out, time.time_ns())

    def read(self, run: Run, tree: str, wanted: Sequence[Wanted]) -> tuple[bytes | None, ...]:
        """Parts of files as they were listed; None for one that has changed since."""
        record = self._record(run.job)
        if record is None or record.attempt != run.attempt:
            return (None,) * len(wanted)
        with opened(self._jobs / record.places[tree][1]) as root:
            return tuple(_part(root, each, record.account) for each in wanted)

    def settle(self, run: Run, same: Mapping[str, Sequence[str]]) -> None:
        """All that it wrote is at the manager, and these files are the same there. They are kept as long as
        there is room."""
        record = self._record(run.job)
        if record is None or record.attempt != run.attempt:
            return
        for tree, paths in same.items():
            place = record.places[tree][1]
            sent, now = self._sent(place), entries_of(self._jobs / place, tree)
            own = {path: now[path] for path in paths if path in now}
            self._note_sent(place, [*(sent | own).values()])
        record.is_settled = True
        self._write(run.job, record)
        self._drop(self._most_kept())

    def forget(self, run: Run) -> None:
        """Remove what is here of a job that is over."""
        record = self._record(run.job)
        if record is None or record.attempt != run.attempt:
            return
        names = {run.job, *(place.split("/")[0] for _, place in record.places.values())}
        record.is_settled = True
        self._write(run.job, record)
        with self._lock:
            for _, _, folder in [*self._unneeded_jobs()]:
                if folder.name in names:
                    _remove(folder)

    # -- room ----------------------------------------------------------------------------------------------

    def _make_room(
        self,
        trees: Sequence[Tree],
        present: Sequence[Mapping[str, Entry]],
        lacking: Sequence[Lacking],
    ) -> None:
        """What is on its way, and copies of what is kept, have to fit; what no run needs goes first."""
        coming = sum(trees[each.tree].entries[each.entry].size for each in lacking)
        copied = sum(
            entry.size
            for tree, there in zip(trees, present, strict=True)
            for entry in tree.entries
            if entry.digest and not _is_there(entry, there)
        )
        needed = coming + copied
        if needed > free_bytes(self._folder):
            self._drop(0, digests={entry.digest for tree in trees for entry in tree.entries})
        free = free_bytes(self._folder)
        if needed > free:
            raise NoRoom(NO_ROOM.format(self._folder, size(free), size(needed - free)))

    def _most_kept(self) -> int:
        return shutil.disk_usage(self._folder).total // PART_OF_DISK

    def _drop(self, most: int, digests: Collection[str] = ()) -> None:
        """Of what no run needs, remove what was used longest ago until the rest takes no more than that."""
        with self._lock:
            kept = [*self._unneeded_jobs()]
            kept += [each for each in self._cache.kept() if each[2].name not in digests]
            left = sum(bytes_ for _, bytes_, _ in kept)
            for _, bytes_, path in sorted(kept):
                if left <= most:
                    return
                _remove(path)
                left -= bytes_

    def _unneeded_jobs(self) -> Iterator[tuple[float, int, Path]]:
        """Folders of jobs of which no run goes on or is still to be brought."""
        if not self._jobs.is_dir():
            return
        needed = {name for job in self._staged() for name in self._needed_by(job)}
        for folder in sorted(self._jobs.iterdir()):
            sent = [*folder.glob(f"*{SENT}")]
            ours = [*sent, *folder.glob(RECORD)]
            if folder.name not in needed and ours:
                used = max(each.stat().st_mtime for each in ours)
                bytes_ = sum(entry.size for each in sent for entry in _sent_in(each).values())
                yield used, bytes_, folder

    def _needed_by(self, job: str) -> set[str]:
        record = self._record(job)
        if record is None or record.is_settled:
            return set()
        return {job, *(place.split("/")[0] for _, place in record.places.values())}

    def _is_used(self, place: str, but: str) -> bool:
        """Whether a run of another job, of the same array, uses that tree."""
        name = place.split("/", maxsplit=1)[0]
        return any(name in self._needed_by(job) for job in self._staged() if job != but)

    def _staged(self) -> list[str]:
        return [each.parent.name for each in self._jobs.glob(f"*/{RECORD}")]

    # -- records -------------------------------------------------------------------------------------------

    def _here(self, record: _Record, spec: LaunchSpec) -> LaunchSpec:
        at = {source: str(self._jobs / place) for source, place in record.places.values()}
        return replace(
            spec,
            workdir=at.get(spec.workdir, spec.workdir),
            checkpoint_dir=at.get(spec.checkpoint_dir, spec.checkpoint_dir),
        )

    def _record(self, job: str) -> _Record | None:
        try:
            said = json.loads((self._jobs / job / RECORD).read_text())
        except (OSError, ValueError):
            return None
        account = None if said["account"] is None else Account(**said["account"])
        places = {name: (source, place) for name, (source, place) in said["places"].items()}
        return _Record(said["attempt"], places, account, said["settled"])

    def _write(self, job: str, record: _Record) -> None:
        said = {
            "attempt": record.attempt,
            "places": record.places,
            "account": None if record.account is None else asdict(record.account),
            "settled": record.is_settled,
        }
        with self._lock:
            write_whole(self._jobs / job / RECORD, json.dumps(said), 0o600)

    def _sent(self, place: str) -> dict[str, Entry]:
        return _sent_in(_beside(self._jobs / place))

    def _note_sent(self, place: str, entries: Sequence[Entry]) -> None:
        said = {"boot": BOOT, "entries": [astuple(entry) for entry in entries]}
        write_whole(_beside(self._jobs / place), json.dumps(said), 0o600)

    def _incoming(self, run: Run) -> Path:
        return self._jobs / run.job / INCOMING

    def _ready(self, run: Run, entry: Entry) -> Path:
        said = repr((entry.path, entry.size, entry.mtime_ns, entry.digest))
        return self._incoming(run) / sha256(said.encode(errors="surrogatepass")).hexdigest()


def free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


class _told_if_full:
    """NoRoom where the disk refuses more."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, problem: object, trace: object) -> None:
        if isinstance(problem, OSError) and problem.errno in FULL:
            free = free_bytes(self._folder)
            raise NoRoom(NO_ROOM.format(self._folder, size(free), "some")) from None


def _refuse_outsiders(trees: Sequence[Tree]) -> None:
    for tree in trees:
        if not is_inside(tree.place):
            raise ValueError(f"{tree.place!r} leads out of the folder of jobs")
        _refuse_outsiders_in(tree.entries)


def _refuse_outsiders_in(entries: Iterable[Entry]) -> None:
    for entry in entries:
        if not is_inside(entry.path):
            raise ValueError(f"{entry.path!r} leads out of its folder")
        if entry.digest and not DIGEST.fullmatch(entry.digest):
            raise ValueError(f"{entry.digest!r} is not a digest")


def _is_there(entry: Entry, present: Mapping[str, Entry]) -> bool:
    there = present.get(entry.path)
    if there is None or not entry.is_as(there):
        return False
    return not entry.is_file or entry.digest == there.digest


def _unreadable(folder: Path, entries: Iterable[Entry], account: Account | None) -> Iterator[str]:
    """Files that are there, and that nobody can be given."""
    for entry in entries:
        if entry.is_file:
            with opened(folder) as root, folder_of(root, entry.path) as at:
                try:
                    with open_below(root, entry.path, account):
                        pass
                except PermissionError:
                    yield entry.path
                except FileNotFoundError:
                    with suppress(FileNotFoundError):  # it is gone
                        os.stat(os.path.basename(entry.path), dir_fd=at, follow_symlinks=False)
                        yield entry.path


def _part(root: int, wanted: Wanted, account: Account | None) -> bytes | None:
    entry = wanted.entry
    try:
        with open_below(root, entry.path, account) as file:
            data = os.pread(file, wanted.size, wanted.offset)
            seen = os.fstat(file)
    except FileNotFoundError:
        return None
    is_same = (seen.st_size, seen.st_mtime_ns) == (entry.size, entry.mtime_ns)
    return data if is_same and len(data) == wanted.size else None


def _make_own(folder: Path, account: Account | None) -> None:
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if is_users(account):
        folder.parent.chmod(OPEN)
    folder.mkdir(mode=0o700 if is_users(account) else 0o755)
    if is_users(account):
        os.chown(folder, account.uid, account.gid)


def _beside(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}{SENT}")


def _sent_in(file: Path) -> dict[str, Entry]:
    """What was sent, if it was since the machine was started: before that it may not be on its disk."""
    try:
        said = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    entries = [Entry(*each) for each in said["entries"]]
    return {entry.path: entry for entry in entries} if said["boot"] == BOOT else {}


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
