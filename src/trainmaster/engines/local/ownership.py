"""Which job a run's folder and a job's checkpoints belong to: by UUID, since numbers may begin again."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path

import structlog

from trainmaster.durable_files import read_name, write_whole
from trainmaster.engines.local import journal, privileges, runfile
from trainmaster.model.launch_spec import LaunchSpec

log = structlog.get_logger(__name__)

CHECKPOINTS = "checkpoints"
EXIT_POLLS = 50
MARK = "uuid"
"""A file in a job's folder, beside its checkpoints: programs may empty the folder of those."""


def uuid_of(folder: str) -> str | None:
    """The UUID of the job that a run is of, by its journal, or by its file where it has not begun.

    Empty for a run of an earlier version; None where nothing is written.
    """
    for entry in journal.read(folder):
        found = entry.get("uuid", "")
        return found if isinstance(found, str) else ""
    if not os.path.exists(runfile.path_of(folder, 0)):
        return None
    return runfile.stated(folder, "uuid") or ""


def set_aside(folder: Path) -> bool:
    """Rename the folder of a run of another job, so that nothing of it is lost; False while it runs.

    A supervisor that has written down the end is about to exit.
    """
    for _ in range(EXIT_POLLS):
        if not journal.is_locked(str(folder)):
            break
        if not journal.has_ended(str(folder)):
            return False
        time.sleep(0.02)
    else:
        return False
    kept = _rename(folder, uuid_of(str(folder)) or "")
    log.warning("a run of another job was set aside", folder=str(folder), kept=str(kept))
    return True


def claim_checkpoints(job_folder: Path, uuid: str) -> None:
    """Make sure that the checkpoints in there are this job's: others are set aside."""
    mark = job_folder / MARK
    owner = read_name(mark)
    if owner == uuid:
        return
    if (job_folder / CHECKPOINTS).exists():
        kept = _rename(job_folder / CHECKPOINTS, owner)
        log.warning("checkpoints of another job were set aside", kept=str(kept))
    job_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(mark, uuid)


def prepare_job_folder(job_folder: Path, spec: LaunchSpec) -> None:
    """The folder of a job, and the one for its checkpoints where the job names no other."""
    account = spec.account
    if privileges.is_users(account):
        privileges.open_job_folder(job_folder)
    if Path(spec.checkpoint_dir) == job_folder / CHECKPOINTS:
        claim_checkpoints(job_folder, spec.uuid)
        if privileges.is_users(account):
            privileges.give_folder(spec.checkpoint_dir, account)


def _rename(folder: Path, owner: str) -> Path:
    """Under a name that says whose it is."""
    for count in itertools.count(1):
        kept = folder.with_name(f"{folder.name}.of-{owner[:8] or 'unknown'}-{count}")
        if not kept.exists():
            folder.rename(kept)
            return kept
    raise AssertionError("unreachable")
