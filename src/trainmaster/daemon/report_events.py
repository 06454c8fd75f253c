"""Turns engine reports into events: only the manager knows how much work had been done by then."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from trainmaster.config.limits import Limits
from trainmaster.core.lifecycle import Phase
from trainmaster.core.state import JobRecord
from trainmaster.daemon import prerun_events
from trainmaster.daemon.failure_evidence import signal_of
from trainmaster.daemon.host_memory_use import of_each_device
from trainmaster.daemon.job_history import FirstReport, JobHistory, LastFreeze, LastHang, Progress
from trainmaster.daemon.live_job import LiveJob
from trainmaster.daemon.retries import (
    MOST_ATTEMPTS,
    RetryTerms,
    devices_of_nodes,
    failed_run,
    judged,
    lost_run,
    lost_too_often,
    retry_detail,
)
from trainmaster.daemon.run_speeds import (
    assumed_speed,
    best_speed,
    is_noticeable,
    measured_speed,
)
from trainmaster.failures.classification import BRIEF_MS, NOT_FOUND_REASON
from trainmaster.failures.retry_rules import Device, FailedAttempt
from trainmaster.model import engine_reports as r
from trainmaster.model import events as e
from trainmaster.model.failure import MEMORY_TAKEN_REASON, UNKNOWN_REASON, Failure
from trainmaster.model.job import Estimate, Source
from trainmaster.model.launch_spec import OnHang
from trainmaster.model.placement import Sharing
from trainmaster.model.profile import Profile
from trainmaster.model.progress import Sample
from trainmaster.model.stop_reasons import EndCode, EndReason, Suspender, Suspension
from trainmaster.model.topology import Topology
from trainmaster.model.units import NOMINAL, SECOND
from trainmaster.text.failures import failure_words
from trainmaster.text.hangs import HUNG_AND_ENDED, hang_sentence
from trainmaster.text.retries import retry_sentence

SAMPLE_EVERY_MS = 5 * SECOND
LATE_MS = 3 * SECOND
"""What is noticed so much later has its own time in the story: the manager was away."""
RESIZE_PARTS = (
    *("order_ms", "warm_up_ms", "boundary_ms", "regroup_ms", "broadcast_ms", "leave_ms"),
    *("stop_ms", "start_ms", "first_step_ms"),
)
NOT_TO_BE_TRIED_AGAIN = frozenset({126, 127})
"""Exit codes of a command that cannot be started: another attempt would end the same way."""


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """An event, the details of it for the job's story, and who or what caused it."""

    event: e.Event
    detail: Mapping[str, Any] = field(default_factory=dict)
    cause: EndReason | Suspension | None = None
    """Recorded with the job: why it ends, or who suspends it."""


def events_of(
    report: r.Report,
    live: LiveJob,
    now: int,
    limits: Limits,
    failure: Failure | None = None,
    terms: RetryTerms | None = None,
) -> Iterator[LoggedEvent]:
    """The events for the controller; the live job records the rest.

    `failure`: why its run failed, and `terms` what decides over its retry; None: its exit code alone.
    """
    record = live.record
    if record is None or record.run != report.run:
        return
    for logged in _events_of(report, live, record, now, limits, failure, terms):
        if "lost_s" in logged.detail:
            lost_ms = live.history.lost_ms + round(logged.detail["lost_s"] * SECOND)
            to = lost_to(logged.event, live.history)
            live.history = replace(live.history, lost_ms=lost_ms, lost_to=to)
        yield logged


def _events_of(
    report: r.Report,
    live: LiveJob,
    record: JobRecord,
    now: int,
    limits: Limits,
    failure: Failure | None,
    terms: RetryTerms | None,
) -> Iterator[LoggedEvent]:
    if isinstance(report, r.Ended):
        return _ended(report, live, record, now, limits, failure, terms)
    if isinstance(report, r.Lost):
        title = _title_of(failure, terms)
        unfit = () if terms is None else devices_of_nodes(terms.space.topology, report.unfit or ())
        return _lost(report, live, record, now, limits, failure, title, unfit)
    topology = None if terms is None else terms.space.topology
    if isinstance(report, r.Progressed):
        return _progressed(report, live, record, now, topology)
    if isinstance(report, r.FilesKept):
        return _files_kept(report, live, topology)
    if isinstance(report, r.Started):
        return _started(report, live, record, now, assumed_speed(record, topology))
    if isinstance(report, r.Thawed):
        return _thawed(report, live, record, now, assumed_speed(record, topology))
    if isinstance(report, r.Reshaped):
        return _reshaped(report, live, record, now, assumed_speed(record, topology))
    return EVENTS[type(report)](report, live, record, now)


def _files_kept(
    said: r.FilesKept, live: LiveJob, topology: Topology | None
) -> Iterator[LoggedEvent]:
    live.history = replace(live.history, not_brought=said.missing)
    known = {} if topology is None else topology.node_by_name
    warm = tuple(known[name].index for name in said.nodes if name in known)
    yield LoggedEvent(e.JobProfiled(live.id, warm=warm))


def _started(
    said: r.Started, live: LiveJob, record: JobRecord, now: int, speed: int
) -> Iterator[LoggedEvent]:
    live.history = replace(
        live.history,
        pids=said.pids,
        before_ms=live.ran_ms(now),
        by_mps=said.by_mps,
        pace=100,
        pace_why="",
        is_pace_heeded=True,
        slow_rank=None,
    )
    then = _moment(said, live, now)
    live.began(then)
    if record.is_prerun:
        prerun_events.note_start(live, said.run.attempt)
    if live.is_catching_up:
        return
    detail = {"pids": list(said.pids), "changed": list(said.changed or ())}
    is_to_use_mps = record.placement is not None and record.placement.sharing is Sharing.MPS
    by_mps = said.by_mps if is_to_use_mps else None
    started = e.RunStarted(said.run, speed, by_mps, at_ms=then, is_assumed=True)
    yield LoggedEvent(started, detail)


def _frozen(said: r.Frozen, live: LiveJob, record: JobRecord, now: int) -> Iterator[LoggedEvent]:
    then = _moment(said, live, now)
    live.paused(then)
    if live.is_catching_up:
        return
    detail: dict[str, object] = {"how": "in memory", **_took(record, then)}
    if said.how != "stop":
        kept = {"host_bytes": said.host_bytes, "gpu_bytes": said.gpu_bytes}
        detail |= {"freezer": said.how, "why": said.why, **kept}
    last = LastFreeze(said.how, said.host_bytes, said.gpu_bytes)
    history = replace(live.history, freezes=live.history.freezes + 1, last_freeze=last)
    live.history = _with_cost(history, said.took_ms)
    event = e.RunSuspended(
        said.run,
        _work_at(record, then),
        frozen=True,
        host_bytes=said.host_bytes,
        gpu_bytes=said.gpu_bytes,
        is_all_on_gpus=said.is_all_on_gpus is not False,
        at_ms=then,
    )
    yield LoggedEvent(event, detail)


def _with_cost(history: JobHistory, took_ms: int | None) -> JobHistory:
    """With what a freeze, a thaw, or a try cost in time."""
    return replace(history, freezing_ms=history.freezing_ms + (took_ms or 0))


def _not_frozen(
    said: r.NotFrozen, live: LiveJob, record: JobRecord, now: int
) -> Iterator[LoggedEvent]:
    if live.is_catching_up:
        return
    live.history = replace(live.history, not_frozen=said.why or "its engine does not say why")
    detail = {"why": said.why, "is_final": said.is_final}
    yield LoggedEvent(e.RunNotFrozen(said.run, said.is_final), detail)


def _thawed(
    said: r.Thawed, live: LiveJob, record: JobRecord, now: int, speed: int
) -> Iterator[LoggedEvent]:
    then = _moment(said, live, now)
    live.began(then)
    if live.is_catching_up:
        return
    live.history = _with_cost(live.history, said.took_ms)
    detail = {} if said.took_ms is None else {"took_s": said.took_ms / SECOND}
    yield LoggedEvent(e.RunResumed(said.run, speed, at_ms=then, is_assumed=True), detail)


def _reshaped(
    said: r.Reshaped, live: LiveJob, record: JobRecord, now: int, speed: int
) -> Iterator[LoggedEvent]:
    then = _moment(said, live, now)
    live.history = replace(_without_hang(live.history), pids=said.pids, slow_rank=None)
    live.began(then)
    if live.is_catching_up:
        return
    detail: dict[str, object] = {"pids": list(said.pids)}
    if said.in_place:
        work = _work_in_place(record, then, said.pause_ms or 0)
        detail |= {"in_place": True, "paused_s": (said.pause_ms or 0) / SECOND}
    else:
        work = _saved_work(live, record)
        detail |= lost_work(record, then, work) | ({"why": said.why} if said.why else {})
    yield LoggedEvent(e.RunResized(said.run, work, speed, at_ms=then, is_assumed=True), detail)


def _work_in_place(record: JobRecord, then: int, pause_ms: int) -> int:
    """It trained on at its old speed from the order to the end of a step; its record stands still since."""
    trained_ms = max(0, then - record.attained_ms - pause_ms)
    return record.work + trained_ms * record.speed_ppm


def _resize_timed(
    said: r.ResizeTimed, live: LiveJob, record: JobRecord, now: int
) -> Iterator[LoggedEvent]:
    times = {name: getattr(said, name) for name in RESIZE_PARTS}
    detail = {name: ms / SECOND for name, ms in times.items() if ms is not None}
    if not live.is_catching_up:
        yield LoggedEvent(e.RunResizeTimed(said.run), detail)


def _replica_lost(
    said: r.ReplicaLost, live: LiveJob, record: JobRecord, now: int
) -> Iterator[LoggedEvent]:
    live.history = replace(live.history, pids=said.pids, slow_rank=None)
    if not live.is_catching_up:
        detail: dict[str, object] = {
            "rank": said.rank,
            "left": len(said.pids),
            "code": said.code,
        }
        detail |= {
            key: text for key, text in (("signal", said.signal), ("tail", said.tail)) if text
        }
        yield LoggedEvent(e.RunReplicaLost(said.run), detail)


def _saved(said: r.Saved, live: LiveJob, record: JobRecord, now: int) -> Iterator[LoggedEvent]:
    if record.is_prerun:
        return
    then = _moment(said, live, now)
    live.history = replace(live.history, saved_at_ms=then)
    live.last_save = said.run, _work_at(record, then)
    late = {"saved_ms": then} if now - then >= LATE_MS else {}
    yield LoggedEvent(e.RunSaved(*live.last_save), {"at_step": said.step, **late})


def _heeds_stops(
    said: r.HeedsStops, live: LiveJob, record: JobRecord, now: int
) -> Iterator[LoggedEvent]:
    yield LoggedEvent(e.RunCanSave(said.run))


def _ranks_limited(
    said: r.RanksLimited, live: LiveJob, record: JobRecord, now: int
) -> Iterator[LoggedEvent]:
    """In GPUs: as many for each rank as there are now."""
    if record.placement is None:
        return
    most = max(1, said.ranks * len(record.placement.slices) // said.world)
    if most != record.most_gpus and (record.most_gpus or most < live.job.demand.max_count):
        yield LoggedEvent(e.RunSizeLimited(said.run, most), {"most_gpus": most})


def _profiled(
    said: r.Profiled, live: LiveJob, record: JobRecord, now: int
) -> Iterator[LoggedEvent]:
    profile = Profile(
        sync_bytes=said.sync_bytes or 0,
        cpu_us=said.cpu_us or 0,
        activation_bytes=said.activation_bytes or 0,
        batch=said.batch or 0,
        per_gpu=True,
    )
    yield LoggedEvent(e.JobProfiled(live.id, profile=profile))


def _paced(said: r.Paced, live: LiveJob, record: JobRecord, now: int) -> Iterator[LoggedEvent]:
    live.history = replace(
        live.history, pace=said.pace, pace_why=said.why, is_pace_heeded=said.is_heeded
    )
    if not live.is_catching_up:
        unheeded = {} if said.is_heeded else {"is_heeded": False}
        detail = {"pace": said.pace, "why": said.why, **unheeded}
        yield LoggedEvent(e.RunPaced(said.run, said.pace), detail)


def _hung(said: r.Hung, live: LiveJob, record: JobRecord, now: int) -> Iterator[LoggedEvent]:
    then = _moment(said, live, now)
    hang = LastHang(
        max(live.job.submit_ms, then - said.silent_ms),
        said.silent_ms,
        said.longest_ms,
        said.is_busy,
        said.stepless_ms,
        said.stacks,
        said.trouble,
        said.run.attempt,
    )
    live.history = replace(live.history, hang=hang)
    if not live.is_catching_up:
        why = " ".join((hang_sentence(said), *said.stacks))
        detail = {"restarts": said.restarts, "stacks": list(said.stacks), "why": why}
        if live.recipe.on_hang is OnHang.RESTART and not said.restarts:
            detail["is_last"] = True
        yield LoggedEvent(e.RunHung(said.run), detail)


def _went_on(said: r.WentOn, live: LiveJob, record: JobRecord, now: int) -> Iterator[LoggedEvent]:
    live.history = _without_hang(live.history)
    if not live.is_catching_up:
        yield LoggedEvent(e.RunWentOn(said.run))


def _straggled(
    said: r.Straggled, live: LiveJob, record: JobRecord, now: int
) -> Iterator[LoggedEvent]:
    is_news = said.rank is not None and said.rank != live.history.slow_rank
    live.history = replace(
        live.history,
        slow_rank=said.rank,
        slow_percent=said.percent or 0,
        slow_own_ms=said.own_ms,
        slow_peers_ms=said.peers_ms,
    )
    if is_news and not live.is_catching_up:
        detail = {
            "rank": said.rank,
            "percent": said.percent,
            "own_ms": said.own_ms,
            "peers_ms": said.peers_ms,
        }
        yield LoggedEvent(e.RunStraggled(said.run), detail)


def _without_hang(history: JobHistory) -> JobHistory:
    """Whatever hung has gone on, or ended."""
    hang = history.hang
    return history if hang is None else replace(history, hang=replace(hang, is_over=True))


def _progressed(
    said: r.Progressed, live: LiveJob, record: JobRecord, now: int, topology: Topology | None
) -> Iterator[LoggedEvent]:
    last = live.history.progress
    known = None if last is None else last.total_steps
    total = said.total_steps or known or live.job.iterations
    is_due = last is None or now - last.at_ms >= SAMPLE_EVERY_MS
    at_ms = now if last is None or is_due else last.at_ms
    progress = Progress(at_ms, said.step, total, said.loss, said.samples_per_s, said.steps_per_s)
    speaks = live.history.has_hello or not said.counted
    live.history = replace(live.history, has_hello=speaks, progress=progress)
    if record.placement is None or record.since_ms is None or record.is_prerun:
        return
    speed = measured_speed(live, record, said, topology)
    if not is_due and not (record.is_speed_assumed and speed is not None):
        return
    then = _moment(said, live, now)
    work = _work_at(record, then)
    if live.history.first_report is None:
        first = FirstReport(said.step, live.ran_ms(then) - live.history.before_ms, work)
        live.history = replace(live.history, first_report=first)
    estimate = estimate_from(record, live.history, work, topology)
    if estimate is not None:
        yield LoggedEvent(e.JobProfiled(live.id, estimate=estimate))
    if speed is not None and (record.is_speed_assumed or is_noticeable(speed, record.speed_ppm)):
        yield LoggedEvent(e.RunSpeedChanged(said.run, record.work_at(now), speed))
    if said.loss is None:
        return
    sample = Sample(
        step=said.step,
        loss_ppm=round(said.loss * NOMINAL),
        gpus=len(record.placement.slices),
        speed_ppm=speed or record.speed_ppm,
        epoch_steps=said.epoch_steps or 1,
        work=work,
    )
    yield LoggedEvent(e.RunProgressed(said.run, sample))


def _ended(
    said: r.Ended,
    live: LiveJob,
    record: JobRecord,
    now: int,
    limits: Limits,
    failure: Failure | None,
    terms: RetryTerms | None,
) -> Iterator[LoggedEvent]:
    silence_ms = max(live.history.longest_silence_ms, said.longest_silence_ms or 0)
    live.history = replace(
        _without_hang(live.history),
        pids=(),
        exit_code=said.code,
        longest_silence_ms=silence_ms,
    )
    live.ended_ms = then = _moment(said, live, now)
    progress = live.history.progress
    live.paused(then)
    ran_ms, job_ran_ms = live.ran_ms(now) - live.history.before_ms, live.ran_ms(now)
    title = _title_of(failure, terms)
    said = _without_hang_words(said, live)
    detail = _end_detail(said, failure) | _taken_not_brought(live)
    if now - then >= LATE_MS:
        detail["ended_ms"] = then
    if record.is_prerun:
        prerun_events.leave(live)
        detail |= {"prerun": True}
    if said.asked is r.StopOrder.KILL:
        yield from _killed(said, live, record, detail, then, now, limits)
    elif said.asked is r.StopOrder.HALT:
        yield _halted(said, live, record, detail, then)
    elif (
        passed := prerun_events.passed_event(
            said, live, record, failure, title, has_stepped=progress is not None
        )
    ) is not None:
        reason = None if passed.failure is None else passed.failure.reason
        shown = None if passed.failure is None else title
        told = {"prerun": True, "reason": reason, "title": shown}
        yield LoggedEvent(replace(passed, at_ms=then), told | prerun_events.doubt(live))
    elif said.code == 0:
        yield LoggedEvent(e.RunSucceeded(said.run, at_ms=then), detail)
    else:
        failed = (*live.history.failed_ms, live.ran_ms(now) - live.history.before_ms)
        live.history = replace(
            live.history, failure=dict(detail), failed_ms=failed, failed_by=failure
        )
        step = None if progress is None else progress.step
        attempt = None
        if failure is not None:
            memory = of_each_device(said, live, record.placement) or 0
            attempt = FailedAttempt(
                failure, ran_ms, step, job_ran_ms=job_ran_ms, host_memory=memory
            )
        detail |= failure_detail(failure, title)
        yield _failed(said, live, record, attempt, detail, then, limits, terms)


def _killed(
    said: r.Ended,
    live: LiveJob,
    record: JobRecord,
    detail: dict[str, object],
    then: int,
    now: int,
    limits: Limits,
) -> Iterator[LoggedEvent]:
    """It was killed: as was asked for, or by somebody who did not know better."""
    if record.phase is Phase.STOPPING:
        yield LoggedEvent(e.RunStopped(said.run, at_ms=then), detail)
    elif was_withdrawn(said, live.is_catching_up):  # without a store, or with one that is gone
        yield LoggedEvent(e.JobWithdrawn(live.id), {}, withdrawal_of(said))
        yield LoggedEvent(e.RunStopped(said.run, at_ms=then), detail)
    else:  # ended as an orphan by a manager that did not know it
        yield _loss_of(live, record, detail, then, now, limits)


def _halted(
    said: r.Ended, live: LiveJob, record: JobRecord, detail: dict[str, object], then: int
) -> LoggedEvent:
    """It was told to end, to go on later from what it has saved."""
    has_saved = said.has_left and said.code == 0  # else a signal that it did not handle
    work = _saved_work(live, record)
    if has_saved:
        unsaved = (said.unsaved_ms or 0) * record.speed_ppm
        work = max(work, _work_at(record, then) - unsaved)
    detail["how"] = "by a checkpoint" if has_saved else "by ending it"
    detail |= lost_work(record, then, work)
    if record.is_prerun:
        work = 0
    shows_saving = not said.unsaved_ms
    left = e.RunSuspended(
        said.run, work, was_killed=said.was_killed, shows_saving=shows_saving, at_ms=then
    )
    return LoggedEvent(left, detail | _took(record, then))


def _failed(
    said: r.Ended,
    live: LiveJob,
    record: JobRecord,
    attempt: FailedAttempt | None,
    detail: dict[str, object],
    then: int,
    limits: Limits,
    terms: RetryTerms | None,
) -> LoggedEvent:
    """It failed by itself. Without `attempt` or `terms`: nobody has classified it."""
    if record.is_prerun:
        detail |= prerun_events.doubt(live)
    saved = _saved_work(live, record)
    if attempt is None or terms is None:
        can_help = said.code not in NOT_TO_BE_TRIED_AGAIN
        event = failed_run(record, limits, can_help=can_help)
    else:
        event = _judged(live, record, attempt, limits, terms)
        detail["retry"] = live.history.retry
    failure = None if attempt is None else attempt.failure
    event = replace(event, work=saved, failure=failure, at_ms=then)
    detail |= lost_work(record, then, saved) | retry_detail(event, record)
    return LoggedEvent(event, detail, end_of(said, failure))


def _judged(
    live: LiveJob,
    record: JobRecord,
    attempt: FailedAttempt,
    limits: Limits,
    terms: RetryTerms,
) -> e.RunFailed:
    """Its failure with what the rules say about a retry; its history remembers both."""
    history = live.history
    found = judged(record, attempt, history.failed_attempts, live.recipe, limits, terms)
    attempts = (*history.failed_attempts, found.attempt)[-MOST_ATTEMPTS:]
    why = retry_sentence(found.decision)
    live.history = replace(history, failed_attempts=attempts, retry=why)
    return found.event


def was_withdrawn(said: r.Ended, otherwise: bool = True) -> bool:
    """Whether a killed run was ended for good; `otherwise`: where an earlier version does not say."""
    return otherwise if said.cancelled is None else said.cancelled


def withdrawal_of(said: r.Ended) -> EndReason:
    """Why it was ended for good."""
    return said.end or EndReason(EndCode.CANCELLED)


def end_of(said: r.Ended, failure: Failure | None = None) -> EndReason:
    """Why a run failed, as it is recorded with its job."""
    name, code = signal_of(said), EndCode.EXIT_CODE
    if name:
        code = EndCode.SIGNAL
    elif said.code in NOT_TO_BE_TRIED_AGAIN and (said.why or _is_never_begun(said, failure)):
        code = EndCode.NOT_STARTED  # a program may use these codes for something else
    return EndReason(code, said.code, signal=name, rank=_first_rank(said, failure), detail=said.why)


def _is_never_begun(said: r.Ended, failure: Failure | None) -> bool:
    """Whether its shell found no command, and at once."""
    is_brief = said.ran_ms is not None and said.ran_ms <= BRIEF_MS
    return is_brief and failure is not None and failure.reason == NOT_FOUND_REASON


def _first_rank(said: r.Ended, failure: Failure | None) -> int | None:
    """The rank that failed first: a launcher within a rank knows more than the engine."""
    return said.rank if failure is None or failure.rank is None else failure.rank


def failure_detail(failure: Failure | None, title: str) -> dict[str, object]:
    """Why it failed, for its story; `title` is that in words."""
    if failure is None:
        return {}
    return {"reason": failure.reason, "title": title, "blame": failure.blame.value}


def _title_of(failure: Failure | None, terms: RetryTerms | None) -> str:
    """Why it failed, in words; empty where there is no table to ask."""
    if failure is None or terms is None:
        return ""
    return failure_words(failure, terms.table.of(failure.reason).title)


def _without_hang_words(said: r.Ended, live: LiveJob) -> r.Ended:
    """Of a run that was ended because it hung: how it hung is in its story, and in its failure."""
    hang = live.history.hang
    is_told = said.hung and hang is not None and hang.attempt == said.run.attempt
    return replace(said, why=HUNG_AND_ENDED) if is_told else said


def _end_detail(said: r.Ended, failure: Failure | None) -> dict[str, object]:
    """Details of an end for the story."""
    detail: dict[str, object] = {"code": said.code}
    rank = _first_rank(said, failure)
    if rank is not None:
        detail["rank"] = rank
    why = said.why
    if failure is not None and failure.reason == MEMORY_TAKEN_REASON:
        why = failure.lines[0].rstrip(".")
    detail |= {key: text for key, text in (("why", why), ("tail", said.tail)) if text}
    if said.was_killed:
        detail["killed"] = "it did not end within its grace period"
    return detail


def _taken_not_brought(live: LiveJob) -> dict[str, str]:
    """What is to be said of its files at the end of a run."""
    why = live.history.not_brought
    live.history = replace(live.history, not_brought="")
    return {"not_brought": why} if why else {}


def _lost(
    said: r.Lost,
    live: LiveJob,
    record: JobRecord,
    now: int,
    limits: Limits,
    failure: Failure | None,
    title: str,
    unfit: tuple[Device, ...] = (),
) -> Iterator[LoggedEvent]:
    live.history = replace(_without_hang(live.history), pids=(), failed_by=failure, retry="")
    then = _moment(said, live, now)
    live.paused(then)
    detail: dict[str, object] = {"why": said.why, **failure_detail(failure, title)}
    detail |= _taken_not_brought(live)
    if record.is_prerun:
        prerun_events.leave(live)
        detail |= {"prerun": True}
    yield _loss_of(live, record, detail, then, now, limits, failure, unfit)


def _loss_of(
    live: LiveJob,
    record: JobRecord,
    detail: dict[str, object],
    then: int,
    now: int,
    limits: Limits,
    failure: Failure | None = None,
    unfit: tuple[Device, ...] = (),
) -> LoggedEvent:
    """The loss of its run: one too many, or with the time of its retry."""
    saved = _saved_work(live, record)
    event = replace(lost_run(record, now, limits, unfit), work=saved, failure=failure, at_ms=then)
    why = str(detail.get("why", ""))
    end = None if event.retryable else lost_too_often(record, now, why)
    return LoggedEvent(
        event, detail | lost_work(record, then, saved) | retry_detail(event, record), end
    )


def _moment(said: r.Report, live: LiveJob, now: int) -> int:
    """When it happened by the engine's clock, kept between submission and now."""
    return min(now, max(said.at_ms, live.job.submit_ms, live.history.since_ms or 0))


def _work_at(record: JobRecord, then: int) -> int:
    """Its work at that moment, which may be before the start that the controller knows of."""
    return record.work_at(max(then, record.since_ms or 0))


def _saved_work(live: LiveJob, record: JobRecord) -> int:
    """Its saved work, with a save that was reported together with the end."""
    run, work = live.last_save or (None, 0)
    return max(record.saved_work, work if run == record.run else 0)


def _took(record: JobRecord, then: int) -> dict[str, object]:
    """How long a suspension took that was ordered to make room."""
    ordered = record.suspend_ordered_ms
    if record.phase is not Phase.SUSPENDING or ordered is None or record.is_moving:
        return {}
    return {"took_s": round(max(0, then - ordered) / SECOND, 3)}


PREEMPTION = "preemption"
SUSPENSION = "suspension"
RESIZE = "resize"


def lost_to(event: e.Event, history: JobHistory) -> str:
    """To what a run lost work, as a `ChargeRow` says it."""
    if isinstance(event, e.RunFailed | e.RunLost):
        return UNKNOWN_REASON if event.failure is None else event.failure.reason
    if isinstance(event, e.RunResized):
        return RESIZE
    suspension = history.suspension
    by_policy = suspension is None or suspension.by == Suspender.POLICY
    return PREEMPTION if by_policy else SUSPENSION


def lost_work(record: JobRecord, then: int, saved: int | None = None) -> dict[str, float]:
    """How long it trained for work that is lost and must be done again; `saved`: what is left of it.

    On four devices a job of one may do four times as much work: people ask for the time that is gone.
    """
    if record.is_prerun or not record.speed_ppm:
        return {}
    left = record.saved_work if saved is None else saved
    lost = round((_work_at(record, then) - left) / record.speed_ppm / SECOND, 3)
    return {"lost_s": lost} if lost > 0 else {}


def _of_part(
    said: r.CanResize | r.ResizeReady | r.NotResized, live: LiveJob, record: JobRecord, now: int
) -> Iterator[LoggedEvent]:
    """It concerns the engine alone."""
    return iter(())


EVENTS: dict[type, Callable[[Any, LiveJob, JobRecord, int], Iterator[LoggedEvent]]] = {
    r.Frozen: _frozen,
    r.NotFrozen: _not_frozen,
    r.ResizeTimed: _resize_timed,
    r.ReplicaLost: _replica_lost,
    r.Saved: _saved,
    r.Profiled: _profiled,
    r.HeedsStops: _heeds_stops,
    r.RanksLimited: _ranks_limited,
    r.Paced: _paced,
    r.Hung: _hung,
    r.WentOn: _went_on,
    r.Straggled: _straggled,
    r.CanResize: _of_part,
    r.ResizeReady: _of_part,
    r.NotResized: _of_part,
}
"""Of a run that goes on."""


def estimate_from(
    record: JobRecord, history: JobHistory, work: int, topology: Topology | None = None
) -> Estimate | None:
    """Its total work: what it has done, and its steps that are left, each as long as those since its first
    report, so that its start-up counts once. None within 10 % of the known one."""
    at, first = history.progress, history.first_report
    if at is None or first is None or not at.total_steps or at.step <= 0:
        return None
    of_each = Fraction(work, at.step)
    if at.step > first.step and work > first.work:
        of_each = Fraction(work - first.work, at.step - first.step)
    elif history.steps_per_s:
        of_each = Fraction(round(SECOND * best_speed(history, topology) / history.steps_per_s))
    in_all = work + round(max(0, at.total_steps - at.step) * of_each)
    known = record.estimate
    if known is not None and abs(known.work - in_all) * 10 < known.work:
        return None
    return Estimate(in_all, Source.STEPS)
