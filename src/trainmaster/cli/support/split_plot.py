"""The graph of a model with its cut, and the step on each device."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from trainmaster.report import palette
from trainmaster.report.charts import HAIR, INK, WIDE_IN, Chart, styled
from trainmaster.split.devices import Device
from trainmaster.split.graph import ModelGraph
from trainmaster.split.schedule import Schedule

HEIGHT_IN = 8.0
NAMED = 40
"""Operators that have their names beside them, at most."""
MS = 1e6
Line = tuple[tuple[float, float], tuple[float, float]]


def drawn(graph: ModelGraph, made: Schedule, devices: Sequence[Device], kind: str) -> bytes:
    """The figure as a file of this kind."""
    title = f"{len(graph.operators):,} operators on {len(devices)} devices"
    return _chart(graph, made, devices).written(title, kind)


@styled
def _chart(graph: ModelGraph, made: Schedule, devices: Sequence[Device]) -> Chart:
    from matplotlib.collections import LineCollection

    chart = Chart("The graph of the model and its step", WIDE_IN, HEIGHT_IN)
    cut, step = chart.panels(2, 1, gridspec_kw={"height_ratios": (3, 1 + 0.4 * len(devices))})
    places, device_of = _places(graph), made.device_of
    inside: list[Line] = []
    across: list[Line] = []
    for edge in graph.edges:
        line = (places[graph.index[edge.source]], places[graph.index[edge.target]])
        (inside if device_of[edge.source] == device_of[edge.target] else across).append(line)
    cut.add_collection(LineCollection(inside, colors=HAIR, linewidths=1, zorder=1))
    cut.add_collection(
        LineCollection(across, colors=INK, linewidths=1.2, linestyles="dashed", zorder=2)
    )
    for number, device in enumerate(devices):
        mine = [places[graph.index[name]] for name, at in device_of.items() if at == number]
        shade = palette.policy_shade(number).light
        xs, ys = [x for x, _ in mine], [y for _, y in mine]
        cut.scatter(xs, ys, s=40, color=shade, zorder=3, label=f"device {device.name}")
        bars = [
            (each.start / MS, (each.end - each.start) / MS)
            for each in made.steps
            if each.device == number
        ]
        step.broken_barh(
            bars, (number - 0.35, 0.7), facecolor=shade, edgecolor="white", linewidth=0.3
        )
    if len(graph.operators) <= NAMED:
        for place, operator in zip(places, graph.operators, strict=True):
            cut.annotate(
                operator.name, place, (0, 6), textcoords="offset points", fontsize=7, ha="center"
            )
    for sent in made.transfers:
        ends = ([sent.start / MS, sent.end / MS], [sent.source, sent.target])
        step.plot(*ends, "--", color=INK, linewidth=0.8)
    cut.set(title="Operators by depth; dashed: tensors that are sent", xticks=[], yticks=[])
    cut.legend(frameon=False, ncols=len(devices), loc="upper left", bbox_to_anchor=(0, 0))
    cut.margins(0.03, 0.15)
    step.set(title="The step", xlabel="ms", ylim=(len(devices) - 0.4, -0.6))
    step.set_yticks(range(len(devices)), [each.name for each in devices])
    return chart


def _places(graph: ModelGraph) -> list[tuple[float, float]]:
    """The depth of each operator, and its place among those of the same depth, around 0."""
    depth = [0] * len(graph.operators)
    rows: dict[int, list[int]] = defaultdict(list)
    for number in graph.order:
        depth[number] = max((depth[parent] + 1 for parent, _ in graph.incoming[number]), default=0)
        rows[depth[number]].append(number)
    height = [0.0] * len(graph.operators)
    for members in rows.values():
        for place, number in enumerate(members):
            height[number] = place - (len(members) - 1) / 2
    return list(zip(map(float, depth), height, strict=True))
