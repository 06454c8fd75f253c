"""What failures cost, by reason; and the study's own table, recomputed from a log with its counts."""

from __future__ import annotations

import pytest

from benchmarks.study_log import study_log
from trainmaster.failures.failure_report import failure_report, nearest_rank
from trainmaster.model.failure_report import FailedRun, JobEnd
from trainmaster.model.units import HOUR, MINUTE, WHOLE
from trainmaster.traces.philly_tables import FAILURES


def attempt(job: str, reason: str, minutes: float, gpus: float = 1, **others) -> FailedRun:
    return FailedRun(job, reason, round(minutes * MINUTE), round(gpus * WHOLE), **others)


@pytest.fixture(scope="module")
def study():
    return failure_report(*study_log())


def test_jobs_of_the_study_by_status(study):
    shares = {row.status: (row.jobs, f"{row.share:.1%}") for row in study.statuses}
    assert shares == {
        "passed": (66_696, "69.3%"),
        "killed": (12_996, "13.5%"),
        "unsuccessful": (16_568, "17.2%"),
    }
    gpu_time = {row.status: 100 * row.gpu_share for row in study.statuses}
    assert gpu_time["passed"] == pytest.approx(44.53, abs=0.02)
    assert gpu_time["killed"] == pytest.approx(37.69, abs=0.02)
    assert gpu_time["unsuccessful"] == pytest.approx(17.76, abs=0.02)


def test_the_failure_table_of_the_study_comes_back(study):
    rows = {row.reason: row for row in study.reasons}
    assert study.trials == 39_776
    assert sum(row.jobs for row in study.reasons) == 17_581
    assert len(rows) == 22
    for reason in FAILURES:
        row = rows[reason.reason]
        assert (row.trials, row.jobs, row.users) == (reason.in_all, reason.jobs, reason.users)
        assert row.sizes == (reason.trials_1, reason.trials_2_to_4, reason.trials_more)
        assert (row.p50_min, row.p90_min, row.p95_min) == (reason.p50, reason.p90, reason.p95)
        assert 100 * row.run_share == pytest.approx(reason.run_percent, abs=0.005), reason.reason
        assert 100 * row.gpu_share == pytest.approx(reason.gpu_percent, abs=0.005), reason.reason
        assert set(row.blame.split(",")) == set(reason.category.split(","))


def test_reasons_come_with_the_most_expensive_first(study):
    assert [row.reason for row in study.reasons][:3] == [
        *("incorrect inputs", "semantic error", "model ckpt error"),
    ]


def test_a_job_that_fails_twice_is_one_job_and_two_trials():
    report = failure_report(
        [
            attempt("1", "syntax-error", 1, user="ada"),
            attempt("1", "syntax-error", 3, user="ada"),
            attempt("2", "nccl-timeout", 30, 8, user="bob"),
        ]
    )
    assert (report.trials, report.jobs, report.gpu_hours) == (3, 2, pytest.approx(4 + 4 / 60))
    worst, other = report.reasons
    assert (worst.reason, worst.sizes, worst.gpu_hours) == ("nccl-timeout", (0, 0, 1), 4.0)
    assert (other.trials, other.jobs, other.users, other.p50_min, other.p90_min) == (2, 1, 1, 1, 3)
    assert other.run_share == pytest.approx(4 / 34)
    assert other.gpu_share == pytest.approx(4 / 244)


def test_gpu_time_is_divided_among_the_devices_that_it_was_lost_on():
    report = failure_report(
        [
            attempt("1", "gpu-ecc-error", 60, 2, devices=("a:0", "b:1"), program="train"),
            attempt("2", "no-such-file", 60, devices=("a:0",), path="/data/x", program="train"),
        ]
    )
    nodes = {row.name: (row.trials, row.jobs, row.gpu_hours) for row in report.nodes}
    assert nodes == {"a": (2, 2, 2.0), "b": (1, 1, 1.0)}
    assert [row.name for row in report.devices] == ["a:0", "b:1"]
    assert report.devices[0].gpu_share == pytest.approx(2 / 3)
    assert [(row.name, row.reasons) for row in report.inputs] == [("/data/x", ("no-such-file",))]
    assert report.programs[0].reasons == ("gpu-ecc-error", "no-such-file")
    assert report.users == ()


def test_a_fraction_of_a_gpu_counts_as_such():
    report = failure_report(
        [attempt("1", "unknown", 60, 0.5)], [JobEnd("failed", HOUR * WHOLE // 2)]
    )
    assert report.gpu_hours == 0.5
    assert report.reasons[0].sizes == (1, 0, 0)
    assert report.statuses[0].gpu_hours == 0.5


def test_nothing_failed():
    report = failure_report([])
    assert (report.trials, report.gpu_hours, report.reasons, report.statuses) == (0, 0, (), ())


@pytest.mark.parametrize(("percent", "found"), [(50, 5), (90, 9), (95, 10), (1, 1), (100, 10)])
def test_percentiles_are_values_that_occur(percent, found):
    assert nearest_rank(range(1, 11), percent) == found


def test_every_program_is_listed_unless_a_bound_is_given():
    failed = [attempt(f"{n}", "hung", 1 + n, program=f"p{n}.py") for n in range(35)]
    assert len(failure_report(failed).programs) == 35
    worst = failure_report(failed, most_sources=2).programs
    assert [source.name for source in worst] == ["p34.py", "p33.py"]
