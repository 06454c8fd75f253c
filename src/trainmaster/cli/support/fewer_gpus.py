"""`trainmaster compare TRACE --fewer-gpus`: what a better policy is worth in GPUs."""

from __future__ import annotations

import json as json_text
from dataclasses import asdict, replace

from trainmaster.cli.compare import Outputs, OwnTrace
from trainmaster.cli.support.compare_runner import finish, run
from trainmaster.cli.support.compare_trace import experiment_for
from trainmaster.cli.support.console import remark, write, write_json_text
from trainmaster.config.cluster import Cluster
from trainmaster.errors import BadInput, Failed
from trainmaster.evaluation.capacity_search import (
    Saving,
    fewest_nodes,
    least_nodes,
    nodes_of,
    shrunk,
)
from trainmaster.evaluation.comparisons import comparisons, excess
from trainmaster.evaluation.own_trace import NAME
from trainmaster.evaluation.suite import Contender, Experiment, Suite, Workload
from trainmaster.policy_files import policy_named, policy_with
from trainmaster.scenarios import inputs
from trainmaster.sim.driver import split_by_fit
from trainmaster.text.formatting import duration, plural
from trainmaster.traces.formats import load


def answer(own: OwnTrace, outputs: Outputs) -> None:
    """Search for the fewest nodes, and print the answer."""
    shape = _checked(own)
    assert own.policy is not None
    assert own.against is not None
    experiment = experiment_for(own, f"{own.against},{own.policy}")
    theirs, ours = (each.label for each in experiment.contenders)
    target = _excess(experiment, theirs, experiment.workloads[0], outputs)
    if target is None:
        raise Failed(
            f"under {theirs} on {shape} not every job ends, or none fits: there is nothing to match."
        )

    def excess_on(nodes: int) -> float | None:
        whole = experiment.workloads[0]
        found = _excess(experiment, ours, replace(whole, cluster=shrunk(shape, nodes)), outputs)
        words = "some jobs do not end" if found is None else f"excess {duration(found)}"
        remark("Tried", [f"{plural(nodes, 'node')}: {words}"])
        return found

    nodes, gpus = nodes_of(shape)
    is_moldable = _is_moldable(experiment.contenders[1])
    least = least_nodes(_largest(own, inputs.cluster_of(shape), is_moldable=is_moldable), gpus)
    saving = fewest_nodes(excess_on, target, nodes, least, gpus)
    if outputs.as_json:
        entry = {"policy": ours, "against": theirs, "cluster": shape, **asdict(saving)}
        text = json_text.dumps(entry | {"gpus_fewer": saving.gpus_fewer}, indent=1)
        write_json_text(f"{text}\n")
    else:
        write(f"{worded(saving, ours, theirs, shape)}\n")


def _checked(own: OwnTrace) -> str:
    if own.policy is None or own.against is None:
        raise BadInput("--fewer-gpus needs --policy and --against, one policy each.")
    if "," in own.policy or "," in own.against:
        raise BadInput("--fewer-gpus compares one --policy with one --against.")
    name = policy_named(own.policy).name
    if name == policy_named(own.against).name:
        raise BadInput(
            f"--policy and --against are both {name}, which needs all the GPUs that it needs;"
            " name another policy in one of them."
        )
    if own.cluster is None or not inputs.SHORTHAND.fullmatch(own.cluster):
        raise BadInput("--fewer-gpus takes nodes from a shape: --cluster 15x4 or 4x15x4.")
    return own.cluster


def _excess(
    experiment: Experiment, label: str, workload: Workload, outputs: Outputs
) -> float | None:
    """Mean over seeds of one contender's excess there."""
    contender = next(each for each in experiment.contenders if each.label == label)
    alone = replace(
        experiment, workloads=(workload,), contenders=(contender,), baseline=contender.label
    )
    result = run(Suite(NAME, experiment.title, (alone,)), outputs, outputs.out, is_quiet=True)
    finish(result)
    (found,) = comparisons(result)
    return found.contenders[0].mean(excess)


def _is_moldable(contender: Contender) -> bool:
    """Whether it may start a job on fewer GPUs than the job asks for."""
    is_resizing: bool = policy_with(contender.policy, contender.settings).is_moldable
    return is_resizing


def _largest(own: OwnTrace, cluster: Cluster, *, is_moldable: bool) -> int:
    """GPUs of the largest job that the whole cluster can hold: it must still fit."""
    assert own.trace is not None
    jobs = load(own.trace, own.format).jobs
    accepted, _ = split_by_fit(jobs, cluster.topology, is_moldable=is_moldable)
    demands = [each.job.demand for each in accepted]
    return max(
        (each.min_count if is_moldable else each.nominal.count for each in demands), default=1
    )


def worded(saving: Saving, ours: str, theirs: str, shape: str) -> str:
    """The answer in a few sentences."""
    goal = f"{theirs} on {shape} has an excess of {duration(saving.target_s)}"
    if saving.enough is None:
        more = "some jobs do not end" if saving.excess_s is None else duration(saving.excess_s)
        return f"{goal}; {ours} does not equal that even with all of it ({more})."
    kept = saving.enough * saving.gpus_per_node
    said = (
        f"{goal}. {ours} equals that with {plural(saving.enough, 'node')} ({plural(kept, 'GPU')},"
        f" {saving.gpus_fewer:,} fewer): {duration(saving.excess_s)}."
    )
    if saving.too_few is None:
        return f"{said} The largest job needs as many."
    missed = (
        "some jobs did not end"
        if saving.too_few_excess_s is None
        else f"it was {duration(saving.too_few_excess_s)}"
    )
    return f"{said} With {plural(saving.too_few, 'node')} {missed}."
