"""Reaps idle GPUs by the operator's rule: a job whose GPUs compute nothing is warned, suspended or ended.

Idle is a run none of whose GPUs was seen computing, by it or anyone, and that made no step: each look at the
GPUs counts. Where the driver says nothing of a GPU, nothing is claimed. Half of the time is the warning's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum, auto

import structlog

from trainmaster.core.lifecycle import Phase
from trainmaster.daemon.driver import Driver
from trainmaster.daemon.gpu_activity import use_of
from trainmaster.daemon.gpu_readings import GpuReadings
from trainmaster.daemon.inbox import Request
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.daemon.request_errors import RequestError
from trainmaster.model import events as e
from trainmaster.model.job import Run
from trainmaster.model.stop_reasons import EndCode, EndReason
from trainmaster.model.units import SECOND
from trainmaster.text.stop_messages import end_sentence

log = structlog.get_logger("trainmaster.idle")

LOOKS = 20
"""How often, within the rule's time, the watch acts on what the looks have found; at most every 15 s."""
LONGEST_S = 15.0


class IdleAction(StrEnum):
    """What is done about it."""

    NOTIFY = auto()
    SUSPEND = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class IdleRule:
    after_ms: int
    action: IdleAction = IdleAction.NOTIFY


@dataclass(slots=True)
class _Seen:
    """A run since it last did something."""

    since_ms: int
    step: int | None
    is_warned: bool = False
    is_done: bool = False


class IdleWatch:
    """`suspend` suspends a job where that loses nothing; RequestError where it would."""

    def __init__(
        self, driver: Driver, rule: IdleRule | None, suspend: Callable[[str], Awaitable[None]]
    ) -> None:
        self._driver = driver
        self._rule = rule
        self._suspend = suspend
        self._seen: dict[Run, _Seen] = {}
        driver.readings.listeners.append(self.look)

    async def watch(self) -> None:
        """Until cancelled; without a rule there is nothing to do."""
        rule = self._rule
        while rule is not None:
            await asyncio.sleep(min(LONGEST_S, rule.after_ms / SECOND / LOOKS))
            for run, seen, idle_ms in list(self._idle(self._driver.clock.now())):
                if 2 * idle_ms >= rule.after_ms and not seen.is_warned:
                    seen.is_warned = True
                    await self._warn(run, idle_ms)
                if idle_ms >= rule.after_ms and not seen.is_done:
                    seen.is_done = True
                    await self._act(run, rule)

    def idle(self, least_ms: int) -> list[tuple[str, int]]:
        """Jobs that have been idle for so long at least, and how long."""
        now = self._driver.clock.now()
        return [(run.job, idle_ms) for run, _, idle_ms in self._idle(now) if idle_ms >= least_ms]

    def look(self, readings: GpuReadings) -> None:
        """Take note of what computes and steps; called after each look at the GPUs."""
        now, state = self._driver.clock.now(), self._driver.controller.state
        running = {
            record.run: record for record in state.jobs.values() if record.phase is Phase.RUNNING
        }
        for run in self._seen.keys() - running.keys():
            del self._seen[run]
        for run, record in running.items():
            util, step, seen = use_of(state, record, readings), self._step(run), self._seen.get(run)
            if seen is None or util is None or util > 0 or step != seen.step:
                self._seen[run] = _Seen(now, step)

    def _step(self, run: Run) -> int | None:
        live = self._driver.jobs.get(run.job)
        progress = None if live is None else live.history.progress
        return None if progress is None else progress.step

    def _idle(self, now: int) -> Iterator[tuple[Run, _Seen, int]]:
        for run, seen in self._seen.items():
            yield run, seen, now - seen.since_ms

    async def _warn(self, run: Run, idle_ms: int) -> None:
        rule = self._rule
        assert rule is not None
        detail = {"idle_s": idle_ms / SECOND, "limit_s": rule.after_ms / SECOND}
        await self._ask(LoggedEvent(e.RunIdle(run), detail | {"action": rule.action.value}))

    async def _act(self, run: Run, rule: IdleRule) -> None:
        if rule.action is IdleAction.SUSPEND:
            try:
                await self._suspend(run.job)
            except RequestError as refusal:
                log.info("an idle job is not suspended", job=run.job, why=str(refusal))
        elif rule.action is IdleAction.END:
            end = EndReason(EndCode.IDLE, limit_s=rule.after_ms / SECOND)
            detail = {"end": end.code, "why": end_sentence(end)}
            await self._ask(LoggedEvent(e.JobWithdrawn(run.job), detail, end))

    async def _ask(self, event: LoggedEvent) -> None:
        try:
            await self._driver.ask(Request(events=[event]))
        except RequestError as refusal:
            log.warning("idle: not done", what=type(event.event).__name__, why=str(refusal))
