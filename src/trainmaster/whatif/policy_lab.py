"""A comparison of policies on a trace, asked for on a page: `python -m trainmaster.whatif.policy_lab FOLDER`.

It reads what was asked in the folder, and leaves there the numbers of the comparison and the report as a ZIP.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainmaster.catalog import CatalogError, policy_names
from trainmaster.config.performance import BASES
from trainmaster.config.validation import ConfigError
from trainmaster.model.policy_spec import PolicySpec
from trainmaster.model.result import JobResult, Result
from trainmaster.model.topology import TopologyError, parse_shorthand
from trainmaster.model.trace import Trace, TraceError
from trainmaster.model.units import SECOND, to_seconds
from trainmaster.policy_files import policy_from
from trainmaster.report.metrics import METRICS, shown
from trainmaster.report.page import write_report
from trainmaster.report.policy_run import PolicyRun, name_runs
from trainmaster.report.step_function import (
    Steps,
    completion_times,
    distribution,
    first_submit_s,
    from_curve,
    smoothed,
    thinned,
    thinned_ranks,
)
from trainmaster.sim.driver import Scenario, Simulation, estimates_from
from trainmaster.sim.metrics import result_of
from trainmaster.text.formatting import clock, count, plural
from trainmaster.text.suggest import did_you_mean
from trainmaster.traces import formats, generators
from trainmaster.whatif.child_process import Teller, bounded, refuse
from trainmaster.whatif.lab_bounds import MOST_GPUS, MOST_JOBS
from trainmaster.whatif.simulation_processes import RESULT, request_in

MOST_POINTS = 400
"""Of a curve on the page; the report has more."""
SMOOTH_POINTS = 120
"""Of utilisation: means, since it jumps up and down."""
REPORT_PART = 0.1
"""Of the whole work, for drawing the report."""


def main() -> None:
    bounded()
    folder = Path(sys.argv[1])
    asked = request_in(folder)
    try:
        result = compared(asked, folder, Teller())
    except (TraceError, ConfigError, TopologyError, CatalogError, ValueError) as error:
        refuse(_sentence(str(error)))
    (folder / RESULT).write_text(json.dumps(result))


def _sentence(said: str) -> str:
    return f"{said[:1].upper()}{said[1:].rstrip('.')}."


def compared(asked: Mapping[str, Any], folder: Path, teller: Teller) -> dict[str, Any]:
    """What the page shows; the report lies in the folder then."""
    topology = parse_shorthand(asked["cluster"])
    if topology.training_gpus > MOST_GPUS:
        raise ValueError(f"the policy lab simulates {count(MOST_GPUS)} GPUs at most.")
    teller.tell(0.0, "Reading the trace.")
    name, trace = trace_of(asked["trace"], folder, topology.training_gpus)
    scenario = Scenario(
        cluster=asked["cluster"],
        topology=topology,
        perf=BASES[asked["perf"]],
        estimates=estimates_from(asked["estimates"]),
        seed=asked["seed"],
        keep_stints=True,
        trace=trace,
    )
    policies = [_policy(each["name"], each["options"]) for each in asked["policies"]]
    results = []
    for number, policy in enumerate(policies):
        results.append(_simulated(scenario, policy, number, len(policies), teller))
    runs = name_runs([replace(each, warnings=(*trace.notes, *each.warnings)) for each in results])
    teller.tell(1 - REPORT_PART, "Drawing the report.")
    _keep_report(runs, folder, name)
    return {
        "trace": name,
        "jobs": len(trace.jobs),
        "cluster": asked["cluster"],
        "gpus": topology.training_gpus,
        "notes": list(trace.notes),
        **_table(runs),
        "runs": [_curves(run, first_submit_s(results)) for run in runs],
    }


def _policy(name: str, options: Mapping[str, str]) -> Any:
    """One of the catalog: who asks is not the manager's own user, who alone may name files and code."""
    if name not in policy_names():
        raise ValueError(f"there is no policy {name!r}; {did_you_mean(name, policy_names())}")
    return policy_from(PolicySpec(name, tuple(options.items())), _no_file)


def _no_file(file: str) -> str:
    raise ValueError(f"options that name files, such as {file}, are not for the policy lab.")


def trace_of(asked: Mapping[str, Any], folder: Path, gpus: int) -> tuple[str, Trace]:
    """The trace that was sent or is to be made, with its name."""
    if asked["like"] is not None:
        name = f"a trace like {asked['like']}"
        make = generators.GENERATORS[asked["like"]]
        trace = make(asked["jobs"], gpus, asked["load"], asked["seed"])
    else:
        name = asked["name"]
        sent = folder / "trace"
        sent.write_text(asked["content"], "utf-8")
        try:
            trace = formats.load(sent, asked["format"])
        except TraceError as error:
            raise TraceError(str(error).replace(str(sent), "The trace")) from None
        finally:
            sent.unlink(missing_ok=True)
    if not trace.jobs:
        raise TraceError("the trace has no job that can be replayed.")
    if len(trace.jobs) > MOST_JOBS:
        raise TraceError(
            f"the trace has {plural(len(trace.jobs), 'job')}, and the policy lab simulates"
            f" {count(MOST_JOBS)} at most: use `trainmaster simulate`."
        )
    return name, trace


def _simulated(scenario: Scenario, policy: Any, number: int, of: int, teller: Teller) -> Result:
    def tell(ended: int, jobs: int, now: int) -> None:
        done = (number + ended / max(1, jobs)) / of * (1 - REPORT_PART)
        says = f"{policy.name}: {count(ended)} of {plural(jobs, 'job')}, simulated {clock(now / SECOND)}."
        teller.tell(done, says)

    simulation = Simulation(scenario, policy)
    simulation.run(tell)
    error = simulation.controller.policy_error
    if error is not None:
        raise ValueError(f"{policy.name} raised an error: {type(error).__name__}: {error}")
    return result_of(simulation)


def _keep_report(runs: Sequence[PolicyRun], folder: Path, trace_name: str) -> None:
    made = folder / "report"
    title = (
        f"{trace_name} on {runs[0].result.cluster} under {', '.join(each.label for each in runs)}"
    )
    write_report([each.result for each in runs], made, title=title, trace_name=trace_name)
    shutil.make_archive(str(folder / "report"), "zip", made)
    shutil.rmtree(made)


def _table(runs: Sequence[PolicyRun]) -> dict[str, Any]:
    """The metrics with their words, and which is best."""
    summaries = [run.result.summary for run in runs]
    found = []
    for metric in shown((each for each in METRICS.values() if each.group), summaries):
        values = [metric.of(each) for each in summaries]
        best = metric.best(values)
        words = [metric.words(value) for value in values]
        found.append(
            {
                "key": metric.key,
                "label": metric.label,
                "hint": metric.hint,
                "group": metric.group,
                "values": values,
                "words": words,
                "best": [best is not None and each == best for each in words],
            }
        )
    return {"policies": [run.label for run in runs], "metrics": found}


def _curves(run: PolicyRun, origin_s: float) -> dict[str, Any]:
    result = run.result
    return {
        "policy": run.label,
        "options": {name: str(value) for name, value in result.options.items()},
        "jct": _points(thinned_ranks(completion_times(result), MOST_POINTS)),
        "wait": _points(thinned_ranks(_waits(result.jobs), MOST_POINTS)),
        "utilisation": _points(smoothed(from_curve(result.utilisation, origin_s), SMOOTH_POINTS)),
        "queue_length": _points(thinned(from_curve(result.queue_length, origin_s), MOST_POINTS)),
        "warnings": list(result.warnings),
    }


def _waits(jobs: Sequence[JobResult]) -> Steps:
    """Distribution of the wait before the first start."""
    started = [to_seconds(job.queue_ms) for job in jobs if job.queue_ms is not None]
    return distribution(started, len(jobs))


def _points(steps: Steps) -> list[list[float]]:
    return [
        [round(x, 3), round(y, 5)]
        for x, y in zip(steps.xs.tolist(), steps.ys.tolist(), strict=True)
    ]


if __name__ == "__main__":
    main()
