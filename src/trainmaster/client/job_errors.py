"""What waiting for a job raises."""

from __future__ import annotations

from trainmaster.daemon.job_rows import JobRow
from trainmaster.model.job_state import JobState
from trainmaster.text.formatting import as_sentence, listing, plural


class JobError(RuntimeError):
    """A job ended without a result; its message says how, and `row` is the job as the manager has it."""

    def __init__(self, sentence: str, row: JobRow) -> None:
        super().__init__(sentence)
        self.row = row


class JobFailed(JobError):
    """Its program failed, or it was lost."""


class JobTimedOut(JobError):
    """It reached its time limit."""


class JobCancelled(JobError):
    """It was cancelled, by somebody or because a job that it depends on did not succeed."""


class RemoteTraceback(Exception):
    """Where an exception was raised in the job."""

    def __init__(self, sentence: str, text: str) -> None:
        super().__init__(sentence, text)
        self.sentence = sentence
        self.text = text

    def __str__(self) -> str:
        return f"{self.sentence}\n\n{self.text.rstrip()}"


KINDS: dict[str, type[JobError]] = {
    JobState.TIMED_OUT: JobTimedOut,
    JobState.CANCELLED: JobCancelled,
}


def error_of(row: JobRow, last_lines: str = "") -> JobError:
    """The error of a job that ended without success."""
    said = " ".join(filter(None, [as_sentence(row.end_sentence), interrupted_sentence(row)]))
    lines = f"\nIts last lines:\n{last_lines}" if last_lines else ""
    return KINDS.get(row.state, JobFailed)(f"{said}{lines}", row)


def interruptions(row: JobRow) -> str:
    """`preempted 2 times and restarted 1 time`; empty where it was neither."""
    kinds = ((row.preemptions, "preempted"), (row.restarts, "restarted"))
    said = [f"{word} {plural(number, 'time')}" for number, word in kinds if number]
    return listing(said) if said else ""


def interrupted_sentence(row: JobRow) -> str:
    said = interruptions(row)
    return f"It was {said}." if said else ""
