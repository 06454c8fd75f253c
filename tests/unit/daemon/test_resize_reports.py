"""Reports of resizes: in place no work is lost, and the speed at the new size is what is measured there."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.builders import a_job
from tests.unit.core.stage import Strings
from tests.unit.daemon.test_freeze_reports import live
from trainmaster.config.limits import Limits
from trainmaster.daemon.job_events import story_of
from trainmaster.daemon.job_history import JobHistory
from trainmaster.daemon.live_job import LiveJob
from trainmaster.daemon.report_events import LoggedEvent, events_of
from trainmaster.daemon.resize_recording import note_sizes
from trainmaster.model import actions as a
from trainmaster.model import engine_reports as r
from trainmaster.model import events as e
from trainmaster.model.job import Run, gpus
from trainmaster.model.units import NOMINAL, SECOND
from trainmaster.text.messages import story_sentence

RUN = Run("a", 1)
DEMAND = gpus(1, minimum=1, maximum=4)


def grown(stage: Strings, *gpus: int) -> LiveJob:
    """It ran for 10 s on one device, and has been ordered to run on these, by default on two."""
    stage.submit("a", DEMAND).start("a", 0).later(10)
    job = replace(live(stage), job=a_job("a", DEMAND))
    job.history = replace(job.history, since_ms=0, steps_per_s=10.0)
    stage.plan(a.Resize("a", stage.on(*(gpus or (0, 1)))))
    return job


def told(report: r.Report, job: LiveJob, stage: Strings) -> list[LoggedEvent]:
    return [*events_of(report, job, stage.now, Limits())]


def test_in_place_it_keeps_its_work_and_what_it_trained_until_the_pause() -> None:
    stage = Strings("1x4")
    job = grown(stage)
    stage.later(5)
    report = r.Reshaped(RUN, stage.now, (3, 4), in_place=True, pause_ms=1_000)
    (logged,) = told(report, job, stage)
    assert isinstance(logged.event, e.RunResized)
    assert logged.event.work == (10 + 4) * SECOND * NOMINAL
    assert logged.detail == {"pids": [3, 4], "in_place": True, "paused_s": 1.0}


def test_from_a_checkpoint_it_has_the_work_that_was_saved() -> None:
    stage = Strings("1x4")
    job = grown(stage)
    stage.later(5)
    (logged,) = told(r.Reshaped(RUN, stage.now, (3, 4), why="It died."), job, stage)
    assert isinstance(logged.event, e.RunResized)
    assert logged.event.work == 0
    assert logged.detail == {"pids": [3, 4], "lost_s": 10.0, "why": "It died."}


@pytest.mark.parametrize("in_place", [True, False])
def test_what_is_lost_after_a_resize_is_the_time_since_its_last_checkpoint(in_place: bool) -> None:
    """On four devices it is assumed to be four times as fast: people ask for the time."""
    stage = Strings("1x4")
    job = grown(stage, 0, 1, 2, 3)
    stage.later(5)
    report = r.Reshaped(RUN, stage.now, (3, 4, 5, 6), in_place=in_place, pause_ms=0)
    stage.tell(*(logged.event for logged in told(report, job, stage)))
    assert stage.job("a").speed_ppm == 4 * NOMINAL
    stage.later(20)
    stage.tell(*(logged.event for logged in told(r.Saved(RUN, stage.now, 50), job, stage)))
    job.history = replace(job.history, lost_ms=0)
    stage.later(7)
    (lost,) = told(r.Lost(RUN, stage.now, "Its node is gone."), job, stage)
    assert lost.detail["lost_s"] == 7.0
    assert job.history.lost_ms == 7 * SECOND


def test_what_it_measures_at_the_new_size_is_its_speed_there() -> None:
    stage = Strings("1x4")
    job = grown(stage)
    report = r.Reshaped(RUN, stage.now, (3, 4), in_place=True, pause_ms=0)
    stage.tell(*(logged.event for logged in told(report, job, stage)))
    assert stage.job("a").is_speed_assumed
    stage.later(6)
    said = r.Progressed(RUN, stage.now, 200, loss=0.5, total_steps=900, steps_per_s=17.0)
    events = [logged.event for logged in told(said, job, stage)]
    stage.tell(*events)
    assert (stage.job("a").speed_ppm, stage.job("a").is_speed_assumed) == (
        17 * NOMINAL // 10,
        False,
    )
    (sample,) = [event.sample for event in events if isinstance(event, e.RunProgressed)]
    assert (sample.gpus, sample.speed_ppm) == (2, 17 * NOMINAL // 10)


def test_what_its_ranks_cannot_use_limits_its_devices_and_is_told_once() -> None:
    stage = Strings("1x4")
    job = grown(stage)  # from one device to two, with a rank on each
    (limited,) = told(r.RanksLimited(RUN, stage.now, ranks=3, world=2), job, stage)
    assert (limited.event, limited.detail) == (e.RunSizeLimited(RUN, 3), {"most_gpus": 3})
    stage.tell(limited.event)
    assert not told(r.RanksLimited(RUN, stage.now, ranks=3, world=2), job, stage)
    (limited,) = told(r.RanksLimited(RUN, stage.now, ranks=9, world=2), job, stage)
    assert limited.event == e.RunSizeLimited(RUN, 9)


def test_a_limit_that_its_owner_has_set_lower_is_not_told() -> None:
    stage = Strings("1x4")
    assert not told(r.RanksLimited(RUN, 0, ranks=4, world=2), grown(stage), stage)


def test_a_stay_at_one_device_that_is_over_soon_is_what_later_speeds_are_compared_with() -> None:
    """Its first rate comes within the 5 s in which no other sample is taken."""
    stage = Strings("1x4")
    stage.submit("a", DEMAND).start("a", 0).later(10)
    stage.job("a").is_speed_assumed = True  # as of every run that has just started
    job = replace(live(stage), job=a_job("a", DEMAND), history=JobHistory(since_ms=stage.now))
    said = r.Progressed(RUN, stage.now, 1)
    stage.tell(*(logged.event for logged in told(said, job, stage)))
    stage.later(2)
    said = r.Progressed(RUN, stage.now, 20, steps_per_s=10.0)
    (logged,) = told(said, job, stage)
    assert isinstance(logged.event, e.RunSpeedChanged)
    assert logged.event.speed_ppm == NOMINAL
    stage.tell(logged.event)
    stage.later(1)
    faster = replace(said, step=31, steps_per_s=11.0)
    assert told(faster, job, stage) == [], "the next sample is not due yet"
    assert job.history.steps_per_s == 11.0


def test_a_lost_rank_and_the_times_of_a_resize_are_in_its_story() -> None:
    stage = Strings("1x4")
    job = grown(stage)
    (lost,) = told(r.ReplicaLost(RUN, stage.now, 1, (3, 5), 9, tail="Oh."), job, stage)
    assert lost.event == e.RunReplicaLost(RUN)
    assert lost.detail == {"rank": 1, "left": 2, "code": 9, "tail": "Oh."}
    (timed,) = told(r.ResizeTimed(RUN, stage.now, regroup_ms=40, first_step_ms=50), job, stage)
    assert timed.detail == {"regroup_ms": 0.04, "first_step_ms": 0.05}


def test_a_resize_says_from_and_to_how_many_devices_for_whom_and_who_decided() -> None:
    stage = Strings("1x4")
    stage.submit("a", DEMAND).start("a", 0, 1, 2, 3).submit("b", 2)
    job, other = live(stage), replace(live(stage), job=a_job("b"), name="b")
    jobs = {"a": job, "b": other}
    placed = a.Launch(RUN, stage.on(0, 1, 2, 3), 0)
    assert note_sizes([placed], jobs, stage.state, "max-min") == {}
    orders = stage.plan(a.Resize("a", stage.on(0, 1)), a.Start("b", stage.on(2, 3)))
    found = note_sizes(orders, jobs, stage.state, "max-min")
    assert found == {RUN: {"from": 4, "to": 2, "by": "max-min", "for": ["b (b)"]}}
    (row,) = story_of([], orders, [], jobs, stage.topology, stage.now, 7, found)
    assert story_sentence(row.what, json.loads(row.detail_json)).startswith(
        "Resizing from 4 devices to 2 for job b (b), by the policy max-min, on "
    )


def test_a_checkpoint_that_is_noticed_late_has_its_own_time() -> None:
    stage = Strings("1x4").submit("a", DEMAND).start("a", 0).later(10)
    saved_ms = stage.now
    stage.later(20)
    (logged,) = told(r.Saved(RUN, saved_ms, 50), live(stage), stage)
    assert logged.detail == {"at_step": 50, "saved_ms": saved_ms}
    (logged,) = told(r.Saved(RUN, stage.now, 60), live(stage), stage)
    assert logged.detail == {"at_step": 60}
