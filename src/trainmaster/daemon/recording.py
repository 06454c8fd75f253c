"""What a recorded trace ran on, as the files that `simulate` reads: cluster, queues, switching costs."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainmaster.config.quotas import budget_as_stated
from trainmaster.core.state import State
from trainmaster.core.switch_times import SwitchTimes
from trainmaster.daemon.job_history import JobHistory
from trainmaster.model import codec
from trainmaster.model import events as e
from trainmaster.model.job_state import ENDED_STATES
from trainmaster.model.policy_spec import PolicySpec
from trainmaster.model.queue import Queue
from trainmaster.model.quota import UserLimits
from trainmaster.model.topology import CPU_TYPE, GpuType, Node, Topology
from trainmaster.model.units import GIB, NOMINAL, SECOND, WHOLE
from trainmaster.store.rows import JobFilter
from trainmaster.store.store import Store

PAGE = 1000
JOBS_LOOKED_AT = 200
"""The newest ended jobs, of which is seen whether programs here save."""
Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Recording:
    """Each as its file states it."""

    cluster: Fields
    queues: Fields
    """Empty: no queue is defined, and no user is limited."""
    perf: Fields
    policy: PolicySpec


@dataclass(frozen=True, slots=True)
class Present:
    """What a recording takes from the manager's state, which changes all the time."""

    topology: Topology
    away: frozenset[int]
    draining: frozenset[int]
    forgotten: frozenset[int]
    queues: tuple[Queue, ...]
    user_limits: tuple[UserLimits, ...]
    switch_times: SwitchTimes
    can_freeze: bool

    @classmethod
    def of(cls, state: State) -> Present:
        return cls(
            state.topology,
            frozenset(state.away),
            frozenset(state.draining),
            frozenset(state.forgotten),
            tuple(state.queues.values()),
            tuple(state.user_limits.values()),
            SwitchTimes.of(state.switch_times.counts()),
            state.can_freeze,
        )


def recording_of(store: Store, present: Present, policy: PolicySpec) -> Recording:
    """Blocks: it reads the store."""
    first = store.first_submission()
    changes = [] if first is None else list(node_changes(store, present, first))
    return Recording(
        cluster=cluster_fields(present, changes),
        queues=queues_fields(present.queues, present.user_limits),
        perf=perf_fields(
            present.switch_times, can_freeze=present.can_freeze, saves=programs_save(store)
        ),
        policy=policy,
    )


# -- cluster -------------------------------------------------------------------------------------------


def cluster_fields(present: Present, changes: Sequence[e.NodeChange] = ()) -> Fields:
    """The cluster file of these devices, without nodes that were removed for good."""
    topology, gone = present.topology, present.forgotten
    nodes = [node for node in topology.nodes if node.index not in gone and node.gpus]
    levels = topology.levels[1 : topology.node_level]
    fields: Fields = {}
    kinds = {node.type.name: node.type for node in nodes if node.type.name != CPU_TYPE}
    if kinds:
        fields["types"] = {name: _type_fields(kind) for name, kind in kinds.items()}
    if levels and tuple(levels) not in (("rack",), ("fabric", "rack")):
        fields["levels"] = list(levels)
    fields.update(_inside(nodes, levels, 1, topology))
    names = {node.index: node.name for node in nodes}
    said = [_change_fields(each, names) for each in changes if each.event.node in names]
    return fields | ({"changes": said} if said else {})


def _type_fields(kind: GpuType) -> Fields:
    fields: Fields = {"speed": kind.speed_ppm / NOMINAL}
    if kind.memory:
        fields["memory_gib"] = kind.memory / GIB
    if kind.price_per_hour is not None:
        fields["price_per_hour"] = kind.price_per_hour
    return fields


def _inside(nodes: Sequence[Node], levels: Sequence[str], depth: int, topology: Topology) -> Fields:
    """The domains of the next level with what is in each, or the nodes."""
    if not levels:
        return {"nodes": [_node_fields(node, topology) for node in nodes]}
    parts: dict[int, list[Node]] = {}
    for node in nodes:
        parts.setdefault(node.domains[depth], []).append(node)
    inner = [_inside(each, levels[1:], depth + 1, topology) for each in parts.values()]
    return {f"{levels[0]}s": inner}


def _node_fields(node: Node, topology: Topology) -> Fields:
    fields: Fields = {"name": node.name}
    if node.type.name == CPU_TYPE:
        fields["cpu_slots"] = node.gpus
    else:
        fields |= {"gpus": node.gpus, "type": node.type.name}
        fields |= _groups(node, topology)
    return fields | {"cpus": node.cpus / WHOLE, "memory_gib": node.memory / GIB}


def _groups(node: Node, topology: Topology) -> Fields:
    """Sockets, switches and islands, where they divide its GPUs equally."""
    keys = {"socket": "sockets", "pcie": "pcie_switches", "island": "islands"}
    inner = topology.levels[topology.node_level + 1 : -1]
    found: Fields = {}
    for level, groups in zip(inner, node.island_levels, strict=False):
        if len({len(group) for group in groups}) == 1 and len(groups) > 1:
            found[keys[level]] = len(groups)
    return found


VERBS: Mapping[type, str] = {
    e.NodeLeft: "leave",
    e.NodeJoined: "join",
    e.NodeDraining: "drain",
    e.NodeUndrained: "undrain",
}
OPPOSITES: Mapping[type, type] = {
    e.NodeJoined: e.NodeLeft,
    e.NodeLeft: e.NodeJoined,
    e.NodeUndrained: e.NodeDraining,
    e.NodeDraining: e.NodeUndrained,
}


def _change_fields(change: e.NodeChange, names: Mapping[int, str]) -> Fields:
    return {"at_s": change.at_ms / SECOND, VERBS[type(change.event)]: names[change.event.node]}


def node_changes(store: Store, present: Present, first: int) -> Iterator[e.NodeChange]:
    """When nodes left, joined, were drained and used again since `first`; times count from there.

    As far as the event log goes back; before that nodes are taken to be as at its beginning.
    """
    found = list(_logged_changes(store, present.topology))
    for closes, now in ((e.NodeLeft, present.away), (e.NodeDraining, present.draining)):
        ours = [each for each in found if type(each.event) in (closes, OPPOSITES[closes])]
        yield from _from_the_start(ours, closes, now - present.forgotten, first)


def _from_the_start(
    found: Sequence[e.NodeChange], closes: type[Any], now: Collection[int], first: int
) -> Iterator[e.NodeChange]:
    """Those after `first`, and before them what was closed then."""
    nodes = {each.event.node for each in found}
    closed = {node for node in now if node not in nodes}
    for node in nodes:
        changes = [each for each in found if each.event.node == node]
        before = [each for each in changes if each.at_ms <= first]
        is_closed = (
            type(before[-1].event) is closes if before else type(changes[0].event) is not closes
        )
        closed |= {node} if is_closed else set()
    for node in sorted(closed):
        yield e.NodeChange(0, closes(node))
    for each in found:
        if each.at_ms > first:
            yield e.NodeChange(each.at_ms - first, each.event)


def _logged_changes(store: Store, topology: Topology) -> Iterator[e.NodeChange]:
    """In the order of the event log; a node that was never seen before joins then."""
    oldest = store.snapshot(oldest=True)
    if oldest is None:
        return
    own = codec.decode(json.loads(oldest.body_json)["topology"])
    assert isinstance(own, Topology)
    known, after = set(own.node_by_name), oldest.seq
    while steps := store.steps(after, PAGE):
        for step in steps:
            if '"Node' not in step.events_json:
                continue
            events = codec.loads(step.events_json)
            assert isinstance(events, tuple)
            for event in events:
                if isinstance(event, e.NodesAdded):
                    new = [each.name for each in event.nodes if each.name not in known]
                    known.update(new)
                    nodes = [
                        topology.node_by_name[name] for name in new if name in topology.node_by_name
                    ]
                    for node in nodes:
                        yield e.NodeChange(step.now_ms, e.NodeJoined(node.index))
                elif type(event) in VERBS:
                    yield e.NodeChange(step.now_ms, event)
        after = steps[-1].seq


# -- queues --------------------------------------------------------------------------------------------


def queues_fields(queues: Sequence[Queue], limits: Sequence[UserLimits]) -> Fields:
    """The queues file; empty where it would say nothing."""
    fields: Fields = {}
    if queues:
        fields["queues"] = [_queue_fields(each) for each in queues]
    if limits:
        fields["users"] = [_user_fields(each) for each in limits]
    return fields


def _queue_fields(queue: Queue) -> Fields:
    return _stated(
        name=queue.name,
        parent=queue.parent,
        weight=queue.weight,
        guaranteed_gpus=queue.guaranteed / WHOLE,
        maximum_gpus=_gpus(queue.maximum),
        allow_unpreemptible=queue.allow_unpreemptible,
        max_gpus_per_user=_gpus(queue.max_gpus_per_user),
        max_running_per_user=queue.max_running_per_user,
        max_jobs_per_user=queue.max_jobs_per_user,
        budget=None if queue.budget is None else budget_as_stated(queue.budget),
    )


def _user_fields(limits: UserLimits) -> Fields:
    return _stated(
        name=limits.user,
        max_gpus=_gpus(limits.max_gpus),
        max_running=limits.max_running,
        max_jobs=limits.max_jobs,
        budget=None if limits.budget is None else budget_as_stated(limits.budget),
    )


def _gpus(milli: int | None) -> float | None:
    return None if milli is None else milli / WHOLE


def _stated(**fields: object) -> Fields:
    return {name: value for name, value in fields.items() if value is not None}


# -- performance ---------------------------------------------------------------------------------------


def perf_fields(times: SwitchTimes, *, can_freeze: bool, saves: bool) -> Fields:
    """The perf file: what a switch cost here, and nothing else.

    How long jobs ran says already what distance, neighbours and sharing cost them.
    """
    restart = times.restarts if times.restarts.count else times.launches
    switch: Fields = {
        "by": "freeze" if can_freeze else "halt",
        "saves": "on-demand" if saves else "never",
        "start_s": times.launches.mean / SECOND,
        "suspend_s": times.suspensions.mean / SECOND,
        "resume_s": restart.mean / SECOND,
    }
    if can_freeze:
        switch["freeze_s"] = times.suspensions.mean / SECOND
    return {"base": "ideal", "failures": True, "switch": switch}


def programs_save(store: Store) -> bool:
    """Whether most jobs that ended lately had saved, or could have: they speak through the SDK."""
    rows = store.jobs(
        JobFilter(states=frozenset(ENDED_STATES), limit=JOBS_LOOKED_AT, is_brief=True)
    )
    can = [JobHistory.from_json(row.record_json) for row in rows if row.start_ms is not None]
    return 2 * sum(each.saves > 0 or each.has_hello for each in can) > len(can)
