"""`trainmaster simulate`: replay a trace on a cluster under one or several policies."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainmaster.cli.support import scenario_options as options
from trainmaster.cli.support.console import remark
from trainmaster.cli.support.errors import INTERRUPTED
from trainmaster.cli.support.files import STDOUT, check_directory, check_writable, write_out
from trainmaster.cli.support.options import argument, option
from trainmaster.errors import BadInput, CommandError, Failed

if TYPE_CHECKING:
    from trainmaster.cli.support.simulate_runner import Ran
    from trainmaster.sim.driver import Scenario


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
        Path | None, option("--report DIR", "Write an HTML page with plots, as PNG and CSV too.")
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
    from trainmaster.cli.support.recorded_folder import inputs_of
    from trainmaster.model.units import to_ms
    from trainmaster.scenarios import inputs
    from trainmaster.scenarios.policies import lineup
    from trainmaster.sim.driver import Scenario
    from trainmaster.traces.formats import load

    check_writable(json, "--json")
    check_directory(report, "--report")
    policies = lineup(policy, set_option or [])
    found = inputs_of(trace, cluster, queues, perf)
    if found.cluster is None:
        raise BadInput("--cluster is missing: say what to simulate on, such as --cluster 8x8.")
    trace, queues = found.trace, found.queues
    described = inputs.cluster_of(found.cluster)
    scenario = Scenario(
        cluster=found.cluster,
        topology=described.topology,
        node_changes=described.changes,
        perf=inputs.perf_model_of(found.perf),
        estimates=inputs.estimates_of(estimates),
        queues=inputs.queues_of(queues),
        user_limits=inputs.user_limits_of(queues),
        until_ms=None if until_s is None else to_ms(inputs.finite(until_s, "--until-s")),
        seed=seed,
        keep_stints=report is not None,
        failure_rules=inputs.failure_rules_of(failure_rules, failures),
        trace=inputs.failures_of(load(trace, trace_format), failures, seed),
    )
    remark("Note", [*scenario.trace.notes, *inputs.idle_limits(scenario.queues, policies)])
    unmet = inputs.unmet_guarantees(scenario.queues, scenario.topology, policies)
    remark("Warning", unmet)
    inputs.check_spans(scenario.perf, scenario.topology)
    _compare(scenario, policies, trace.resolve().name, json, report)


def _compare(
    scenario: Scenario, policies: list[Any], trace_name: str, json: Path | None, report: Path | None
) -> None:
    """Run, write what was asked for, show; a file that cannot be written does not cost the table."""
    from trainmaster.cli.support.simulate_runner import run_all
    from trainmaster.cli.support.simulate_table import cautions, show

    runs = run_all(scenario, policies)
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
    from trainmaster.cli.support.simulate_table import for_report
    from trainmaster.report.atomic_write import ReportError
    from trainmaster.report.page import write_report
    from trainmaster.text.formatting import listing

    results = for_report(scenario, runs)
    policies = listing([result.policy for result in results])
    title = f"{trace_name} on {scenario.cluster} under {policies}"
    try:
        page = write_report(results, report, title=title, trace_name=trace_name)
    except ReportError as error:
        raise Failed(str(error)) from None
    remark("Report", [str(page)])
