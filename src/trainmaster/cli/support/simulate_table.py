"""The table that a simulation ends with: policies side by side, with notes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from trainmaster.cli.support.console import Styled, plainly, screen, write_styled
from trainmaster.cli.support.failure_tables import failed_runs, reason_table
from trainmaster.model.result import Summary
from trainmaster.report.metrics import Metric, named
from trainmaster.report.metrics import shown as visible
from trainmaster.scenarios.runs import Ran
from trainmaster.sim.deadlines import count_deadlines, in_words
from trainmaster.sim.driver import Scenario
from trainmaster.text.formatting import ABSENT, duration, plural

if TYPE_CHECKING:
    from rich.table import Table

LABEL_WIDTH, VALUE_WIDTH = 16, 12
SHOWN = named(
    *("rejected", "unfinished", "avg_jct_s", "p50_jct_s", "p95_jct_s", "p99_jct_s", "avg_queue_s"),
    *("makespan_s", "gpu_util", "preemptions", "migrations", "gpu_hours_wasted"),
    *("cost", "cost_wasted", "cost_idle", "max_rho", "jain_index"),
)


def show(scenario: Scenario, trace_name: str, runs: Sequence[Ran]) -> None:
    """The comparison on standard output."""
    console = screen()
    console.print(
        _headline(scenario, trace_name, runs[0].result.summary), style="bold", markup=False
    )
    at_once = max(1, (console.width - LABEL_WIDTH) // VALUE_WIDTH)
    for first in range(0, len(runs), at_once):
        console.print(_table(runs[first : first + at_once], runs))
    for line in _deadlines(runs):
        console.print(line, markup=False)
    for text in _failures(runs):
        write_styled(text)


def _deadlines(runs: Sequence[Ran]) -> Iterator[str]:
    """What came of deadlines, if there were any: a line for each policy."""
    for ran in runs:
        found = count_deadlines(ran.result.jobs)
        if found is not None:
            under = f" under {ran.result.policy}" if len(runs) > 1 else ""
            yield f"deadlines{under}: {in_words(found)}"


def _failures(runs: Sequence[Ran]) -> Iterator[Styled]:
    """What failed, where that was asked for: a line for each policy, the reasons of a single one."""
    for ran in runs:
        failures = ran.result.failures
        if failures is None:
            continue
        found, done = asdict(failures.report), failures.effects
        under = f" under {ran.result.policy}" if len(runs) > 1 else ""
        rules = f" with {', '.join(done.rules)}" if done.rules else ""
        yield Styled(plainly(f"failures{under}{rules}: ") + failed_runs(found))
        if done.rules:
            yield plainly(
                f"  {plural(done.jobs_given_up, 'job')} not tried again ({done.jobs_given_up_in_vain}"
                f" would have ended well), {done.jobs_set_aside} not started on"
                f" {plural(done.inputs_blocked, 'blocked input')},"
                f" {done.prerun_gpu_hours:.2f} GPU hours for pre-runs that passed.\n"
            )
        if len(runs) == 1 and failures.report.trials:
            yield reason_table(found["reasons"])


def _headline(scenario: Scenario, trace_name: str, summary: Summary) -> str:
    load = f", load {summary.load:.2f}" if summary.load is not None else ""
    gpus = plural(scenario.topology.training_gpus, "GPU")
    jobs = plural(summary.jobs, "job")
    return f"{trace_name} on {scenario.cluster}: {jobs}, {gpus}{load}, perf {scenario.perf.name}"


def _table(shown: Sequence[Ran], everyone: Sequence[Ran]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for ran in shown:
        name = f"{ran.result.policy} (cut)" if ran.interrupted else ran.result.policy
        table.add_column(escape(name), justify="right", no_wrap=True)
    runs = [ran.result.summary for ran in everyone]
    for metric in visible(SHOWN, runs):
        best = metric.best(metric.of(run) for run in runs)
        table.add_row(metric.label, *(_cell(metric, ran.result.summary, best) for ran in shown))
    table.add_row("wall time", *(duration(ran.wall_s) for ran in shown))
    return table


def _cell(metric: Metric, summary: Summary, best: str | None) -> str:
    bound = summary.avg_jct_lower_bound_s
    if metric.key == "avg_jct_s" and bound is not None:
        return f"≥ {duration(bound)}"
    text = metric.words(metric.of(summary))
    return f"[bold green]{text}[/]" if text == best and text != ABSENT else text
