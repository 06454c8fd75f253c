"""Exports: ended jobs as a native trace, and the event log as lines of JSON."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from dataclasses import replace

from trainmaster.daemon.job_history import JobHistory
from trainmaster.daemon.live_job import stored_submission
from trainmaster.model.failure import UNKNOWN_REASON
from trainmaster.model.job_state import ENDED_STATES, JobState
from trainmaster.model.trace import Outcome, Trace, TracedJob
from trainmaster.store.rows import StoredJob
from trainmaster.store.store import Store
from trainmaster.traces.native import write

PAGE = 1000
SHORTEST_MS = 1
OUTCOMES = {
    JobState.SUCCEEDED: Outcome.SUCCEEDED,
    JobState.FAILED: Outcome.FAILED,
    JobState.TIMED_OUT: Outcome.CANCELLED,
    JobState.CANCELLED: Outcome.CANCELLED,
}


def traced(row: StoredJob) -> TracedJob | None:
    """An ended job as a trace has it; None if it was never started.

    One that ended as soon as it was started is written with the shortest time that there is.
    """
    stored, history = stored_submission(row), JobHistory.from_json(row.record_json)
    outcome = OUTCOMES[JobState(row.state)]
    reasons_of = [each.failure.reason for each in history.failed_attempts]
    unknown = [UNKNOWN_REASON] * max(0, len(history.failed_ms) - len(reasons_of))
    newest_first = zip(reversed(history.failed_ms), reversed(unknown + reasons_of), strict=False)
    kept = [(ms, reason) for ms, reason in newest_first if ms > 0][::-1]
    failed, reasons = tuple(ms for ms, _ in kept), tuple(reason for _, reason in kept)
    last = outcome is Outcome.FAILED and bool(failed)
    before = failed[:-1] if last else failed
    if outcome is Outcome.FAILED and not last:
        reasons = (reasons_of[-1] if reasons_of else UNKNOWN_REASON,)
    paths = [each.failure.path for each in history.failed_attempts if each.failure.path]
    if row.start_ms is None and not history.attempts:
        return None
    service = max(SHORTEST_MS, history.run_ms - sum(before))
    job = replace(stored.job, queue=row.queue, app=stored.job.app or row.name)
    stays = stored.recipe.may_stay_in_memory
    return TracedJob(job, service, outcome, before, stays, reasons, paths[-1] if paths else "")


def trace_of(store: Store) -> str:
    """The history as a native trace; times count from the first submission."""
    found = [
        each for each in map(traced, store.all_jobs(frozenset(ENDED_STATES))) if each is not None
    ]
    found.sort(key=lambda each: each.job.submit_ms)
    first = found[0].job.submit_ms if found else 0
    moved = tuple(_moved(each, first) for each in found)
    text = io.StringIO()
    write(Trace(moved), text)
    return text.getvalue()


def _moved(each: TracedJob, first: int) -> TracedJob:
    deadline = each.job.deadline_ms
    job = replace(
        each.job,
        submit_ms=each.job.submit_ms - first,
        deadline_ms=None if deadline is None else deadline - first,
    )
    return replace(each, job=job)


async def events_of(store: Store) -> AsyncIterator[str]:
    """The event log: the oldest snapshot that is kept, then every step since, as lines of JSON."""
    snapshot = await asyncio.to_thread(store.snapshot, oldest=True)
    if snapshot is None:
        return
    body = json.loads(snapshot.body_json)
    yield json.dumps({"snapshot": body, "seq": snapshot.seq, "now_ms": snapshot.at_ms}) + "\n"
    after = snapshot.seq
    while True:
        steps = await asyncio.to_thread(store.steps, after, PAGE)
        for step in steps:
            line = {
                "seq": step.seq,
                "now_ms": step.now_ms,
                "events": json.loads(step.events_json),
                "orders": json.loads(step.orders_json),
            }
            yield json.dumps(line, separators=(",", ":")) + "\n"
        if len(steps) < PAGE:
            return
        after = steps[-1].seq
