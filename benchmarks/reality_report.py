"""The report of the reality benchmark: a page, its figures, and all numbers as CSV and JSON."""

from __future__ import annotations

import csv
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.reality_compare import (
    JITTER_MS,
    JITTERS,
    Compared,
    SimulatedJob,
    makespan_ms,
    mean_jct_ms,
)
from benchmarks.reality_costs import PARTS, SAYS, Costs
from benchmarks.reality_workload import CALIBRATION, SLOTS, WORKLOAD

LIMITS = {"mean_jct": 0.05, "makespan": 0.05, "p90": 0.15}
PLAIN = {"svg.hashsalt": "reality", "font.size": 9, "axes.spines.top": False}
PAGE = Path(__file__).with_name("reality_page.md")
COLUMNS = (
    *("policy", "job", "gpus", "steps", "stays_in_memory", "submit_s", "live_start_s"),
    *("live_jct_s", "simulated_jct_s", "live_suspensions", "simulated_suspensions"),
)
INK, PALE = "#222222", "#8fa3b8"


def happened(each: Compared) -> tuple[SimulatedJob, ...]:
    return tuple(
        SimulatedJob(job.start_ms or 0, job.finish_ms or 0, job.jct_ms, job.preemptions)
        for job in each.live
    )


def has_kept(found: Sequence[Compared]) -> dict[str, bool]:
    """Whether each promise of the comparison was kept."""
    kept = {
        name: all(abs(getattr(each.errors, name)) <= limit for each in found)
        for name, limit in LIMITS.items()
    }
    return {**kept, "ranking": _ranking(found, live=True) == _ranking(found, live=False)}


def _ranking(found: Sequence[Compared], *, live: bool) -> list[str]:
    jobs = {each.contender.policy: happened(each) if live else each.simulated for each in found}
    return sorted(jobs, key=lambda name: mean_jct_ms(jobs[name]))


def write(folder: Path, found: Sequence[Compared], costs: Costs, when: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").write_text(json.dumps(_summary(found, costs, when), indent=1) + "\n")
    _write_jobs(folder / "jobs.csv", found)
    _plot_jobs(folder / "jobs.svg", found)
    _plot_residuals(folder / "residuals.svg", found)
    (folder / "README.md").write_text(page(found, costs, when))


# -- numbers -------------------------------------------------------------------------------------------


def _summary(found: Sequence[Compared], costs: Costs, when: str) -> dict[str, object]:
    return {
        "when": when,
        "machine": _machine(),
        "workload": dict(zip(("jobs", "seed", "load"), WORKLOAD, strict=True)),
        "calibration": dict(zip(("jobs", "seed", "load"), CALIBRATION, strict=True)),
        "costs_ms": asdict(costs),
        "perf": costs.perf(),
        "kept": has_kept(found),
        "policies": [
            {
                "policy": each.contender.policy,
                "options": dict(each.contender.options),
                "live": _totals(happened(each)),
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


def _totals(jobs: Sequence[SimulatedJob]) -> dict[str, float]:
    return {
        "mean_jct_s": round(mean_jct_ms(jobs) / 1000, 3),
        "makespan_s": makespan_ms(jobs) / 1000,
        "preemptions": sum(each.preemptions for each in jobs),
    }


def _machine() -> str:
    return f"{os.cpu_count()} processors, {platform.machine()}, Linux {platform.release()}"


def _write_jobs(path: Path, found: Sequence[Compared]) -> None:
    with path.open("w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(COLUMNS)
        for each in found:
            first = min(job.job.submit_ms for job in each.live)
            for job, predicted in zip(each.live, each.simulated, strict=True):
                plan = job.planned
                times = (job.job.submit_ms - first, (job.start_ms or first) - first, job.jct_ms)
                out.writerow(
                    [each.contender.policy, plan.name, plan.gpus, plan.steps, plan.stays_in_memory]
                    + [f"{ms / 1000:.3f}" for ms in (*times, predicted.jct_ms)]
                    + [job.preemptions, predicted.preemptions]
                )


# -- figures -------------------------------------------------------------------------------------------


def _plot_jobs(path: Path, found: Sequence[Compared]) -> None:
    from matplotlib import pyplot as plt

    with plt.rc_context(PLAIN):
        figure, panels = plt.subplots(1, len(found), figsize=(2.6 * len(found), 2.8), sharey=True)
        for panel, each in zip(panels, found, strict=True):
            real = [job.jct_ms / 1000 for job in each.live]
            predicted = [job.jct_ms / 1000 for job in each.simulated]
            ends = (min(real + predicted), max(real + predicted))
            panel.plot(ends, ends, color=PALE, linewidth=0.8)
            panel.scatter(real, predicted, s=7, color=INK, linewidths=0, alpha=0.7)
            panel.set(xscale="log", yscale="log", title=each.contender.policy, xlabel="live, s")
            panel.spines["right"].set_visible(False)
        panels[0].set_ylabel("simulated, s")
        figure.tight_layout()
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)


def _plot_residuals(path: Path, found: Sequence[Compared]) -> None:
    from matplotlib import pyplot as plt

    with plt.rc_context(PLAIN):
        figure, panel = plt.subplots(figsize=(7.0, 2.8))
        height = 0.8 / len(found)
        for row, each in enumerate(found):
            places = [part + row * height for part in range(len(PARTS))]
            values = [each.residuals_ms[part] for part in PARTS]
            shade = 0.25 + 0.6 * row / max(1, len(found) - 1)
            panel.barh(
                places, values, height, color=plt.cm.Greys(shade), label=each.contender.policy
            )
        panel.set_yticks([part + 0.4 - height / 2 for part in range(len(PARTS))], PARTS)
        panel.invert_yaxis()
        panel.axvline(0, color=INK, linewidth=0.6)
        panel.set_xlabel("live beyond calibrated, ms per job")
        panel.spines["right"].set_visible(False)
        panel.legend(frameon=False)
        figure.tight_layout()
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)


# -- the page ------------------------------------------------------------------------------------------


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _percent(part: float) -> str:
    return f"{100 * part:+.1f} %"


def _verdict(found: Sequence[Compared]) -> str:
    worst = {name: max(abs(getattr(each.errors, name)) for each in found) for name in LIMITS}
    kept = has_kept(found)
    names = {
        "mean_jct": "error of the mean job completion time",
        "makespan": "error of the makespan",
        "p90": "90th percentile of the error per job",
    }
    rows = [
        [names[name], f"{100 * limit:.0f} %", f"{100 * worst[name]:.1f} %", _said(kept[name])]
        for name, limit in LIMITS.items()
    ]
    order = " < ".join(_ranking(found, live=True))
    rows.append(["order of the policies by mean", "the same", order, _said(kept["ranking"])])
    return _table(["What", "Promised", "Worst of the policies", "Kept"], rows)


def _said(kept: bool) -> str:
    return "yes" if kept else "**no**"


def _results(found: Sequence[Compared]) -> str:
    rows = []
    for each in found:
        real, predicted, errors = _totals(happened(each)), _totals(each.simulated), each.errors
        rows.append(
            [
                f"`{each.contender.policy}`",
                f"{real['mean_jct_s']:.2f}",
                f"{predicted['mean_jct_s']:.2f}",
                _percent(errors.mean_jct),
                f"{real['makespan_s']:.1f}",
                f"{predicted['makespan_s']:.1f}",
                _percent(errors.makespan),
                *(f"{100 * part:.1f} %" for part in (errors.p50, errors.p90, errors.worst)),
            ]
        )
    head = ["Policy", "mean JCT live, s", "simulated", "error", "makespan live, s", "simulated"]
    return _table([*head, "error", "per job p50", "p90", "worst"], rows)


def _decisions(found: Sequence[Compared]) -> str:
    rows = [
        [
            f"`{each.contender.policy}`",
            f"{each.kendall_tau:.3f}",
            f"{_totals(happened(each))['preemptions']:.0f}",
            f"{_totals(each.simulated)['preemptions']:.0f}",
            str(each.differing),
            f"{100 * each.sensitivity.p90:.1f} %",
            f"{each.steps} / {each.unlike}",
            f"{100 * each.cpu_part:.0f} %",
        ]
        for each in found
    ]
    head = ["Policy", "start order, Kendall's tau", "suspensions live", "simulated"]
    more = ["jobs suspended otherwise", "p90 by jitter alone", "steps replayed / unlike"]
    return _table([*head, *more, "processors busy"], rows)


def _residuals(found: Sequence[Compared]) -> str:
    rows = [
        [part, SAYS[part], *(f"{each.residuals_ms[part]:+.0f}" for each in found)] for part in PARTS
    ]
    total = [f"{sum(each.residuals_ms.values()):+.0f}" for each in found]
    rows.append(["all", "mean JCT live - simulated", *total])
    return _table(["Part", "What it is", *(f"`{e.contender.policy}`" for e in found)], rows)


def _calibration(costs: Costs) -> str:
    sizes = ", ".join(f"{size}: {ms:.0f}" for size, ms in costs.warm_up.items())
    exits = ", ".join(f"{size}: {ms:.0f}" for size, ms in costs.exit.items())
    rows = [
        ["launch: order to all ranks up", f"{costs.launch:.0f}", "`start_s`"],
        ["warm-up to the first step, by gang size", sizes, "run time"],
        ["a step (50 ms of device time)", f"{costs.step:.2f}", "run time"],
        ["last step to the end seen, by gang size", exits, "run time"],
        ["detection of an end", f"{costs.detection:.0f}", "run time"],
        ["freeze", f"{costs.freeze:.0f}", "`freeze_s`"],
        ["thaw", f"{costs.thaw:.0f}", "`thaw_s`"],
        ["save and end", f"{costs.leave:.0f}", "`suspend_s`"],
        ["... of which work was still done", f"{costs.still:.0f}", "off `resume_s`"],
        ["restart: up to the first step from a checkpoint", f"{costs.restart:.0f}", "`resume_s`"],
    ]
    return _table(["Mean of the calibration run", "ms", "becomes"], rows)


def page(found: Sequence[Compared], costs: Costs, when: str) -> str:
    count, seed, load = WORKLOAD
    options = "; ".join(
        f"`{each.contender.policy}`"
        + "".join(f" {key}={value}" for key, value in each.contender.options)
        for each in found
    )
    return PAGE.read_text().format(
        when=when,
        machine=_machine(),
        count=count,
        seed=seed,
        load=load,
        slots=SLOTS,
        options=options,
        observed=", ".join(f"{number} {what}" for what, number in costs.observed.items()),
        cal=CALIBRATION,
        verdict=_verdict(found),
        results=_results(found),
        decisions=_decisions(found),
        residuals=_residuals(found),
        calibration=_calibration(costs),
        jitters=JITTERS,
        jitter=JITTER_MS,
        cpu=max(each.cpu_part for each in found) * 100,
    )
