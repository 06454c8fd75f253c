"""The reality benchmark in small: real jobs, their costs, the simulation of them, and the report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import reality_report as report
from benchmarks.reality import simulate_reads
from benchmarks.reality_compare import compared, errors, kendall_tau, simulated
from benchmarks.reality_costs import PARTS, calibrated, spent_by
from benchmarks.reality_live import LiveRun, run_live
from benchmarks.reality_workload import STEP_MS, PolicySetup, drawn

pytestmark = pytest.mark.live
POLICY = PolicySetup("tiresias-l", (("thresholds_gpu_s", "1"),))
SIZES = (1, 2, 4)
JOBS = tuple(
    replace(job, at_s=job.at_s / 4, steps=min(job.steps, 40)) for job in drawn(14, 3, load=1.2)
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> LiveRun:
    return run_live(tmp_path_factory.mktemp("reality"), JOBS, POLICY)


def test_all_jobs_succeed_and_do_all_their_steps(run: LiveRun) -> None:
    assert [story.planned for story in run.stories] == list(JOBS)
    assert all(story.has_succeeded for story in run.stories)
    for story in run.stories:
        last = story.attempts[max(story.attempts)]
        assert {step for _, step in last.marks["stopped"]} == {story.planned.steps}
        least_ms = story.planned.steps * STEP_MS * 0.9
        assert spent_by(story)["steps"] >= least_ms, "a step is never shorter than its device takes"


def test_the_recorded_trace_can_be_simulated(run: LiveRun) -> None:
    simulate_reads(run.trace, len(JOBS))


def test_it_is_simulated_with_its_costs_and_compared(run: LiveRun, tmp_path: Path) -> None:
    costs = calibrated(run.stories, SIZES)
    assert costs.observed["jobs"] == len(JOBS)
    assert costs.launch > 0
    found = compared(run, costs)
    assert found.unlike == 0
    assert found.steps > len(JOBS)
    assert len(found.simulated) == len(JOBS)
    missing = sum(found.residuals_ms.values())
    pairs = zip(found.live, found.simulated, strict=True)
    difference = [story.jct_ms - each.jct_ms for story, each in pairs]
    assert missing == pytest.approx(sum(difference) / len(JOBS)), "the parts sum up to the whole"
    report.write(tmp_path, [found, found], costs, "today")
    said = json.loads((tmp_path / "summary.json").read_text())
    assert set(said["policies"][0]["residuals_ms"]) == set(PARTS)
    for name in ("README.md", "jobs.csv", "jobs.svg", "residuals.svg"):
        assert (tmp_path / name).stat().st_size > 0


def test_a_schedule_has_no_error_against_itself(run: LiveRun) -> None:
    costs = calibrated(run.stories, SIZES)
    once, twice = (simulated(run.stories, costs, POLICY) for _ in range(2))
    same = errors(once, twice)
    assert (same.mean_jct, same.makespan, same.worst) == (0, 0, 0)
    starts = [each.start_ms for each in once]
    assert kendall_tau(starts, starts) > 0
    assert kendall_tau(starts, starts[::-1]) < kendall_tau(starts, starts)
