"""The cluster and the queues of a question: those of today, with what is to be different."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from trainmaster.catalog import policy_names
from trainmaster.config.cluster import Cluster, cluster_from
from trainmaster.config.queues import queues_from, user_limits_from
from trainmaster.config.validation import ConfigError
from trainmaster.core.policy import Policy
from trainmaster.daemon.policies import policy_of
from trainmaster.daemon.recording import Present, cluster_fields, queues_fields
from trainmaster.daemon.request_errors import RequestError
from trainmaster.model import events as e
from trainmaster.model.engine_reports import ClusterNode
from trainmaster.model.policy_spec import PolicySpec
from trainmaster.model.queue import Queue
from trainmaster.model.quota import UserLimits
from trainmaster.model.topology import Node
from trainmaster.text.suggest import did_you_mean
from trainmaster.whatif.counted_devices import CountedDevices
from trainmaster.whatif.question import PolicyAsked, Question, QuestionError

EXTRA = "more"
"""How the names of nodes begin that a question adds."""


def spec_of(asked: PolicyAsked) -> PolicySpec:
    return PolicySpec(asked.name, asked.options)


def name_of(spec: PolicySpec, asked: Question) -> str:
    """What a column is called: the policy, its options, and what else differs from today."""
    options = ", ".join(f"{key}={value}" for key, value in spec.options)
    return ", ".join(filter(None, (spec.name, options, asked.changes_words)))


def made(spec: PolicySpec) -> Policy:
    """A fresh policy; what is wrong with its name or an option is one sentence.

    Files are read only where they are in the spec already: who asks is not the manager's own user.
    """
    if not spec.source and spec.name not in policy_names():
        raise QuestionError(
            f"There is no policy {spec.name!r}; {did_you_mean(spec.name, policy_names())}"
        )
    try:
        return policy_of(spec, _no_file)
    except RequestError as error:
        raise QuestionError(str(error)) from None


def _no_file(name: str) -> str:
    raise RequestError(f"Options that name files, such as {name}, are not for a what-if.")


def cluster_of(present: Present, question: Question, changes: Sequence[e.NodeChange]) -> Cluster:
    """The simulated cluster of a question about the past."""
    if question.cluster is not None:
        try:
            found = cluster_from(question.cluster, "cluster")
        except ConfigError as error:
            raise QuestionError(str(error)) from None
        if question.more_nodes:
            raise QuestionError(
                "Say either another cluster or more nodes: the cluster file may have them."
            )
        return found
    usual = usual_node(present)
    fields = cluster_fields(present, changes)
    if question.more_nodes:
        own = next(
            each
            for each in _all_nodes(fields)
            if each["name"] == present.topology.nodes[usual.index].name
        )
        _last_nodes(fields).extend(
            {**own, "name": f"{EXTRA}-{number}"} for number in range(1, question.more_nodes + 1)
        )
    return cluster_from(fields)


def _all_nodes(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    if "nodes" in fields:
        return list(fields["nodes"])
    inner = [value for value in fields.values() if _is_domains(value)]
    return [node for domains in inner for each in domains for node in _all_nodes(each)]


def _last_nodes(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The list of nodes of the last innermost domain."""
    while "nodes" not in fields:
        fields = next(value for value in fields.values() if _is_domains(value))[-1]
    nodes: list[dict[str, Any]] = fields["nodes"]
    return nodes


def _is_domains(value: object) -> bool:
    """Lists of domains; `levels` is a list of names, `changes` has no nodes in it."""
    return (
        isinstance(value, list)
        and bool(value)
        and isinstance(value[0], dict)
        and not {"at_s"} & value[0].keys()
    )


def usual_node(present: Present) -> Node:
    """The first node of the kind that there is most of; CPU nodes only where there are no others."""
    nodes = CountedDevices.of(present.topology, present.forgotten).nodes
    if not nodes:
        raise QuestionError("The cluster has no nodes: there is nothing to simulate.")
    kinds = Counter((node.type, node.gpus, node.cpus, node.memory) for node in nodes)
    usual = kinds.most_common(1)[0][0]
    return next(n for n in nodes if (n.type, n.gpus, n.cpus, n.memory) == usual)


def nodes_added(present: Present, question: Question) -> e.NodesAdded:
    """More nodes of the usual kind, for the live state."""
    usual, topology = usual_node(present), present.topology
    around = tuple(topology.names_around(usual).items())
    return e.NodesAdded(
        tuple(
            ClusterNode(
                f"{EXTRA}-{number}",
                "",
                usual.gpus,
                usual.type,
                usual.cpus,
                usual.memory,
                (),
                around,
            )
            for number in range(1, question.more_nodes + 1)
        )
    )


def queues_of(
    present: Present, question: Question
) -> tuple[dict[str, Queue], tuple[UserLimits, ...]]:
    """Queues and limits of users, with what is to be different."""
    fields = deepcopy(queues_fields(present.queues, present.user_limits))
    if question.queues is not None:
        fields = dict(question.queues)
    listed: list[dict[str, Any]] = list(fields.get("queues", []))
    for name, terms in question.set_queues.items():
        known = next((each for each in listed if each.get("name") == name), None)
        if known is None:
            listed.append({"name": name, **terms})
        else:
            known.update(terms)
    if listed:
        fields["queues"] = listed
    if not fields:
        return {}, ()
    try:
        return queues_from(fields, "queues"), user_limits_from(fields, "queues")
    except ConfigError as error:
        raise QuestionError(str(error)) from None
