"""Converts job states to API answers: seconds and GPUs, absent = null."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from trainmaster import __version__
from trainmaster.api import messages
from trainmaster.api.caller import Caller
from trainmaster.api.visibility import shown_notes, without_names
from trainmaster.config.secret_names import HIDDEN, looks_secret
from trainmaster.daemon.array_rows import ranges
from trainmaster.daemon.gpu_rows import ratio
from trainmaster.daemon.gpu_use_history import UseCurve
from trainmaster.daemon.job_history import Progress
from trainmaster.daemon.job_rows import (
    DeadlineRow,
    HangRow,
    Holder,
    JobEnd,
    JobRow,
    ProgressReport,
    ProgressRow,
    WaitReason,
)
from trainmaster.daemon.response_models import (
    ArraySummary,
    CalibrationRow,
    EndForecastRow,
    Explanation,
    FailureRow,
    ForecastRow,
    GpuUsePoint,
    HealthRow,
    JobCurves,
    JobDetails,
    MemoryCalibrationRow,
    MemoryRow,
    ProgramProfile,
    QueueRow,
    SpeedPoint,
    StoryEntry,
    WaitNumbers,
    amount,
    plain,
)
from trainmaster.daemon.service_api import (
    Forecast,
    Health,
    JobStatus,
)
from trainmaster.model.deadline_notices import DeadlineNotice
from trainmaster.model.failure import HUNG_REASON
from trainmaster.model.job_state import ENDED_STATES, WAITING_STATES, JobState
from trainmaster.model.memory_estimate import MemoryCalibration
from trainmaster.model.profile import Profile
from trainmaster.model.queue import DEFAULT_QUEUE
from trainmaster.model.reasons import Why
from trainmaster.model.run_time import Calibration
from trainmaster.model.stop_reasons import EndReason
from trainmaster.model.units import WHOLE
from trainmaster.store import rows as stored
from trainmaster.text.deadlines import deadline_sentence, past_deadline_sentence
from trainmaster.text.formatting import plural
from trainmaster.text.hangs import hang_sentence, no_stacks_sentence
from trainmaster.text.memory_estimates import calibration_words
from trainmaster.text.messages import forecast_sentence, story_sentence
from trainmaster.text.run_times import BASES, run_time_sentence
from trainmaster.text.stop_messages import end_sentence

MOST_HOLDERS = 20
"""Jobs in the way of another that are named."""
NOT_BY_NUMBERS = frozenset(
    {
        *(Why.DEPENDENCY, Why.ARRAY_LIMIT, Why.HELD, Why.INPUT_BLOCKED),
        *(Why.SUSPENDED_BY_USER, Why.SUSPENDED_IDLE, Why.OVER_GPU_MEMORY),
        *(Why.RETRY_DELAY, Why.PRERUN, Why.AVOIDS_DEVICES, Why.MAINTENANCE, Why.RESERVATION),
    }
)
"""Reasons for which it does not matter how many GPUs are free."""


SUCCEEDED, CANCELLED = JobState.SUCCEEDED, JobState.CANCELLED


def seconds(ms: int | None) -> float | None:
    """Exact to the millisecond: dividing by 1000 gives the nearest float, which prints 3 decimals."""
    return None if ms is None else ms / 1000


def finite(value: float | None) -> float | None:
    """JSON has no NaN and no infinity: a loss that diverged is null."""
    return value if value is not None and math.isfinite(value) else None


def job_row(status: JobStatus, now: int) -> JobRow:
    """A job as lists show it."""
    row, history = status.row, status.history
    end, waiting = messages.end_reason(status), status.waiting_since_ms
    waited_until = row.start_ms if row.start_ms is not None else row.finish_ms
    return JobRow(
        id=row.id,
        name=row.name,
        user=row.user,
        queue=row.queue,
        state=JobState(row.state),
        transition=status.transition,
        reason=wait_reason(status, now),
        suspended_by=messages.suspended_by(status),
        gpus=amount(row.gpus),
        gpus_now=amount(status.gpus_now) if status.gpus_now else None,
        min_gpus=None if status.may_have is None else amount(status.may_have[0]),
        max_gpus=None if status.may_have is None else amount(status.may_have[1]),
        nodes=list(status.nodes),
        devices=list(status.devices),
        submit_s=row.submit_ms / 1000,
        start_s=seconds(row.start_ms),
        finish_s=seconds(row.finish_ms),
        queue_s=max(0, (now if waited_until is None else waited_until) - row.submit_ms) / 1000,
        waiting_s=None if waiting is None else max(0, now - waiting) / 1000,
        run_s=status.run_ms / 1000,
        gpu_s=round(history.gpu_ms / WHOLE) / 1000,
        priority=history.priority,
        attempt=history.attempts,
        restarts=history.restarts,
        preemptions=history.preemptions,
        lost_s=history.lost_ms / 1000,
        exit_code=row.exit_code,
        end_reason=None if end is None else job_end(end, messages.failure_title(status)),
        deadline=None if history.deadline is None else deadline_row(history.deadline, status, now),
        array=row.array,
        array_index=row.array_index,
        progress=progress_row(history.progress),
        prerun=messages.prerun(status),
        hung=hang_row(status, now),
    )


def wait_reason(status: JobStatus, now: int) -> WaitReason | None:
    """Why it waits, with what a program can read."""
    why, reason = messages.waiting_sentence(status, now), status.reason
    if why is None or reason is None:
        return None
    return WaitReason(
        *why,
        held_by=reason.held_by[:MOST_HOLDERS],
        need=amount(reason.need),
        free=amount(reason.free),
        until_s=seconds(reason.until_ms),
    )


def job_end(end: EndReason, failure: str = "") -> JobEnd:
    """What does not apply is null."""
    stated = {
        name: value for name, value in end.to_json().items() if name not in ("detail", "code")
    }
    return JobEnd(end.code, end_sentence(end, failure), **stated)


def failure_row(status: JobStatus) -> FailureRow | None:
    """Why its last run failed, of a job that has not succeeded since and was not cancelled."""
    failed, row = status.history.failed_by, status.failure_reason
    if failed is None or row is None or status.row.state in (SUCCEEDED, CANCELLED):
        return None
    return FailureRow(
        reason=failed.reason,
        title=row.title,
        blame=failed.blame.value,
        rank=failed.rank,
        exit_code=failed.exit_code,
        signal=failed.signal or None,
        path=failed.path or None,
        lines=[*failed.lines, *_no_stacks(status)],
        advice=row.advice.replace("logs JOB", f"logs {status.row.id}"),
        retry=status.history.retry or None,
    )


def _no_stacks(status: JobStatus) -> tuple[str, ...]:
    """Of a run that hung and was ended: why its Python stacks are missing."""
    failed, hang = status.history.failed_by, status.history.hang
    is_hung = failed is not None and failed.reason == HUNG_REASON
    return (no_stacks_sentence(hang.trouble),) if is_hung and hang and hang.trouble else ()


def deadline_row(notice: DeadlineNotice, status: JobStatus, now: int) -> DeadlineRow:
    return DeadlineRow(
        what=notice.what.value,
        deadline_s=notice.deadline_ms / 1000,
        finish_s=seconds(notice.finish_ms),
        feasible_s=seconds(notice.feasible_ms),
        sentence=deadline_words(notice, status, now),
    )


def deadline_words(notice: DeadlineNotice, status: JobStatus, now: int) -> str:
    """What is expected of the deadline of a live job, and what became of that of one that succeeded."""
    row = status.row
    if row.finish_ms is None:
        return deadline_sentence(notice, now)
    if row.state != JobState.SUCCEEDED:
        return ""
    return past_deadline_sentence(notice.deadline_ms, row.finish_ms)


def hang_row(status: JobStatus, now: int) -> HangRow | None:
    hang = status.history.hang
    if hang is None or hang.is_over or status.row.state != JobState.RUNNING:
        return None
    return HangRow(
        since_s=hang.since_ms / 1000,
        sentence=hang_sentence(hang.at(now)),
        stacks=list(hang.stacks),
        trouble=hang.trouble or None,
    )


def progress_row(progress: Progress | None) -> ProgressRow | None:
    if progress is None:
        return None
    return ProgressRow(
        step=progress.step,
        total_steps=progress.total_steps,
        loss=finite(progress.loss),
        samples_per_s=finite(progress.samples_per_s),
        steps_per_s=finite(progress.steps_per_s),
        at_s=progress.at_ms / 1000,
    )


def job_details(status: JobStatus, now: int, last_lines: Sequence[str] = ()) -> JobDetails:
    """A job with all that is known of it."""
    spec = messages.details(status.row.spec_json)
    return JobDetails(
        **vars(job_row(status, now)),
        uuid=messages.uuid_of(spec),
        failures=status.history.failures,
        retries=status.history.retries,
        migrations=status.history.migrations,
        pids=list(status.history.pids),
        ran_in=messages.ran_in(spec),
        saved_at_s=seconds(status.history.saved_at_ms),
        remarks=list(status.remarks),
        elements=array_summary(status) if status.elements else None,
        gpu_use=list(status.gpu_use),
        shared_by=status.shared_by or None,
        memory_enforced=status.memory_enforced or None,
        memory=memory_row(status),
        failure=failure_row(status),
        last_lines=list(last_lines),
        profile=program_profile(status.history.profile),
        spec=plain(
            _without_secrets(spec.get("spec", spec))
        ),  # the file alone, without what the manager made of it
    )


def program_profile(profile: Profile | None) -> ProgramProfile | None:
    if profile is None:
        return None
    return ProgramProfile(
        step_us=profile.step_us or None,
        batch=profile.batch or None,
        sync_bytes=profile.sync_bytes or None,
        cpu_us=profile.cpu_us or None,
        activation_bytes=profile.activation_bytes or None,
    )


def memory_row(status: JobStatus) -> MemoryRow | None:
    """What it is expected to need of each GPU."""
    profile = status.history.profile
    estimate = None if profile is None else profile.memory_estimate
    if profile is None or estimate is None:
        return None
    return MemoryRow(
        low_bytes=estimate.low,
        expected_bytes=estimate.expected,
        high_bytes=estimate.high,
        source=estimate.source.value,
        runs=estimate.runs,
        same_arguments=estimate.is_same,
        peak_bytes=profile.gpu_memory or None,
        reserved_bytes=status.reserved_memory or None,
    )


def array_summary(status: JobStatus) -> ArraySummary:
    """The jobs of an array: how many are in which state, and which did not succeed."""
    rows = [each.row for each in status.elements]
    states = Counter(row.state for row in rows)
    bad = [row for row in rows if row.state in ENDED_STATES and row.state != JobState.SUCCEEDED]
    said = []
    for state in JobState:
        if states[state]:
            own = [row.array_index or 0 for row in bad if row.state == state]
            which = f" ({status.row.id}_[{ranges(own)}])" if own else ""
            said.append(f"{states[state]:,} {state.label}{which}")
    return ArraySummary(
        jobs=len(rows),
        states=dict(states),
        unsuccessful=[row.id for row in bad[:MOST_HOLDERS]],
        sentence=f"{plural(len(rows), 'job')}: {', '.join(said)}.",
    )


def open_health_row(health: Health) -> HealthRow:
    """What anybody may know: whether it works."""
    trouble = "It cannot change anything now." if health.trouble else None
    return HealthRow(health.role, health.state, trouble, [], __version__)


def health_row(health: Health, by: Caller) -> HealthRow:
    signs = health.signs
    row = HealthRow(
        health.role, health.state, health.trouble or None, shown_notes(health, by), __version__
    )
    if signs is None:
        return row
    return replace(
        row,
        step_age_s=round(signs.step_age_s, 3),
        thread_wait_s=round(signs.thread_wait_s, 3),
        disk_free_bytes=signs.disk_free,
        open_files=signs.open_files,
        most_open_files=signs.most_open_files,
    )


def forecast_row(forecast: Forecast, now: int) -> ForecastRow:
    return ForecastRow(
        start_s=seconds(forecast.start_ms),
        basis=forecast.basis,
        sentence=forecast_sentence(forecast.start_ms, forecast.basis, now),
    )


def end_forecast_row(
    status: JobStatus, forecast: Forecast | None, now: int
) -> EndForecastRow | None:
    """From now, or from the expected start of a job that waits."""
    found = status.run_time
    if found is None:
        return None
    waits = status.row.state in WAITING_STATES
    begin = (None if forecast is None else forecast.start_ms) if waits else now
    low, middle, high = (
        None if begin is None else (begin + each) / 1000
        for each in (found.low_ms, found.expected_ms, found.high_ms)
    )
    return EndForecastRow(
        run_s=found.expected_ms / 1000,
        run_low_s=found.low_ms / 1000,
        run_high_s=found.high_ms / 1000,
        end_s=middle,
        low_s=low,
        high_s=high,
        is_calibrated=found.is_calibrated,
        basis=found.basis.value,
        sentence=run_time_sentence(found, is_running=not waits),
    )


def calibration_row(found: Calibration) -> CalibrationRow:
    return CalibrationRow(
        basis=found.basis.value,
        words=BASES[found.basis],
        forecasts=found.forecasts,
        within=found.within,
        median_error=round(found.median_error, 4),
    )


def memory_calibration_row(found: MemoryCalibration) -> MemoryCalibrationRow:
    return MemoryCalibrationRow(
        source=found.source.value,
        same_arguments=found.is_same,
        words=calibration_words(found),
        estimates=found.estimates,
        within=found.within,
        covered=found.covered,
        median_error=round(found.median_error, 4),
    )


def explanation(
    status: JobStatus,
    forecast: Forecast | None,
    holders: list[Holder],
    now: int,
    last_lines: Sequence[str] = (),
    array: str | None = None,
) -> Explanation:
    """Why a job waits, with the numbers, the jobs that block it, and when it may start."""
    code, sentence = messages.status_sentence(status, now)
    if status.elements:
        code, sentence = None, array_summary(status).sentence
    reason = status.reason
    numbers = None
    if reason is not None and reason.why not in NOT_BY_NUMBERS:
        numbers = WaitNumbers(
            need=amount(reason.need),
            free=amount(reason.free),
            largest_block=amount(reason.largest_block),
            until_s=seconds(reason.until_ms),
        )
    return Explanation(
        id=status.row.id,
        name=status.row.name,
        state=JobState(status.row.state),
        suspended_by=messages.suspended_by(status),
        array=array,
        code=code,
        sentence=sentence,
        numbers=numbers,
        held_by=holders,
        forecast=None if forecast is None else forecast_row(forecast, now),
        end=end_forecast_row(status, forecast, now),
        remarks=[*_deadline_remarks(status, now), *status.remarks],
        last_lines=tuple(last_lines),
        failure=failure_row(status),
    )


def _deadline_remarks(status: JobStatus, now: int) -> list[str]:
    notice = status.history.deadline
    said = "" if notice is None else deadline_words(notice, status, now)
    return [said] if said else []


def story_entry(row: stored.StoryRow, by: Caller) -> StoryEntry:
    """What happened to a job; other jobs are named to operators only."""
    detail = messages.details(row.detail_json)
    detail = detail if by.is_operator else without_names(detail)
    sentence = story_sentence(row.what, detail)
    return StoryEntry(row.at_ms / 1000, row.step, row.what, sentence, detail)


def progress_report(row: stored.StoredProgress) -> ProgressReport:
    return ProgressReport(row.at_ms / 1000, row.step, finite(row.loss), finite(row.samples_per_s))


def job_curves(
    use: UseCurve, why_no_use: str, reports: Sequence[stored.StoredProgress]
) -> JobCurves:
    return JobCurves(
        gpu=[
            GpuUsePoint(each.at_ms / 1000, ratio(each.util_ppm), each.memory) for each in use.points
        ],
        gpu_every_s=use.every_ms / 1000,
        gpu_sentence="" if use.points else why_no_use or NO_GPU_USE,
        progress=[
            SpeedPoint(**vars(progress_report(each)), steps_per_s=_speed(before, each))
            for before, each in zip((None, *reports), reports, strict=False)
        ],
    )


NO_GPU_USE = "None of its processes was seen on a GPU, or what was seen is not kept any more."


def _speed(before: stored.StoredProgress | None, report: stored.StoredProgress) -> float | None:
    """Steps a second between two reports."""
    if before is None or report.step <= before.step or report.at_ms <= before.at_ms:
        return None
    return round((report.step - before.step) / (report.at_ms - before.at_ms) * 1000, 4)


def with_default(queues: Sequence[QueueRow]) -> list[QueueRow]:
    """All queues that a job may name: `default` is always there, even while no job uses it."""
    if any(queue.name == DEFAULT_QUEUE for queue in queues):
        return list(queues)
    return [QueueRow(DEFAULT_QUEUE, None, 1, 0, None, True, False, 0, 0, 0, 0), *queues]


def _without_secrets(spec: object) -> object:
    """The job file without the values of variables that look like secrets."""
    env = spec.get("env") if isinstance(spec, Mapping) else None
    if not isinstance(spec, Mapping) or not isinstance(env, Mapping):
        return spec
    shown = {name: HIDDEN if looks_secret(str(name)) else value for name, value in env.items()}
    return {**spec, "env": shown}
