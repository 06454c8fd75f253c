"""Traces made for one experiment, by name: functions of the cluster's GPUs and the seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainmaster.evaluation.suite import SuiteError
from trainmaster.evaluation.suites import eight_models, testbeds
from trainmaster.model.job import Job, gpus
from trainmaster.model.trace import Trace, TracedJob
from trainmaster.model.units import MINUTE

Craft = Callable[[int, int], Trace]
"""(GPUs of the cluster, seed) -> trace."""


def one_large_then_small(cluster_gpus: int, seed: int) -> Trace:
    """A job that fills the cluster for an hour, and short ones right behind it."""
    large = TracedJob(Job("large", 0, gpus(cluster_gpus)), 60 * MINUTE)
    small = [TracedJob(Job(f"small{n}", n * MINUTE, gpus(1)), MINUTE) for n in range(1, 9 + seed)]
    return Trace((large, *small))


CRAFTS: Mapping[str, Craft] = {
    "one-large-then-small": one_large_then_small,
    "eight-models-512": eight_models.craft,
    "tiresias-480": testbeds.tiresias_480,
    "gandiva-six": testbeds.gandiva_six,
    "big-brain-stream": testbeds.big_brain_stream,
}


def craft_of(name: str) -> Craft:
    if name not in CRAFTS:
        raise SuiteError(f"there is no crafted trace {name!r}; there are {', '.join(CRAFTS)}.")
    return CRAFTS[name]
