"""What users are told of jobs that hang, or did."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainmaster.daemon.job_history import LastHang
from trainmaster.daemon.live_job import LiveJob
from trainmaster.model.failure import HUNG_REASON, Failure
from trainmaster.model.job import Run
from trainmaster.text.hangs import hang_sentence, no_stacks_sentence

MOST_NAMED = 5
LONGER = "All of its stacks: `trainmaster logs {job} --stacks`."


def hung_jobs(jobs: Iterable[LiveJob]) -> Iterator[tuple[LiveJob, LastHang]]:
    """Those that hang now."""
    for live in jobs:
        hang = live.history.hang
        if hang is not None and not hang.is_over:
            yield live, hang


def hang_notes(jobs: Iterable[LiveJob]) -> list[str]:
    """For the status of the manager."""
    found = [*hung_jobs(jobs)]
    notes = [
        f"Job {live.id} ({live.name}) hangs: `trainmaster explain {live.id}` says where."
        for live, _ in found[:MOST_NAMED]
    ]
    more = len(found) - MOST_NAMED
    return [*notes, f"{more} more jobs hang: `trainmaster ps` shows them."] if more > 0 else notes


def hang_remarks(
    hang: LastHang | None, run: Run, failed_by: Failure | None = None
) -> tuple[str, ...]:
    """Of one that hangs, where its stacks are; of one that did in an earlier attempt, how.

    `failed_by`: its last failure, which says how where it is that.
    """
    if hang is None or (hang.is_over and hang.attempt == run.attempt):
        return ()
    longer = LONGER.format(job=run.job)
    why = f"{no_stacks_sentence(hang.trouble)} " if hang.trouble else ""
    if not hang.is_over:
        return (f"{why}{longer}",)
    if failed_by is not None and failed_by.reason == HUNG_REASON:
        return (f"Attempt {hang.attempt} hung and was ended. {longer}",)
    said = " ".join((hang_sentence(hang), *hang.stacks))
    return (f"Attempt {hang.attempt} hung and was ended: {said} {longer}",)
