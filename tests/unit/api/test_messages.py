"""Every fact about a job can be said in one sentence."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.unit.daemon.test_dependencies import a_live
from trainmaster.api import messages as wording
from trainmaster.daemon.service_api import Forecast, JobStatus
from trainmaster.model.reasons import Reason, Why
from trainmaster.model.units import DAY, HOUR, MINUTE, SECOND
from trainmaster.store.rows import StoryRow

NOW = 1_800_000_000_000

SAID = {
    Why.NOT_ENOUGH_FREE: "It needs 8 GPUs and 5 are free; jobs 3 and 4 hold the others, for 5 min at the"
    " latest.",
    Why.FRAGMENTED: "It needs 8 GPUs together: 5 are free, but at most 3 of them where it may use them"
    " together, for 5 min at the latest.",
    Why.BEHIND_OTHERS: "Jobs 3 and 4 go first, for 5 min at the latest.",
    Why.SHARE_USED_UP: "Its queue already holds its share; the job needs 8 GPUs more and 5 are free, for"
    " 5 min at the latest.",
    Why.RESERVED: "The GPUs that it could use are held for jobs 3 and 4, for 5 min at the latest.",
    Why.WAITING_FOR_RELEASE: "Its GPUs are promised to it; jobs 3 and 4 must leave them first, for 5 min at"
    " the latest.",
    Why.DEADLINE_LEAVES_TIME: "Its deadline is accepted and leaves time: others go first, for 5 min at the"
    " latest.",
    Why.NEVER_FITS: "It needs 8 GPUs, which its queue or this cluster can never give it: ask for"
    " fewer, or for another type.",
}


@pytest.mark.parametrize("why", Why)
def test_every_reason_is_a_sentence(why: Why) -> None:
    reason = Reason(why, 8_000, 5_000, 3_000, ("3", "4"), NOW + 5 * MINUTE)
    assert wording.reason_sentence(reason, NOW) == SAID[why]


def test_numbers_agree_with_their_words() -> None:
    one = Reason(Why.NOT_ENOUGH_FREE, 500, 0, 0, ("7",))
    assert (
        wording.reason_sentence(one, NOW)
        == "It needs 0.5 GPU and 0 are free; job 7 holds the others."
    )
    many = Reason(Why.BEHIND_OTHERS, 1000, 0, 0, tuple("123456"))
    assert wording.reason_sentence(many, NOW) == "Jobs 1, 2, 3, 4 and 2 more go first."
    nobody = Reason(Why.BEHIND_OTHERS, 1000)
    assert wording.reason_sentence(nobody, NOW) == "Other jobs go first."


def test_one_is_not_many() -> None:
    assert [wording.counted(n, "failure") for n in range(3)] == [
        *("0 failures", "1 failure", "2 failures")
    ]


def test_lengths_of_time() -> None:
    said = {
        200: "0.2 s",
        45 * SECOND: "45 s",
        3 * MINUTE: "3 min",
        2 * HOUR: "2 h",
        130 * MINUTE: "2 h 10 min",
        3 * DAY + 4 * HOUR: "3 d 4 h",
    }
    assert {ms: wording.length(ms) for ms in said} == said
    assert wording.when(NOW, NOW) == "now"
    assert wording.when(NOW - MINUTE, NOW) == "1 min ago"


def test_forecasts_end_with_one_stop() -> None:
    assert wording.forecast_sentence(Forecast(None, "it is held."), NOW) == (
        "No start can be foretold: it is held."
    )
    assert (
        wording.forecast_sentence(Forecast(NOW + HOUR, ""), NOW)
        == "It is expected to start in 1 h."
    )


def test_a_story_tells_its_details() -> None:
    detail = {
        "attempt": 2,
        "on": ["n0:0", "n0:1"],
        "took_ms": 1500,
        "at_ms": NOW,
        "tail": "x",
        "n": None,
    }
    row = StoryRow("1", NOW, 1, "started", json.dumps(detail))
    assert wording.story_sentence(row) == (
        "Started (attempt 2, on n0:0 n0:1, took 2 s, at 2027-01-15 08:00:00)"
    )
    failed = StoryRow("1", NOW, 1, "failed", json.dumps({"why": "command not found", "code": 127}))
    assert wording.story_sentence(failed) == "Failed (exit code 127): command not found"
    assert wording.story_sentence(StoryRow("1", NOW, 1, "saved", "no json")) == "Saved"


@pytest.mark.parametrize(
    ("what", "detail", "said"),
    [
        ("suspended", {"how": "in memory", "took_s": 0.5}, "Suspended (in memory, took 0.5 s)"),
        ("lost", {"lost_s": 2.41, "rank": 1}, "Lost (2 s of work lost, rank 1)"),
        ("failed", {"code": 1, "lost_s": 0.0}, "Failed (exit code 1)"),
        ("started", {"pids": [7], "attempt": 1}, "Started (process 7, attempt 1)"),
        ("started", {"pids": [7, 8]}, "Started (processes 7 8)"),
        ("stopped", {"killed": "it did not end"}, "Stopped (killed, as it did not end)"),
        ("submitted", {"name": "bert"}, "Submitted (as bert)"),
    ],
)
def test_details_are_words_and_no_keys(what: str, detail: dict[str, object], said: str) -> None:
    assert wording.story_sentence(StoryRow("1", NOW, 1, what, json.dumps(detail))) == said


def ended(state: str, failure: dict[str, object], *remarks: str) -> JobStatus:
    row = replace(
        a_live("1").row(0),
        state=state,
        exit_code=127,
        finish_ms=NOW,
        record_json=json.dumps({"failure": failure}),
    )
    return JobStatus(
        *(row, 0, 1, 0, 1, 0, 0, 0, 0, 0, (), (), (), None, None),
        *(None, "", remarks),
    )


def test_an_end_says_why() -> None:
    """Once, as a sentence of its own, and with one stop."""
    why = "The command 'x' was not found; check its name."
    sheet = ended("failed", {"code": 127, "why": why})
    assert wording.standing(sheet, NOW + 6_000) == (
        None,
        f"It failed with exit code 127, 6 s ago. {why}",
    )
    late = ended("cancelled", {"why": "it has run for its max_runtime of 2 s"})
    assert wording.ended_because(late) == "It has run for its max_runtime of 2 s."
    assert wording.ended_because(ended("succeeded", {"why": "of an earlier attempt"})) is None
    earlier = ended("cancelled", {"why": "of an earlier attempt", "code": 1})
    assert wording.ended_because(earlier) is None
