"""How good and how fast the placers are: against the best schedule of small graphs, and by size.

    python -m benchmarks.splitting [--graphs 200] [--out benchmarks/results/splitting.json]
    python -m benchmarks.splitting --page      # only write the page of what --out has

Small graphs are random: layers, branches that join again, and graphs in which each operator reads one to
three of those shortly before it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.fresh_process import write_report
from benchmarks.pages import page
from trainmaster.model.units import GIB, MIB
from trainmaster.split.devices import Device, Link
from trainmaster.split.exact import exact
from trainmaster.split.graph import Edge, ModelGraph, Operator
from trainmaster.split.placers import PLACERS

PAGE = Path("docs/measurements/splitting.md")
HERE = Path(__file__).parent
COUNT = 6
"""Operators of a graph that is also placed exactly."""
DEVICES = (2, 3)
LINKS = {"cheap": Link(1.0), "dear": Link(4.0)}
"""Transfers of 1 to 4 bytes, beside operators of 1 to 9: half of their time on average, and twice."""
SIZES = (1_000, 2_000, 5_000, 10_000, 20_000)
LARGE_DEVICES = 4
FAST = tuple(name for name in PLACERS if name != "exact")


def near(chance: random.Random, count: int) -> list[tuple[int, int]]:
    """Each reads one to three of those shortly before it."""
    return [
        (parent, number)
        for number in range(1, count)
        for parent in {max(0, number - chance.randint(1, 4)) for _ in range(chance.randint(1, 3))}
    ]


def branches(chance: random.Random, count: int) -> list[tuple[int, int]]:
    """Parallel chains from the first operator to the last, as in Inception."""
    chains = chance.randint(2, 3)
    found, ends = [], [0] * chains
    for number in range(1, count - 1):
        chain = chance.randrange(chains)
        found.append((ends[chain], number))
        ends[chain] = number
    return [*found, *((end, count - 1) for end in sorted(set(ends)))]


KINDS: dict[str, Callable[[random.Random, int], list[tuple[int, int]]]] = {
    "near": near,
    "branches": branches,
}


def graph_of(kind: str, count: int, seed: int) -> ModelGraph:
    chance = random.Random(seed)
    operators = tuple(
        Operator(f"o{each}", chance.randint(1, 9), persistent=1) for each in range(count)
    )
    edges = (
        Edge(f"o{source}", f"o{target}", chance.randint(1, 4), tensor=target)
        for source, target in KINDS[kind](chance, count)
    )
    return ModelGraph(operators, tuple(edges))


def quality(graphs: int) -> list[dict[str, Any]]:
    rows = []
    for kind in KINDS:
        for devices in DEVICES:
            given = [Device(str(number), COUNT) for number in range(devices)]
            for name, link in LINKS.items():
                ratios: dict[str, list[float]] = {placer: [] for placer in FAST}
                for seed in range(graphs):
                    graph = graph_of(kind, COUNT, seed)
                    best = exact(graph, given, link).makespan
                    for placer in FAST:
                        ratios[placer].append(PLACERS[placer](graph, given, link).makespan / best)
                rows += [
                    {
                        "kind": kind,
                        "devices": devices,
                        "link": name,
                        "placer": placer,
                        **_spread(each),
                    }
                    for placer, each in ratios.items()
                ]
    return rows


def _spread(ratios: Sequence[float]) -> dict[str, float]:
    ranked = sorted(ratios)
    return {
        "graphs": len(ranked),
        "best": sum(each < 1 + 1e-9 for each in ranked) / len(ranked),
        "mean": statistics.mean(ranked),
        "p95": ranked[min(len(ranked) - 1, int(0.95 * len(ranked)))],
        "most": ranked[-1],
    }


def growth() -> list[dict[str, Any]]:
    given = [Device(str(number), 64 * GIB) for number in range(LARGE_DEVICES)]
    link = Link(per_byte=1 / 12, fixed=20_000)
    rows = []
    for count in SIZES:
        chance = random.Random(count)
        operators = tuple(
            Operator(
                f"o{each}", 1_000 * chance.randrange(1, 1_000), persistent=chance.randrange(MIB)
            )
            for each in range(count)
        )
        edges = tuple(
            Edge(f"o{source}", f"o{target}", chance.randrange(MIB), tensor=target)
            for source, target in near(chance, count)
        )
        graph = ModelGraph(operators, edges)
        for placer in FAST:
            begin = time.perf_counter()
            made = PLACERS[placer](graph, given, link)
            taken_s = time.perf_counter() - begin
            speedup = sum(graph.times()) / made.makespan
            rows.append(
                {
                    "operators": count,
                    "edges": len(edges),
                    "placer": placer,
                    "s": taken_s,
                    "speedup": speedup,
                }
            )
    return rows


def powers(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The exponent of the time's growth with the operators, over the two largest sizes."""
    found = {}
    for placer in FAST:
        one, two = [row for row in rows if row["placer"] == placer][-2:]
        found[placer] = math.log(two["s"] / one["s"]) / math.log(
            two["operators"] / one["operators"]
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--graphs", type=int, default=200)
    parser.add_argument("--out", type=Path, default=HERE / "results/splitting.json")
    parser.add_argument("--page", action="store_true")
    said = parser.parse_args()
    if not said.page:
        load = os.getloadavg()[0]
        found = {"quality": quality(said.graphs), "growth": growth()}
        write_report(said.out, load_before=round(load, 1), **found)
    report = json.loads(said.out.read_text())
    text = page("splitting_page.md", **report, powers=powers(report["growth"]), count=COUNT)
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
