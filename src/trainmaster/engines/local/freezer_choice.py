"""Which freezers a run may use, in the order in which they are tried: a new one is a line here."""

from __future__ import annotations

import selectors

from trainmaster.engines.local.control_socket import ControlSocket
from trainmaster.engines.local.cooperative_freezer import CooperativeFreezer, Declared
from trainmaster.engines.local.driver_freezer import MPS_PIPE, DriverFreezer
from trainmaster.engines.local.freezer import Freezer, StopFreezer
from trainmaster.engines.local.memory_meter import MemoryMeter
from trainmaster.engines.local.rank_processes import Gang
from trainmaster.engines.local.runfile import RunFile


def devices_of(run: RunFile) -> list[str]:
    """Its GPUs rank by rank, as its programs are told; none: it has CPU slots."""
    named = [rank.env.get("CUDA_VISIBLE_DEVICES", "") for rank in run.ranks]
    return [each for names in named for each in names.split(",") if each]


def gpu_names(run: RunFile) -> list[str]:
    """The GPUs that it has now, as `node:number`; none: it has CPU slots."""
    if not devices_of(run):
        return []
    named = [rank.env.get("TRAINMASTER_DEVICES", "") for rank in run.ranks]
    return [*dict.fromkeys(each for names in named for each in names.split(",") if each)]


def freezers_for(
    run: RunFile,
    gang: Gang,
    selector: selectors.BaseSelector,
    control: ControlSocket,
    declared: Declared,
) -> list[Freezer]:
    devices = devices_of(run)
    if not devices:
        return [StopFreezer()]
    env = run.env | run.ranks[0].env
    driver = DriverFreezer(gang.members, gang.rank_pids, devices, env, selector, gang.outsiders)
    cooperative = CooperativeFreezer(
        control.send_to_ranks,
        control.ranks,
        gang.running,
        control.are_steps_counted,
        bool(env.get(MPS_PIPE)),
        driver,
        gang.members,
        gang.rank_pids,
        MemoryMeter(selector, gang.outsiders),
        declared,
    )
    return [cooperative, driver]
