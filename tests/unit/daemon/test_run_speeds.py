"""What a run is expected to make on another type of device, and what it makes of its own reports there."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from tests.unit.core.stage import Strings
from tests.unit.core.test_growth import a_node, grown_stage
from trainmaster.daemon.job_history import JobHistory
from trainmaster.daemon.report_events import estimate_from
from trainmaster.daemon.run_speeds import assumed_speed, is_noticeable, measured_speed
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.engine_reports import Progressed
from trainmaster.model.job import Run
from trainmaster.model.topology import CPU_TYPE
from trainmaster.model.units import NOMINAL, SECOND


def mixed() -> Strings:
    """GPUs 0 and 1 are H100s, 2 and 3 are V100s of a third of their speed, 4 and 5 CPU slots."""
    stage = grown_stage(a_node("n0", 2, "H100"), a_node("n1", 2, "V100"), a_node("n2", 2, CPU_TYPE))
    stage.tell(*(e.NodeMeasured(node, rate) for node, rate in enumerate((30_000, 10_000, 600))))
    stage.topology = stage.state.topology
    return stage


def starting(*gpus: int) -> Strings:
    stage = mixed().submit("x", len(gpus))
    stage.plan(a.Start("x", stage.on(*gpus)))
    return stage


def assumed(stage: Strings) -> float:
    return assumed_speed(stage.job("x"), stage.state.topology) / NOMINAL


def test_before_a_job_has_run_on_a_type_it_is_assumed_to_be_as_fast_as_the_type() -> None:
    assert assumed(starting(0)) == 1.0
    assert assumed(starting(2, 3)) == 0.33
    assert assumed(starting(0, 2)) == 0.33, "the slowest sets the pace"


def test_where_it_has_run_its_own_speed_counts() -> None:
    stage = mixed().running("x", 2)
    stage.tell(e.RunSpeedChanged(Run("x", 1), 0, 800_000))
    assert assumed(stage) == 0.8


def reported(stage: Strings, live: Any, rate: float) -> float | None:
    said = Progressed(stage.job("x").run, 0, 1, samples_per_s=rate)
    found = measured_speed(live, stage.job("x"), said, stage.state.topology)
    return None if found is None else found / NOMINAL


def moved(stage: Strings, *gpus: int) -> None:
    stage.plan(a.Suspend("x"))
    stage.tell(e.RunSuspended(stage.job("x").run, 0))
    stage.plan(a.Start("x", stage.on(*gpus)))


def test_reports_are_compared_with_the_best_on_the_type_where_it_ran_first() -> None:
    stage, live = mixed().running("x", 2), SimpleNamespace(history=JobHistory())
    assert reported(stage, live, 10.0) == 0.33
    assert live.history.rate_type == "V100"
    assert reported(stage, live, 20.0) == 0.33, "it had begun to warm up"
    moved(stage, 0)
    assert reported(stage, live, 20.0) == 0.33, "it is no faster on an H100"
    assert reported(stage, live, 40.0) == 0.66
    assert (live.history.samples_per_s, live.history.rate_type) == (20.0, "V100")


def test_a_gang_on_two_types_is_nothing_to_compare_with() -> None:
    stage, live = mixed().running("x", 0, 2), SimpleNamespace(history=JobHistory())
    assert reported(stage, live, 10.0) is None


def test_steps_that_are_left_take_as_much_work_as_they_do_on_that_type() -> None:
    stage = mixed().running("x", 2)
    history = replace(JobHistory(), steps_per_s=10.0, rate_type="V100")
    history = replace(
        history,
        progress=SimpleNamespace(total_steps=1_000, step=10),  # type: ignore[arg-type]
        first_report=SimpleNamespace(step=10, work=0),  # type: ignore[arg-type]
    )
    found = estimate_from(stage.job("x"), history, 0, stage.state.topology)
    assert found is not None
    assert found.work == 99 * SECOND * 330_000


def test_a_tenth_is_noticeable_however_slow_it_is() -> None:
    assert not is_noticeable(950_000, NOMINAL)
    assert is_noticeable(890_000, NOMINAL)
    assert is_noticeable(20_000, 25_000)
