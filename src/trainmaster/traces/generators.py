"""Generators of synthetic traces by the name of the cluster that they resemble.

There is none for Helios: we have no table of its run times to draw from. Its trace itself can be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainmaster.model.trace import Trace
from trainmaster.traces import alibaba_like, philly_like

Generate = Callable[[int, int, float, int], Trace]
"""Jobs, GPUs, load and seed."""
GENERATORS: Mapping[str, Generate] = {
    "philly": philly_like.generate,
    "alibaba": alibaba_like.generate,
}
NOT_HELIOS = "None is like Helios: there is no table of its run times to draw from."
