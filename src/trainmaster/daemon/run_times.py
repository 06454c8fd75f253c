"""Forecasts of how long jobs still run: made from what is known, recorded, and compared with what came true.

A job's forecasts are stored with its history. What was learned of jobs that have succeeded is read from the
store when a manager takes over, so it outlasts restarts.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace

from trainmaster.core.lifecycle import Phase
from trainmaster.daemon.job_history import JobHistory
from trainmaster.daemon.known_profiles import Key, key_of, program_key
from trainmaster.daemon.live_job import LiveJob, stored_submission
from trainmaster.daemon.run_time_forecast import (
    calibration,
    from_runs,
    is_due,
    ratio_of,
    run_time_forecast,
)
from trainmaster.estimators.convergence import informative_samples, total_work
from trainmaster.model.job import Source
from trainmaster.model.job_state import JobState
from trainmaster.model.run_time import Basis, Calibration, RunTimeForecast
from trainmaster.model.units import NOMINAL
from trainmaster.store.rows import JobFilter
from trainmaster.store.store import Store

READ_BACK = 500
"""Succeeded jobs, the newest, that a manager learns from when it takes over, and reports on."""
MOST_RATIOS = 500
"""Past forecasts that count for each basis: the newest."""
MOST_RUNS = 20
"""Run times that are remembered of each program: the newest."""
MOST_PROGRAMS = 4_096
"""Programs that are remembered: those of which a run ended last."""
SUCCEEDED = JobFilter(frozenset({JobState.SUCCEEDED}), limit=READ_BACK)
INTERPRETERS = ("python", "bash", "sh", "torchrun")
"""Commands that begin with one of these name their program next."""
BASES = {Source.FIT: Basis.STEPS, Source.PROFILE: Basis.PROFILE}
"""What an estimate of its work is made from."""
Runs = dict[tuple[Key, int], deque[int]]
"""Run times by program and number of GPUs."""


class RunTimes:
    """What past runs and past forecasts say about the run time of jobs."""

    def __init__(self) -> None:
        self._ratios: dict[Basis, deque[float]] = {}
        self._runs: Runs = {}
        """Of the same user, folder, program and arguments."""
        self._others: Runs = {}
        """Of the same program, whatever its arguments."""
        self._judged_ms: dict[str, int] = {}
        """How long each live job had run when a forecast of it was last looked for."""

    def read_back(self, store: Store) -> None:
        """Learn from the jobs that have succeeded, the oldest first."""
        for row in reversed(store.jobs(SUCCEEDED)):
            submitted = stored_submission(row)
            key = program_key(row.user, json.loads(row.spec_json)["spec"], submitted.recipe.command)
            history = JobHistory.from_json(row.record_json)
            self._learn(key, submitted.job.demand.nominal.count, history)

    def learn(self, live: LiveJob) -> None:
        """A job has ended; only what a successful one took says how long the next one takes."""
        self._judged_ms.pop(live.id, None)
        if live.state == JobState.SUCCEEDED:
            self._learn(key_of(live), live.job.demand.nominal.count, live.history)

    def _learn(self, key: Key, gpus: int, history: JobHistory) -> None:
        for each in history.forecasts:
            known = self._ratios.setdefault(each.basis, deque(maxlen=MOST_RATIOS))
            known.append(ratio_of(each, history.run_ms))
        useful_ms = max(0, history.run_ms - history.lost_ms)
        for runs, which in ((self._runs, key), (self._others, _without_arguments(key))):
            known_runs = runs.pop((which, gpus), None) or deque(maxlen=MOST_RUNS)
            known_runs.append(useful_ms)
            runs[which, gpus] = known_runs
            if len(runs) > MOST_PROGRAMS:
                del runs[next(iter(runs))]

    def forecast(self, live: LiveJob, now: int) -> RunTimeForecast | None:
        """How long it still runs, not counting the time that it waits; None where nothing is known."""
        ran_ms = live.ran_ms(now)
        return run_time_forecast(dict(self._predictions(live, ran_ms, now)), ran_ms, self._ratios)

    def _predictions(self, live: LiveJob, ran_ms: int, now: int) -> Iterator[tuple[Basis, int]]:
        record = live.record
        if record is None or record.is_prerun:
            return
        known = record.estimate
        if known is not None and known.source in BASES:
            yield BASES[known.source], max(0, record.finish_at(known.work, now) - now)
        if record.samples:
            total = total_work(informative_samples(record.samples))
            if total is not None:
                left = max(0, round(total) - record.work_at(now))
                yield Basis.LOSS, left // max(1, record.speed_ppm or NOMINAL)
        yield from self._by_runs(live, max(0, ran_ms - live.history.lost_ms))

    def _by_runs(self, live: LiveJob, useful_ms: int) -> Iterator[tuple[Basis, int]]:
        key, gpus = key_of(live), live.job.demand.nominal.count
        for basis, runs, which in (
            (Basis.RUNS, self._runs, key),
            (Basis.PROGRAM, self._others, _without_arguments(key)),
        ):
            left_ms = from_runs(runs.get((which, gpus), ()), useful_ms)
            if left_ms is not None:
                yield basis, left_ms

    def record(self, live: LiveJob, now: int) -> None:
        """Record a forecast with its history, where one is due."""
        if live.record is None or live.record.phase is not Phase.RUNNING:
            return
        ran_ms, recorded = live.ran_ms(now), live.history.forecasts
        last_ms = self._judged_ms.get(live.id, recorded[-1].ran_ms if recorded else None)
        if not is_due(ran_ms, last_ms):
            return
        self._judged_ms[live.id] = ran_ms
        forecast = self.forecast(live, now)
        if forecast is not None:
            live.history = replace(live.history, forecasts=(*recorded, forecast))


def _without_arguments(key: Key) -> Key:
    """The same user, folder and program: what follows its name is left out."""
    user, folder, command = key
    is_interpreted = command[0].rsplit("/", 1)[-1].rstrip("0123456789.") in INTERPRETERS
    if not is_interpreted:
        return user, folder, command[:1]
    words = iter(enumerate(command[1:], 2))
    named = next((at for at, word in words if not word.startswith("-")), len(command))
    return user, folder, command[:named]


def calibration_of(store: Store) -> Sequence[Calibration]:
    """How good the forecasts of jobs that have succeeded were, by basis. It blocks."""
    histories = (JobHistory.from_json(row.record_json) for row in store.jobs(BRIEF))
    return calibration((each.run_ms, each.forecasts) for each in histories)


BRIEF = replace(SUCCEEDED, is_brief=True)
