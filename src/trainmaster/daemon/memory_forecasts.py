"""Memory that new jobs are expected to need, from earlier runs of their program, and how it came out.

What was learned is read from the store when a manager takes over, so it outlasts restarts. It enters the
controller as facts: with a job's submission, or as `JobProfiled` while it waits.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from statistics import median

from trainmaster.daemon.job_history import JobHistory
from trainmaster.daemon.known_profiles import key_of, program_key
from trainmaster.daemon.live_job import LiveJob, stored_submission
from trainmaster.daemon.live_programs import LivePrograms
from trainmaster.daemon.past_jobs import past_jobs
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.daemon.run_times import BRIEF
from trainmaster.estimators.memory.memory_calibration import memory_calibration
from trainmaster.estimators.memory.observed_memory import (
    Arguments,
    PastRun,
    best,
    is_near,
    least_top,
    of_earlier_runs,
    of_run_beside,
    passed_on,
)
from trainmaster.model import events as e
from trainmaster.model.job_state import JobState
from trainmaster.model.memory_estimate import MemoryCalibration, MemoryEstimate, MemorySource
from trainmaster.model.profile import Profile
from trainmaster.model.program_key import ProgramKey, without_arguments
from trainmaster.store.rows import StoredJob
from trainmaster.store.store import Store

MOST_RUNS = 20
"""Runs that are remembered of each program: the newest."""
MOST_PROGRAMS = 4_096
"""Programs that are remembered: those of which a run ended last."""
MOST_RATIOS = 500
"""Past estimates of a user that count: the newest."""
MOST_TOLD = 100
"""Waiting jobs of a program that are told what one of its runs has shown: those that came first."""


@dataclass(frozen=True, slots=True)
class EndedRun:
    """What was measured of a job of the program."""

    arguments: Arguments
    gpu_memory: int
    host_memory: int
    util_ppm: int | None
    """0 and None: not read."""


class MemoryForecasts:
    """What past runs say about the memory of jobs. Values are replaced, never changed, so `profile` and
    `estimate` may be called beside the event loop."""

    def __init__(self, live_programs: LivePrograms) -> None:
        self._live_programs = live_programs
        self._runs: dict[ProgramKey, tuple[EndedRun, ...]] = {}
        """By program, whatever its arguments; the newest last."""
        self._ratios: dict[tuple[str, bool], tuple[int, ...]] = {}
        """True over expected memory in percent: by user, from the same arguments and from others."""
        self._failed: dict[ProgramKey, int] = {}
        """The most for each device that runs had which were out of host memory, by program and arguments."""

    def read_back(self, store: Store) -> None:
        """Learn from the jobs that have succeeded, the oldest first."""
        for row in past_jobs(store):
            command = stored_submission(row).recipe.command
            key = program_key(row.user, json.loads(row.spec_json)["spec"], command)
            history = JobHistory.from_json(row.record_json)
            self._learn(key, history.profile, history.memory_forecast)

    def record(self, live: LiveJob) -> None:
        """Record with its history what is expected of a job until it has started."""
        profile = None if live.record is None else live.record.profile
        found = None if profile is None else profile.memory_estimate
        if found is None or found.source is MemorySource.MEASURED:
            return
        if live.has_started and live.history.memory_forecast is not None:
            return
        live.history = replace(live.history, memory_forecast=found)

    def learn(self, live: LiveJob) -> Iterator[LoggedEvent]:
        """A job has ended: what that says about those of its program that wait."""
        profile = None if live.record is None else live.record.profile
        if live.state != JobState.SUCCEEDED:
            return
        if not self._learn(key_of(live), profile, live.history.memory_forecast):
            return
        for other in self.waiting(live):
            news = self._news(other)
            if news is not None:
                yield LoggedEvent(e.JobProfiled(other.id, profile=news))
        if profile is not None:
            yield from self.told_to_started(live, profile)

    def told_to_started(self, live: LiveJob, news: Profile) -> Iterator[LoggedEvent]:
        """What was measured of a run, for others of the same program with its arguments that have started."""
        if not news.gpu_memory:  # there may be thousands of them
            return
        for other in self._live_programs.with_arguments(key_of(live)):
            if other is not live and other.has_started:
                theirs = self.of_run_beside(other, news)
                if theirs is not None:
                    yield LoggedEvent(e.JobProfiled(other.id, profile=theirs))

    def waiting(self, live: LiveJob) -> Sequence[LiveJob]:
        """Jobs of the same program that have not started: those that came first."""
        there = self._live_programs.of_program(key_of(live))
        return [*islice((other for other in there if not other.has_started), MOST_TOLD)]

    def profile(
        self, live: LiveJob, known: Profile | None, stated: Profile | None = None
    ) -> Profile | None:
        """What a new job starts with.

        `known` is what was measured of the same program with its arguments, `stated` what its job file says.
        """
        shown = (
            stated.updated(known) if stated is not None and known is not None else known or stated
        )
        if live.job.demand.states_gpu_memory:
            return shown
        measured, of_file = known or Profile(), stated or Profile()
        candidates = [
            self.estimate(live),
            _of(MemorySource.STATIC, of_file.memory_estimate)
            or _of(MemorySource.STATIC, measured.memory_estimate),
            _passed_on(measured.memory_estimate),
        ]
        estimate = best(candidates, measured.gpu_memory)
        if estimate is None:
            return shown and replace(shown, memory_estimate=None)
        util = self._util(live) if measured.gpu_util_ppm is None else measured.gpu_util_ppm
        return replace(shown or Profile(), memory_estimate=estimate, gpu_util_ppm=util)

    def of_live_run(self, live: LiveJob, news: Profile) -> Profile:
        """What a job learns from a run, which still goes on, of the same program with its arguments.

        The highest peak of such runs is what all of them may need.
        """
        known = (None if live.record is None else live.record.profile) or Profile()
        peak = max(news.gpu_memory, known.gpu_memory)
        newer, before = _passed_on(news.memory_estimate), known.memory_estimate
        is_newer = newer is not None and newer.high >= peak
        measured = newer if is_newer else _of(MemorySource.MEASURED, before)
        found = best([self.estimate(live), _of(MemorySource.STATIC, before), measured], peak)
        return replace(news, gpu_memory=peak, memory_estimate=found)

    def of_run_beside(self, live: LiveJob, news: Profile) -> Profile | None:
        """What a job that has started learns from a run of the same program with its arguments.

        Such a run has used nearly all that is reserved for this one, or more; None: it has not, or nothing
        is reserved by what was read.
        """
        record, peak = live.record, news.gpu_memory
        if record is None or live.job.demand.states_gpu_memory:
            return None
        if not record.measured_memory or not is_near(peak, record.measured_memory):
            return None
        known, theirs = record.profile or Profile(), of_run_beside(news.memory_estimate, peak)
        candidates = [self.estimate(live), known.memory_estimate, theirs]
        return Profile(gpu_memory=peak, memory_estimate=best(candidates, least_top(peak)) or theirs)

    def estimate(self, live: LiveJob) -> MemoryEstimate | None:
        """From the runs that have ended and succeeded."""
        program, arguments = _split(key_of(live))
        ended = self._runs.get(program, ())
        runs = [PastRun(run.arguments, run.gpu_memory) for run in ended if run.gpu_memory]
        ratios = {same: self._ratios.get((program[0], same), ()) for same in (True, False)}
        return of_earlier_runs(runs, arguments, ratios)

    def learn_out_of_memory(self, live: LiveJob, host_memory: int) -> Sequence[LiveJob]:
        """A run was out of host memory with so much for each device: who is to know, and has not started."""
        key = key_of(live)
        if host_memory <= self._failed.get(key, 0):
            return ()
        self._failed.pop(key, None)
        self._failed[key] = host_memory
        if len(self._failed) > MOST_PROGRAMS:
            del self._failed[next(iter(self._failed))]
        there = self._live_programs.with_arguments(key)
        return [*islice((other for other in there if not other.has_started), MOST_TOLD)]

    def host_estimate(self, live: LiveJob) -> MemoryEstimate | None:
        """The same of host memory.

        A run that was out of it counts as long as none with its arguments has succeeded, and where others
        say no more than it had.
        """
        program, arguments = _split(key_of(live))
        ended = self._runs.get(program, ())
        runs = [PastRun(run.arguments, run.host_memory) for run in ended if run.host_memory]
        known = of_earlier_runs(runs, arguments, {})
        has_succeeded = known is not None and known.is_same
        failed = 0 if has_succeeded else self._failed.get(key_of(live), 0)
        return best([known, passed_on(failed) if failed else None], failed)

    def _news(self, live: LiveJob) -> Profile | None:
        record = live.record
        if record is None or live.job.demand.states_gpu_memory:
            return None
        known = record.profile or Profile()
        before = known.memory_estimate
        kept = [_of(source, before) for source in (MemorySource.STATIC, MemorySource.MEASURED)]
        found = best([self.estimate(live), *kept], known.gpu_memory)
        if found is None or (before is not None and not _is_news(found, before)):
            return None
        util = self._util(live) if known.gpu_util_ppm is None else None
        return Profile(memory_estimate=found, gpu_util_ppm=util)

    def _util(self, live: LiveJob) -> int | None:
        """The part of a GPU that runs of its program keep busy: the median."""
        runs = self._runs.get(without_arguments(key_of(live)), ())
        known = [run.util_ppm for run in runs if run.util_ppm is not None]
        return int(median(known)) if known else None

    def _learn(
        self, key: ProgramKey, profile: Profile | None, forecast: MemoryEstimate | None
    ) -> bool:
        """Whether its own memory was measured; `forecast`: what was expected of it when it started."""
        if profile is None:
            return False
        measured = profile.memory_estimate
        is_own = measured is not None and measured.is_own
        if not is_own and not profile.host_memory:
            return False
        program, arguments = _split(key)
        peak = profile.gpu_memory if is_own else 0
        run = EndedRun(arguments, peak, profile.host_memory, profile.gpu_util_ppm)
        self._runs[program] = (*self._runs.pop(program, ()), run)[-MOST_RUNS:]
        if len(self._runs) > MOST_PROGRAMS:
            del self._runs[next(iter(self._runs))]
        if forecast is not None and forecast.source is MemorySource.LEARNED and peak:
            ratio = -(-100 * peak // forecast.expected)
            of = program[0], forecast.is_same
            self._ratios[of] = (*self._ratios.get(of, ()), ratio)[-MOST_RATIOS:]
        return True


def memory_calibration_of(store: Store) -> Sequence[MemoryCalibration]:
    """How good the estimates with which jobs started that have succeeded were, by origin. It blocks."""
    return memory_calibration(_estimates_and_peaks(store.jobs(BRIEF)))


def _estimates_and_peaks(rows: Iterable[StoredJob]) -> Iterator[tuple[MemoryEstimate, int]]:
    for row in rows:
        history = JobHistory.from_json(row.record_json)
        first, profile = history.memory_forecast, history.profile
        measured = None if profile is None else profile.memory_estimate
        if first is None or profile is None or measured is None or not measured.is_own:
            continue
        yield first, profile.gpu_memory


def _passed_on(estimate: MemoryEstimate | None) -> MemoryEstimate | None:
    """To others with its arguments, by a run of which this was measured."""
    measured = _of(MemorySource.MEASURED, estimate)
    return None if measured is None else passed_on(measured.low)


def _of(source: MemorySource, estimate: MemoryEstimate | None) -> MemoryEstimate | None:
    """It, where it comes from there."""
    return estimate if estimate is not None and estimate.source is source else None


def _is_news(found: MemoryEstimate, before: MemoryEstimate) -> bool:
    """Whether it is made from something else, or reserves a tenth more or less."""
    if (found.source, found.is_same) != (before.source, before.is_same):
        return True
    return abs(found.high - before.high) * 10 >= before.high


def _split(key: ProgramKey) -> tuple[ProgramKey, Arguments]:
    """The program, and its arguments."""
    return without_arguments(key), key.arguments
