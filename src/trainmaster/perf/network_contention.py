"""Gangs that talk over the same wires: what each loses to the others on its server or its NIC.

The rule: a gang of two GPUs or more exchanges gradients, so it suffers and causes suffering; a job on
one GPU does neither. Inside a node a gang uses the PCIe switches (or sockets, or islands; without any,
the whole server) that its GPUs hang on; across nodes it uses the NIC of each of its nodes. What counts
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
    """What gangs may have in common."""

    SERVER = "server"
    NIC = "nic"


@dataclass(frozen=True, slots=True)
class NetworkContention:
    """Speed left, in parts per million, by model and by the number of gangs on a wire."""

    server: Mapping[str, Table] = field(default_factory=dict)
    nic: Mapping[str, Table] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.server or self.nic)

    def remaining_speed(self, model: str, wire: Wire, gangs: int) -> int:
        """Alone it is all; between the counts that were measured it is linear, beyond them flat."""
        if gangs < 2:
            return NOMINAL
        tables = self.server if wire is Wire.SERVER else self.nic
        table = tables.get(table_name(model)) or tables.get(DEFAULT_MODEL)
        return between({1: NOMINAL, **table}, gangs) if table else NOMINAL
