"""Controlling jobs: cancel, suspend, resume, save, change and move them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainmaster.core.freeze_check import NOTHING_PLANNED
from trainmaster.core.last_resort import loses_work_if_suspended, unsaved_ms
from trainmaster.core.lifecycle import Phase
from trainmaster.daemon.driver import Driver
from trainmaster.daemon.freeze_remarks import obstacle_sentence
from trainmaster.daemon.inbox import Request
from trainmaster.daemon.live_job import (
    Hold,
    LiveJob,
)
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.daemon.request_errors import WorkWouldBeLost
from trainmaster.daemon.row_check import has_run
from trainmaster.daemon.service_api import (
    Conflict,
    JobChanges,
    Unavailable,
)
from trainmaster.daemon.submission_checks import SubmissionChecks
from trainmaster.model import events as e
from trainmaster.model.actions import Kill, Migrate
from trainmaster.model.job import Job
from trainmaster.model.job_state import JobState
from trainmaster.model.placement import Placement, Slice
from trainmaster.model.stop_reasons import EndCode, EndReason, Suspender, Suspension
from trainmaster.model.units import WHOLE
from trainmaster.placement.gang import bits
from trainmaster.text.formatting import exact_length, first_of, length

NAMED = 10
"""Elements of an array that an error names."""
DURATIONS = ("max_runtime", "deadline", "grace_period")


class JobControl:
    """Turns requests about live jobs into events; every method returns when what it did is durable."""

    def __init__(self, driver: Driver, checks: SubmissionChecks) -> None:
        self._driver = driver
        self._checks = checks

    async def cancel(self, job: str, user: str = "", *, now: bool = False) -> None:
        """End it; `now`: without a grace period, also where it is being ended already.

        While the store cannot be written, runs are ended all the same: it may be this one that fills the
        disk. Their journals say so, and the store as soon as it can.
        """
        lives = await self._driver.live(job)
        end, by = EndReason(EndCode.CANCELLED, by=user), _by(user)
        graces = [live.recipe.grace_ms for live in lives]
        if now:
            for live in lives:
                live.with_grace(0)
        request = Request(events=[LoggedEvent(e.JobWithdrawn(live.id), by, end) for live in lives])
        try:
            await self._driver.ask(request)
        except Unavailable:
            if not await self._end_unrecorded(lives, end):
                if not request.is_taken:  # refused: it is not going to be ended
                    for live, grace_ms in zip(lives, graces, strict=True):
                        live.with_grace(grace_ms)
                raise
            self._driver.inbox.request(request)
            return
        if now:
            standing = self._driver.dispatcher.standing
            kills = [standing.get(live.id) for live in lives]
            await self._driver.dispatcher.send(each for each in kills if isinstance(each, Kill))

    async def _end_unrecorded(self, lives: Iterable[LiveJob], end: EndReason) -> bool:
        """End the runs of these jobs before that is stored; whether there were any."""
        records = [live.record for live in lives if live.record is not None]
        kills = [Kill(record.run, end) for record in records if has_run(record)]
        await self._driver.dispatcher.send_unconfirmed(kills)
        return bool(kills)

    async def suspend(self, job: str, user: str = "", *, force: bool = False) -> None:
        """Take it off its devices and hold it until it is resumed."""
        lives = await self._driver.live(job)
        if all(Hold.OWNER in live.holds for live in lives):
            raise Conflict(
                f"job {job} is suspended or held already: `trainmaster resume {job}` lets it go on."
            )
        await self._submit_events(
            [each for live in lives for each in self._driver.measured_now(live)]
        )
        if not force:
            for live in lives:
                self._refuse_loss(live, "suspend it")
        await self._suspend(job, Suspension(Suspender.USER, user), may_end=force)

    async def idle(self, job: str, user: str = "") -> None:
        """The same, asked for by a session that is not used."""
        await self._suspend(job, Suspension(Suspender.IDLE))

    async def suspend_idle(self, job: str) -> None:
        """The same by the operator's rule, where it loses nothing."""
        for live in await self._changeable(job):
            self._refuse_loss(live, "suspend it")
        await self.idle(job)

    async def _suspend(self, job: str, by: Suspension, *, may_end: bool = False) -> None:
        events = []
        lives = [each for each in await self._changeable(job) if not _is_stopping(each)]
        if not lives:
            raise Conflict(f"job {job} is being ended already, so it cannot be suspended.")
        for live in lives:
            if Hold.OWNER not in live.holds:
                live.holds.add(Hold.OWNER)
                held = e.JobHeld(live.id, may_end)
                events.append(LoggedEvent(held, _hold_detail(live, by), by))
        await self._submit_events(events)

    async def resume(self, job: str, user: str = "") -> None:
        changeable = await self._changeable(job)
        lives = [live for live in changeable if Hold.OWNER in live.holds]
        if not lives and all(live.state is JobState.RUNNING for live in changeable):
            raise Conflict(f"job {job} runs: there is nothing to resume.")
        if not lives:
            raise Conflict(
                f"job {job} was not suspended by hand: `trainmaster explain {job}` says why it waits."
            )
        dependencies = self._driver.dependencies
        await self._submit_events(
            [
                logged
                for live in lives
                for logged in dependencies.remove_hold(live, Hold.OWNER, user)
            ],
            lives,
        )

    async def save(self, job: str, user: str = "") -> None:
        """Ask it to write a checkpoint now and go on; of an array, all elements that run."""
        runs = [
            (live, live.record.run, live.record.cannot_save)
            for live in await self._driver.live(job)
            if live.record is not None and live.record.since_ms is not None
        ]
        if not runs:
            raise Conflict(f"job {job} is not running, so it cannot save.")
        engine, deaf = self._driver.engine, []
        for live, run, cannot_save in runs:
            await engine.save(run)
            hears = live.history.has_hello or live.history.saves > 0 or not cannot_save
            pids = live.history.pids
            if not hears and not await asyncio.to_thread(engine.catches_save, run, pids):
                deaf.append(live.id)
        if deaf:
            raise Conflict(f"{_do_not_hear(deaf)} now.")

    async def change(self, job: str, changes: JobChanges) -> None:
        events, stated = [], changes.model_dump(exclude_unset=True)
        shown = {name: _shown(name, value) for name, value in stated.items()}
        if "queue" in stated:
            self._checks.check_queues([changes.queue])
        if "grace_period" in stated:
            self._checks.check_grace(changes.grace_period)
        lives = await self._changeable(job)
        for live in lives:
            self._checks.check_preemptible(_changed(live.job, stated))
        for live in lives:
            live.respecify(shown)
            live.name = stated.get("name", live.name)
            if "grace_period" in stated:
                live.with_grace(changes.grace_period)
            if "max_runtime" in stated:
                live.with_runtime(changes.max_runtime)
                self._driver.limit(live)
            events.append(LoggedEvent(e.JobChanged(_changed(live.job, stated)), shown))
        await self._submit_events(events)
        if "queue" in stated:
            self._checks.remember_queues([changes.queue])

    def _refuse_loss(self, live: LiveJob, what: str, target: Placement | None = None) -> None:
        """Refuse what would end a program that can neither stay in memory for it nor be told to save."""
        state, record, now = self._driver.controller.state, live.record, self._driver.clock.now()
        if record is None or record.placement is None:
            return
        if target is None:
            is_lost = loses_work_if_suspended(state, record, now, NOTHING_PLANNED)
        else:
            is_lost = state.loses_work_at(record, target)
        if is_lost and unsaved_ms(record, now):
            why = "" if target is not None else obstacle_sentence(state, live, now)
            cannot = "suspended in memory" if target is None else "moved in memory to another node"
            raise WorkWouldBeLost(
                f"job {live.id} can be neither {cannot} nor told to save:"
                f" {length(unsaved_ms(record, now))} of its work would be lost."
                f"{f' {why}' if why else ''} To {what} all the same, add --force (API: force)."
            )

    async def move(self, job: str, node: str, *, force: bool = False) -> None:
        live = await self._driver.one(job)
        record = live.record
        if record is None or record.placement is None:
            raise Conflict(f"job {job} is not running, so there is nothing to move.")
        placement = self._devices_on(record.placement, node)
        if placement is None:
            raise Conflict(f"{node} does not have {len(record.placement.slices)} free devices.")
        if not force:
            self._refuse_loss(live, "move it", placement)
        asked = LoggedEvent(e.ActionRequested(Migrate(live.id, placement)), {"to": node})
        await self._driver.ask(Request(events=[asked], about=live.id))

    def _devices_on(self, held: Placement, name: str) -> Placement | None:
        """As many devices of that node, free now."""
        state = self._driver.controller.state
        node = self._driver.node(name)
        free = [node.first_gpu + local for local in bits(state.occupancy.whole[node.index])]
        count = len(held.slices)
        if len(free) < count:
            return None
        slices = tuple(
            Slice(node.index, gpu, WHOLE, piece.memory, piece.stage)
            for gpu, piece in zip(free, held.slices, strict=False)
        )
        return replace(held, slices=slices, span=state.topology.span_of_gpus(free[:count]))

    async def _changeable(self, job: str) -> Sequence[LiveJob]:
        """The same, refused before anything is changed if the change could not be stored."""
        found = await self._driver.live(job)
        self._driver.writer.refuse_in_trouble()
        return found

    async def _submit_events(
        self, events: Iterable[LoggedEvent], touched: Iterable[LiveJob] = ()
    ) -> None:
        """Submit these events; without any there is no step, but jobs that were touched are written."""
        events = list(events)
        said = {logged.event.job for logged in events if isinstance(logged.event, e.JobReleased)}
        events += [LoggedEvent(e.JobChanged(live.job)) for live in touched if live.id not in said]
        if events:
            await self._driver.ask(Request(events=events))


def _do_not_hear(deaf: Sequence[str]) -> str:
    """That these jobs were asked to save in vain."""
    if len(deaf) == 1:
        who, whose, they = f"job {deaf[0]} does", "its program", "nothing is saved"
    else:
        who, whose, they = f"Jobs {first_of(deaf, NAMED)} do", "their program", "they save nothing"
    return (
        f"{who} not hear it: {whose} neither reports through the SDK nor has a handler for SIGUSR1, so"
        f" {they}"
    )


def _is_stopping(live: LiveJob) -> bool:
    return live.record is not None and live.record.phase is Phase.STOPPING


def _hold_detail(live: LiveJob, by: Suspension) -> dict[str, object]:
    detail: dict[str, object] = {"has_run": live.has_started, **_by(by.user)}
    return detail | ({"idle": True} if by.by == Suspender.IDLE else {})


def _by(user: str) -> dict[str, object]:
    return {"by": user} if user else {}


COPIED = ("priority", "queue", "retries", "preemptible")
"""Changes that the controller's value of a job takes as they are."""


def _changed(job: Job, stated: Mapping[str, Any]) -> Job:
    own = {name: stated[name] for name in COPIED if name in stated}
    if "grace_period" in stated:
        own["grace_ms"] = stated["grace_period"]
    if "max_runtime" in stated:
        own["max_runtime_ms"] = stated["max_runtime"]
    if "deadline" in stated:
        own["deadline_ms"] = job.submit_ms + stated["deadline"]
    return replace(job, **own)


def _shown(name: str, value: Any) -> object:
    """In the words of a job file."""
    return exact_length(value) if name in DURATIONS else value
