"""`trainmaster simulate`: replay a trace on a cluster under one or several policies."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainmaster.cli.support import scenario_options as options
from trainmaster.cli.support.console import remark
from trainmaster.cli.support.errors import INTERRUPTED, is_debugging
from trainmaster.cli.support.files import STDOUT, check_directory, check_writable, write_out
from trainmaster.cli.support.options import argument, option
from trainmaster.errors import CommandError, Failed

if TYPE_CHECKING:
    from trainmaster.scenarios.runs import Ran
    from trainmaster.sim.driver import Scenario

PATIENCE_S = 1.0
"""Shorter runs show no progress bar."""


def simulate(
    trace: Annotated[
        Path, argument("TRACE", "A file, or a folder of a public trace or of `trainmaster record`.")
    ],
    cluster: Annotated[str | None, options.CLUSTER] = None,
    policy: Annotated[str, options.POLICY] = "trainmaster",
    set_option: Annotated[list[str] | None, options.SET_OPTION] = None,
    trace_format: Annotated[str | None, options.FORMAT] = None,
    queues: Annotated[Path | None, options.QUEUES] = None,
    perf: Annotated[str | None, options.PERF] = None,
    estimates: Annotated[str, options.ESTIMATES] = "exact",
    failures: Annotated[str | None, options.FAILURES] = None,
    failure_rules: Annotated[str | None, options.FAILURE_RULES] = None,
    until_s: Annotated[
        float | None, option("--until-s S", "Stop at this time of the trace, in seconds.", min=0)
    ] = None,
    seed: Annotated[int, option("--seed N", "Random seed.", min=0)] = 0,
    json: Annotated[Path | None, option("--json FILE|-", "Write the results as JSON.")] = None,
    report: Annotated[
        Path | None,
        option("--report DIR", "Write an HTML page with plots, also as PNG, SVG, PDF and CSV."),
    ] = None,
) -> None:
    """Replay a trace on a cluster under one or several policies, and compare them.

    Examples:
        trainmaster simulate trace.csv --cluster 4x8x8 --policy fifo,srtf,tiresias-l
        trainmaster simulate trace.csv --cluster 8x8 --policy las --set quantum_s=300 --perf ideal
        trainmaster simulate trace.csv --cluster cluster.yaml --policy fifo --set fifo.backfill=easy
        trainmaster simulate trace.csv --cluster 8x8 --policy fifo,./mine.py --report out
        trainmaster simulate trace.csv --cluster 8x8 --failures study --failure-rules retry,prerun,inputs
        trainmaster record --out yesterday && trainmaster simulate yesterday --policy fifo,tiresias-l
        trainmaster simulate trace.csv --cluster 8x8 --json - | jq '.results[].summary'
    """
    from trainmaster.scenarios import inputs
    from trainmaster.scenarios.policies import lineup
    from trainmaster.scenarios.scenario import scenario_of

    check_writable(json, "--json")
    check_directory(report, "--report")
    policies = lineup(policy, set_option or [])
    scenario = scenario_of(
        trace,
        cluster,
        format=trace_format,
        queues=queues,
        perf=perf,
        estimates=estimates,
        failures=failures,
        failure_rules=failure_rules,
        until_s=until_s,
        seed=seed,
        keep_stints=report is not None,
    )
    remark("Note", [*scenario.trace.notes, *inputs.idle_limits(scenario.queues, policies)])
    unmet = inputs.unmet_guarantees(scenario.queues, scenario.topology, policies)
    remark("Warning", unmet)
    _compare(scenario, policies, trace.resolve().name, json, report)


def _compare(
    scenario: Scenario, policies: list[Any], trace_name: str, json: Path | None, report: Path | None
) -> None:
    """Run, write what was asked for, show; a file that cannot be written does not cost the table."""
    from trainmaster.cli.support.simulate_table import show
    from trainmaster.scenarios.cautions import cautions

    runs = _run_all(scenario, policies)
    failures: list[CommandError] = []
    with _collecting(failures):
        _write_json(runs, json)
    if json is None or str(json) != STDOUT:
        show(scenario, trace_name, runs)
        sys.stdout.flush()
    with _collecting(failures):
        _write_report(scenario, runs, trace_name, report)
    remark("Warning", cautions(scenario, runs))
    if runs[-1].interrupted:
        unseen = len(policies) - len(runs)
        others = f", {unseen} of the policies not begun" if unseen else ""
        remark("Interrupted", [f"these are the results up to where it came{others}."])
    if failures:
        raise failures[0]
    if runs[-1].interrupted:
        raise typer.Exit(INTERRUPTED)
    if any(ran.raised for ran in runs):
        raise typer.Exit(1)


def _run_all(scenario: Scenario, policies: Sequence[Any]) -> list[Ran]:
    """Every policy over the same scenario; an interruption ends the series."""
    from trainmaster.cli.support.progress_bar import ProgressBar
    from trainmaster.scenarios.runs import run_policy

    found: list[Ran] = []
    for policy in policies:
        with ProgressBar(policy.name, after_s=PATIENCE_S) as bar:
            found.append(run_policy(scenario, policy, bar.update))
        error = found[-1].error
        if error is not None and is_debugging():
            traceback.print_exception(error)
        if found[-1].interrupted:
            break
    return found


@contextmanager
def _collecting(failures: list[CommandError]) -> Iterator[None]:
    try:
        yield
    except CommandError as error:
        failures.append(error)


def _write_json(runs: list[Ran], json: Path | None) -> None:
    from trainmaster.sim.result_json import to_json

    if json is not None:
        wall_s = {ran.result.policy: ran.wall_s for ran in runs}
        text = to_json([ran.result for ran in runs], wall_s)
        write_out(json, lambda out: out.write(text))


def _write_report(
    scenario: Scenario, runs: list[Ran], trace_name: str, report: Path | None
) -> None:
    if report is None:
        return
    from trainmaster.report.atomic_write import ReportError
    from trainmaster.report.page import write_report
    from trainmaster.scenarios.cautions import for_report
    from trainmaster.text.formatting import listing

    results = for_report(scenario, runs)
    policies = listing([result.policy for result in results])
    title = f"{trace_name} on {scenario.cluster} under {policies}"
    try:
        page = write_report(results, report, title=title, trace_name=trace_name)
    except ReportError as error:
        raise Failed(str(error)) from None
    remark("Report", [str(page)])
