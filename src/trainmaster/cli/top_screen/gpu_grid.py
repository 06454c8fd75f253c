"""The GPUs of the cluster as lines of text: nodes side by side, one sign for each GPU.

What a GPU does is said by its sign, so that colours add nothing that is not there without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trainmaster.cli.top_screen.job_letters import JobLetters
from trainmaster.client.manager_api import Json
from trainmaster.text.control_characters import visible_line
from trainmaster.text.formatting import shortened

FREE, SHARED, DRAINING, ASIDE = ".", "+", "-", "!"
SUSPENDED = "z"
LEGEND = (
    f"letter: a job  {SHARED} several  {FREE} free  {DRAINING} drained"
    f"  {ASIDE} out of use  {SUSPENDED}2: 2 suspended"
)
DRAINED_STATES = ("draining", "maintenance")
AWAY_STATES = ("away", "set aside")
MOST_NAME = 16
GAP = 3


class GridPart(NamedTuple):
    """A piece of a line: the sign of one GPU, or text between."""

    text: str
    jobs: tuple[str, ...] = ()
    """The jobs on this GPU."""
    is_gpu: bool = False


GridLine = tuple[GridPart, ...]


def jobs_on(nodes: Sequence[Json]) -> list[str]:
    """The jobs that hold GPUs, in the order of the nodes."""
    found = (job for node in nodes for device in node["devices"] for job in device["jobs"])
    return list(dict.fromkeys(found))


def grid_lines(nodes: Sequence[Json], letters: JobLetters, width: int) -> list[GridLine]:
    """As many nodes in a line as the width takes; a node of more GPUs than that goes over several lines."""
    if not nodes:
        return []
    names = [shortened(visible_line(node["name"]), MOST_NAME) for node in nodes]
    longest = max(map(len, names))
    room = max(1, width - longest - 1)
    widest = min(room, max(len(node["devices"]) for node in nodes))
    frozen = max(len(_suspended(node)) for node in nodes)
    size = longest + 1 + widest + frozen
    across = max(1, (width + GAP) // (size + GAP))
    blocks = [
        block
        for node, name in zip(nodes, names, strict=True)
        for block in _blocks(node, name.ljust(longest), letters, widest, frozen)
    ]
    lines = []
    for at in range(0, len(blocks), across):
        parts: list[GridPart] = []
        for block in blocks[at : at + across]:
            parts += [GridPart(" " * GAP), *block] if parts else block
        lines.append(tuple(parts))
    return lines


def _blocks(
    node: Json, name: str, letters: JobLetters, widest: int, frozen: int
) -> list[list[GridPart]]:
    """The lines of one node."""
    signs = [_sign(node, device, letters) for device in node["devices"]]
    rows = [signs[at : at + widest] for at in range(0, len(signs), widest)] or [[]]
    return [
        [
            GridPart(f"{name if number == 0 else ' ' * len(name)} "),
            *row,
            GridPart(" " * (widest - len(row))),
            GridPart((_suspended(node) if number == 0 else "").ljust(frozen)),
        ]
        for number, row in enumerate(rows)
    ]


def _sign(node: Json, device: Json, letters: JobLetters) -> GridPart:
    jobs = tuple(device["jobs"])
    if device.get("set_aside") or node["state"] in AWAY_STATES:
        sign = ASIDE
    elif jobs:
        sign = letters.of(jobs[0]) if len(jobs) == 1 else SHARED
    else:
        sign = DRAINING if node["state"] in DRAINED_STATES else FREE
    return GridPart(sign, jobs, is_gpu=True)


def _suspended(node: Json) -> str:
    """` z2`: two jobs are suspended in memory there."""
    return f" {SUSPENDED}{len(node['frozen'])}" if node["frozen"] else ""
