"""Who is held for whom: dependencies and arrays."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import a_job
from trainmaster.core.state import JobRecord
from trainmaster.daemon.dependencies import Dependencies, DependencyState, hold_reason, outlook
from trainmaster.daemon.live_job import Hold, LiveJob, StoredSubmission
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.model import events as e
from trainmaster.model.job import gpus
from trainmaster.model.launch_spec import LaunchSpec
from trainmaster.model.reasons import Why
from trainmaster.model.stop_reasons import EndCode, EndReason
from trainmaster.model.submission import Array, Dependency, When

RECIPE = LaunchSpec(("true",), str(Path("/")), "")


def a_live(
    id: str,
    *depends_on: Dependency,
    array: str | None = None,
    limit: int | None = None,
    holds: tuple[Hold, ...] = (),
) -> LiveJob:
    job = a_job(id, gpus(1))
    kept = StoredSubmission(RECIPE, job, depends_on, None if array is None else Array((), limit))
    live = LiveJob(job, id, kept, {}, array=array, holds=set(holds))
    live.record = JobRecord(job, 0, 0, None, None)
    return live


@pytest.mark.parametrize(
    ("when", "state", "found"),
    [
        (When.OK, "succeeded", DependencyState.MET),
        (When.OK, "failed", DependencyState.NEVER),
        (When.OK, "running", DependencyState.OPEN),
        (When.ANY, "cancelled", DependencyState.MET),
        (When.ANY, "timed_out", DependencyState.MET),
        (When.OK, "timed_out", DependencyState.NEVER),
        (When.FAIL, "timed_out", DependencyState.MET),
        (When.FAIL, "failed", DependencyState.MET),
        (When.FAIL, "succeeded", DependencyState.NEVER),
        (When.ANY, None, DependencyState.NEVER),
    ],
)
def test_what_becomes_of_a_dependency(
    when: When, state: str | None, found: DependencyState
) -> None:
    assert outlook(Dependency("1", when), state) is found


def registered(*lives: LiveJob) -> Dependencies:
    dependencies = Dependencies({live.id: live for live in lives})
    dependencies.register(lives)
    return dependencies


def after(dependencies: Dependencies, ended: LiveJob, states: dict[str, str]) -> list[LoggedEvent]:
    """What follows from the end of a job."""
    found = [
        logged
        for live in dependencies.dependents_of(ended)
        for logged in dependencies.resolve(live, states.get)
    ]
    return [*found, *dependencies.release_next(ended)]


def test_a_job_is_released_when_the_last_of_its_dependencies_is_met() -> None:
    first, second = a_live("1"), a_live("2")
    then = a_live("3", Dependency("1"), Dependency("2"), holds=(Hold.DEPENDENCY,))
    dependencies, states = registered(first, second, then), {"1": "succeeded", "2": "running"}
    assert after(dependencies, first, states) == []
    states["2"] = "succeeded"
    assert [logged.event for logged in after(dependencies, second, states)] == [e.JobReleased("3")]
    assert then.holds == set()


def test_a_job_whose_dependency_failed_is_withdrawn_and_told_why() -> None:
    first, then = a_live("1"), a_live("2", Dependency("1"), holds=(Hold.DEPENDENCY,))
    (logged,) = after(registered(first, then), first, {"1": "failed"})
    assert logged.event == e.JobWithdrawn("2")
    assert logged.detail["why"] == "It was to run after job 1, which failed."
    assert logged.cause == EndReason(EndCode.DEPENDENCY, job="1", job_state="failed")


def test_a_job_that_its_owner_suspended_stays_held_when_its_dependency_is_met() -> None:
    first = a_live("1")
    then = a_live("2", Dependency("1"), holds=(Hold.DEPENDENCY, Hold.OWNER))
    assert after(registered(first, then), first, {"1": "succeeded"}) == []
    assert then.holds == {Hold.OWNER}
    reason = hold_reason(then, {"2": then}, lambda _: ())
    assert reason is not None
    assert reason.why is Why.HELD


def test_the_next_of_an_array_gets_the_place_of_one_that_ended() -> None:
    lives = [
        a_live(f"7_{i}", array="7", limit=2, holds=() if i < 2 else (Hold.ARRAY,)) for i in range(4)
    ]
    dependencies = registered(*lives)
    (released,) = after(dependencies, lives[0], {})
    assert released.event == e.JobReleased("7_2")
    (released,) = after(dependencies, lives[2], {})
    assert released.event == e.JobReleased("7_3")
    assert after(dependencies, lives[1], {}) == []


def test_an_element_that_is_cancelled_while_it_waits_frees_no_place() -> None:
    lives = [
        a_live(f"7_{i}", array="7", limit=1, holds=() if i < 1 else (Hold.ARRAY,)) for i in range(3)
    ]
    jobs = {live.id: live for live in lives}
    dependencies = Dependencies(jobs)
    dependencies.register(lives)
    assert after(dependencies, lives[1], {}) == []
    jobs.pop("7_1")
    (released,) = after(dependencies, lives[0], {})
    assert released.event == e.JobReleased("7_2")


def test_places_that_were_free_when_the_daemon_died_are_given_after_its_restart() -> None:
    """Element 0 had ended, and nobody had been told of it yet."""
    left = [a_live(f"7_{i}", array="7", limit=1, holds=(Hold.ARRAY,)) for i in (1, 2)]
    assert [logged.event for logged in registered(*left).release_free_places()] == [
        e.JobReleased("7_1")
    ]


def test_an_array_of_which_nothing_is_left_is_forgotten() -> None:
    live = a_live("7_0", array="7", limit=2)
    dependencies = registered(live)
    assert after(dependencies, live, {}) == []
    assert not dependencies.free_places
