"""An engine in virtual time that continues live runs: orders take as long as they took on average.

The simulator's own engine starts from a trace with true run times and an empty cluster; this one starts from
the middle of live runs and knows only estimates, so it shares the controller but not the engine.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from trainmaster.core.lifecycle import Phase
from trainmaster.core.state import JobRecord, State
from trainmaster.daemon.run_speeds import assumed_speed
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import PRERUN_MS
from trainmaster.model.units import ceil_div

ExpectedWorkOf = Callable[[JobRecord], int]
"""Total work that a job is assumed to need: ms x parts per million."""


class ForecastEngine:
    """Runs end when their work is done; nothing fails."""

    def __init__(self, state: State, expected: ExpectedWorkOf) -> None:
        self._state = state
        self._expected = expected
        self._heap: list[tuple[int, int, Run, e.Event]] = []
        self._serial = 0
        self._last_end: dict[Run, int] = {}
        """What was scheduled last as the end of each run: earlier ones were before a suspension."""
        self._launching = state.switch_times.launches.mean
        self._suspending = state.switch_times.suspensions.mean

    # -- time ------------------------------------------------------------------------------------------

    def next_time(self) -> int | None:
        while self._heap and not self._is_current(*self._heap[0][1:]):
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def facts_at(self, now: int) -> list[e.Event]:
        facts: list[e.Event] = []
        while self._heap and self._heap[0][0] <= now:
            _, serial, run, event = heappop(self._heap)
            if self._is_current(serial, run, event):
                facts.append(event)
        return facts

    def _is_current(self, serial: int, run: Run, event: e.Event) -> bool:
        record = self._state.jobs.get(run.job)
        if record is None or record.run != run:
            return isinstance(event, e.RunSuspended) and run in self._state.leaving
        is_end = isinstance(event, e.RunSucceeded | e.RunPassed)
        return not is_end or (record.since_ms is not None and serial == self._last_end[run])

    def _later(self, time: int, run: Run, event: e.Event) -> None:
        self._serial += 1
        heappush(self._heap, (time, self._serial, run, event))
        if isinstance(event, e.RunSucceeded | e.RunPassed):
            self._last_end[run] = self._serial

    # -- present runs ------------------------------------------------------------------------------------

    def adopt(self, now: int) -> None:
        """Continue everything that is in progress."""
        for record in self._state.jobs.values():
            if record.phase is Phase.RUNNING:
                self.ends(record, now)
            elif record.id not in self._state.pending_launches:
                self._settle(record, now)

    def _settle(self, record: JobRecord, now: int) -> None:
        run, later = record.run, now + 1
        if record.phase is Phase.STARTING:
            self._later(
                later + self._launching,
                run,
                e.RunStarted(run, self._speed(record), is_assumed=True),
            )
        elif record.phase is Phase.SUSPENDING:
            event = e.RunSuspended(run, record.work, frozen=record.frozen is not None)
            self._later(later + self._suspending, run, event)
        elif record.phase is Phase.RESIZING:
            self._later(
                later, run, e.RunResized(run, record.work, self._speed(record), is_assumed=True)
            )
        elif record.phase is Phase.STOPPING:
            self._later(later, run, e.RunStopped(run))

    def _speed(self, record: JobRecord) -> int:
        return assumed_speed(record, self._state.topology)

    def ends(self, record: JobRecord, now: int) -> None:
        """Schedule the end of a run at its present speed; a pre-run is assumed to pass in all its time."""
        if record.is_prerun:
            ran = 0 if record.run_since_ms is None else now - record.run_since_ms
            self._later(now + max(1, PRERUN_MS - ran), record.run, e.RunPassed(record.run))
            return
        left = max(0, self._expected(record) - record.work_at(now))
        time = now + max(1, ceil_div(left, max(1, record.speed_ppm)))
        self._later(time, record.run, e.RunSucceeded(record.run))

    # -- orders ------------------------------------------------------------------------------------------

    def execute(self, order: a.Order, now: int) -> None:
        record = self._state.jobs.get(order.run.job)
        if record is None:
            return
        run, soon = order.run, now + 1
        if isinstance(order, a.Launch):
            self._later(
                soon + self._launching,
                run,
                e.RunStarted(run, self._speed(record), is_assumed=True),
            )
        elif isinstance(order, a.Thaw):
            self._later(soon, run, e.RunResumed(run, self._speed(record), is_assumed=True))
        elif isinstance(order, a.Freeze | a.Halt):
            is_frozen = isinstance(order, a.Freeze)
            event = e.RunSuspended(run, record.work_at(now), frozen=is_frozen)
            self._later(soon + self._suspending, run, event)
        elif isinstance(order, a.Kill):
            self._later(soon, run, e.RunStopped(run))
        elif isinstance(order, a.Reshape):
            self._later(
                soon,
                run,
                e.RunResized(run, record.work_at(now), self._speed(record), is_assumed=True),
            )
