"""What is in a folder of a job: files, links and folders, as manager and nodes tell each other of them."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from trainmaster.engines.copied_files import CACHES, COPIED_NS
from trainmaster.engines.ray.folder_below import open_below, opened
from trainmaster.model.launch_spec import Account

CODE, CHECKPOINTS = "code", "checkpoints"
UNFINISHED = (".new-", ".old-", ".latest")
"""What a checkpoint is called while the SDK writes it, or removes it."""
RIGHTS = 0o777
PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, or a link, or a folder, by its path below the tree's own folder."""

    path: str
    mode: int = 0o644
    size: int = 0
    mtime_ns: int = 0
    link: str | None = None
    """Where it leads to, if it is a link."""
    is_folder: bool = False
    digest: str = ""
    """Of the content of a file as it was copied at submission: the time of such a file says nothing."""

    @property
    def is_file(self) -> bool:
        return self.link is None and not self.is_folder

    def is_as(self, other: Entry | None) -> bool:
        """Whether it has not changed since it was that, by what the file system says."""
        if other is None or (self.link, self.is_folder) != (other.link, other.is_folder):
            return False
        return not self.is_file or _stamp(self) == _stamp(other)


@dataclass(frozen=True, slots=True)
class Tree:
    """A folder of a job that is sent to nodes."""

    name: str
    """`code` or `checkpoints`."""
    source: str
    """Its path at the manager, as the job's launch spec has it."""
    place: str
    """Its path below the node's own folder of jobs."""
    entries: tuple[Entry, ...] = ()

    @property
    def is_checkpoints(self) -> bool:
        return self.name == CHECKPOINTS


Entries = Mapping[str, Entry]


def entries_of(folder: str | os.PathLike[str], tree: str) -> dict[str, Entry]:
    """All that is there now, folders before what is in them; nothing where there is no such folder.

    Caches, and checkpoints that are being written, are left out. OSError for what cannot be read.
    """
    found: dict[str, Entry] = {}
    with ExitStack() as stack:
        try:
            root = stack.enter_context(opened(Path(folder)))
        except (FileNotFoundError, NotADirectoryError):
            return found
        for base, folders, names, at in os.fwalk(
            ".", onerror=_unless_gone, dir_fd=root, follow_symlinks=False
        ):
            below = os.path.normpath(base)
            is_saved = tree == CHECKPOINTS and below == "."
            left_out = UNFINISHED if is_saved else ()
            folders[:] = sorted(_kept(folders, left_out))
            for name in (*folders, *sorted(_kept(names, left_out))):
                path = name if below == "." else f"{below}/{name}"
                with suppress(FileNotFoundError):  # removed meanwhile
                    entry = _entry(path, name, at)
                    if entry is not None:
                        found[path] = entry
    return found


def _unless_gone(problem: OSError) -> None:
    """What cannot be read is not what was removed."""
    if not isinstance(problem, FileNotFoundError):
        raise problem


def _kept(names: Iterable[str], left_out: tuple[str, ...]) -> Iterator[str]:
    return (each for each in names if not each.startswith(left_out) and each not in CACHES)


def with_digests(
    folder: str | os.PathLike[str], found: Entries, account: Account | None = None
) -> Iterator[Entry]:
    """The same, with the digest of each file that is as it was copied."""
    with opened(Path(folder)) as root:
        for entry in found.values():
            if entry.is_file and entry.mtime_ns == COPIED_NS:
                with suppress(FileNotFoundError), open_below(root, entry.path, account) as file:
                    yield replace(entry, digest=digest_of(file))
            else:
                yield entry


def digest_of(file: int) -> str:
    said = hashlib.sha256()
    while piece := os.read(file, PIECE):
        said.update(piece)
    return said.hexdigest()


def leads_out(folder: str, found: Entries) -> tuple[str, ...]:
    """What links of this tree lead to, of those that lead out of it."""
    links = (entry.link for entry in found.values() if entry.link is not None)
    return tuple(
        dict.fromkeys(
            link
            for link in links
            if os.path.isabs(link) and not f"{os.path.normpath(link)}/".startswith(f"{folder}/")
        )
    )


def is_inside(path: str) -> bool:
    """Whether a path that another machine named stays in the folder that it is below."""
    parts = path.split("/")
    return "\0" not in path and not any(part in ("", ".", "..") for part in parts)


def parents(path: str) -> Iterator[str]:
    """The folders that a path is in, the innermost first."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def code_folder(spec_workdir: str, data: Path) -> Path | None:
    """The folder of the job whose copy of the code that is; None for a folder that is no copy."""
    place = Path(spec_workdir)
    is_copy = place.name == CODE and place.parent.parent == data / "jobs"
    return place.parent if is_copy else None


def _entry(path: str, name: str, at: int) -> Entry | None:
    """None for what is neither: sockets, devices."""
    seen = os.stat(name, dir_fd=at, follow_symlinks=False)
    mode = stat.S_IMODE(seen.st_mode) & RIGHTS
    if stat.S_ISLNK(seen.st_mode):
        return Entry(path, mtime_ns=seen.st_mtime_ns, link=os.readlink(name, dir_fd=at))
    if stat.S_ISDIR(seen.st_mode):
        return Entry(path, mode, is_folder=True)
    if stat.S_ISREG(seen.st_mode):
        return Entry(path, mode, seen.st_size, seen.st_mtime_ns)
    return None


def _stamp(entry: Entry) -> tuple[int, int, int]:
    return entry.size, entry.mtime_ns, entry.mode
