"""Jobs of a workload: the same for all contenders, at the load that was asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.evaluation.builders import generated, job
from trainmaster.evaluation.suite import (
    Generated,
    SuiteError,
    TraceFile,
    TraceSubset,
    Workload,
    WorkloadChanges,
)
from trainmaster.evaluation.workloads import (
    MeasurementWindow,
    busiest,
    check_load,
    stream_of,
    subset_of,
    window_of,
)
from trainmaster.model.trace import Outcome
from trainmaster.model.units import GIB, HOUR, SECOND
from trainmaster.sim.metrics import load_of

DAY_S = 86_400


def test_the_window_leaves_out_the_first_fifth_and_the_tail() -> None:
    jobs = [job(f"j{n}", 10 * n, 1, 5) for n in range(101)]
    window = window_of(jobs, warm_up=0.2, tail=0.4)
    assert window == MeasurementWindow(200 * SECOND, 600 * SECOND)
    assert [each.job.id for each in window.measured(jobs)] == [f"j{n}" for n in range(20, 61)]
    assert [each.job.id for each in window.before(jobs)] == [f"j{n}" for n in range(20)]


def test_a_fixed_trace_is_measured_to_its_end_and_without_warm_up_all_of_it() -> None:
    jobs = [job(f"j{n}", 10 * n, 1, 5) for n in range(11)]
    assert len(window_of(jobs, warm_up=0.2, tail=0).measured(jobs)) == 9
    assert len(window_of(jobs, warm_up=0, tail=0).measured(jobs)) == 11


def test_a_stream_without_a_job_to_measure_is_an_error() -> None:
    workload = Workload("two jobs", Generated(2, 0.9), "2x4")
    with pytest.raises(SuiteError, match="two jobs has no job to measure"):
        stream_of(workload, 8, 0, None)


def test_one_job_is_measured() -> None:
    jobs = [job("only", 5, 1, 10)]
    assert window_of(jobs, warm_up=0.2, tail=0).measured(jobs) == jobs


@pytest.mark.parametrize("load", [0.5, 0.7, 0.9, 1.0, 1.2])
@pytest.mark.parametrize(
    "changes", [WorkloadChanges(), WorkloadChanges(longest_s=600), WorkloadChanges(elastic=0.5)]
)
def test_a_generated_stream_has_the_load_that_was_asked_for(
    load: float, changes: WorkloadChanges
) -> None:
    workload = Workload("w", Generated(300, load, changes=changes), "8x4")
    for seed in range(3):
        realised = load_of(stream_of(workload, 32, seed, None).trace.jobs, 32)
        assert realised == pytest.approx(load, rel=0.01)


def test_another_load_than_the_one_asked_for_is_an_error() -> None:
    check_load("w", 0.905, 0.9)
    with pytest.raises(SuiteError, match=r"w was to offer a load of 0\.9 and has a load of 0\.911"):
        check_load("w", 0.911, 0.9)
    with pytest.raises(SuiteError, match="no span at all"):
        check_load("w", None, 0.9)


def test_streams_differ_by_seed_and_loads_differ_by_arrivals_alone() -> None:
    light, heavy = generated(load=0.5), generated(load=1.0)
    at_half = stream_of(light, 8, 0, None).trace.jobs
    at_one = stream_of(heavy, 8, 0, None).trace.jobs
    assert [each.service_ms for each in at_half] == [each.service_ms for each in at_one]
    assert at_half[-1].job.submit_ms == pytest.approx(2 * at_one[-1].job.submit_ms, abs=2)
    assert stream_of(light, 8, 0, None) == stream_of(light, 8, 0, None)
    assert stream_of(light, 8, 0, None) != stream_of(light, 8, 1, None)


def test_what_is_declared_is_drawn_by_the_seed() -> None:
    changes = WorkloadChanges(
        elastic=0.5,
        models=("vgg16", "resnet50"),
        memory_gib=(2, 10),
        gpu_util=(0.3, 0.9),
        passes=True,
    )
    source = Generated(200, 0.9, changes=changes)
    jobs = stream_of(Workload("w", source, "8x4"), 32, 0, None).trace.jobs
    elastic = [each.job for each in jobs if each.job.demand.is_elastic]
    assert 50 < len(elastic) < 150
    for each in elastic:
        count = each.demand.nominal.count
        assert each.demand.min_count == max(1, count // 4)
        assert each.demand.max_count == max(count, min(4 * count, 32))
    assert {each.job.model for each in jobs} == {"vgg16", "resnet50"}
    assert {each.job.demand.nominal.memory for each in jobs} == {2 * GIB, 10 * GIB}
    assert {each.job.gpu_util_ppm for each in jobs} == {300_000, 900_000}
    assert {each.outcome for each in jobs} == {Outcome.SUCCEEDED}


def test_one_more_kind_of_change_leaves_the_others_as_they_were() -> None:
    alone = Workload("w", Generated(50, 0.9, changes=WorkloadChanges(elastic=0.5)), "8x4")
    both_changes = WorkloadChanges(elastic=0.5, models=("vgg16", "resnet50"))
    both = Workload("w", Generated(50, 0.9, changes=both_changes), "8x4")
    demands = [
        [each.job.demand for each in stream_of(each_of, 32, 0, None).trace.jobs]
        for each_of in (alone, both)
    ]
    assert demands[0] == demands[1]


def test_slices_cut_by_queue_days_ends_and_number() -> None:
    jobs = [job(f"j{n}", n * DAY_S / 2, 1, 100 if 6 <= n < 10 else 1) for n in range(20)]
    jobs[3] = replace(jobs[3], job=replace(jobs[3].job, queue="other"))
    names = [each.job.id for each in subset_of(jobs, TraceSubset(queue="other"))]
    assert names == ["j3"]
    assert [each.job.id for each in busiest(jobs, 2)] == ["j6", "j7", "j8", "j9"]
    assert [each.job.id for each in subset_of(jobs, TraceSubset(first=5, last=2))] == ["j3", "j4"]
    thinned = subset_of(jobs, TraceSubset(at_most=5))
    assert [each.job.id for each in thinned] == ["j0", "j4", "j8", "j12", "j16"]


def test_a_file_can_be_stretched_to_a_load(tmp_path: Path) -> None:
    rows = "".join(f"{n},{10 * n},1,100\n" for n in range(50))
    (tmp_path / "t.csv").write_text(f"job_id,submit_s,gpus,duration_s\n{rows}")
    as_is = Workload("w", TraceFile("t.csv"), "2x4")
    stretched = Workload("w", TraceFile("t.csv", load=0.5), "2x4")
    assert stream_of(as_is, 8, 0, tmp_path).trace.jobs[-1].job.submit_ms == 490 * SECOND
    jobs = stream_of(stretched, 8, 0, tmp_path).trace.jobs
    assert load_of(jobs, 8) == pytest.approx(0.5, rel=0.01)


def test_run_times_are_cut_before_the_load_is_met() -> None:
    source = Generated(300, 0.9, changes=WorkloadChanges(longest_s=3_600))
    jobs = stream_of(Workload("w", source, "8x4"), 32, 0, None).trace.jobs
    assert max(each.service_ms for each in jobs) == HOUR
    assert load_of(jobs, 32) == pytest.approx(0.9, rel=0.01)


def test_first_attempts_leave_out_failed_ones_and_keep_how_jobs_end() -> None:
    whole, first = (
        stream_of(Workload("w", Generated(300, 0.9, changes=changes), "8x4"), 32, 0, None).trace
        for changes in (WorkloadChanges(), WorkloadChanges(first_attempts=True))
    )
    assert any(each.failed_attempts_ms for each in whole.jobs)
    assert not any(each.failed_attempts_ms for each in first.jobs)
    assert [each.outcome for each in first.jobs] == [each.outcome for each in whole.jobs]
