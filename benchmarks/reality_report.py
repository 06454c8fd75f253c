"""The report of the reality benchmark: a page, its figures, and all numbers as CSV and JSON."""

from __future__ import annotations

import csv
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.pages import page
from benchmarks.reality_compare import (
    JITTER_MS,
    JITTERS,
    JobTimes,
    RealityComparison,
    makespan_ms,
    mean_jct_ms,
)
from benchmarks.reality_costs import PARTS, Costs
from benchmarks.reality_workload import CALIBRATION, SLOTS, WORKLOAD
from trainmaster.report.charts import AXIS, INK, Chart, standalone, styled
from trainmaster.report.palette import policy_shade

LIMITS = {"mean_jct": 0.05, "makespan": 0.05, "p90": 0.15}
COLUMNS = (
    *("policy", "job", "gpus", "steps", "stays_in_memory", "submit_s", "live_start_s"),
    *("live_jct_s", "simulated_jct_s", "live_suspensions", "simulated_suspensions"),
)


def has_kept(found: Sequence[RealityComparison]) -> dict[str, bool]:
    """Whether each promise of the comparison was kept."""
    kept = {
        name: all(abs(getattr(each.errors, name)) <= limit for each in found)
        for name, limit in LIMITS.items()
    }
    return {**kept, "ranking": _ranking(found, live=True) == _ranking(found, live=False)}


def _ranking(found: Sequence[RealityComparison], *, live: bool) -> list[str]:
    jobs = {each.policy.name: each.happened if live else each.simulated for each in found}
    return sorted(jobs, key=lambda name: mean_jct_ms(jobs[name]))


def write(folder: Path, found: Sequence[RealityComparison], costs: Costs, when: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    summary = _summary(found, costs, when)
    (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    _write_jobs(folder / "jobs.csv", found)
    (folder / "jobs.svg").write_text(standalone(_jobs_chart(found).svg()))
    (folder / "residuals.svg").write_text(standalone(_residuals_chart(found).svg()))
    worst = {name: max(abs(getattr(each.errors, name)) for each in found) for name in LIMITS}
    said = page(
        "reality_page.md",
        **summary,
        limits=LIMITS,
        worst=worst,
        ranking=_ranking(found, live=True),
        parts=PARTS,
        slots=SLOTS,
        jitter=JITTER_MS,
        jitters=JITTERS,
    )
    (folder / "README.md").write_text(said)


# -- numbers -------------------------------------------------------------------------------------------


def _summary(found: Sequence[RealityComparison], costs: Costs, when: str) -> dict[str, object]:
    return {
        "when": when,
        "machine": f"{os.cpu_count()} processors, {platform.machine()}, Linux {platform.release()}",
        "workload": dict(zip(("jobs", "seed", "load"), WORKLOAD, strict=True)),
        "calibration": dict(zip(("jobs", "seed", "load"), CALIBRATION, strict=True)),
        "costs_ms": asdict(costs),
        "perf": costs.perf(),
        "kept": has_kept(found),
        "policies": [
            {
                "policy": each.policy.name,
                "options": dict(each.policy.options),
                "live": _totals(each.happened),
                "simulated": _totals(each.simulated),
                "errors": asdict(each.errors),
                "sensitivity": asdict(each.sensitivity),
                "kendall_tau": each.kendall_tau,
                "suspended_otherwise": each.differing,
                "residuals_ms": each.residuals_ms,
                "steps_replayed": each.steps,
                "steps_unlike": each.unlike,
                "load_average": each.load,
                "processors_used": each.cpu_part,
            }
            for each in found
        ],
    }


def _totals(jobs: Sequence[JobTimes]) -> dict[str, float]:
    return {
        "mean_jct_s": round(mean_jct_ms(jobs) / 1000, 3),
        "makespan_s": makespan_ms(jobs) / 1000,
        "preemptions": sum(each.preemptions for each in jobs),
    }


def _write_jobs(path: Path, found: Sequence[RealityComparison]) -> None:
    with path.open("w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(COLUMNS)
        for each in found:
            first = min(job.job.submit_ms for job in each.live)
            for job, predicted in zip(each.live, each.simulated, strict=True):
                plan = job.planned
                times = (job.job.submit_ms - first, (job.start_ms or first) - first, job.jct_ms)
                out.writerow(
                    [each.policy.name, plan.name, plan.gpus, plan.steps, plan.stays_in_memory]
                    + [f"{ms / 1000:.3f}" for ms in (*times, predicted.jct_ms)]
                    + [job.preemptions, predicted.preemptions]
                )


# -- figures -------------------------------------------------------------------------------------------


@styled
def _jobs_chart(found: Sequence[RealityComparison]) -> Chart:
    chart = Chart("Completion time of every job, live against simulated", 2.6 * len(found), 2.8)
    panels = chart.panels(1, len(found), sharey=True)
    for panel, each in zip(panels, found, strict=True):
        real = [job.jct_ms / 1000 for job in each.live]
        predicted = [job.jct_ms / 1000 for job in each.simulated]
        ends = (min(real + predicted), max(real + predicted))
        panel.plot(ends, ends, color=AXIS, linewidth=0.8)
        panel.scatter(real, predicted, s=7, color=INK, linewidths=0, alpha=0.7)
        panel.set(xscale="log", yscale="log", title=each.policy.name, xlabel="live, s")
    panels[0].set_ylabel("simulated, s")
    return chart


@styled
def _residuals_chart(found: Sequence[RealityComparison]) -> Chart:
    chart = Chart("Residuals by part", 7.0, 2.8)
    (panel,) = chart.panels()
    height, bars = 0.8 / len(found), []
    for row, each in enumerate(found):
        places = [part + row * height for part in range(len(PARTS))]
        values = [each.residuals_ms[part] for part in PARTS]
        bars.append(panel.barh(places, values, height, color=policy_shade(row).light))
    panel.set_yticks([part + 0.4 - height / 2 for part in range(len(PARTS))], PARTS)
    panel.invert_yaxis()
    panel.axvline(0, color=INK, linewidth=0.6)
    panel.set_xlabel("live beyond calibrated, ms per job")
    chart.legend(bars, [each.policy.name for each in found])  # type: ignore[arg-type]
    return chart
