"""RALP (arXiv 1901.05803): where to cut a network so that its parameter-heavy tail is on one worker.

The workers send the activations at the cut instead of the tail's parameters. It pays where parameters are
skewed towards the end, as in the fully connected layers of CNNs, and batches are small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.split.graph import GraphError

SKEWED = 0.5
"""Least sample skewness of the layers' parameters; that of a normal distribution is 0."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of a sequence, as a profile of a step sees it."""

    name: str
    parameters: int
    """Bytes, or numbers of them: the same unit for all amounts."""
    output: int
    """Of one sample."""
    time: int = 0
    """Nanoseconds, forward and backward, of one sample."""


@dataclass(frozen=True, slots=True)
class PartitionPoint:
    """The first layers run on every worker, the others on one, on the gathered batch."""

    layers: int
    traffic: int
    """Of each worker and step."""
    data_parallel: int
    """The same without a cut."""


@dataclass(frozen=True, slots=True)
class NotWorthIt:
    """Plain data parallelism is better: one sentence."""

    why: str


def skewness(amounts: Sequence[float]) -> float:
    """Sample skewness g1: third moment over the spread to the power of 1.5; 0 where all are the same."""
    mean = sum(amounts) / len(amounts)
    spread = sum((each - mean) ** 2 for each in amounts) / len(amounts)
    third = sum((each - mean) ** 3 for each in amounts) / len(amounts)
    return 0.0 if spread <= 0 else float(third / spread**1.5)


def partition_point(
    layers: Sequence[Layer], batch: int, workers: int = 2, tail_memory: int | None = None
) -> PartitionPoint | NotWorthIt:
    """Where to cut, for workers that each have `batch` samples; `tail_memory` is what the tail may have for
    its parameters and the gathered activations."""
    if not layers or batch < 1 or workers < 1:
        raise GraphError("RALP needs layers, a batch of at least 1, and at least one worker.")
    skew = skewness([each.parameters for each in layers])
    if skew < SKEWED:
        return NotWorthIt(
            f"The layers' parameters are not skewed ({skew:.2f}, and {SKEWED:g} is the least):"
            " plain data parallelism."
        )
    whole = 2 * sum(each.parameters for each in layers)
    possible = [
        PartitionPoint(at, _traffic(layers, at, batch), whole)
        for at in range(1, len(layers))
        if _tail_fits(layers, at, batch * workers, tail_memory)
        and _keeps_up(layers, at, batch, workers)
    ]
    best = min(possible, key=lambda each: (each.traffic, each.layers), default=None)
    if best is None:
        return NotWorthIt(
            "No tail fits on one worker and keeps up with the others: plain data parallelism."
        )
    if best.traffic >= whole:
        return NotWorthIt(
            f"Sending activations of {batch} samples takes {best.traffic:,} a step, parameters {whole:,}:"
            " plain data parallelism."
        )
    return best


def _traffic(layers: Sequence[Layer], at: int, batch: int) -> int:
    return 2 * sum(each.parameters for each in layers[:at]) + 2 * layers[at - 1].output * batch


def _tail_fits(layers: Sequence[Layer], at: int, gathered: int, limit: int | None) -> bool:
    kept = sum(each.parameters for each in layers[at:])
    activations = gathered * sum(each.output for each in layers[at - 1 :])
    return limit is None or kept + activations <= limit


def _keeps_up(layers: Sequence[Layer], at: int, batch: int, workers: int) -> bool:
    """Whether the tail takes no longer on all samples than the head on those of one worker."""
    head = batch * sum(each.time for each in layers[:at])
    tail = batch * workers * sum(each.time for each in layers[at:])
    return tail <= head
