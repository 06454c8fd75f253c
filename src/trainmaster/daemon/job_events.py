"""A job's story: what happened to it, entry by entry, from events and orders."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from trainmaster.core.lifecycle import Phase
from trainmaster.core.state import is_on_slots
from trainmaster.daemon.live_job import LiveJob, named_devices, shared_by
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.deadline_notices import DeadlineNotice
from trainmaster.model.job import Run
from trainmaster.model.placement import Placement, Sharing
from trainmaster.model.topology import Topology
from trainmaster.store.rows import StoryRow

HAPPENED: Mapping[type, str] = {
    e.JobSubmitted: "submitted",
    e.JobWithdrawn: "withdrawn",
    e.JobHeld: "held",
    e.JobReleased: "released",
    e.PrerunWaived: "pre-run waived",
    e.JobChanged: "changed",
    e.RunAdopted: "adopted",
    e.RunStarted: "started",
    e.RunSuspended: "suspended",
    e.RunNotFrozen: "not frozen",
    e.RunPaced: "paced",
    e.RunHung: "hung",
    e.RunWentOn: "went on",
    e.RunStraggled: "straggler",
    e.RunIdle: "idle",
    e.RunResumed: "resumed",
    e.RunResized: "resized",
    e.RunResizeTimed: "resize timed",
    e.RunReplicaLost: "replica lost",
    e.RunSizeLimited: "size limited",
    e.RunSaved: "saved",
    e.RunSucceeded: "succeeded",
    e.RunFailed: "failed",
    e.RunLost: "lost",
    e.RunPassed: "pre-run passed",
    e.RunStopped: "stopped",
}
"""Events that appear in a job's story; speeds and progress do not."""
ORDERED: Mapping[type, str] = {
    a.Launch: "launch ordered",
    a.Freeze: "freeze ordered",
    a.Thaw: "thaw ordered",
    a.Rebind: "slots changed",
    a.Halt: "halt ordered",
    a.Kill: "end ordered",
    a.Reshape: "resize ordered",
}


def job_of(event: e.Event) -> str | None:
    """The job that an event is about."""
    run = getattr(event, "run", None)
    if run is not None:
        return str(run.job)
    job = getattr(event, "job", None)
    if job is None:
        return None
    return job if isinstance(job, str) else str(job.id)


def story_of(
    events: Sequence[LoggedEvent],
    orders: Sequence[a.Order],
    notices: Sequence[DeadlineNotice],
    jobs: Mapping[str, LiveJob],
    topology: Topology,
    now: int,
    step: int,
    resizes: Mapping[Run, Mapping[str, object]] = MappingProxyType({}),
) -> Iterator[StoryRow]:
    """All entries of one step, in order; the jobs are as they are after it."""
    for logged in events:
        job, what = job_of(logged.event), HAPPENED.get(type(logged.event))
        if job is not None and what is not None:
            detail = dict(logged.detail)
            run = getattr(logged.event, "run", None)
            if run is not None:
                detail["attempt"] = run.attempt
            detail |= _after_step(logged.event, jobs.get(job), topology)
            yield StoryRow(job, now, step, what, _json(detail))
    for notice in notices:
        times = ("deadline_ms", "finish_ms", "feasible_ms")
        detail = {name: getattr(notice, name) for name in times}
        yield StoryRow(notice.job, now, step, f"deadline {notice.what.value}", _json(detail))
    for order in orders:
        detail = {"attempt": order.run.attempt, **resizes.get(order.run, {})}
        placement = getattr(order, "placement", None)
        what = ORDERED[type(order)]
        if isinstance(order, a.Launch) and order.is_prerun:
            detail["prerun"] = True
        if placement is not None:
            detail["on"] = named_devices(placement, topology)
            beside = _beside(order.run.job, placement, jobs)
            if beside:
                detail["beside"] = beside
            if isinstance(order, a.Rebind) and not is_on_slots(topology, placement):
                live = jobs.get(order.run.job)
                detail["shared_by"] = "" if live is None else shared_by(live, topology)
                if not beside and placement.sharing is not Sharing.EXCLUSIVE:
                    continue  # only what is booked for it has changed
                what = "sharing changed"
        if isinstance(order, a.Freeze | a.Halt):
            if _is_in_story(order, events):
                continue
            detail |= _suspension_detail(jobs.get(order.run.job), jobs, topology)
        yield StoryRow(order.run.job, now, step, what, _json(detail))


def _after_step(event: e.Event, live: LiveJob | None, topology: Topology) -> dict[str, object]:
    """What only the step says of its event: whether it goes on, how it shares its GPUs."""
    if live is not None and isinstance(event, e.RunNotFrozen):
        return {"goes_on": live.goes_on}
    if live is not None and isinstance(event, e.RunStarted):
        by = shared_by(live, topology)
        return {"shared_by": by} if by else {}
    return {}


def _beside(job: str, placement: Placement, jobs: Mapping[str, LiveJob]) -> list[str]:
    """The other jobs on the GPUs that it shares."""
    if placement.sharing is Sharing.EXCLUSIVE:
        return []
    mine, found = set(placement.gpus()), []
    for other in jobs.values():
        held = None if other.record is None else other.record.placement
        if held is not None and other.id != job and not mine.isdisjoint(held.gpus()):
            found.append(f"{other.id} ({other.name})")
    return found


def _is_in_story(order: a.Freeze | a.Halt, events: Sequence[LoggedEvent]) -> bool:
    """Whether somebody's wish to suspend the job is in the story of this step already."""
    return any(isinstance(e_.event, e.JobHeld) and e_.event.job == order.run.job for e_ in events)


def _suspension_detail(
    live: LiveJob | None, jobs: Mapping[str, LiveJob], topology: Topology
) -> dict[str, object]:
    """For which jobs the policy suspends one, or where it is to move."""
    record = None if live is None else live.record
    if live is None or record is None:
        return {}
    suspension = live.history.suspension
    if record.is_moving and record.placement is not None:
        because = {"because": suspension.detail} if suspension and suspension.detail else {}
        return {"to": named_devices(record.placement, topology), **because}
    if record.phase is not Phase.SUSPENDING:  # it was suspended in memory before
        return {"frozen": True}
    if suspension is not None and suspension.detail:
        return {"because": suspension.detail}
    if suspension is None or not suspension.jobs:
        return {"for": []}
    return {
        "for": [f"{id} ({jobs[id].name})" if id in jobs else id for id in suspension.jobs],
    }


ALL_SAVES = 100
"""Saves that are all in the story; of later ones it has ever fewer."""
ENDS = frozenset({"withdrawn", "succeeded", "failed", "lost", "stopped"})
"""What a job's story has however long it is."""


def thinned(
    stories: Iterable[StoryRow], jobs: Mapping[str, LiveJob], most: int
) -> Iterator[StoryRow]:
    """Without what would make a job's story endless; the live jobs count its entries."""
    for row in stories:
        live = jobs.get(row.job)
        if live is None:
            yield row
            continue
        history = live.history
        saves = history.saves + (row.what == "saved")
        is_kept = row.what in ENDS or history.story_entries < most
        if row.what == "saved":
            is_kept = is_kept and _is_save_kept(saves)
        entries = history.story_entries + is_kept
        live.history = replace(history, story_entries=entries, saves=saves)
        if is_kept:
            yield row


def _is_save_kept(saves: int) -> bool:
    """Whether the story has this save: the first hundred are, then every second, every fourth and so on."""
    return saves <= ALL_SAVES or saves % (1 << (saves // ALL_SAVES).bit_length()) == 0


def _json(detail: Mapping[str, object]) -> str:
    return json.dumps(detail, separators=(",", ":"))
