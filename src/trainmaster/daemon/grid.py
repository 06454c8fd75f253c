"""Every device with the jobs on it, compactly: what the grid of the dashboard is drawn from."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from trainmaster.core.state import JobRecord, State
from trainmaster.daemon.cluster_nodes import in_natural_order, known_nodes, leaving_runs, node_state
from trainmaster.daemon.driver import Driver
from trainmaster.daemon.gpu_rows import ratio
from trainmaster.daemon.response_models import Grid, GridJob, GridNode, amount
from trainmaster.model.topology import Node, Topology
from trainmaster.model.units import SECOND

HELD, SUSPENDED, LEAVING = 0, 1, 2
"""How a job is on a device: it has it; it is suspended in memory there; it was told to leave."""


def grid(driver: Driver, now: int, sees: Callable[[str], bool]) -> Grid:
    """`sees` says of a user whether their jobs are named."""
    state = driver.controller.state
    nodes = in_natural_order(known_nodes(state))
    places = _places(nodes)
    jobs: dict[str, int] = {}
    rows: list[GridJob] = []

    def index(record: JobRecord) -> int | None:
        if record.id not in jobs:
            live = driver.jobs.get(record.id)
            if live is None or not sees(live.job.user):
                return None
            jobs[record.id] = len(rows)
            row = GridJob(live.id, live.name, live.job.user, live.job.queue, live.state)
            rows.append(row)
        return jobs[record.id]

    return Grid(
        at_s=now / SECOND,
        nodes=[_node(state, node) for node in nodes],
        jobs=rows,
        held=[
            (places[gpu], index(record), amount(share), how)
            for record, gpu, share, how in _holds(state)
            if gpu in places
        ],
        set_aside=[
            (places[gpu], aside.why) for gpu, aside in state.gpus_aside.items() if gpu in places
        ],
        measured=list(_measured(driver, places)),
    )


def _places(nodes: list[Node]) -> dict[int, int]:
    """The place of each device in the order of these nodes, by its index in the topology."""
    found: dict[int, int] = {}
    for node in nodes:
        first = len(found)
        found.update((node.first_gpu + each, first + each) for each in range(node.gpus))
    return found


def _holds(state: State) -> Iterator[tuple[JobRecord, int, int, int]]:
    leaving = leaving_runs(state)
    gone = {(job, piece.gpu) for piece, job in leaving}
    for record in state.jobs.values():
        if record.placement is not None:
            for piece in record.placement.slices:
                if (record.id, piece.gpu) not in gone:
                    yield record, piece.gpu, piece.share, HELD
        elif record.frozen is not None:
            for piece in record.frozen.slices:
                yield record, piece.gpu, piece.share, SUSPENDED
    for piece, job in leaving:
        if job in state.jobs:
            yield state.jobs[job], piece.gpu, piece.share, LEAVING


def _node(state: State, node: Node) -> GridNode:
    return GridNode(
        node.name,
        rack_of(state.topology, node),
        node_state(state, node.index),
        node.type.name,
        node.gpus,
    )


def rack_of(topology: Topology, node: Node) -> str:
    """What the domain just around a node is called; empty where there is none but the cluster."""
    around = topology.node_level - 1
    if around < 1:
        return ""
    level = topology.levels[around]
    return topology.names_around(node).get(level) or f"{level} {node.domains[around]}"


def _measured(
    driver: Driver, places: dict[int, int]
) -> Iterator[tuple[int, float | None, int | None, int | None, int | None]]:
    """Utilisation from 0 to 1, memory used and in all, temperature: of devices that were read."""
    for gpu, uuid in enumerate(driver.controller.state.topology.uuids):
        read = driver.readings.device(uuid)
        if read is not None and gpu in places:
            is_read = not read.trouble
            yield (
                places[gpu],
                ratio(read.util_ppm),
                read.memory_used if is_read else None,
                read.memory_total if is_read else None,
                read.temperature_c,
            )
