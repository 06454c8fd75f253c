"""Facts about the data folder, its store, the runs in it and the folders that jobs use."""

from __future__ import annotations

import json
import os
import stat
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from sqlalchemy import func, select

from trainmaster.cli.diagnosis.facts import FileSystem, Folder, Place, Runs, StoreFacts
from trainmaster.cli.diagnosis.machine import file_system
from trainmaster.cli.support.background import LOG
from trainmaster.cli.support.remembered_users import SERVES, Serves
from trainmaster.daemon.admin_token import FILE as TOKEN
from trainmaster.daemon.backup import LAST
from trainmaster.daemon.data_folder import (
    COPIES,
    HOME,
    RESTORED,
    Identity,
    left_alone,
    named_in,
    runs_in,
    store_mark,
)
from trainmaster.daemon.live_job import stored_submission
from trainmaster.durable_files import read_name, write_whole
from trainmaster.engines.local import journal
from trainmaster.engines.local.processes import lock_holders
from trainmaster.model.job_state import LIVE_STATES, JobState
from trainmaster.store import schema
from trainmaster.store.copies import PARTS, PATTERN
from trainmaster.store.errors import DamagedStore, StoreError, readable_errors
from trainmaster.store.open import open_database
from trainmaster.store.rows import StoredJob
from trainmaster.store.sqlite import lock_of
from trainmaster.store.store import Store
from trainmaster.store.tables import STEPS

SECRET = ("trainmaster.db*", "runs", "jobs", "manager.log*", TOKEN)
"""What holds the environment of jobs, or lets one act for others."""
MOST_PLACES = 50
WORK, SAVED = "working folder", "folder of checkpoints"


def folder_facts(folder: Path) -> Folder:
    try:
        found = folder.stat()
    except OSError:
        found = None
    return Folder(
        path=str(folder),
        exists=found is not None,
        owner=None if found is None else found.st_uid,
        user=os.geteuid(),
        is_writable=found is not None and trouble_with(folder) == "",
        file_system=None if found is None else file_system(folder),
        exposed=tuple(_exposed(folder)) if found is not None else (),
        token_mode=_mode(folder / TOKEN),
        log_bytes=sum(each.stat().st_size for each in folder.glob(f"{LOG}*")),
        home=read_name(folder / HOME),
        restored=(folder / RESTORED).exists(),
        mode=None if found is None else stat.S_IMODE(found.st_mode),
        serves_users=read_name(folder / SERVES) in (Serves.USERS, Serves.SYSTEM),
    )


def _exposed(folder: Path) -> Iterator[str]:
    """Files that others can reach and read; none in a folder that is closed to them."""
    if not folder.stat().st_mode & 0o011:
        return
    for name in SECRET:
        for path in folder.glob(name):
            mode = _mode(path)
            if mode is not None and mode & 0o044 and path.name != TOKEN:
                yield path.name


def _mode(path: Path) -> int | None:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return None


def trouble_with(folder: Path) -> str:
    """Why files cannot be made and brought to the disk there, by trying; empty if they can."""
    probe = folder / f".trainmaster-doctor-{os.getpid()}"
    try:
        write_whole(probe, "x", 0o600)
    except OSError as error:
        return f"cannot be used ({(error.strerror or '').lower()})"
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)
    return ""


# -- the store -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class StoreLook:
    """What is read from a store, as far as that goes."""

    url: str
    is_there: bool = False
    is_on_server: bool = False
    trouble: str = ""
    problem: str = ""
    schema: str | None = None
    bytes: int | None = None
    is_led: bool | None = None
    seq: int = 0
    last_number: int = 0
    newest_ms: int | None = None
    identity: Identity = field(default_factory=Identity)
    live: Sequence[StoredJob] = ()


def look_into(url: str) -> StoreLook:
    found = StoreLook(url)
    try:
        with closing(Store(open_database(url))) as store:
            _read(store, found)
    except DamagedStore as error:
        found.problem = str(error).rstrip(".")
    except StoreError as error:
        found.trouble = str(error)
    return found


def _read(store: Store, found: StoreLook) -> None:
    found.url, path = store.url, store.database.file.path
    found.is_on_server, found.is_there = path is None, store.database.file.is_there()
    if path is not None:
        found.is_led = bool(lock_holders(str(lock_of(path))))
        parts = (path.with_name(path.name + part) for part in PARTS)
        found.bytes = sum(each.stat().st_size for each in parts if each.exists())
    if not found.is_there:
        return
    with readable_errors(store.url), store.database.reader.connect() as connection:
        found.schema = schema.version(connection)
    store.check()
    if found.schema != schema.VERSIONS[-1]:
        return
    found.identity = named_in(store) or Identity()
    found.seq, found.last_number = store.last_seq(), store.last_number()
    found.live = tuple(store.all_jobs(frozenset(LIVE_STATES)))
    with readable_errors(store.url), store.database.reader.connect() as connection:
        found.newest_ms = connection.scalar(select(func.max(STEPS.c.now_ms)))


def store_facts(folder: Path, look: StoreLook) -> StoreFacts:
    mark = store_mark(folder)
    apart = left_alone(folder, look.identity) or 0
    known = max(look.last_number, apart)
    is_readable = look.schema == schema.VERSIONS[-1] and not look.problem
    unknown = [job for job, _ in runs_in(folder) if _number(job) > known]
    return StoreFacts(
        url=look.url,
        is_there=look.is_there,
        trouble=look.trouble,
        problem=look.problem,
        schema=look.schema,
        newest_schema=schema.VERSIONS[-1],
        knows_schema=look.schema is None or look.schema in schema.VERSIONS,
        bytes=look.bytes,
        is_led=look.is_led,
        is_on_server=look.is_on_server,
        backup_age_s=_backup_age_s(folder),
        copy_age_s=_copy_age_s(folder),
        seq=look.seq,
        newest_ms=look.newest_ms,
        home=look.identity.home,
        store=look.identity.store,
        mark_store="" if mark is None else mark.store,
        mark_seq=0 if mark is None else mark.seq,
        unknown_runs=tuple(unknown) if is_readable or not look.is_there else (),
    )


def _number(job: str) -> int:
    return int(job.partition("_")[0])


def _backup_age_s(folder: Path) -> float | None:
    try:
        said = json.loads((folder / LAST).read_text())
        return time.time() - datetime.fromisoformat(said["at"]).timestamp()
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _copy_age_s(folder: Path) -> float | None:
    times = [each.stat().st_mtime for each in (folder / COPIES).glob(PATTERN)]
    return time.time() - max(times) if times else None


# -- runs and folders of jobs --------------------------------------------------------------------------


def runs_facts(folder: Path, look: StoreLook, has_manager: bool) -> Runs:
    """Runs whose supervisors live, against what the store says of their jobs."""
    is_readable = look.schema == schema.VERSIONS[-1] and not look.problem and not look.trouble
    live = {row.id for row in look.live}
    running = [row.id for row in look.live if row.state == JobState.RUNNING]
    alive = [
        f"{job}.{attempt}"
        for job, attempts in runs_in(folder)
        for attempt in attempts
        if journal.is_locked(str(folder / "runs" / job / str(attempt)))
    ]
    at_work = {each.partition(".")[0] for each in alive}
    stray = [each for each in alive if each.partition(".")[0] not in live]
    missing = [f"job {job}" for job in running if job not in at_work]
    return Runs(
        alive=tuple(alive),
        leftover=tuple(stray) if is_readable or not look.is_there else (),
        missing=() if has_manager or not is_readable else tuple(missing),
    )


def place_facts(look: StoreLook) -> tuple[Place, ...]:
    """The folders that unfinished jobs work in and save to, each once."""
    users: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in look.live:
        recipe = stored_submission(row).recipe
        users[recipe.workdir, WORK].append(row.id)
        users[recipe.checkpoint_dir, SAVED].append(row.id)
    return tuple(
        _place(path, what, jobs) for (path, what), jobs in sorted(users.items())[:MOST_PLACES]
    )


def _place(path: str, what: str, jobs: Sequence[str]) -> Place:
    """A working folder may be read-only; the folder of checkpoints is made with the first."""
    place, trouble, took_s = Path(path), "", None
    if what == WORK and not place.is_dir():
        trouble = "is not there"
    if what == SAVED:
        place = next(each for each in (place, *place.parents) if each.exists())
        begun_s = time.monotonic()
        trouble = trouble_with(place)
        took_s = None if trouble else time.monotonic() - begun_s
    found: FileSystem | None = None
    with suppress(OSError):
        found = file_system(place)
    return Place(path, tuple(jobs), what, trouble, found, took_s)
