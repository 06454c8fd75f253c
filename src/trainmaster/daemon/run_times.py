"""Forecasts of how long jobs still run: made from what is known, recorded, and compared with what came true.

A job's forecasts are stored with its history. What was learned of jobs that have succeeded is read from the
store when a manager takes over, so it outlasts restarts. Of a job whose steps are not known, the forecast
becomes its estimate, as a fact: so policies and forecasts of starts go by it. A run that has outlasted its
estimate gets a later one, though nothing was reported of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import heappop, heappush

from trainmaster.core.lifecycle import Phase
from trainmaster.core.state import JobRecord
from trainmaster.daemon.job_history import JobHistory
from trainmaster.daemon.known_profiles import KnownProgram, key_of, program_key
from trainmaster.daemon.live_job import LiveJob, stored_submission
from trainmaster.daemon.past_jobs import past_jobs
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.estimators.convergence import informative_samples, total_work
from trainmaster.estimators.run_time.forecast import Prediction, calibration, is_due, prediction
from trainmaster.estimators.run_time.past_runs import PastRuns
from trainmaster.model.events import JobProfiled
from trainmaster.model.job import Estimate, Source
from trainmaster.model.job_state import JobState
from trainmaster.model.run_time import Calibration, RunTimeForecast
from trainmaster.model.units import NOMINAL, SECOND
from trainmaster.store.rows import JobFilter
from trainmaster.store.store import Store

READ_BACK = 500
"""Succeeded jobs, the newest, that the calibration is of."""
SUCCEEDED = JobFilter(frozenset({JobState.SUCCEEDED}), limit=READ_BACK)
BY_STEPS = frozenset({Source.STEPS, Source.PROFILE})
"""Estimates that come from steps; a forecast is made from them and does not replace them."""
BY_PAST = frozenset({Source.LOSS, Source.RUNS, Source.PROGRAM})
"""Forecasts that become a job's estimate."""
LEAST_MORE_MS, LEAST_MORE_PART = 10 * SECOND, 10
"""A run that has outlasted its estimate is expected to take this much more at least, or a tenth of its run
time: so it is not looked at all the time."""
MOST_OUT_OF_DATE = 1_000
"""Entries of the heap that may be out of date, besides as many as are not."""
NOTICEABLE_PART = 10
"""An estimate is replaced when it differs by a tenth."""


class RunTimes:
    """Forecasts of the live jobs."""

    def __init__(self) -> None:
        self._past = PastRuns()
        self._judged_ms: dict[str, int] = {}
        """How long each live job had run when a forecast of it was last looked for."""
        self._ends: list[tuple[int, str]] = []
        """A heap: when runs are expected to end, by their estimates. Entries may be out of date."""
        self._end_of: dict[str, int] = {}
        """The entry of each run that is not."""

    def read_back(self, store: Store) -> None:
        """Learn from the jobs that have succeeded, the oldest first."""
        for row in past_jobs(store):
            submitted = stored_submission(row)
            key = program_key(row.user, json.loads(row.spec_json)["spec"], submitted.recipe.command)
            past, gpus = JobHistory.from_json(row.record_json), submitted.job.demand.nominal.count
            self._past.learn(key, gpus, past.run_ms, past.lost_ms, past.forecasts)

    def learn(self, live: LiveJob) -> bool:
        """A job has ended; whether it is the first of its program that says how long the next one takes.

        Only a successful one does.
        """
        self._judged_ms.pop(live.id, None)
        self._end_of.pop(live.id, None)
        if live.state != JobState.SUCCEEDED:
            return False
        key, gpus, past = key_of(live), live.job.demand.nominal.count, live.history
        is_first = not any(self._past.predictions(key, gpus))
        self._past.learn(key, gpus, past.run_ms, past.lost_ms, past.forecasts)
        return is_first

    def forecast(self, live: LiveJob, now: int) -> RunTimeForecast | None:
        """How long it still runs, not counting the time that it waits; None where nothing is known."""
        ran_ms = live.ran_ms(now)
        return self._past.forecast(dict(self._predictions(live, ran_ms, now)), ran_ms)

    def _predictions(
        self, live: LiveJob, ran_ms: int, now: int
    ) -> Iterator[tuple[Source, Prediction]]:
        record = live.record
        if record is None or record.is_prerun:
            return
        known = record.estimate
        if known is not None and known.source in BY_STEPS:
            left_ms = record.finish_at(known.work, now) - now
            yield known.source, prediction(known.source, left_ms, ran_ms)
        if record.samples:
            total = total_work(informative_samples(record.samples))
            if total is not None:
                left = round(total) - record.work_at(now)
                left_ms = left // max(1, record.speed_ppm or NOMINAL)
                yield Source.LOSS, prediction(Source.LOSS, left_ms, ran_ms)
        useful_ms = max(0, ran_ms - live.history.lost_ms)
        yield from self._past.predictions(key_of(live), live.job.demand.nominal.count, useful_ms)

    def record(self, live: LiveJob, now: int) -> Sequence[LoggedEvent]:
        """Record a forecast with its history, where one is due; the fact that it makes its estimate."""
        self._note_end(live, now)
        if live.record is None or live.record.phase is not Phase.RUNNING:
            return ()
        ran_ms, recorded = live.ran_ms(now), live.history.forecasts
        last_ms = self._judged_ms.get(live.id, recorded[-1].ran_ms if recorded else None)
        if not is_due(ran_ms, last_ms):
            return ()
        self._judged_ms[live.id] = ran_ms
        forecast = self.forecast(live, now)
        if forecast is None:
            return ()
        live.history = replace(live.history, forecasts=(*recorded, forecast))
        estimate = estimate_by(forecast, live.record, now)
        return () if estimate is None else (LoggedEvent(JobProfiled(live.id, estimate=estimate)),)

    # -- runs that outlast their estimates -----------------------------------------------------------------

    def register(self, jobs: Iterable[LiveJob], now: int) -> None:
        """Those of before a restart."""
        for live in jobs:
            self._note_end(live, now)

    def next_due(self) -> int | None:
        """When a run is to be looked at that may have outlasted its estimate."""
        while self._ends and self._end_of.get(self._ends[0][1]) != self._ends[0][0]:
            heappop(self._ends)
        return self._ends[0][0] if self._ends else None

    def outlasted(self, jobs: Mapping[str, LiveJob], now: int) -> Iterator[LoggedEvent]:
        """Later estimates of the runs that have outlasted theirs."""
        while (due_ms := self.next_due()) is not None and due_ms <= now:
            job = heappop(self._ends)[1]
            del self._end_of[job]
            live = jobs.get(job)
            estimate = None if live is None else self._later_estimate(live, now)
            if estimate is not None:
                yield LoggedEvent(JobProfiled(job, estimate=estimate))

    def _later_estimate(self, live: LiveJob, now: int) -> Estimate | None:
        """Of a run that has survived its estimate: how long such runs still take."""
        record = live.record
        if record is None or _expected_end(record, now) != now:
            return None
        forecast = self.forecast(live, now)
        if forecast is None:
            return None
        least_ms = max(LEAST_MORE_MS, live.ran_ms(now) // LEAST_MORE_PART)
        longer = replace(
            forecast,
            expected_ms=max(least_ms, forecast.expected_ms),
            high_ms=max(least_ms, forecast.high_ms),
        )
        return _estimate(longer, record.work_at(now), record.speed_ppm)

    def _note_end(self, live: LiveJob, now: int) -> None:
        end_ms = None if live.record is None else _expected_end(live.record, now)
        if end_ms is None:
            self._end_of.pop(live.id, None)
        elif self._end_of.get(live.id) != end_ms:
            self._end_of[live.id] = end_ms
            heappush(self._ends, (end_ms, live.id))
            if len(self._ends) > MOST_OUT_OF_DATE + 2 * len(self._end_of):
                self._ends = sorted((when, job) for job, when in self._end_of.items())

    # -- jobs that have not started ----------------------------------------------------------------------

    def first_estimate(self, live: LiveJob, known: KnownProgram | None) -> Estimate | None:
        """The work of a new job: by the steps of an earlier run of its program, else by its earlier runs."""
        by_steps = None if known is None else known.estimate(live.job)
        if by_steps is not None:
            return by_steps
        predictions = self._past.predictions(key_of(live), live.job.demand.nominal.count)
        forecast = self._past.forecast(dict(predictions), 0)
        return None if forecast is None else _estimate(forecast)

    def first_estimates(self, jobs: Iterable[LiveJob]) -> Iterator[LoggedEvent]:
        """Of jobs that have not started and that nothing was known of."""
        for live in jobs:
            record = live.record
            if record is None or record.estimate is not None or live.has_started:
                continue
            estimate = self.first_estimate(live, None)
            if estimate is not None:
                yield LoggedEvent(JobProfiled(live.id, estimate=estimate))


def _expected_end(record: JobRecord, now: int) -> int | None:
    """When a run is expected to end, now at the earliest; None: it makes no progress, or nothing is known."""
    known = record.estimate
    if known is None or record.since_ms is None or record.phase is not Phase.RUNNING:
        return None
    if record.is_prerun or not record.speed_ppm:
        return None
    return record.finish_at(known.work, now)


def estimate_by(forecast: RunTimeForecast, record: JobRecord, now: int) -> Estimate | None:
    """A forecast of a run as the estimate of its work; None where a better one, or this one, is known."""
    known = record.estimate
    if forecast.basis not in BY_PAST or (known is not None and known.source not in BY_PAST):
        return None
    speed_ppm = NOMINAL if record.since_ms is None else record.speed_ppm
    found = _estimate(forecast, record.work_at(now), speed_ppm)
    is_same = known is not None and abs(known.work - found.work) * NOTICEABLE_PART < known.work
    return None if is_same else found


def _estimate(forecast: RunTimeForecast, done: int = 0, speed_ppm: int = NOMINAL) -> Estimate:
    work, most = (done + ms * speed_ppm for ms in (forecast.expected_ms, forecast.high_ms))
    return Estimate(work, forecast.basis, most)


def calibration_of(store: Store) -> Sequence[Calibration]:
    """How good the forecasts of jobs that have succeeded were, by basis. It blocks."""
    histories = (JobHistory.from_json(row.record_json) for row in store.jobs(BRIEF))
    return calibration((each.run_ms, each.forecasts) for each in histories)


BRIEF = replace(SUCCEEDED, is_brief=True)
