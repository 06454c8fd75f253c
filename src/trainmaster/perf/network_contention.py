"""Network contention: the speed a gang loses to other gangs on its server or its NICs.

The rule: gangs of two GPUs or more exchange gradients, so they slow each other down; a job on one GPU
neither slows others nor is slowed. Inside a node a gang uses the PCIe switches (or sockets, or islands;
without any, the whole server) of its GPUs; across nodes it uses the NIC of each of its nodes. What counts
is how many gangs use the most crowded of its wires. The rule is ours: Philly (ATC'19, Table 4) measured
jobs side by side on servers, Gandiva (OSDI'18, Figures 1-4) on NICs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from trainmaster.model.units import NOMINAL
from trainmaster.perf.interpolation import Table, between
from trainmaster.perf.model_zoo import DEFAULT_MODEL, table_name


class Wire(Enum):
    """A link that gangs may share."""

    SERVER = "server"
    NIC = "nic"


@dataclass(frozen=True, slots=True)
class NetworkContention:
    """Remaining speed, in parts per million, by model and by the number of gangs on a wire."""

    server: Mapping[str, Table] = field(default_factory=dict)
    nic: Mapping[str, Table] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.server or self.nic)

    def remaining_speed(self, model: str, wire: Wire, gangs: int) -> int:
        """Full speed alone; linear between the measured numbers of gangs, constant beyond them."""
        if gangs < 2:
            return NOMINAL
        tables = self.server if wire is Wire.SERVER else self.nic
        table = tables.get(table_name(model)) or tables.get(DEFAULT_MODEL)
        return between({1: NOMINAL, **table}, gangs) if table else NOMINAL
