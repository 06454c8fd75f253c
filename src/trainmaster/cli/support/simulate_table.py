"""The table that a simulation ends with: policies side by side, with notes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from trainmaster.cli.support.console import Styled, plainly, screen, write_styled
from trainmaster.cli.support.failure_tables import failed_runs, reason_table
from trainmaster.cli.support.simulate_runner import Ran
from trainmaster.model.result import Result, Status, Summary
from trainmaster.model.topology import Topology
from trainmaster.model.trace import TracedJob
from trainmaster.model.units import GIB, WHOLE
from trainmaster.report.metrics import Metric, named
from trainmaster.report.metrics import shown as visible
from trainmaster.sim.cost import unpriced_types
from trainmaster.sim.deadlines import count_deadlines, in_words
from trainmaster.sim.driver import Scenario
from trainmaster.text.formatting import ABSENT, duration, plural

if TYPE_CHECKING:
    from rich.table import Table

NAMED = 5
"""Rejected jobs that are named before they are only counted."""
LABEL_WIDTH, VALUE_WIDTH = 16, 12
BY_WEIGHT = "weight 1 and no bounds"
UNDEFINED_QUEUE = {"antman": "no quota, its jobs are opportunistic"}
"""Rights of a queue that is not defined, by policy; under the others it has a weight."""


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


def for_report(scenario: Scenario, runs: Sequence[Ran]) -> list[Result]:
    """Results with the notes that the report shows beside their numbers."""
    common = (*scenario.trace.notes, *rejections(scenario, runs))
    return [
        replace(ran.result, warnings=(*common, *_cut_short(ran), *ran.result.warnings))
        for ran in runs
    ]


def _cut_short(ran: Ran) -> Iterator[str]:
    if ran.interrupted:
        yield f"the run of {ran.result.policy} was interrupted"


def cautions(scenario: Scenario, runs: Sequence[Ran]) -> Iterator[str]:
    """Rejected jobs, unfinished ones, and errors of each policy."""
    yield from rejections(scenario, runs)
    yield from (remark for ran in runs for remark in ran.result.warnings)
    options = {ran.result.policy: ran.result.options for ran in runs}
    yield from undefined_queues(scenario.trace.jobs, scenario.queues, options)
    yield from _unpriced(scenario.topology)
    if scenario.failure_rules is not None and not scenario.perf.has_failures:
        yield f"no job fails under perf {scenario.perf.name}: leave --perf out to see failures"


def _unpriced(topology: Topology) -> Iterator[str]:
    """GPU types without a price beside others that have one: no cost can be given."""
    missing = unpriced_types(topology)
    if missing and any(kind.price_per_hour is not None for kind in topology.types):
        names = ", ".join(missing)
        yield f"cost is left out: state price_per_hour of {names} in the cluster file as well"


def undefined_queues(
    jobs: Sequence[TracedJob],
    queues: Collection[str],
    options: Mapping[str, Mapping[str, object]],
) -> Iterator[str]:
    """Queues of a trace that are neither in the queues file nor among those of a policy's option."""
    stated = {name: str(own["queues"]) for name, own in options.items() if "queues" in own}
    pairs = (pair for text in stated.values() if text for pair in text.split(","))
    defined = {pair.rpartition(":")[0].strip() for pair in pairs} | set(queues)
    strange = {traced.job.queue for traced in jobs} - defined
    if stated and defined and strange:
        some = ", ".join(sorted(strange)[:NAMED])
        rights = "; ".join(_rights_of_undefined(list(stated)))
        yield f"{plural(len(strange), 'queue')} of the trace not defined: {some}; {rights}"


def _rights_of_undefined(policies: Sequence[str]) -> Iterator[str]:
    """The rights of a queue that is not defined; under which policies, where they differ."""
    found: dict[str, list[str]] = {}
    for policy in policies:
        found.setdefault(UNDEFINED_QUEUE.get(policy, BY_WEIGHT), []).append(policy)
    for rights, names in found.items():
        under = f"under {', '.join(names)} " if len(found) > 1 else ""
        yield f"{under}such a queue has {rights}"


def rejections(scenario: Scenario, runs: Sequence[Ran]) -> Iterator[str]:
    """Jobs that never fit; by which policies, where others took them."""
    by: dict[str, list[str]] = {}
    for ran in runs:
        for job in ran.result.jobs:
            if job.status is Status.REJECTED:
                by.setdefault(job.job_id, []).append(ran.result.policy)
    named = [traced for traced in scenario.trace.jobs if traced.job.id in by][:NAMED]
    for traced in named:
        policies = by[traced.job.id]
        whom = f" by {', '.join(policies)}" if len(policies) < len(runs) else ""
        yield f"job {traced.job.id} {_why_rejected(traced, scenario.topology)}: rejected{whom}"
    if len(by) > len(named):
        yield f"{plural(len(by) - len(named), 'more job')} rejected for the same kind of reason"


def _why_rejected(traced: TracedJob, topology: Topology) -> str:
    demand = traced.job.demand
    kind = demand.gpu_type
    fitting = [node for node in topology.nodes if demand.allows(node.type.name)]
    there = topology.training_gpus if kind is None else sum(node.gpus for node in fitting)
    of_type = f" of type {kind}" if kind is not None else ""
    need, memory = demand.nominal.count, demand.nominal.memory
    if need * demand.nominal.share > there * WHOLE or not there:
        return f"needs {plural(need, 'GPU')}{of_type}, the cluster has {there:,}"
    largest = max(node.type.memory for node in fitting)
    if memory > largest:
        return f"needs {memory / GIB:g} GiB on a GPU{of_type}, the largest has {largest / GIB:g}"
    return f"needs {plural(need, 'GPU')}{of_type} in a form that this cluster cannot hold"
