"""Generators of synthetic traces by the name of the cluster that they resemble.

There is none for Helios: we have no table of its run times to draw from. Its trace itself can be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import cast

from trainmaster.model.trace import Trace

Generate = Callable[[int, int, float, int], Trace]
"""Jobs, GPUs, load and seed."""


def _of(module: str) -> Generate:
    """That of a module, which is loaded when something is drawn: it needs numpy, and a manager does not."""

    def generate(jobs: int, gpus: int, load: float, seed: int) -> Trace:
        drawn = import_module(f"trainmaster.traces.{module}").generate(jobs, gpus, load, seed)
        return cast(Trace, drawn)

    return generate


GENERATORS: Mapping[str, Generate] = {
    "philly": _of("philly_like"),
    "alibaba": _of("alibaba_like"),
}
