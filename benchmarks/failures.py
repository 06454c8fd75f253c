"""What the rules about failures save: GPU hours lost on Philly's jobs without rules, and with each of them.

`philly-82k.csv` has Philly's jobs but not their attempts: failures are drawn from the failure table of
Microsoft's study (docs/traces.md), once for each seed, and the same for all rules. A ratio is against no
rules under the same seed. Skipped, saying so, where ../shared/data is not there.

    python -m benchmarks.failures [--seeds 2] [--out benchmarks/results/failures.json] [--go-on]
    python -m benchmarks.failures --page     # the page and its plot from the results
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.fresh_process import write_report
from benchmarks.pages import page
from trainmaster.catalog import policy_class
from trainmaster.daemon.failure_table import built_in_table
from trainmaster.model.result import Result, Status
from trainmaster.model.topology import parse_shorthand
from trainmaster.model.trace import Trace
from trainmaster.model.units import SECOND
from trainmaster.perf.perf_model import IDEAL
from trainmaster.sim.driver import Scenario, Simulation
from trainmaster.sim.failure_judge import PRERUN_MS, FailureRules
from trainmaster.sim.metrics import result_of
from trainmaster.traces.drawn_failures import JOBS_PER_INPUT, draw_failures
from trainmaster.traces.formats import load
from trainmaster.traces.philly_like import generate

ROOT = Path(__file__).resolve().parent.parent
PHILLY = ROOT.parent / "shared" / "data" / "philly" / "philly-82k.csv"
RESULTS = ROOT / "benchmarks" / "results" / "failures.json"
PAGE = ROOT / "docs" / "measurements" / "failures.md"
PLOT = PAGE.with_suffix(".png")

POLICY = "fifo backfill=skip"
PERF = replace(IDEAL, has_failures=True)
"""Without slowdowns by placement, so that a failed run takes as long under all rules."""
RULES: Mapping[str, dict[str, Any]] = {
    "none": {},
    "retry": {"retries": True},
    "prerun": {"prerun_ms": PRERUN_MS},
    "prerun:600": {"prerun_ms": 10 * PRERUN_MS},
    "inputs": {"blocks_inputs": True},
    "all": {"retries": True, "prerun_ms": PRERUN_MS, "blocks_inputs": True},
}
"""`all` is retry, prerun and inputs together."""
CLUSTERS = {"philly": "312x8", "crowded": "64x8", "generated": "64x8"}
"""As many GPUs as Philly had, where nothing waits; a fifth of them; generated jobs, a third of them gangs."""
CROWDED_RULES = ("none", "retry", "all")
PLANNED = ("cluster", "rules", "seed", "jobs_per_input")
OTHER_INPUTS = (2.0, 8.0)
"""Jobs per bad input, beside the usual number: nobody has published it."""


def measure(cluster: str, rules: str, seed: int, jobs_per_input: float) -> dict[str, Any]:
    """One simulation."""
    trace = failing_trace(cluster == "generated", seed, jobs_per_input)
    began = time.process_time()
    result = simulate(trace, CLUSTERS[cluster], rules)
    assert result.failures is not None
    report, effects = result.failures.report, result.failures.effects
    passed = [(job.jct_ms or 0) / SECOND for job in result.jobs if job.status is Status.SUCCEEDED]
    return {
        "cluster": cluster,
        "rules": rules,
        "seed": seed,
        "jobs_per_input": jobs_per_input,
        "failed_gpu_hours": round(report.gpu_hours, 1),
        "prerun_gpu_hours": round(effects.prerun_gpu_hours, 1),
        "lost_gpu_hours": round(report.gpu_hours + effects.prerun_gpu_hours, 1),
        "failed_runs": report.trials,
        "failed_gang_runs": sum(sum(row.sizes[1:]) for row in report.reasons),
        "jobs_given_up": effects.jobs_given_up,
        "jobs_given_up_in_vain": effects.jobs_given_up_in_vain,
        "jobs_set_aside": effects.jobs_set_aside,
        "inputs_blocked": effects.inputs_blocked,
        "passed": len(passed),
        "avg_jct_of_passed_s": round(mean(passed), 1),
        "reasons": {row.reason: round(row.gpu_hours, 1) for row in report.reasons},
        "cpu_s": round(time.process_time() - began, 1),
    }


@lru_cache(maxsize=1)
def failing_trace(is_generated: bool, seed: int, jobs_per_input: float) -> Trace:
    whole = generate(10_000, 512, 0.7, seed) if is_generated else philly()
    return draw_failures(whole, seed, jobs_per_input)


@cache
def philly() -> Trace:
    return load(PHILLY)


def simulate(trace: Trace, cluster: str, rules: str) -> Result:
    kind = policy_class("fifo")
    options = replace(kind.options_type(), backfill="skip")
    scenario = Scenario(
        trace,
        parse_shorthand(cluster),
        cluster,
        PERF,
        failure_rules=FailureRules(built_in_table(), **RULES[rules]),
    )
    simulation = Simulation(scenario, kind(options))
    simulation.run()
    return result_of(simulation)


def plan(seeds: int) -> list[tuple[str, str, int, float]]:
    """The simulations to make: cluster, rules, seed, jobs per bad input."""
    first, *others = [
        [("philly", rules, seed, JOBS_PER_INPUT) for rules in RULES] for seed in range(seeds)
    ]
    inputs = [("philly", "inputs", 0, jobs) for jobs in OTHER_INPUTS]
    crowded = [("crowded", rules, 0, JOBS_PER_INPUT) for rules in CROWDED_RULES]
    generated = [("generated", rules, 0, JOBS_PER_INPUT) for rules in RULES]
    return [*first, *generated, *inputs, *crowded, *(run for runs in others for run in runs)]


def with_ratios(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each with its loss as a part of that without rules, on the same cluster and the same failures."""
    keys = ("cluster", "seed")  # what fails does not depend on how inputs are shared
    base = {tuple(run[key] for key in keys): run for run in runs if run["rules"] == "none"}
    found = []
    for run in runs:
        without = base[tuple(run[key] for key in keys)]
        ratio = run["lost_gpu_hours"] / without["lost_gpu_hours"]
        found.append({**run, "ratio": round(ratio, 4)})
    return found


# -- the page --------------------------------------------------------------------------------------


def rows_of(runs: Sequence[Mapping[str, Any]], cluster: str = "philly") -> list[dict[str, Any]]:
    """The mean over the seeds for each rule, and the range of its ratio."""
    found = []
    for rules in RULES:
        own = [
            run
            for run in runs
            if (run["cluster"], run["rules"]) == (cluster, rules)
            and run["jobs_per_input"] == JOBS_PER_INPUT
        ]
        ratios = [run["ratio"] for run in own]
        numbers = {
            key: mean(run[key] for run in own)
            for key, value in own[0].items()
            if isinstance(value, int | float)
        }
        found.append({**numbers, "rules": rules, "least": min(ratios), "most": max(ratios)})
    return found


def reason_rows(runs: Sequence[Mapping[str, Any]], most: int = 8) -> list[dict[str, Any]]:
    """GPU hours by reason under the first seed, for each rule."""
    own = {
        run["rules"]: run["reasons"]
        for run in runs
        if (run["cluster"], run["seed"], run["jobs_per_input"]) == ("philly", 0, JOBS_PER_INPUT)
    }
    worst = sorted(own["none"], key=lambda reason: -own["none"][reason])[:most]
    return [
        {"reason": reason, **{rules: own[rules].get(reason, 0.0) for rules in RULES}}
        for reason in worst
    ]


def draw_plot(runs: Sequence[Mapping[str, Any]], path: Path) -> None:
    """GPU hours lost under each rule, by reason."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    reasons = reason_rows(runs)
    names = list(RULES)
    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    left = [0.0] * len(names)
    for row in reasons:
        values = [row[name] / 1000 for name in names]
        axes.barh(names, values, left=left, label=row["reason"])
        left = [at + value for at, value in zip(left, values, strict=True)]
    totals = {row["rules"]: row for row in rows_of([run for run in runs if run["seed"] == 0])}
    for at, name in enumerate(names):
        lost = totals[name]["lost_gpu_hours"] / 1000
        axes.barh(name, max(0.0, lost - left[at]), left=left[at], color="0.8")
        axes.text(lost, at, f" {totals[name]['ratio']:.0%}", va="center")
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set_xlabel("GPU hours lost to failed runs, thousands (grey: other reasons and pre-runs)")
    axes.set_ylabel("rules")
    figure.legend(loc="outside lower center", ncol=4, fontsize="small", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120, metadata={"Software": None})
    pyplot.close(figure)


def write_page(results: Path) -> None:
    runs = json.loads(results.read_text())["runs"]
    draw_plot(runs, PLOT)
    crowded = [run for run in runs if run["cluster"] == "crowded"]
    inputs = [
        run
        for run in runs
        if run["cluster"] == "philly" and run["seed"] == 0 and run["rules"] == "inputs"
    ]
    text = page(
        "failures_page.md",
        rows=rows_of(runs),
        generated=rows_of(runs, "generated"),
        reasons=reason_rows(runs),
        rules=list(RULES),
        crowded=crowded,
        inputs=sorted(inputs, key=lambda run: run["jobs_per_input"]),
        seeds=len({run["seed"] for run in runs}),
    )
    PAGE.write_text(text)


def main() -> None:
    reading = argparse.ArgumentParser(description=__doc__)
    reading.add_argument("--seeds", type=int, default=2)
    reading.add_argument("--out", type=Path, default=RESULTS)
    reading.add_argument("--go-on", action="store_true", help="keep the runs that --out has")
    reading.add_argument("--page", action="store_true", help="write the page from the results")
    given = reading.parse_args()
    if given.page:
        write_page(given.out)
        return
    if not PHILLY.exists():
        print(f"Skipped: {PHILLY} is not there.", file=sys.stderr)
        return
    runs = json.loads(given.out.read_text())["runs"] if given.go_on else []
    done = {tuple(run[key] for key in PLANNED) for run in runs}
    for each in (each for each in plan(given.seeds) if each not in done):
        runs.append(measure(*each))
        write_report(given.out, trace=PHILLY.name, policy=POLICY, runs=with_ratios(runs))
        shown = {key: value for key, value in runs[-1].items() if key != "reasons"}
        print("  ".join(f"{key} {value}" for key, value in shown.items()), flush=True)
    write_page(given.out)


if __name__ == "__main__":
    main()
