"""How much faster a job trains on more GPUs, at best placement and alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainmaster.model.units import NOMINAL
from trainmaster.perf.interpolation import Table, between
from trainmaster.perf.model_zoo import table_name


@dataclass(frozen=True, slots=True)
class Elasticity:
    """Speed-ups over one GPU: measured by model, else so much kept at every doubling."""

    doubling_ppm: int = NOMINAL
    """Efficiency kept per doubling of the GPUs of a model without a table."""
    models: Mapping[str, Table] = field(default_factory=dict)
    """By model: GPUs, and the speed there in parts per million of the speed on one."""

    def speedup(self, model: str, count: int) -> int:
        """Speed on `count` GPUs in parts per million of one; linear between known counts."""
        table = self.models.get(table_name(model))
        if table is not None:
            return between(table, count)
        low, speed = 1, NOMINAL
        while low * 2 <= count:
            low, speed = low * 2, self._doubled(speed)
        return speed + (self._doubled(speed) - speed) * (count - low) // low

    def _doubled(self, speed: int) -> int:
        return max(1, 2 * speed * self.doubling_ppm // NOMINAL)
