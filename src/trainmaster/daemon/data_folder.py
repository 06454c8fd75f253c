"""The data folder: which store it belongs to, who uses it now, and which runs are in it.

Store and folder know each other. The store's snapshots name the folder (`home`) and the store itself; the
folder's `store.json` names the store, and the last step that it is known to have had. So a store that is
empty, older or another is noticed before anything is decided by it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import uuid4

import structlog

from trainmaster.daemon.job_history import JobHistory
from trainmaster.daemon.launch_record import LaunchRecord
from trainmaster.daemon.service_api import RequestError
from trainmaster.durable_files import read_name, sync, write_whole
from trainmaster.engines.protocol import Engine
from trainmaster.model.job import Run
from trainmaster.model.job_state import LIVE_STATES
from trainmaster.model.units import SECOND
from trainmaster.store.store import Store
from trainmaster.text.formatting import first_of

log = structlog.get_logger("trainmaster.daemon")

HOME = "home"
STORE = "store.json"
COPIES = "backups"
"""Copies of an SQLite store."""
RESTORED = "restored.json"
"""There from a restore until the next start, which adopts what is newer than the backup."""
WITHOUT_RUNS = "restored_without_runs"
"""There where a backup without runs was restored: of jobs up to this number there may be no output."""
IN_USE = "was_in_use"
"""What it says of the manager at the time of the backup."""
NUMBERS = "numbers_above"
"""New jobs get numbers above this one: a store that was replaced had given it away."""
MOST_NAMED = 3
_NUMBER = re.compile(r"([0-9]{1,18})(_[0-9]+)?")


def restored_without_runs(folder: Path) -> int:
    """The last job that a backup without runs had, which was restored here; 0: none was."""
    said = read_name(folder / WITHOUT_RUNS)
    return int(said) if said.isdecimal() else 0


def followed_until(folder: Path) -> int:
    """When a manager last followed the runs that a restored store knows; 0: its last step says it."""
    try:
        about = json.loads((folder / RESTORED).read_text())
        made_at = datetime.fromisoformat(about["made_at"])
        return int(made_at.timestamp() * SECOND) if about[IN_USE] else 0
    except (OSError, ValueError, KeyError, TypeError):
        return 0


class ColdStart(Enum):
    """What to do with a store that does not know what is in the data folder."""

    REFUSE = "refuse"
    ADOPT = "adopt"
    """Take over the runs of the folder, as far as it describes them."""
    START_FRESH = "start fresh"
    """Leave them alone, and number new jobs above them."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A store and its data folder, each by the name that it was given once at random."""

    home: str = ""
    store: str = ""
    left_alone: int | None = None
    """Folders of jobs up to this number may be another store's: a cold start left them alone. None: not
    known, because an earlier version wrote the store."""


# -- names -----------------------------------------------------------------------------------------------


def home_of(folder: Path, in_store: str = "") -> str:
    """The name of a data folder, chosen once at random: it ties a store to the folder with its runs.

    Where its content was lost, it is written again as the store has it.
    """
    place = folder / HOME
    if not place.exists():
        fresh = folder / f"{HOME}.{os.getpid()}"
        write_whole(fresh, uuid4().hex)
        with contextlib.suppress(FileExistsError):
            os.link(fresh, place)
        fresh.unlink()
        sync(folder)
    elif not read_name(place):
        log.warning("the name of the data folder was lost and is written again", file=str(place))
        write_whole(place, in_store or uuid4().hex)
    return read_name(place)


@dataclass(frozen=True, slots=True)
class StoreMark:
    """What a folder knows of its store."""

    store: str
    database: str
    """Its URL, without a password."""
    seq: int
    """The last step that the store is known to have had."""
    left_alone: int = 0
    """As in the store's `Identity`; for stores of an earlier version, which do not have it."""


def store_mark(folder: Path) -> StoreMark | None:
    """The mark of the folder's store; None in a new folder, one of an earlier version, or if it was lost."""
    try:
        said: dict[str, Any] = json.loads((folder / STORE).read_text())
        return StoreMark(
            str(said["store"]), str(said["database"]), int(said["seq"]), int(said["left_alone"])
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        log.warning("the mark of the store was lost", file=str(folder / STORE), why=str(error))
        return None


def write_mark(folder: Path, mark: StoreMark) -> None:
    write_whole(folder / STORE, json.dumps(asdict(mark)))


# -- what is in it ---------------------------------------------------------------------------------------


def largest_number(*places: Path) -> int:
    """The largest job number that a folder in these is named after; 0 if there is none."""
    return max((number for place in places for number, _ in _numbered(place)), default=0)


def number_above(folder: Path, number: int) -> None:
    """Give new jobs numbers above this one for ever, whatever store the folder has."""
    if number > last_given(folder):
        write_whole(folder / NUMBERS, str(number), 0o600)


def last_given(folder: Path) -> int:
    """The largest number that a store which was replaced had given to a job; 0: none was."""
    said = read_name(folder / NUMBERS)
    return int(said) if said.isdecimal() else 0


def _numbered(place: Path) -> list[tuple[int, str]]:
    if not place.is_dir():
        return []
    found = ((_NUMBER.fullmatch(name), name) for name in os.listdir(place))
    return [(int(match[1]), name) for match, name in found if match is not None]


def runs_in(folder: Path) -> Iterator[tuple[str, list[int]]]:
    """Every job that was ever started, by number, with its attempts."""
    runs = folder / "runs"
    for _, name in sorted(_numbered(runs)):
        if begun := _attempts(runs / name):
            yield name, begun


def _attempts(place: Path) -> list[int]:
    return sorted(int(each) for each in os.listdir(place) if each.isdecimal())


def later_runs(folder: Path, store: Store, engine: Engine, left_alone: int = 0) -> list[str]:
    """Runs, as `job.attempt`, that were begun, or changed by their users, after what the store has.

    Not those of jobs up to `left_alone`: what an adoption found there and had not to take over is told when
    its job's turn comes, from the journal, and until then the store has fewer attempts than the folder.
    """
    last, runs = store.last_number(), folder / "runs"
    attempts = {
        row.id: JobHistory.from_json(row.record_json).attempts
        for row in store.all_jobs(frozenset(LIVE_STATES))
    }
    found: list[str] = []
    for number, name in sorted(_numbered(runs)):
        known = attempts.get(name) if number <= last else 0
        if known is None or number <= left_alone:
            continue
        found += [f"{name}.{each}" for each in _attempts(runs / name) if each > known]
        if known and _seq_of(engine, Run(name, known)) > store.last_seq():
            found.append(f"{name}.{known}")
    return found


def _seq_of(engine: Engine, run: Run) -> int:
    """The last step of the store when the record beside the run was written; 0 where that is not known."""
    recorded = engine.recorded(run)
    try:
        return 0 if recorded is None else LaunchRecord.from_json(recorded.record).seq
    except ValueError:
        return 0


def refuse_other_folder(store: Store, home: str, named: Identity) -> None:
    """RequestError for a store that belongs to another data folder; for a standby as well."""
    if named.home and named.home != home:
        raise RequestError(
            f"{store.url} belongs to another data folder, where its jobs may be running: start"
            " Trainmaster with that folder as --data, or with a database of its own."
        )


def named_in(store: Store) -> Identity | None:
    """What the store's newest snapshot says; None for an empty store."""
    snapshot = store.snapshot()
    return None if snapshot is None else named_by(snapshot.body_json)


def named_by(snapshot: str) -> Identity:
    """What the body of a snapshot says."""
    body: dict[str, Any] = json.loads(snapshot)
    return Identity(body["home"], body.get("store", ""), body.get("left_alone"))


def left_alone(folder: Path, named: Identity | None) -> int | None:
    """Folders of jobs up to this number were left alone by a cold start, as far as store or mark say."""
    if named is not None and named.left_alone is not None:
        return named.left_alone
    mark = store_mark(folder)
    return None if mark is None else mark.left_alone


def refuse_missing_store(
    folder: Path, store: Store, cold_start: ColdStart, other: int | None
) -> None:
    """RequestError where the database's file is gone and the folder was used: before one is created.

    `other`: the process of a manager that uses the folder; whatever is to be done, that one must end first.
    """
    if store.database.file.is_there():
        return
    mark = store_mark(folder)
    runs = [f"{name}.{each}" for name, begun in runs_in(folder) for each in begun]
    was_used = bool(runs) or (mark is not None and mark.seq > 0)
    if was_used and other is not None:
        raise RequestError(
            f"{store.url} was removed while a manager (process {other}) uses it: put it back, or stop"
            " that manager with `trainmaster down` (jobs go on) and start again with --adopt; jobs that"
            " have not started are gone then, unless a copy of the database has them."
        )
    if was_used and cold_start is ColdStart.REFUSE:
        raise _refusal(folder, store, "is not there", mark, runs, is_other=True)


def refuse_cold_start(folder: Path, store: Store, named: Identity | None, engine: Engine) -> None:
    """RequestError for a store that is empty, older or another than the one that the folder is used with."""
    mark = store_mark(folder)
    runs = later_runs(folder, store, engine, left_alone(folder, named) or 0)
    is_other = mark is not None and mark.seq > 0 and (named is None or named.store != mark.store)
    is_older = mark is not None and store.last_seq() < mark.seq
    if not (runs or is_other or is_older):
        return
    what = "is empty" if named is None else "is another database" if is_other else "is older"
    raise _refusal(folder, store, what, mark, runs, is_other=is_other)


def _refusal(
    folder: Path,
    store: Store,
    what: str,
    mark: StoreMark | None,
    runs: list[str],
    *,
    is_other: bool,
) -> RequestError:
    is_elsewhere = is_other and mark is not None and mark.database != store.url
    used = f" (used with {mark.database} so far)" if mark is not None and is_elsewhere else ""
    named = f"{'run' if len(runs) == 1 else 'runs'} {first_of(runs, MOST_NAMED)}"
    has = f"has {named} that it does not know" if runs else "was used after it"
    return RequestError(
        f"{store.url} {what}, and the data folder {folder}{used} {has}: start with the database that"
        " belongs to it, with --adopt to take over what is in the folder, or with --start-fresh to"
        " leave that alone and number new jobs above it."
    )
