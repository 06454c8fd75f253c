"""Reports of runs that hang: what is stored, and what a user is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.daemon.test_freeze_reports import live, on_gpus, told
from trainmaster.api.messages import status_sentence
from trainmaster.api.serializers import failure_row, hang_row
from trainmaster.config.limits import Limits
from trainmaster.daemon.failure_evidence import FailureReader
from trainmaster.daemon.failure_table import built_in_table
from trainmaster.daemon.hang_remarks import hang_notes, hang_remarks
from trainmaster.daemon.job_history import JobHistory
from trainmaster.daemon.live_job import LiveJob
from trainmaster.daemon.report_events import events_of
from trainmaster.daemon.service_api import JobStatus
from trainmaster.engines.local.run_follower import report_of
from trainmaster.failures.retry_rules import FailedAttempt
from trainmaster.model import engine_reports as r
from trainmaster.model import events as e
from trainmaster.model.failure import Failure, RetryRule
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import OnHang
from trainmaster.text.messages import story_sentence

RUN = Run("a", 1)
HUNG = built_in_table().of("hung")
NOW = 800_000
WHY = "No step for 12 min where its longest was 40 s, no output for 12 min, and its device is idle."
STACKS = ("Rank 0 waits in all_reduce (train.py:41).", "Rank 1 waits in main (train.py:27).")
ENTRY = {
    "n": 7,
    "what": "hung",
    "at_ms": NOW,
    "silent_ms": 720_000,
    "stepless_ms": 720_000,
    "longest_ms": 40_000,
    "is_busy": False,
    "stacks": [*STACKS],
    "trouble": "",
    "restarts": True,
}


@pytest.fixture
def job() -> LiveJob:
    return live(on_gpus())


def hung() -> r.Hung:
    found = report_of(RUN, ENTRY)
    assert isinstance(found, r.Hung)
    return found


def status(job: LiveJob) -> JobStatus:
    history = replace(job.history, suspension=None)
    return JobStatus(job.row(NOW), history, 0, devices=("n0:0",))


@pytest.mark.parametrize(
    ("rule", "before", "done"),
    [
        (RetryRule.ALWAYS, "hung", OnHang.RESTART),
        (RetryRule.ELSEWHERE, "hung", OnHang.RESTART),
        (RetryRule.ONCE, "disk-full", OnHang.RESTART),
        (RetryRule.ONCE, "hung", OnHang.REPORT),
        (RetryRule.NEVER, "disk-full", OnHang.REPORT),
    ],
)
def test_the_rule_of_the_table_for_hung_runs_is_asked_before_one_is_ended(
    job: LiveJob, rule: RetryRule, before: str, done: OnHang
) -> None:
    job.stored = replace(job.stored, recipe=replace(job.recipe, on_hang=OnHang.RESTART))
    job.job = replace(job.job, retries=5)
    failed = FailedAttempt(Failure(before), ran_ms=1_000)
    job.history = replace(job.history, failed_attempts=(failed,))
    assert job.recipe_now(NOW, 1_000, replace(HUNG, retry=rule)).on_hang is done


@pytest.mark.parametrize(
    ("retries", "failures", "done"),
    [
        *((0, 0, OnHang.REPORT), (1, 0, OnHang.RESTART), (1, 1, OnHang.REPORT)),
        *((2, 1, OnHang.RESTART), (2, 2, OnHang.REPORT)),
    ],
)
def test_a_run_is_only_ended_for_a_hang_where_it_would_be_tried_again(
    job: LiveJob, retries: int, failures: int, done: OnHang
) -> None:
    job.stored = replace(job.stored, recipe=replace(job.recipe, on_hang=OnHang.RESTART))
    job.job = replace(job.job, retries=retries)
    assert job.record is not None
    job.record.failures = failures
    assert job.recipe_now(NOW, 1_000, HUNG).on_hang is done
    assert job.recipe.on_hang is OnHang.RESTART
    said = story_sentence("hung", told(replace(hung(), restarts=False), job, NOW).detail)
    assert said.startswith(
        "Hangs, but is not ended, because it would not be tried again: No step for "
    )


def test_a_hang_is_shown_with_why_since_when_and_where(job: LiveJob) -> None:
    logged = told(hung(), job, NOW)
    assert logged.event == e.RunHung(RUN)
    assert story_sentence("hung", logged.detail) == (
        f"Hangs, so it is ended to be started again: {WHY} {' '.join(STACKS)}"
    )
    row = hang_row(status(job), NOW)
    assert row is not None
    assert (row.since_s, row.sentence, tuple(row.stacks)) == (80.0, WHY, STACKS)
    code, said = status_sentence(status(job), NOW + 60_000)
    later = WHY.replace("12 min", "13 min")
    assert code == "Hung"
    assert said == (
        "It is running on n0:0, and hangs: its last sign of life was 13 min ago."
        f" {later} {' '.join(STACKS)}"
    )
    assert hang_notes([job]) == ["Job a (a) hangs: `trainmaster explain a` says where."]
    assert hang_remarks(job.history.hang, RUN) == (
        "All of its stacks: `trainmaster logs a --stacks`.",
    )
    assert JobHistory.from_json(job.history.to_json()).hang == job.history.hang


def test_one_that_goes_on_did_not_hang(job: LiveJob) -> None:
    told(hung(), job, NOW)
    went_on = report_of(RUN, {"n": 8, "what": "went on", "at_ms": NOW + 1})
    assert went_on is not None
    assert told(went_on, job, NOW + 1).event == e.RunWentOn(RUN)
    assert hang_row(status(job), NOW) is None
    assert hang_notes([job]) == []
    assert hang_remarks(job.history.hang, RUN) == ()


def test_one_that_was_ended_for_it_has_failed_and_tells_so_while_it_runs_again(
    job: LiveJob,
) -> None:
    told(hung(), job, NOW)
    ended = r.Ended(
        RUN, NOW, 143, why=f"It hung and was ended. {WHY}", hung=True, longest_silence_ms=40_000
    )
    failure = FailureReader(None).failure(ended)
    assert failure.lines == (f"It hung and was ended. {WHY}",)
    (logged,) = events_of(ended, job, NOW, Limits(), failure)
    assert logged.detail["why"] == "It hung and was ended.", "how is in the story already"
    assert logged.cause is not None
    assert logged.cause.detail == "It hung and was ended."
    assert isinstance(logged.event, e.RunFailed)
    assert logged.event.retryable
    assert job.recipe_now(NOW, 1_000, HUNG).longest_silence_ms == 40_000
    assert failure.reason == "hung"
    assert hang_notes([job]) == []
    assert hang_remarks(job.history.hang, Run("a", 2)) == (
        f"Attempt 1 hung and was ended: {WHY} {' '.join(STACKS)}"
        " All of its stacks: `trainmaster logs a --stacks`.",
    )
    assert hang_remarks(job.history.hang, Run("a", 2), failure) == (
        "Attempt 1 hung and was ended. All of its stacks: `trainmaster logs a --stacks`.",
    )


def test_that_stacks_could_not_be_taken_is_said_of_the_failure(job: LiveJob) -> None:
    told(replace(hung(), trouble="py-spy is not installed"), job, NOW)
    ended = r.Ended(RUN, NOW, 143, why=f"It hung and was ended. {WHY}", hung=True)
    failure = FailureReader(None).failure(ended)
    [*events_of(ended, job, NOW, Limits(), failure)]
    row = failure_row(replace(status(job), failure_reason=built_in_table().of("hung")))
    assert row is not None
    assert row.lines == [
        f"It hung and was ended. {WHY}",
        "No Python stacks of some processes: py-spy is not installed.",
    ]


def test_an_end_that_is_noticed_late_has_its_own_time_in_the_story(job: LiveJob) -> None:
    ended = r.Ended(RUN, NOW, 1)
    (late,) = events_of(ended, job, NOW + 12_000, Limits())
    assert late.detail["ended_ms"] == NOW


def test_an_end_that_is_noticed_at_once_has_the_time_of_its_story(job: LiveJob) -> None:
    (soon,) = events_of(r.Ended(RUN, NOW, 1), job, NOW + 1_000, Limits())
    assert "ended_ms" not in soon.detail
