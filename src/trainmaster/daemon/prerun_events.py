"""The end of a pre-run: passed, failed, or unsure, which goes on to all devices as well."""

from __future__ import annotations

from dataclasses import replace

from trainmaster.core.state import JobRecord
from trainmaster.daemon.job_history import Prerun
from trainmaster.daemon.live_job import LiveJob
from trainmaster.engines.local.prerun_end import FOLDER
from trainmaster.failures.prerun_rules import DEVICES, may_need_several, may_want
from trainmaster.model import engine_reports as r
from trainmaster.model import events as e
from trainmaster.model.failure import UNKNOWN_REASON, Failure


def note_start(live: LiveJob, attempt: int) -> None:
    before = live.history.prerun or Prerun()
    attempts = before.attempts + (attempt != before.attempt)
    prerun = replace(before, result="", attempt=attempt, attempts=attempts)
    live.history = replace(live.history, prerun=prerun)


def leave(live: LiveJob) -> None:
    """Its processes have ended: what they did is not the job's run time, nor its progress."""
    history = live.history
    before = history.prerun or Prerun()
    ran_ms = before.ran_ms + history.run_ms - history.before_ms
    live.history = replace(
        history,
        prerun=replace(before, ran_ms=ran_ms),
        run_ms=history.before_ms,
        progress=None,
        samples_per_s=None,
        steps_per_s=None,
    )


def passed_event(
    said: r.Ended,
    live: LiveJob,
    record: JobRecord,
    failure: Failure | None,
    title: str = "",
    *,
    has_stepped: bool,
) -> e.RunPassed | None:
    """The fact that a pre-run is over and the job goes on; None for any other run, and where it failed."""
    if not record.is_prerun:
        return None
    if said.code == 0 or said.asked is r.StopOrder.PRERUN:
        failure = None
    elif failure is None:
        failure = Failure(UNKNOWN_REASON)
    own_folder = f"/{said.run.job}/{said.run.attempt}/{FOLDER}/"
    wants = "" if failure is None else may_want(failure, own_folder)
    is_failed = failure is not None and not wants
    is_sure = failure is None and (said.code == 0 or has_stepped)
    result = "failed" if is_failed else "passed" if is_sure else "unsure"
    before = live.history.prerun or Prerun()
    reason = "" if failure is None else failure.reason
    if failure is not None and is_failed and may_need_several(failure):
        wants = DEVICES
    has_finished = said.code == 0 and said.asked is r.StopOrder.NOTHING
    prerun = replace(before, result=result, reason=reason, title=title, wants=wants)
    prerun = replace(prerun, has_finished=has_finished)
    live.history = replace(live.history, prerun=prerun)
    if is_failed:
        return None
    live.history = replace(live.history, exit_code=None)
    return e.RunPassed(said.run, failure)


def doubt(live: LiveJob) -> dict[str, object]:
    """For its story: what it may have failed for want of, that no step was seen, or that it ended."""
    prerun = live.history.prerun or Prerun()
    is_stepless = prerun.result == "unsure" and not prerun.reason
    stepless: dict[str, object] = {"stepless": True} if is_stepless else {}
    ended: dict[str, object] = {"finished": True} if prerun.has_finished else {}
    return stepless | ended | ({"wants": prerun.wants} if prerun.wants else {})
