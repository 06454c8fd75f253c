"""Every fact about a job can be said in one sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainmaster.model.deadline_notices import DeadlineNotice, DeadlineOutcome, Decline
from trainmaster.model.placement import Sharing
from trainmaster.model.quota import Period
from trainmaster.model.reasons import (
    HostShortage,
    HostUse,
    PartShortage,
    Prerequisite,
    Protection,
    QueueStanding,
    QuotaUse,
    Reason,
    Why,
)
from trainmaster.model.units import DAY, GIB, HOUR, MIB, MINUTE, SECOND
from trainmaster.text.deadlines import deadline_sentence, past_deadline_sentence
from trainmaster.text.formatting import length, plural, when
from trainmaster.text.messages import forecast_sentence, story_sentence
from trainmaster.text.reasons import SAYS_UNTIL, reason_sentence

NOW = 1_800_000_000_000

SAID = {
    Why.NOT_ENOUGH_FREE: "It needs 8 GPUs and 5 are free; jobs 3 and 4 hold the others; its queue nlp is"
    " guaranteed 3 GPUs and holds 2",
    Why.FRAGMENTED: "It needs 8 GPUs: 5 are free, but so far apart that it would be slowed down; it waits for"
    " a better place",
    Why.HOST_TAKEN: "It needs 14 GiB of host memory and 9.5 GiB is free; job 3, suspended in"
    " memory, keeps 14 GiB of host memory; job 4 holds 512 MiB of host memory",
    Why.STOPPED_ON_NODE: "Its processes are stopped in memory on TypeError and can go on only there; jobs 3"
    " and 4 hold the GPUs there",
    Why.BEHIND_OTHERS: "Jobs 3 and 4 go first",
    Why.SHARE_USED_UP: "Its queue nlp holds 2 GPUs (jobs 3 and 4), and its share is 4 GPUs; the job"
    " needs 8 GPUs more and 5 are free",
    Why.USER_GPU_LIMIT: "ada uses 6 of 8 GPUs that one user may have in queue nlp (jobs 3 and 4); the job"
    " needs 8 GPUs more",
    Why.USER_RUNNING_LIMIT: "ada runs 6,000 of 8,000 jobs that one user may run in queue nlp (jobs 3 and 4)",
    Why.BUDGET_USED_UP: "The budget of queue nlp, 2.222e-06 GPU-hours per week, is used up; it is renewed on"
    " 2027-01-15 08:05:00 UTC",
    Why.RESERVED: "The GPUs that it could use are held for jobs 3 and 4",
    Why.WAITING_FOR_RELEASE: "Its GPUs are reserved for it; jobs 3 and 4 must release them first",
    Why.DEADLINE_LEAVES_TIME: "Its deadline leaves enough time, so other jobs go first",
    Why.NEVER_FITS: "It needs 8 GPUs, which this cluster can never give it: ask for fewer, or for"
    " another type",
    Why.DEPENDENCY: "It starts after job 7 (prep) and array 60 (sweep: 100 jobs, 37 left) have"
    " succeeded and job 8 (try) has failed",
    Why.ARRAY_LIMIT: "Its array runs at most 2 jobs at once, and jobs 3 and 4 are before it",
    Why.HELD: "Held by ada: `trainmaster resume` lets it start",
    Why.SUSPENDED_BY_USER: "Suspended by ada: `trainmaster resume` lets it continue",
    Why.OVER_GPU_MEMORY: "It used more GPU memory than it had booked, and starts again with more",
    Why.GPU_MEMORY_TAKEN: "It needs 13.0 GiB of the memory of a GPU, and at most 8.0 GiB is free on one"
    " that has room for it",
    Why.SHARED_OTHERWISE: "It shares GPUs by MPS, and those that have room for it are shared by"
    " time-slicing",
    Why.NOT_MEASURED: "It can start beside jobs 3 and 4 once the GPU use of those jobs has been measured",
    Why.GPU_BUSY: "It runs on what others leave idle of their GPUs, and jobs 3 and 4 leave too little",
    Why.SUSPENDED_IDLE: "Suspended because it was idle: `trainmaster resume`, or `shell` for a session,"
    " lets it continue",
    Why.PRERUN: "It starts when the pre-run of jobs 3 and 4 is over, which have the same program",
    Why.RETRY_DELAY: "Its last run did not succeed, and it is tried again after a pause",
    Why.INPUT_BLOCKED: "Its input TypeError is set aside, because other jobs failed on it: it is used"
    " again when it has changed, or after `trainmaster inputs unblock TypeError`",
    Why.MAINTENANCE: "Devices that it could use are kept free",
    Why.RESERVATION: "Devices that it could use are kept free",
    Why.AVOIDS_DEVICES: "It failed on TypeError, which it could have again, and waits for other devices",
    Why.FASTER_TYPE: "It waits for TypeError, expected to be free at 2027-01-15 08:05:00 UTC: it ends sooner"
    " there than on the slower devices that are free",
    Why.NEXT_PASS: "There is room for it: it waits for the next scheduling pass",
    Why.POLICY_FAILED: "The scheduling policy fails, so nothing is started: TypeError",
}
USED = (HostUse("3", 14 * GIB, is_frozen=True), HostUse("4", 512 * MIB))
AFTER = (
    Prerequisite("7", "prep", "ok"),
    Prerequisite("60", "sweep", "ok", 100, 37),
    Prerequisite("8", "try", "fail"),
)


def test_gpus_that_are_not_together_are_counted() -> None:
    reason = Reason(Why.FRAGMENTED, 8_000, 5_000, 3_000)
    assert reason_sentence(reason, NOW) == (
        "It needs 8 GPUs together: 5 are free, but at most 3 of them where it may use them together."
    )


def test_drained_nodes_and_a_policy_that_never_preempts_are_named() -> None:
    reason = Reason(Why.NOT_ENOUGH_FREE, 2_000, drained=3_000)
    assert reason_sentence(reason, NOW) == (
        "It needs 2 GPUs and none are free, 3 are on drained nodes."
    )
    reason = Reason(Why.NOT_ENOUGH_FREE, 2_000, away=4_000)
    assert reason_sentence(reason, NOW) == (
        "It needs 2 GPUs and none are free, 4 are on nodes that are away."
    )
    reason = Reason(Why.NOT_ENOUGH_FREE, 2_000, held_by=("3",), never_preempts="fifo")
    assert reason_sentence(reason, NOW) == (
        "It needs 2 GPUs and none are free; job 3 holds them; the policy fifo never preempts a"
        " running job."
    )


def test_what_has_to_be_measured_before_a_job_may_share_a_gpu_is_said() -> None:
    waits = Reason(Why.NOT_ENOUGH_FREE, 1_000, held_by=("3",))
    assert reason_sentence(replace(waits, is_unmeasured=True), NOW) == (
        "It needs 1 GPU and none are free; job 3 holds them; it has a GPU for itself until its GPU use has"
        " been measured, and may share one then."
    )
    assert reason_sentence(replace(waits, unmeasured=("3",)), NOW) == (
        "It needs 1 GPU and none are free; job 3 holds them; it may share a GPU with job 3 once the GPU use"
        " of that job has been measured."
    )


def test_less_than_one_cpu_is_several() -> None:
    host = HostShortage(False, 2_000, 1, 800, ())
    said = reason_sentence(Reason(Why.HOST_TAKEN, 1_000, 1_000, host=host), NOW)
    assert said == "It needs 2 CPUs and 0.8 CPUs are free."


def test_what_a_gang_lacks_is_said_for_each_of_its_gpus() -> None:
    host = HostShortage(False, 4_000, 2, 3_000, (HostUse("4", 1_000),))
    assert reason_sentence(Reason(Why.HOST_TAKEN, 2_000, 2_000, host=host), NOW) == (
        "It needs 4 CPUs for each of its 2 GPUs and on a node with free GPUs at most 3 CPUs are free;"
        " job 4 holds 1 CPU."
    )


def test_a_cluster_that_has_become_too_small_and_a_drained_node_are_named() -> None:
    assert reason_sentence(Reason(Why.NEVER_FITS, 3_000, total=2_000), NOW) == (
        "It needs 3 GPUs and this cluster has only 2 that it may use, so it cannot run here."
    )
    assert reason_sentence(Reason(Why.STOPPED_ON_NODE, 1_000, drained=1_000, detail="n0"), NOW) == (
        "Its processes are stopped in memory on n0, which is drained, and can go on only there, after"
        " `trainmaster node undrain`."
    )
    held = Reason(Why.SUSPENDED_BY_USER, 1_000, by="ada", drained=1_000, detail="n0")
    assert reason_sentence(held, NOW) == (
        "Suspended by ada, in memory on n0, which is drained: it continues only there, after"
        " `trainmaster node undrain` and `trainmaster resume`."
    )


@pytest.mark.parametrize("why", Why)
def test_every_reason_is_a_sentence(why: Why) -> None:
    until = NOW + 5 * MINUTE
    reason = Reason(
        *(why, 8_000, 5_000, 3_000, ("3", "4"), until),
        after=AFTER,
        limit=2,
        by="ada",
        queue=QueueStanding("nlp", 2_000, 4_000, 3_000),
        host=HostShortage(True, 14 * GIB, 1, 19 * GIB // 2, USED),
        detail="TypeError",
        part=PartShortage(13 * GIB, 8 * GIB, Sharing.MPS, Sharing.TIME),
        quota=QuotaUse("nlp", "ada", 6_000, 8_000, Period.WEEK),
    )
    says_until = why in SAYS_UNTIL
    assert reason_sentence(reason, NOW) == (
        f"{SAID[why]}." if says_until else f"{SAID[why]} (at most 5 min more)."
    )
    if why is Why.FRAGMENTED:  # without a time it has another sentence
        return
    said = reason_sentence(replace(reason, until_ms=None), NOW)
    at = "2027-01-15 08:05:00 UTC"
    without = {f"it is renewed on {at}": "it is not renewed", f", expected to be free at {at}": ""}
    expected = SAID[why]
    for words, other in without.items():
        expected = expected.replace(words, other)
    assert said == f"{expected}."


def test_the_rule_that_keeps_a_job_in_the_way_is_named() -> None:
    waits = Reason(Why.NOT_ENOUGH_FREE, 1_000, held_by=("7",))
    soon = replace(waits, protections=(Protection("7", "min_run_s", NOW + 19 * SECOND),))
    assert reason_sentence(soon, NOW) == (
        "It needs 1 GPU and none are free; job 7 holds them; job 7 may be suspended in 19 s at"
        " the earliest (min_run_s)."
    )
    never = replace(waits, protections=(Protection("7", "preemptible: false"),))
    assert "job 7 may not be suspended (preemptible: false)." in reason_sentence(never, NOW)


def test_a_queues_maximum_is_named() -> None:
    queue = QueueStanding("nlp", 2_000, 4_000, maximum=2_000)
    full = Reason(Why.SHARE_USED_UP, 1_000, held_by=("7",), queue=queue)
    assert reason_sentence(full, NOW) == (
        "Its queue nlp may hold 2 GPUs at most and holds 2 GPUs (job 7); the job needs 1 GPU more."
    )
    never = Reason(Why.NEVER_FITS, 4_000, queue=queue)
    assert "its queue nlp may hold 2 GPUs at most, so it can never run" in (
        reason_sentence(never, NOW)
    )


def test_numbers_agree_with_their_words() -> None:
    one = Reason(Why.NOT_ENOUGH_FREE, 500, 0, 0, ("7",))
    assert reason_sentence(one, NOW) == "It needs 0.5 GPU and none are free; job 7 holds them."
    many = Reason(Why.BEHIND_OTHERS, 1000, 0, 0, tuple("123456"))
    assert reason_sentence(many, NOW) == "Jobs 1, 2, 3, 4 and 2 more go first."
    nobody = Reason(Why.BEHIND_OTHERS, 1000)
    assert reason_sentence(nobody, NOW) == "Other jobs go first."


def test_one_is_not_many() -> None:
    assert [plural(n, "failure") for n in range(3)] == [*("0 failures", "1 failure", "2 failures")]


def test_lengths_of_time() -> None:
    said = {
        200: "0.2 s",
        45 * SECOND: "45 s",
        3 * MINUTE: "3 min",
        2 * HOUR: "2 h",
        130 * MINUTE: "2 h 10 min",
        3 * DAY + 4 * HOUR: "3 d 4 h",
    }
    assert {ms: length(ms) for ms in said} == said
    assert when(NOW, NOW) == "now"
    assert when(NOW - MINUTE, NOW) == "1 min ago"

    assert when(NOW + HOUR - 2 * SECOND, NOW) == "in 1 h"
    assert when(NOW - 59_600, NOW) == "1 min ago"
    assert when(NOW + DAY - 1, NOW) == "in 1 d"


def test_a_deadline_is_worded_when_it_is_read() -> None:
    met = DeadlineNotice("1", DeadlineOutcome.ACCEPTED, NOW + HOUR, NOW + 30 * MINUTE)
    late = replace(met, what=DeadlineOutcome.SLIPPED, finish_ms=NOW + 2 * HOUR)
    why = Decline.NO_ESTIMATE
    declined = replace(met, what=DeadlineOutcome.DECLINED, finish_ms=None, why=why)
    said = {
        (
            met,
            2,
        ): "Its deadline (in 1 h) is expected to be met: it should end in 30 min at the latest.",
        (
            met,
            600,
        ): "Its deadline (in 50 min) is expected to be met: it should end in 20 min at the latest.",
        (met, 3660): "Its deadline passed 1 min ago.",
        (
            late,
            600,
        ): "Its deadline (in 50 min) is expected to be missed: it should end in 1 h 50 min.",
        (late, 3660): "Its deadline passed 1 min ago; it should end in 59 min.",
        (declined, 2): "Its deadline (in 1 h) was declined: it is not known how long the job runs"
        " (`max_runtime` would bound it). The job runs anyway.",
        (declined, 3660): "Its deadline, which was declined, passed 1 min ago.",
    }
    found = {(each, at_s): deadline_sentence(each, NOW + at_s * SECOND) for each, at_s in said}
    assert found == said
    assert past_deadline_sentence(NOW, NOW - HOUR) == "It ended 1 h before its deadline."
    assert past_deadline_sentence(NOW, NOW + HOUR) == "It ended 1 h after its deadline."
    assert past_deadline_sentence(NOW, NOW - 3) == "It ended just in time for its deadline."
    assert past_deadline_sentence(NOW, NOW + 3) == "It ended just after its deadline."


def test_forecasts_end_with_one_stop() -> None:
    assert forecast_sentence(None, "it is held.", NOW) == ("No start can be predicted: it is held.")
    assert forecast_sentence(NOW + HOUR, "", NOW) == "It is expected to start in 1 h."


def test_a_story_tells_its_details() -> None:
    detail = {
        "attempt": 2,
        "on": ["n0:0", "n0:1"],
        "took_ms": 1500,
        "at_ms": NOW,
        "tail": "x",
        "n": None,
    }
    assert story_sentence("started", detail) == (
        "Started (attempt 2, on n0:0 n0:1, took 2 s, at 2027-01-15 08:00:00 UTC)"
    )
    failed = {"why": "command not found", "code": 127}
    assert story_sentence("failed", failed) == "Failed (exit code 127): command not found"
    assert story_sentence("saved", {}) == "Saved"


@pytest.mark.parametrize(
    ("what", "detail", "said"),
    [
        ("suspended", {"how": "in memory", "took_s": 0.5}, "Stopped in memory (took 0.5 s)"),
        (
            "suspended",
            {"how": "by ending it", "lost_s": 60},
            "Stopped without saving (1 min of work lost)",
        ),
        ("suspended", {"how": "by a checkpoint"}, "Saved and stopped"),
        (
            "suspended",
            {
                "how": "in memory",
                "took_s": 5,
                "freezer": "driver",
                "why": "Its program does not use the SDK.",
                "host_bytes": 10 * GIB,
                "gpu_bytes": 4 * MIB,
            },
            "Stopped in memory by the CUDA driver (took 5 s, 10.0 GiB moved to host memory, 4 MiB left"
            " on its GPUs): Its program does not use the SDK.",
        ),
        (
            "suspended",
            {"how": "in memory", "freezer": "cooperative", "host_bytes": GIB},
            "Stopped in memory by its own program (1.0 GiB moved to host memory)",
        ),
        (
            "started",
            {"pids": [7], "shared_by": "MPS", "attempt": 1},
            "Started (process 7, sharing its GPU by MPS, attempt 1)",
        ),
        (
            "sharing changed",
            {"on": ["vm:0"], "beside": ["2 (train.py)"], "shared_by": "time-slicing"},
            "Sharing vm:0 with job 2 (train.py) by time-slicing, without a restart",
        ),
        (
            "not frozen",
            {"why": "It uses NCCL.", "goes_on": True, "is_final": True, "attempt": 1},
            "Could not be stopped in memory, so it goes on, and this is not tried again while it runs:"
            " It uses NCCL.",
        ),
        (
            "not frozen",
            {"why": "The lock timed out.", "goes_on": False, "is_final": False},
            "Could not be stopped in memory, so it is told to save and end: The lock timed out.",
        ),
        ("resumed", {"took_s": 2, "attempt": 1}, "Running again (took 2 s)"),
        ("freeze ordered", {"for": ["12 (bert)"]}, "Suspended to make room for job 12 (bert)"),
        (
            "halt ordered",
            {"for": ["3 (a)", "4 (b)"]},
            "Suspended to make room for jobs 3 (a) and 4 (b)",
        ),
        ("halt ordered", {"for": []}, "Suspended to make room for other jobs"),
        ("freeze ordered", {"because": "made no step"}, "Suspended because it made no step"),
        ("halt ordered", {"attempt": 1}, "Suspending"),
        ("halt ordered", {"frozen": True}, "Ending its processes, which were stopped in memory"),
        ("halt ordered", {"to": ["n1:0"]}, "Stopping to move to n1:0"),
        ("held", {"by": "ada", "has_run": True}, "Suspended by ada"),
        ("held", {"by": "ada", "has_run": False}, "Held by ada"),
        ("held", {"idle": True, "has_run": True}, "Suspended because it was idle"),
        ("held", {"by": "its owner"}, "Suspended by its owner"),
        ("released", {"hold": "owner", "by": "ada"}, "Resumed by ada"),
        ("released", {"hold": "array"}, "Free to start: its array has a free place"),
        ("released", {}, "Free to start"),
        ("withdrawn", {"by": "ada"}, "Cancelled by ada"),
        ("withdrawn", {"end": "TimeLimit", "why": "It ran for 2 s."}, "Timed out: It ran for 2 s."),
        ("withdrawn", {"end": "Dependency", "why": "Job 7 failed."}, "Cancelled: Job 7 failed."),
        ("launch ordered", {"attempt": 1, "on": ["vm:0"]}, "Starting on vm:0 (attempt 1)"),
        ("thaw ordered", {"attempt": 1, "on": ["vm:1"]}, "Resuming on vm:1"),
        ("resumed", {"attempt": 1}, "Running again"),
        ("end ordered", {"attempt": 1}, "Stopping"),
        (
            "submitted",
            {"name": "a", "held_for": ["dependency"]},
            "Submitted as a, to start after other jobs",
        ),
        ("lost", {"lost_s": 2.41, "rank": 1}, "Lost (2 s of work lost, rank 1)"),
        (
            "lost",
            {
                "why": "Node n1 is gone.",
                "reason": "x",
                "title": "lost",
                "blame": "platform",
                "lost_s": 61,
            },
            "Lost (1 min of work lost): Node n1 is gone.",
        ),
        (
            "saved",
            {"at_step": 50, "saved_ms": NOW},
            "Saved (at step 50, at 2027-01-15 08:00:00 UTC, noticed later)",
        ),
        ("failed", {"code": 1, "lost_s": 0.2}, "Failed (exit code 1)"),
        (
            "failed",
            {"code": 1, "ended_ms": 1_794_870_275_000},
            "Failed (exit code 1, ended at 2026-11-16 23:04:35 UTC, noticed later)",
        ),
        (
            "released",
            {"hold": "input", "input": "/data/a", "because": "it has changed"},
            "Free to start: its input /data/a is used again, because it has changed",
        ),
        ("released", {"hold": "input"}, "Free to start: its input is used again"),
        ("started", {"pids": [7], "attempt": 1}, "Started (process 7, attempt 1)"),
        ("started", {"pids": [7, 8]}, "Started (processes 7 8)"),
        ("stopped", {"killed": "it did not end"}, "Stopped (killed, as it did not end)"),
        ("submitted", {"name": "bert"}, "Submitted as bert"),
    ],
)
def test_details_are_words_and_not_keys(what: str, detail: dict[str, object], said: str) -> None:
    assert story_sentence(what, detail) == said
