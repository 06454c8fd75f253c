"""Nodes that come and go: what the engine says of them, as events, and what users are told of it.

A node that is there is added or opened, one that fell is closed, and as many devices of a node are set aside
as other users of the cluster hold. The topology only grows, so a node keeps its drain while it is away.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence

import structlog

from trainmaster.core.lifecycle import Phase
from trainmaster.core.state import JobRecord, State
from trainmaster.daemon.device_health import is_aside_for, set_aside
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.model import events as e
from trainmaster.model.device_aside import AsideCause
from trainmaster.model.engine_reports import (
    ClusterNode,
    DevicesTaken,
    NodeCame,
    NodeFell,
    NodeReport,
)
from trainmaster.model.placement import Slice
from trainmaster.model.topology import Node, Topology
from trainmaster.model.topology_growth import forgotten, grown, has_other_devices
from trainmaster.text.formatting import as_sentence, listing, plural, utc_time

log = structlog.get_logger("trainmaster.daemon")

TAKEN = AsideCause.TAKEN
WHY_TAKEN = "Other users of the cluster hold it."
NOT_SEEN = "It has not been there since the manager started."


class ClusterNodes:
    """The nodes of an engine of several machines; of an engine of one machine nothing is ever said."""

    def __init__(self, state: Callable[[], State]) -> None:
        self._state = state
        self.present: dict[str, ClusterNode] = {}
        """By name, as they were found last."""
        self._fell: dict[str, str] = {}
        """Why those are away that were there."""
        self._away: dict[str, NodeFell] = {}
        """What was said first of each of those."""
        self._taken: dict[str, int] = {}
        """How many of a node's devices others hold."""
        self._expected: frozenset[str] | None = None
        """Of the nodes of the store those that may be there though nothing was said of them; None: all."""
        self._unlike: set[str] = set()
        """Those that are back with other devices while jobs still hold the old ones."""

    # -- what the engine says ----------------------------------------------------------------------------

    def events_of(self, reports: Sequence[NodeReport]) -> list[LoggedEvent]:
        """What follows from these reports: of each node only what was said last."""
        for report in reports:
            self._note(report)
        named = dict.fromkeys([*map(_name, reports), *sorted(self._unlike), *self._missing()])
        return list(self._events(list(named))) if named else []

    def has_news(self) -> bool:
        """Whether the next step has something to say though nothing was reported: a node may be replaced."""
        return any(not self._holders(name) for name in self._unlike)

    def expect_only(self, names: Iterable[str]) -> None:
        """After a start: with the next step all others that were not reported are away."""
        self._expected = frozenset(names)

    def _missing(self) -> list[str]:
        expected, self._expected = self._expected, None
        if expected is None:
            return []
        state, there = self._state(), {*expected, *self.present}
        nodes = (each for each in known_nodes(state) if each.index not in state.away)
        missing = [each.name for each in nodes if each.name not in there]
        self._fell |= dict.fromkeys(missing, NOT_SEEN)
        return missing

    def _note(self, report: NodeReport) -> None:
        name = _name(report)
        if isinstance(report, NodeCame):
            self.present[name] = report.node
            self._fell.pop(name, None)
            self._away.pop(name, None)
        elif isinstance(report, DevicesTaken):
            self._taken[name] = report.gpus
        else:
            self.present.pop(name, None)
            self._taken.pop(name, None)
            self._fell[name] = as_sentence(report.why)
            self._away.setdefault(name, report)
            log.warning("a node is away", node=name, why=report.why)

    def _events(self, names: Sequence[str]) -> Iterator[LoggedEvent]:
        """What makes the controller's nodes of these names as the engine says that they are."""
        state = self._state()
        topology, known = state.topology, state.topology.node_by_name
        here = [self.present[name] for name in names if name in self.present]
        replaced = [known[each.name].index for each in here if has_other_devices(topology, each)]
        waiting = {node for node in replaced if is_held(state, node)}
        self._unlike -= set(names)
        self._unlike |= {topology.nodes[node].name for node in waiting}
        gone = [known[name].index for name in names if name in known and name not in self.present]
        for node in [*gone, *sorted(waiting)]:
            if node not in state.away:
                yield _left(node, self.why_away(topology.nodes[node].name))
        for node in (each for each in replaced if each not in waiting):
            topology = forgotten(topology, node)
            yield LoggedEvent(e.NodeForgotten(node))
        after = grown(topology, here)
        new = [each for each in here if _is_news(each.name, topology, after)]
        if new:
            log.info("nodes were added or changed", nodes=[each.name for each in new])
            yield LoggedEvent(e.NodesAdded(tuple(new)))
        for each in here:
            node = after.node_by_name[each.name].index
            if each.name in self._unlike:
                continue
            if node in state.away and each not in new:
                yield LoggedEvent(e.NodeJoined(node))
            if node >= len(state.topology.nodes) and _was_drained(state, each.name):
                yield LoggedEvent(e.NodeDraining(node))
            yield from self._held_by_others(after.nodes[node], after)

    def _held_by_others(self, node: Node, topology: Topology) -> Iterator[LoggedEvent]:
        """Set as many devices of a node aside as others hold: idle ones first."""
        state, wanted = self._state(), min(self._taken.get(node.name, 0), node.gpus)
        own = range(node.first_gpu, node.first_gpu + node.gpus)
        aside = [gpu for gpu in own if is_aside_for(state, gpu, TAKEN)]
        for gpu in aside[wanted:]:
            yield LoggedEvent(e.GpuReturned(node.index, gpu, TAKEN))
        free = sorted((gpu for gpu in own if gpu not in aside), key=lambda gpu: _use(state, gpu))
        for gpu in free[: max(0, wanted - len(aside))]:
            yield set_aside(topology, gpu, TAKEN, WHY_TAKEN)

    # -- what users are told -----------------------------------------------------------------------------

    def why_away(self, name: str) -> str:
        """A sentence; empty for a node that is there."""
        if name in self._unlike:
            held = " and ".join(self._holders(name)) or "its last one"
            return f"It is back with other devices: they are used when job {held} has left the old ones."
        return self._fell.get(name, "")

    def parts_away(self, record: JobRecord) -> list[str]:
        """A sentence for each node of a run that is away: since when, and when its part is given up."""
        held = record.placement or record.frozen
        nodes = self._state().topology.nodes
        names = [] if held is None else [nodes[each].name for each in held.nodes]
        return [part_away_sentence(n, self._away[n]) for n in names if n in self._away]

    def _holders(self, name: str) -> list[str]:
        state = self._state()
        return jobs_on(state, state.topology.node_by_name[name].index)

    def host_of(self, name: str) -> str | None:
        """The address of a node that is there."""
        node = self.present.get(name)
        return None if node is None else node.host

    def is_this_machine(self, name: str) -> bool:
        """Whether a node has an address of the manager's machine."""
        node = self.present.get(name)
        return node is not None and _is_own_address(node.host)

    def notes(self) -> list[str]:
        """Which nodes are away, and what to do: a sentence or two."""
        state = self._state()
        away = [node.name for node in known_nodes(state) if node.index in state.away]
        if not away:
            return []
        if len(away) == 1:
            (name,) = away
            forget = f"`trainmaster node forget {name}` removes it if it does not come back."
            return [" ".join(filter(None, [f"Node {name} is away.", self.why_away(name), forget]))]
        return [
            f"{plural(len(away), 'node')} are away ({listing(away)}): `trainmaster node forget NAME`"
            " removes one that does not come back."
        ]


def part_away_sentence(name: str, fell: NodeFell) -> str:
    """`Node n1 is away since ...: what runs there counts as lost at ..., unless it is back before.`"""
    since = f" since {utc_time(fell.at_ms)}" if fell.at_ms else ""
    if fell.gone_ms is None:
        until = "what runs there counts as lost once it is certain that nothing of it is left"
    else:
        until = f"what runs there counts as lost at {utc_time(fell.gone_ms)}"
    return f"Node {name} is away{since}: {until}, unless it is back before."


def known_nodes(state: State) -> Sequence[Node]:
    """All nodes that are not forgotten, whether they are there or not."""
    return [node for node in state.topology.nodes if node.index not in state.forgotten]


def devices_of(state: State, node: int) -> range:
    own = state.topology.nodes[node]
    return range(own.first_gpu, own.first_gpu + own.gpus)


def jobs_on(state: State, node: int) -> list[str]:
    """Jobs whose runs have, are about to have or may still have devices there, or are frozen there."""
    found = {
        record.id
        for record in state.jobs.values()
        for place in (record.placement, record.frozen)
        if place is not None and node in place.nodes
    }
    leaving = (run for run, slices in state.leaving.items() if node in {s.node for s in slices})
    return sorted(found | {run.job for run in leaving})


def leaving_runs(state: State) -> list[tuple[Slice, str]]:
    """Jobs whose processes still have devices of which they are told to leave all, on that node."""
    found = []
    for run, slices in state.leaving.items():
        record = state.jobs.get(run.job)
        kept: Sequence[int] = ()
        if record is not None and record.run == run and record.placement is not None:
            is_going = record.is_moving or record.phase is Phase.STOPPING
            kept = () if is_going else record.placement.nodes
        found += [(piece, run.job) for piece in slices if piece.node not in kept]
    return found


def is_held(state: State, node: int) -> bool:
    return bool(jobs_on(state, node))


def _is_own_address(host: str) -> bool:
    """Only an own address can be bound to."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)
        family, kind, _, _, address = found[0]
        with socket.socket(family, kind) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True


def _name(report: NodeReport) -> str:
    return report.node.name if isinstance(report, NodeCame) else report.name


def _left(node: int, why: str) -> LoggedEvent:
    return LoggedEvent(e.NodeLeft(node), {"why": why})


def _is_news(name: str, before: Topology, after: Topology) -> bool:
    return before.node_by_name.get(name) != after.node_by_name[name]


def _was_drained(state: State, name: str) -> bool:
    """Whether the node that had the name of a new one takes nothing new."""
    old = state.topology.node_by_name.get(name)
    return old is not None and old.index in state.draining


def _use(state: State, gpu: int) -> tuple[bool, bool, int]:
    """Devices that nothing speaks for or against come first, then idle ones, the last number first."""
    is_new = gpu >= len(state.occupancy.mode)
    is_used = not is_new and (state.occupancy.mode[gpu] is not None or gpu in state.releasing)
    return is_used, gpu in state.gpus_aside, -gpu


def node_state(state: State, node: int) -> str:
    """up, draining, maintenance, away or set aside."""
    named = (
        *(("away", state.away), ("maintenance", state.in_maintenance)),
        *(("draining", state.draining), ("set aside", state.set_aside)),
    )
    usual = "set aside" if state.is_all_aside(node) else "up"
    return next((name for name, nodes in named if node in nodes), usual)


NUMBERS = re.compile(r"(\d+)")


def in_natural_order(nodes: Iterable[Node]) -> list[Node]:
    """By name, n2 before n10."""
    return sorted(nodes, key=lambda each: _by_number(each.name))


def _by_number(name: str) -> list[str | int]:
    return [int(part) if part.isdecimal() else part for part in NUMBERS.split(name)]
