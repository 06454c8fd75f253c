"""Gangs by Ray alone: a placement group over the nodes and an actor for each rank. Answers with JSON.

python -m benchmarks.ray_bare ADDRESS RANKS ROUNDS GANGS AT_ONCE
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


class Rank:
    """Does nothing: it says when it is there."""

    def begun(self) -> float:
        return time.time()


class Gang:
    def __init__(self, ranks: int) -> None:
        self.group: PlacementGroup = placement_group([{"GPU": 1}] * ranks, "STRICT_SPREAD")
        where = [PlacementGroupSchedulingStrategy(self.group, index) for index in range(ranks)]
        kind = ray.remote(Rank)
        self.actors = [
            kind.options(num_gpus=1, num_cpus=0, scheduling_strategy=each).remote()
            for each in where
        ]
        self.begun: list[Any] = [each.begun.remote() for each in self.actors]

    def end(self) -> None:
        for each in self.actors:
            ray.kill(each)
        remove_placement_group(self.group)


def latency_ms(ranks: int) -> float:
    ordered = time.time()
    gang = Gang(ranks)
    begun: list[float] = ray.get(gang.begun)
    gang.end()
    return (max(begun) - ordered) * 1000


def gangs_per_s(ranks: int, gangs: int, at_once: int) -> float:
    began = time.time()
    running: deque[Gang] = deque()
    for _ in range(gangs):
        if len(running) == at_once:
            first = running.popleft()
            ray.get(first.begun)
            first.end()
        running.append(Gang(ranks))
    for each in running:
        ray.get(each.begun)
        each.end()
    return gangs / (time.time() - began)


def main(address: str, ranks: int, rounds: int, gangs: int, at_once: int) -> None:
    ray.init(address=address, log_to_driver=False, logging_level="error")
    latency_ms(ranks)  # the first one starts what Ray starts once
    found = []
    for _ in range(rounds):
        found.append(latency_ms(ranks))
        time.sleep(1)  # so that Ray knows that the devices are free
    rate = gangs_per_s(ranks, gangs, at_once)
    print(json.dumps({"ray": ray.__version__, "latency_ms": found, "gangs_per_s": rate}))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
