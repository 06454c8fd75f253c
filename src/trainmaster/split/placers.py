"""The placers by their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from trainmaster.split.devices import Device, Link
from trainmaster.split.exact import exact
from trainmaster.split.graph import ModelGraph
from trainmaster.split.m_etf import m_etf
from trainmaster.split.m_sct import m_sct
from trainmaster.split.m_topo import m_topo
from trainmaster.split.schedule import Schedule

Placer = Callable[[ModelGraph, Sequence[Device], Link], Schedule]
PLACERS: Mapping[str, Placer] = {
    "m-etf": m_etf,
    "m-sct": m_sct,
    "m-topo": m_topo,
    "exact": exact,
}
