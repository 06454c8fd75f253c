"""How a job ended and why, as the manager tells it."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.unit.daemon.test_dependencies import a_live
from trainmaster.api import messages
from trainmaster.api.serializers import job_row
from trainmaster.daemon.job_history import JobHistory, Prerun
from trainmaster.daemon.service_api import JobStatus

NOW = 1_800_000_000_000


def test_a_detail_that_cannot_be_read_is_empty() -> None:
    assert messages.details("no json") == {}


def ended(state: str, failure: dict[str, object], *remarks: str) -> JobStatus:
    row = replace(
        a_live("1").row(0),
        state=state,
        exit_code=127,
        finish_ms=NOW,
        record_json=json.dumps({"failure": failure}),
    )
    return JobStatus(row, JobHistory.from_json(row.record_json), 0, remarks=remarks)


def test_an_end_within_this_second_was_just_now() -> None:
    said = messages.status_sentence(ended("timed_out", {}), NOW + 400)[1]
    assert said.startswith("It timed out, just now.")


def test_an_end_says_why() -> None:
    """Once, as a sentence of its own, and with one stop."""
    why = "The command 'x' was not found; check its name."
    sheet = ended("failed", {"code": 127, "why": why})
    assert messages.status_sentence(sheet, NOW + 6_000) == (
        "ExitCode",
        f"It failed with exit code 127, 6 s ago. {why}",
    )
    assert messages.ended_because(ended("succeeded", {"why": "of an earlier attempt"})) == ""
    earlier = ended("cancelled", {"why": "of an earlier attempt", "code": 1})
    assert messages.ended_because(earlier) == ""


def test_a_time_limit_of_an_older_version_is_told_as_one() -> None:
    late = ended("timed_out", {"why": "it has run for its max_runtime of 2 s"})
    assert messages.ended_because(late) == "It has run for its time limit."
    assert messages.status_sentence(late, NOW + 6_000)[0] == "TimeLimit"


def test_a_failed_pre_run_is_told_as_one() -> None:
    """By `explain`, and at the end of `run`; what may help only where it may."""
    failed = ended("failed", {"code": 1})
    tried = Prerun(result="failed", ran_ms=2_000, reason="import-error")
    status = replace(failed, history=replace(failed.history, prerun=tried))
    told = "It failed in its pre-run on one device, after 2 s."
    assert messages.status_sentence(status, NOW + 6_000)[1].endswith(f" {told}")
    assert job_row(status, NOW).end_sentence.endswith(f" {told}")
    history = replace(failed.history, prerun=replace(tried, wants="devices"))
    said = messages.status_sentence(replace(failed, history=history), NOW)[1]
    assert said.endswith("says `preflight: false`, or `run --no-preflight`.")


def test_a_pre_run_without_its_checkpoints_is_told_as_one() -> None:
    failed = ended("succeeded", {})
    tried = Prerun(
        result="unsure", reason="missing-file", title="no such file", wants="checkpoints"
    )
    found = messages.prerun(replace(failed, history=replace(failed.history, prerun=tried)))
    assert found is not None
    assert found.sentence.endswith("(no such file), perhaps for want of its checkpoints.")
