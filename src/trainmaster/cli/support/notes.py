"""What happens to a job that is followed, on standard error."""

from __future__ import annotations

from trainmaster.cli.support.console import write_error
from trainmaster.daemon.job_rows import JobRow
from trainmaster.model.job_state import JobState

PAUSES = (JobState.PENDING, JobState.SUSPENDED)
"""States of a job that has started and does not run."""


def reason_key(row: JobRow) -> object:
    """What makes a reason another one; the times in its sentence change all the while."""
    why = row.reason
    return why and (row.state, why.code, tuple(why.held_by or ()), why.need, why.free)


def state_sentence(job: str, state: str, sentence: str) -> str:
    """`Job 5 is pending: It needs 2 GPUs and 1 is free.`"""
    return f"Job {job} is {state}: {sentence}" if sentence else f"Job {job} is {state}."


class Notes:
    """What happens to the job, on standard error, each thing once."""

    def __init__(self) -> None:
        self._last: object = ""
        self._pauses = False

    def __call__(self, text: str, key: object = None) -> None:
        """Say this, unless it was what was said last; `key` tells by what, where the text may vary."""
        if text and (key or text) != self._last:
            write_error(f"{text}\n")
            self._last = key or text

    def on_state(self, job: str, state: str, sentence: str) -> None:
        """Of a job that has started: that it pauses, why, and that it goes on."""
        if state in PAUSES:
            self(state_sentence(job, state, sentence))
            self._pauses = True
        elif state == JobState.RUNNING and self._pauses:
            self(f"Job {job} runs again.")
            self._pauses = False
