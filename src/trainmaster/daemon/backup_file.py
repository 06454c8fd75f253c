"""The format of a backup: a compressed tar file that says what it is and proves that it is whole.

First comes `manifest.json`, then the tables of the store (`store/NAME.jsonl`) and files of the data folder
(`folder/...`), last `SHA256SUMS` of all of them. A file that was cut off has no such end.
"""

from __future__ import annotations

import grp
import hashlib
import io
import json
import os
import pwd
import shutil
import stat
import tarfile
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import IO

from pydantic import BaseModel, ConfigDict, ValidationError

from trainmaster import __version__
from trainmaster.durable_files import put_in_place, sync
from trainmaster.store.schema import VERSIONS

FORMAT = 1
MANIFEST = "manifest.json"
SUMS = "SHA256SUMS"
STORE = "store/"
FOLDER = "folder/"
ROWS_END = ".jsonl"
UNFINISHED = ".restoring"
SETTINGS = frozenset(
    {
        *("slots", "gpu_memory", "serves", "engine.json", "longest-fence"),
        *("failure_reasons.yaml", "notifications.yaml", "links.yaml", "self-tests.json"),
    }
)
"""Files of the data folder that say how the manager was started. Only these: others may hold secrets."""
RUNS = ("runs", "jobs", "programs")
KINDS = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)
PIECE = 1 << 20
LARGEST_TEXT = 64 << 20
"""Bytes that manifest and sums may have."""

Progress = Callable[[int, int, str], None]
"""Told how much is done, of how much, and what is worked on."""


class BadBackup(Exception):
    """A file that cannot be restored: one sentence that says why and what to do."""


class Manifest(BaseModel):
    """What a backup is of."""

    model_config = ConfigDict(frozen=True)

    format: int = FORMAT
    version: str = __version__
    """Of the program that made it."""
    schema_version: str
    made_at: str
    host: str
    folder: str
    """The data folder's path."""
    home: str
    """Its name, as the store knows it."""
    store: str
    """The store's name."""
    database: str
    """Its address, without a password."""
    seq: int
    """Its last step."""
    tables: dict[str, int]
    """Rows by table, in the order in which they can be loaded."""
    has_runs: bool = False
    """Whether logs, code and checkpoints are in it."""
    was_in_use: bool = True
    """Whether a manager worked at the time: what it had as running was there then."""


class BackupWriter:
    """Writes one backup; the file is there, whole, when its context ends without an error."""

    def __init__(self, archive: tarfile.TarFile, beside: Path) -> None:
        self._archive = archive
        self._beside = beside
        self._sums: list[str] = []

    def add_text(self, name: str, content: str) -> None:
        data = content.encode()
        info = tarfile.TarInfo(name)
        info.size = len(data)
        self._add(info, io.BytesIO(data))

    def add_lines(self, name: str, lines: Iterable[bytes]) -> None:
        """Through a file: a tar file says how long each part is before it comes."""
        with tempfile.TemporaryFile(dir=self._beside) as spool:
            for line in lines:
                spool.write(line)
            info = tarfile.TarInfo(name)
            info.size = spool.tell()
            spool.seek(0)
            self._add(info, spool)

    def add_path(self, path: Path, name: str) -> str:
        """Add a file, folder or link as it is now; what is to be said of it, empty if nothing.

        The path has no links: where it leads through one by now, which a job has put there, it is left out.
        """
        self._archive.inodes.clear()  # type: ignore[attr-defined]  # each name has its own content
        try:
            if stat.S_IFMT(path.lstat().st_mode) not in KINDS:
                return f"{path} is neither a file nor a folder, and was left out"
            info = self._archive.gettarinfo(path, name)
            if _leads_out(info, name.removeprefix(FOLDER), self._beside):
                return f"{path} leads out of the data folder, and was left out"
            if not info.isreg():
                self._archive.addfile(info)
                return ""
            opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(opened, "rb") as file:
                if os.readlink(f"/proc/self/fd/{opened}") != str(path):
                    return f"{path} leads elsewhere, and was left out"
                return self._add(info, file)
        except FileNotFoundError:
            return ""  # its job, or the manager, has removed it meanwhile
        except OSError as error:
            return f"{path} cannot be read ({error.strerror}), and was left out"

    def _add(self, info: tarfile.TarInfo, content: IO[bytes]) -> str:
        measured = _Measured(content, info.size)
        self._archive.addfile(info, measured)
        self._sums.append(f"{measured.digest.hexdigest()}  {info.name}")
        return f"{info.name} became shorter while it was copied" if measured.was_short else ""

    def finish(self) -> None:
        self.add_text(SUMS, "".join(f"{line}\n" for line in self._sums))


class _Measured(io.RawIOBase):
    """As many bytes of a file as it had when its copying began, whatever happens to it meanwhile."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._left = file, size
        self.digest = hashlib.sha256()
        self.was_short = False

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        found = self._file.read(wanted)
        if len(found) < wanted:
            self.was_short = True
            found += bytes(wanted - len(found))
        self._left -= len(found)
        self.digest.update(found)
        return found


@contextmanager
def writing(target: Path) -> Iterator[BackupWriter]:
    """A new backup, readable by its owner alone: it holds the environment of jobs."""
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        opened = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with (
            open(opened, "wb") as file,
            tarfile.open(fileobj=file, mode="w:gz", compresslevel=6) as archive,
        ):
            writer = BackupWriter(archive, target.parent)
            yield writer
            writer.finish()
        sync(partial)
        put_in_place(partial, target)
    finally:
        partial.unlink(missing_ok=True)


# -- reading -------------------------------------------------------------------------------------------


@contextmanager
def _readable(path: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(path, "r:gz") as archive:
            yield archive
    except FileNotFoundError:
        raise BadBackup(f"There is no backup {path}.") from None
    except (
        tarfile.TarError,
        zlib.error,
        EOFError,
        UnicodeDecodeError,
        json.JSONDecodeError,
    ) as error:
        raise damaged(path, str(error) or type(error).__name__) from None
    except OSError as error:  # gzip.BadGzipFile is one
        raise damaged(path, error.strerror or str(error)) from None


def damaged(path: Path, why: str) -> BadBackup:
    return BadBackup(
        f"{path} is damaged, cut off, or not a backup ({why.rstrip('.')}): nothing was changed; use"
        " another backup."
    )


def verify(path: Path, progress: Progress = lambda *_: None) -> Manifest:
    """Read all of it and compare; what it is of. BadBackup where anything is wrong or of a newer version."""
    found: dict[str, str] = {}
    rows: dict[str, int] = {}
    sums, manifest = None, None
    size = path.stat().st_size if path.exists() else 0
    with _readable(path) as archive:
        for info in archive:
            if sums is not None:
                raise damaged(path, f"{info.name} comes after the end")
            if not info.isreg():
                continue
            if manifest is None:
                manifest = _manifest(archive, info, path)
            content = archive.extractfile(info)
            assert content is not None
            if info.name == SUMS:
                sums = _text(archive, info, path)
                continue
            digest, lines = hashlib.sha256(), 0
            while piece := content.read(PIECE):
                digest.update(piece)
                lines += piece.count(b"\n")
                progress(_place(archive), size, info.name)
            found[info.name] = digest.hexdigest()
            if info.name.startswith(STORE):
                rows[info.name.removeprefix(STORE).removesuffix(ROWS_END)] = lines - 1
        assert archive.fileobj is not None
        while archive.fileobj.read(PIECE):  # to the end, where the compression has its sum
            pass
    if manifest is None or sums is None:
        raise damaged(path, "its end is missing")
    if sums != "".join(f"{digest}  {name}\n" for name, digest in found.items()):
        raise damaged(path, "its content is not what was written")
    if rows != manifest.tables:
        raise damaged(path, "rows are missing")
    return manifest


def _place(archive: tarfile.TarFile) -> int:
    """How far the compressed file was read."""
    raw = getattr(getattr(archive.fileobj, "fileobj", None), "tell", None)
    return 0 if raw is None else int(raw())


def _manifest(archive: tarfile.TarFile, info: tarfile.TarInfo, path: Path) -> Manifest:
    if info.name != MANIFEST:
        raise damaged(path, f"it begins with {info.name}")
    said = json.loads(_text(archive, info, path))
    version = said.get("version") if isinstance(said, dict) else None
    if not isinstance(said, dict) or not isinstance(said.get("format"), int):
        raise damaged(path, "it does not say what it is")
    if said["format"] > FORMAT:
        raise _newer(path, version, f"format {said['format']}")
    try:
        found = Manifest.model_validate(said)
    except ValidationError as error:
        raise damaged(path, f"{error.errors()[0]['loc'][0]} of its manifest is wrong") from None
    if found.schema_version not in VERSIONS:
        raise _newer(path, version, f"schema version {found.schema_version}")
    return found


def _newer(path: Path, version: object, what: str) -> BadBackup:
    return BadBackup(
        f"{path} was made by a newer Trainmaster ({version}, {what}), and this one is {__version__}:"
        " upgrade Trainmaster first; nothing was changed."
    )


def _text(archive: tarfile.TarFile, info: tarfile.TarInfo, path: Path) -> str:
    content = archive.extractfile(info)
    if content is None or info.size > LARGEST_TEXT:
        raise damaged(path, f"{info.name} is too large")
    return content.read().decode()


def lines_of(path: Path, table: str) -> Iterator[bytes]:
    """The lines of a table, in a backup that was verified."""
    with _readable(path) as archive:
        for info in archive:
            if info.name == f"{STORE}{table}{ROWS_END}":
                content = archive.extractfile(info)
                assert content is not None
                yield from content
                return


class Outcome(Enum):
    """What becomes of a file of a backup."""

    PUT = "put"
    STAYS = "stays"
    """One of that name is there, or it would be in a folder of a user."""
    LEFT_OUT = "left out"
    """It is not what a manager puts into a backup: there is no folder for it, or only a link to one."""


@dataclass(frozen=True, slots=True)
class Unpacked:
    """How many files of a backup were not put into a data folder."""

    stayed: int = 0
    """Those of runs that were there already, and stay as they are."""
    left_out: int = 0
    """Those behind links, and links that lead out of the data folder."""


def unpack(path: Path, folder: Path, progress: Progress = lambda *_: None) -> Unpacked:
    """Put files of a verified backup into a data folder where there are none.

    Where root does so they belong to whom they did: to users, where jobs run as those. What is in a user's
    folder is theirs to change, so nothing is put there; a folder is given away when all is in it. Jobs may
    have exchanged folders for links while the backup was made: nothing is put behind a link.
    """
    counts, size, is_root = Counter[Outcome](), path.stat().st_size, os.geteuid() == 0
    owners = {0, folder.stat().st_uid} if is_root else None
    made: list[tuple[Path, tarfile.TarInfo]] = []
    with _readable(path) as archive:
        for info in archive:
            name = info.name.removeprefix(FOLDER)
            if name == info.name:
                continue
            progress(_place(archive), size, name)
            outcome = _outcome(info, name, folder, owners)
            if outcome is Outcome.PUT:
                outcome = _put(archive, info, name, folder)
            if outcome is Outcome.PUT:
                made.append((folder / name, info))
            elif outcome is Outcome.LEFT_OUT or (not info.isdir() and "/" in name):
                counts[outcome] += 1
    for target, info in reversed(made) if is_root else ():
        if info.isdir():
            target.chmod(info.mode & 0o755)
        os.chown(target, *_owner(info), follow_symlinks=False)
    return Unpacked(counts[Outcome.STAYS], counts[Outcome.LEFT_OUT])


def _outcome(
    info: tarfile.TarInfo, name: str, folder: Path, owners: Collection[int] | None
) -> Outcome:
    """Whether it can be put there, through folders of these owners only; None: whoever's they are."""
    top, *below = name.split("/")
    is_known = top in RUNS if below or info.isdir() else top in SETTINGS
    is_plain = str(PurePosixPath(name)) == name and ".." not in below
    if not is_known or not is_plain or not (info.isreg() or info.isdir() or info.issym()):
        return Outcome.LEFT_OUT
    at = folder
    for part in (top, *below)[:-1]:
        at /= part
        found = at.lstat() if os.path.lexists(at) else None
        if found is None or not stat.S_ISDIR(found.st_mode):
            return Outcome.LEFT_OUT
        if owners is not None and found.st_uid not in owners:
            return Outcome.STAYS
    return Outcome.STAYS if os.path.lexists(folder / name) else Outcome.PUT


def _put(archive: tarfile.TarFile, info: tarfile.TarInfo, name: str, folder: Path) -> Outcome:
    """Files are renamed when they are whole, from a place that no job can write to."""
    top, *below = name.split("/")
    partial = folder / top / UNFINISHED if below else folder / f"{top}{UNFINISHED}"
    partial.unlink(missing_ok=True)  # of a restore that was interrupted
    if _leads_out(info, name, folder):
        return Outcome.LEFT_OUT
    if info.issym():
        os.symlink(info.linkname, folder / name)
    elif info.isdir():
        (folder / name).mkdir()
    else:
        content = archive.extractfile(info)
        assert content is not None
        with partial.open("xb") as file:
            shutil.copyfileobj(content, file)
        partial.chmod(0o600 | info.mode & (0o755 if info.mode & 0o100 else 0o644))
        os.utime(partial, (info.mtime, info.mtime))
        os.rename(partial, folder / name)
    return Outcome.PUT


def _leads_out(info: tarfile.TarInfo, name: str, folder: Path) -> bool:
    """Whether it is a link that leads, from where it has this name in the folder, elsewhere.

    `tarfile` itself can say it from Python 3.11.4 on only.
    """
    if not info.issym():
        return False
    leads_to = os.path.realpath(folder / os.path.dirname(name) / info.linkname)
    is_inside = Path(leads_to).is_relative_to(os.path.realpath(folder))
    return os.path.isabs(info.linkname) or not is_inside


def _owner(info: tarfile.TarInfo) -> tuple[int, int]:
    """By name, as this machine knows it, or else by number."""
    uid, gid = info.uid, info.gid
    with suppress(KeyError):
        uid = pwd.getpwnam(info.uname).pw_uid
    with suppress(KeyError):
        gid = grp.getgrnam(info.gname).gr_gid
    return uid, gid
