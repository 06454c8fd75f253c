"""What users should know of simulations beside their numbers: rejected jobs, undefined queues, no prices."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from trainmaster.model.result import Result, Status
from trainmaster.model.topology import Topology
from trainmaster.model.trace import TracedJob
from trainmaster.model.units import GIB, WHOLE
from trainmaster.scenarios.runs import Ran
from trainmaster.sim.cost import unpriced_types
from trainmaster.sim.driver import Scenario
from trainmaster.text.formatting import plural

NAMED = 5
"""Rejected jobs that are named before they are only counted."""
BY_WEIGHT = "weight 1 and no bounds"
UNDEFINED_QUEUE = {"antman": "no quota, its jobs are opportunistic"}
"""Rights of a queue that is not defined, by policy; under the others it has a weight."""


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
