"""Exports: ended jobs as a native trace, and the event log as lines of JSON."""

from __future__ import annotations

import asyncio
import io
import json
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from dataclasses import replace

from trainmaster.daemon.job_history import JobHistory
from trainmaster.daemon.live_job import stored_submission
from trainmaster.model.failure import UNKNOWN_REASON
from trainmaster.model.job import Job
from trainmaster.model.job_state import ENDED_STATES, JobState
from trainmaster.model.topology import Topology
from trainmaster.model.trace import Outcome, Trace, TracedJob
from trainmaster.model.units import NOMINAL
from trainmaster.store.rows import StoredJob
from trainmaster.store.store import Store
from trainmaster.traces.native import write

PAGE = 1000
SHORTEST_MS = 1
FOREVER = 1 << 53
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
    service = max(
        SHORTEST_MS, round((history.run_ms - sum(before)) * _mean_size(stored.job, history))
    )
    return TracedJob(
        as_submitted(row),
        service,
        outcome,
        before,
        stored.recipe.may_stay_in_memory,
        reasons,
        paths[-1] if paths else "",
        stored.depends_on,
        row.array or "",
        None if stored.array is None else stored.array.limit,
    )


def as_submitted(row: StoredJob) -> Job:
    """What its owner asked for, with what the owner changed later."""
    stored, history = stored_submission(row), JobHistory.from_json(row.record_json)
    return replace(
        stored.job,
        queue=row.queue,
        app=stored.job.app or row.name,
        priority=history.priority,
    )


def _mean_size(job: Job, history: JobHistory) -> float:
    """How many devices an elastic job had on average, as part of those that it asked for."""
    demand = job.demand
    if not demand.is_elastic or history.run_ms <= 0:
        return 1.0
    held = history.gpu_ms / (history.run_ms * demand.nominal.share)
    return min(max(held, demand.min_count), demand.max_count) / demand.nominal.count


def ended_jobs(
    store: Store,
    topology: Topology,
    newest_first: Iterable[StoredJob] | None = None,
    since_ms: int = 0,
) -> list[tuple[StoredJob, TracedJob]]:
    """All jobs that ran and have ended, or these of them, in the order of their submission.

    None of these held a device before `since_ms`.
    """
    if newest_first is None:
        newest_first = store.all_jobs(frozenset(ENDED_STATES))
    speeds = {} if topology.is_uniform else _speeds(store, topology, since_ms)
    found = [(row, traced(row)) for row in newest_first]
    return [
        (row, _at_nominal_speed(job, speeds.get(row.id, NOMINAL)))
        for row, job in reversed(found)
        if job is not None
    ]


def _speeds(store: Store, topology: Topology, since_ms: int) -> dict[str, int]:
    """By job: how fast its devices were on average, in parts per million of nominal speed."""
    held, weighted = Counter[str](), Counter[str]()
    for row in store.charges(since_ms, FOREVER):
        held[row.job] += row.gpu_ms
        weighted[row.job] += row.gpu_ms * topology.speed_by_type.get(row.gpu_type, NOMINAL)
    return {job: max(1, weighted[job] // ms) for job, ms in held.items() if ms > 0}


def _at_nominal_speed(each: TracedJob, speed_ppm: int) -> TracedJob:
    """With the time that it would have run on devices of nominal speed."""
    if speed_ppm == NOMINAL:
        return each
    before = tuple(max(1, ms * speed_ppm // NOMINAL) for ms in each.failed_attempts_ms)
    service = max(SHORTEST_MS, each.service_ms * speed_ppm // NOMINAL)
    return replace(each, service_ms=service, failed_attempts_ms=before)


def as_trace(found: Sequence[TracedJob], first: int) -> Trace:
    """Times count from `first`. Dependencies on jobs that are not among them are met."""
    known = {each.job.id for each in found}
    return Trace(tuple(_moved(_with_known(each, known), first) for each in found))


def _with_known(each: TracedJob, known: Collection[str]) -> TracedJob:
    kept = tuple(wanted for wanted in each.depends_on if wanted.job in known)
    return each if kept == each.depends_on else replace(each, depends_on=kept)


def trace_of(store: Store, topology: Topology) -> str:
    """The history as a native trace; times count from the first submission."""
    found = [job for _, job in ended_jobs(store, topology)]
    first = found[0].job.submit_ms if found else 0
    text = io.StringIO()
    write(as_trace(found, first), text)
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
