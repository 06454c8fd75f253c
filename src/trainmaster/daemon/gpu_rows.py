"""What was read of GPUs, as answers show it."""

from __future__ import annotations

from trainmaster.daemon.gpu_readings import GpuReadings, named_gpus
from trainmaster.daemon.response_models import GpuRow, GpuUse
from trainmaster.daemon.run_gpu_use import RunUse
from trainmaster.model.topology import Topology
from trainmaster.model.units import NOMINAL


def gpu_rows(readings: GpuReadings, topology: Topology) -> dict[int, GpuRow]:
    """By the topology's GPU index; empty for CPU slots."""
    names = named_gpus(topology.nodes)
    by_number: dict[int, list[str]] = {}
    for uuid, name in names.items():
        known = readings.gpu(uuid)
        if known is not None and not known.slice:
            by_number.setdefault(known.number, []).append(name)
    return {
        index: _row(readings, uuid, topology.type_of_gpu[index].memory, names[uuid], by_number)
        for index, uuid in enumerate(topology.uuids)
    }


def _row(
    readings: GpuReadings, uuid: str, bookable: int, own: str, by_number: dict[int, list[str]]
) -> GpuRow:
    read, known, xid = readings.device(uuid), readings.gpu(uuid), readings.xids.get(uuid)
    answers = read is not None and not read.trouble
    linked = () if known is None else sorted(known.linked)
    near = () if known is None else sorted(known.near)
    return GpuRow(
        uuid=uuid,
        bookable_bytes=bookable,
        memory_bytes=read.memory_total if read is not None and answers else None,
        memory_used_bytes=read.memory_used if read is not None and answers else None,
        util=None if read is None else ratio(read.util_ppm),
        temperature_c=None if read is None else read.temperature_c,
        power_w=None if read is None else read.power_w,
        power_limit_w=None if read is None else read.power_limit_w,
        ecc_errors=None if read is None else read.ecc_errors,
        xid_events=0 if xid is None else xid.count,
        last_xid=None if xid is None else xid.last,
        mig=None if known is None else known.slice or None,
        nvlink=_others(linked, own, by_number),
        near=_others(near, own, by_number),
        trouble=readings.trouble or (None if read is None else read.trouble or None),
    )


def _others(
    numbers: tuple[int, ...] | list[int], own: str, by_number: dict[int, list[str]]
) -> tuple[str, ...]:
    found = (name for number in numbers for name in by_number.get(number, ()))
    return tuple(name for name in found if name != own)


def gpu_uses(use: RunUse | None, topology: Topology) -> tuple[GpuUse, ...]:
    """What a run uses on each of its devices."""
    if use is None:
        return ()
    names = named_gpus(topology.nodes)
    return tuple(
        GpuUse(names.get(uuid, uuid), uuid, memory, ratio(use.util_ppm[uuid]))
        for uuid, memory in use.memory.items()
    )


def ratio(ppm: int | None) -> float | None:
    """From 0 to 1."""
    return None if ppm is None else ppm / NOMINAL
