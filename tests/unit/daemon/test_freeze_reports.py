"""Reports of freezes and thaws: what the controller hears, and what a user is told of them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.builders import a_job
from tests.unit.core.stage import Strings
from trainmaster.config.limits import Limits
from trainmaster.daemon.freeze_remarks import freeze_remarks, obstacle_sentence
from trainmaster.daemon.job_events import story_of
from trainmaster.daemon.job_history import JobHistory, LastFreeze
from trainmaster.daemon.live_job import Hold, LiveJob, StoredSubmission
from trainmaster.daemon.report_events import LoggedEvent, events_of
from trainmaster.daemon.stop_recording import record_stop_reasons
from trainmaster.model import actions as a
from trainmaster.model import engine_reports as r
from trainmaster.model import events as e
from trainmaster.model.job import Demand, Run, Shape
from trainmaster.model.launch_spec import LaunchSpec
from trainmaster.model.placement import Sharing
from trainmaster.model.profile import Profile
from trainmaster.model.stop_reasons import Suspender, Suspension
from trainmaster.model.topology import GpuType, NodeSpec, build
from trainmaster.model.units import GIB, MIB, NOMINAL, WHOLE
from trainmaster.text.messages import pace_sentence, story_sentence
from trainmaster.text.stop_messages import suspension_sentence

RUN = Run("a", 1)
FROZEN = r.Frozen(RUN, 1_500, "driver", "No SDK.", 3 * GIB, 4 * MIB, took_ms=1_400)


def on_gpus(host: int = 128 * GIB) -> Strings:
    """`a` runs on the one GPU of a node, and cannot save."""
    specs = [NodeSpec("n0", 1, (0,), GpuType("H200", 40 * GIB), memory=host)]
    topology = build(("cluster", "node", "gpu"), specs)
    return Strings(topology, can_freeze=True, cannot_save_at_first=True).running("a", 0).later(1)


def live(stage: Strings, *holds: Hold) -> LiveJob:
    history = JobHistory(attempt=1, seen=1, suspension=Suspension(Suspender.USER))
    stored = StoredSubmission(LaunchSpec(("true",), "/", ""), a_job("a"))
    return LiveJob(
        a_job("a"), "a", stored, {}, record=stage.job("a"), history=history, holds=set(holds)
    )


def told(report: r.Report, job: LiveJob, now: int = 1_500) -> LoggedEvent:
    (logged,) = events_of(report, job, now, Limits())
    return logged


def test_what_a_frozen_run_keeps_reaches_the_controller_and_the_story() -> None:
    stage = on_gpus()
    stage.plan(a.Suspend("a"))
    job = live(stage)
    logged = told(FROZEN, job)
    assert isinstance(logged.event, e.RunSuspended)
    assert (logged.event.host_bytes, logged.event.gpu_bytes) == (3 * GIB, 4 * MIB)
    assert logged.detail == {
        "how": "in memory",
        "took_s": 0.5,
        "freezer": "driver",
        "why": "No SDK.",
        "host_bytes": 3 * GIB,
        "gpu_bytes": 4 * MIB,
    }
    stage.tell(logged.event)
    thawed = told(r.Thawed(RUN, 1_600, took_ms=600), job)
    assert thawed.detail == {"took_s": 0.6}
    assert freeze_remarks(job.history) == (
        "It was suspended in memory 1 time, the last time by the CUDA driver; freezing and thawing took"
        " 2 s in all. Suspended, it keeps 3.0 GiB of host memory and 4 MiB on its GPUs.",
    )


def test_of_slots_nothing_is_told_beyond_that_it_was_stopped() -> None:
    stage = on_gpus()
    stage.plan(a.Suspend("a"))
    job = live(stage)
    assert told(r.Frozen(RUN, 1_500), job).detail == {"how": "in memory", "took_s": 0.5}
    assert freeze_remarks(job.history) == ()


def after(stage: Strings, job: LiveJob, logged: LoggedEvent) -> str:
    """What the job's story says of this event, when the controller has taken it in."""
    orders = stage.tell(logged.event)
    record_stop_reasons([logged], orders, {"a": job}, stage.state)
    (row,) = story_of([logged], [], (), {"a": job}, stage.topology, stage.now, 1)
    return story_sentence(row.what, json.loads(row.detail_json))


def test_a_run_that_goes_on_is_not_suspended_by_its_owner_any_more() -> None:
    stage = on_gpus()
    stage.tell(e.JobHeld("a"))
    job = live(stage, Hold.OWNER)
    logged = told(r.NotFrozen(RUN, 1_500, "It uses NCCL.", is_final=True), job)
    assert logged.event == e.RunNotFrozen(RUN, is_final=True)
    assert "so it goes on" in after(stage, job, logged)
    assert not job.holds
    assert job.history.suspension is None
    assert obstacle_sentence(stage.state, job, stage.now) == (
        "Its run cannot be suspended in memory: It uses NCCL."
    )


def test_one_whose_owner_insists_stays_suspended_by_him() -> None:
    stage = on_gpus()
    stage.tell(e.JobHeld("a", may_end=True))
    job = live(stage, Hold.OWNER)
    logged = told(r.NotFrozen(RUN, 1_500, "It hung."), job)
    assert "told to save and end" in after(stage, job, logged)
    assert job.holds == {Hold.OWNER}
    assert job.history.suspension is not None


def test_one_whose_gpu_is_taken_meanwhile_goes_on_beside_the_other() -> None:
    """A client of MPS was found there meanwhile, of a store that is gone."""
    stage = on_gpus()
    stage.tell(e.JobHeld("a"))
    job = live(stage, Hold.OWNER)
    half = Demand(Shape(1, WHOLE // 2), 1, 1)
    there = stage.on(0, share=WHOLE // 2, memory=GIB, sharing=Sharing.MPS)
    found = e.RunAdopted(Run("b", 1), there, NOMINAL)
    stage.tell(e.JobSubmitted(a_job("b", half), attempts=1), found)
    logged = told(r.NotFrozen(RUN, 1_500, "It hung."), job)
    assert "so it goes on" in after(stage, job, logged)
    assert not job.holds
    assert job.history.suspension is None
    assert not stage.job("a").is_held


def test_a_gpu_with_more_memory_than_the_host_has_is_said_to_be_the_reason() -> None:
    stage = on_gpus(host=32 * GIB)
    job = live(stage)
    assert obstacle_sentence(stage.state, job, stage.now) == (
        "It cannot be suspended in memory now: that needs 40.0 GiB of host memory, as much as its GPUs"
        " have, because its own use is not measured yet, and 24.0 GiB is free."
    )
    stage.tell(e.JobProfiled("a", profile=Profile(gpu_memory=4 * GIB)))
    assert obstacle_sentence(stage.state, job, stage.now) == ""


def test_reports_from_before_the_run_was_taken_over_say_nothing() -> None:
    job = live(on_gpus())
    job.history = replace(job.history, adopted=1)
    for report in (FROZEN, r.NotFrozen(RUN, 1_500), r.Thawed(RUN, 1_500)):
        assert list(events_of(report, job, 1_500, Limits())) == []
    assert job.history.last_freeze != LastFreeze("driver")


@pytest.mark.parametrize(("said", "is_all"), [(None, True), (True, True), (False, False)])
def test_a_run_with_a_rank_that_has_nothing_on_a_gpu_is_reported_as_such(
    said: bool | None, is_all: bool
) -> None:
    event = told(replace(FROZEN, is_all_on_gpus=said), live(on_gpus())).event
    assert isinstance(event, e.RunSuspended)
    assert event.is_all_on_gpus is is_all


def test_how_far_a_run_is_held_back_is_told_until_it_starts_again() -> None:
    stage = on_gpus()
    job = live(stage)
    logged = told(r.Paced(RUN, 1_500, 12, "A step of job 1 takes 9 % longer."), job)
    assert logged.event == e.RunPaced(RUN, 12)
    assert stage.tell(logged.event) == []
    assert story_sentence("paced", logged.detail) == (
        "Held back to 12 % of its speed: A step of job 1 takes 9 % longer."
    )
    assert pace_sentence(job.history.pace, job.history.pace_why) == (
        "It is held back to 12 % of its speed. A step of job 1 takes 9 % longer."
    )
    logged = told(r.Paced(RUN, 1_550, 0, "It begins.", is_heeded=False), job)
    assert logged.event == e.RunPaced(RUN, 0), "a policy may suspend it all the same"
    assert story_sentence("paced", logged.detail) == (
        "To be held back, but still running at full speed: It begins."
    )
    held = job.history
    assert pace_sentence(held.pace, held.pace_why, is_heeded=held.is_pace_heeded) == (
        "It is to be held back, but still running at full speed. It begins."
    )
    told(r.Started(RUN, 1_600, (7,)), job)
    assert (job.history.pace, job.history.pace_why) == (100, "")


def test_that_a_run_stood_still_is_said_where_it_was_suspended_for_that() -> None:
    stage = on_gpus()
    stage.tell(e.RunPaced(RUN, 0))
    orders = stage.plan(a.Suspend("a"))
    job = live(stage)
    job.history = replace(job.history, suspension=None)
    record_stop_reasons([], orders, {"a": job}, stage.state)
    said = "Suspended because it made no step any more beside a guaranteed job"
    (row,) = story_of([], orders, (), {"a": job}, stage.topology, stage.now, 1)
    assert story_sentence(row.what, json.loads(row.detail_json)) == said
    assert job.history.suspension is not None
    assert suspension_sentence(job.history.suspension) == f"{said}."
    job.history = replace(job.history, suspension=None, is_pace_heeded=False)
    record_stop_reasons([], orders, {"a": job}, stage.state)
    assert job.history.suspension is not None
    assert suspension_sentence(job.history.suspension) == (
        "Suspended because it could not be held back beside a guaranteed job."
    )
