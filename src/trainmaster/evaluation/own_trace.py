"""Compare policies on the user's own trace: a suite of one experiment, by the same rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainmaster.config.options import effective
from trainmaster.config.performance import BASES
from trainmaster.errors import BadInput
from trainmaster.evaluation.suite import (
    Conditions,
    Contender,
    ContenderRole,
    Experiment,
    TraceFile,
    Workload,
)
from trainmaster.evaluation.trial import perf_model_of
from trainmaster.input_files import read_yaml
from trainmaster.model.topology import Topology
from trainmaster.model.trace import Trace
from trainmaster.policy_files import policy_named
from trainmaster.scenarios import inputs
from trainmaster.scenarios.cautions import undefined_queues
from trainmaster.scenarios.policies import Chosen, chosen_policies
from trainmaster.traces.formats import load

NAME = "own"
SEEDS = 10
"""Default number of seeds, if anything is random."""
OURS = "trainmaster"


Remark = Callable[[str, Iterable[str]], object]
"""Takes a kind, Note or Warning, and its lines."""


@dataclass(frozen=True, slots=True)
class TraceQuestion:
    """What users say of a comparison on their own trace."""

    trace: Path
    cluster: str | None
    policy: str
    format: str | None = None
    set: tuple[str, ...] = ()
    queues: Path | None = None
    perf: str = "default"
    estimates: str = "none"
    seeds: int | None = None


def experiment_of(own: TraceQuestion, remark: Remark) -> Experiment:
    """The experiment that answers a question."""
    if own.cluster is None:
        raise BadInput("a trace of your own needs --cluster, such as --cluster 32x4.")
    trace = load(own.trace, own.format)
    remark("Note", trace.notes)
    chosen = chosen_policies(own.policy, own.set)
    made = [each.make() for each in chosen]
    conditions = conditions_of(own)
    topology = inputs.cluster_of(own.cluster).topology
    inputs.check_spans(perf_model_of(conditions), topology)
    queues = _queues(own, trace, topology, made, remark)
    workload = Workload(
        name=own.trace.name,
        source=TraceFile(str(own.trace.resolve()), own.format),
        cluster=cluster_of(own.cluster),
        seeds=tuple(range(_seeds(own, conditions, remark))),
        queues=queues,
    )
    return Experiment(
        name=NAME,
        title=f"{own.trace.name} on {own.cluster}",
        question="Which policy makes these jobs wait least?",
        track="own",
        workloads=(workload,),
        conditions=(conditions,),
        contenders=tuple(_contender(each) for each in chosen),
        baseline=chosen[0].name,
    )


def _queues(
    own: TraceQuestion, trace: Trace, topology: Topology, policies: Sequence[Any], remark: Remark
) -> Mapping[str, object] | None:
    """The content of the queues file; notes and warnings about it are printed."""
    found = inputs.queues_of(own.queues)
    options = {each.name: effective(each.options) for each in policies}
    remark("Note", inputs.idle_limits(found, policies))
    remark("Warning", inputs.unmet_guarantees(found, topology, policies))
    remark("Warning", undefined_queues(trace.jobs, found, options))
    return None if own.queues is None else read_yaml(own.queues, "the queues file")[0]


def _contender(chosen: Chosen) -> Contender:
    """Policies that know the future are bounds, also those of users."""
    role = ContenderRole.OURS if chosen.name == OURS else ContenderRole.PUBLISHED
    if getattr(policy_named(chosen.named), "needs_oracle", False):
        role = ContenderRole.BOUND
    return Contender(chosen.name, chosen.named, chosen.settings, role=role)


def cluster_of(text: str) -> str | Mapping[str, object]:
    """A shorthand as it is, or a YAML file's content; both are checked here."""
    inputs.cluster_of(text)
    if inputs.SHORTHAND.fullmatch(text):
        return text
    return read_yaml(Path(text), "the cluster file")[0]


def conditions_of(own: TraceQuestion) -> Conditions:
    perf, estimates = own.perf, own.estimates
    inputs.perf_model_of(perf)
    inputs.estimates_of(estimates)
    content = perf if perf in BASES else read_yaml(Path(perf), "the perf file")[0]
    return Conditions(f"perf {perf}, estimates {estimates}", content, estimates)


def _seeds(own: TraceQuestion, conditions: Conditions, remark: Remark) -> int:
    """One if nothing is random: the others would only repeat it."""
    perf, estimates = perf_model_of(conditions), inputs.estimates_of(conditions.estimates)
    is_drawn = perf.node_failures.mtbf_ms is not None or perf.locality.error_ppm or estimates.error
    if is_drawn:
        return SEEDS if own.seeds is None else own.seeds
    if own.seeds is not None and own.seeds > 1:
        remark(
            "Note", ["nothing is random here, so every seed would give the same result: 1 seed."]
        )
    return 1
