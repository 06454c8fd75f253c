"""When a pre-run has shown enough: after some steps, or after its time.

Only the standard library is imported here: supervisors load it.
"""

from __future__ import annotations

import os
import shutil
import time

from trainmaster.engines.local.privileges import is_users
from trainmaster.engines.local.runfile import RunFile
from trainmaster.model.launch_spec import Account

FOLDER = "prerun"


def folder_of(run_folder: str, account: Account | None) -> str:
    """Where all goes that a pre-run writes where it is told to: in the run's folder.

    Other users cannot enter that: theirs is beside the job's checkpoints.
    """
    if not is_users(account):
        return os.path.join(run_folder, FOLDER)
    job, attempt = os.path.split(run_folder)
    runs, number = os.path.split(job)
    return os.path.join(os.path.dirname(runs), "jobs", number, f"{FOLDER}-{attempt}")


def remove_folder(run_folder: str, account: Account | None) -> None:
    """By descriptors (`shutil.rmtree.avoids_symlink_attacks`): links in there are not followed."""
    shutil.rmtree(folder_of(run_folder, account), ignore_errors=True)


class PrerunEnd:
    """When a pre-run is over: after so many steps of its own, or after its time."""

    def __init__(self, run: RunFile) -> None:
        self._steps = run.prerun_steps
        self._first: int | None = None
        self._over_at = time.monotonic() + run.prerun_ms / 1000 if run.prerun_ms else None

    @property
    def due_at(self) -> float | None:
        """When it is over; None: it is not a pre-run."""
        return self._over_at

    def note_step(self, step: int) -> None:
        """It has made this step; a program may begin to count at any."""
        self._first = step if self._first is None else min(self._first, step)
        if self._over_at is not None and step - self._first >= self._steps:
            self._over_at = time.monotonic()

    def is_over(self, now: float) -> bool:
        return self._over_at is not None and self._over_at <= now
