"""`trainmaster nodes`: the machines, their devices and the jobs on them."""

from __future__ import annotations

from typing import Annotated, Any

from trainmaster.cli.support.console import NOTHING, remark, show_table, write_json
from trainmaster.cli.support.format import by_sentence, percent
from trainmaster.cli.support.options import AsJson, option
from trainmaster.client.manager_api import ManagerApi
from trainmaster.model.units import GIB

HEADINGS = (
    *("node", "state", "type", "devices", "free", "cpus", "memory", "jobs"),
    "suspended here",
)
GPU_HEADINGS = ("GPU memory", "busy")
DEVICE_HEADINGS = ("node", "device", "type", "state")
READ_HEADINGS = ("memory", "busy", "temperature", "power", "near", "remarks")


Devices = Annotated[bool, option("--devices", "Show every device on its own line.")]


def nodes(client: ManagerApi, devices: Devices = False, as_json: AsJson = False) -> None:
    """List nodes: their state, their devices, and the jobs on them.

    Examples:
        trainmaster nodes
        trainmaster nodes --devices
        trainmaster nodes --json
    """
    show_nodes(client, devices, as_json)


def show_nodes(client: ManagerApi, devices: bool, as_json: bool) -> None:
    answer = client.get("/nodes")
    found = answer["nodes"]
    if as_json:
        write_json(answer)
        return
    has_gpus = any(_gpus(node) for node in found)
    if len({node.get("speed") for node in found}) > 1:
        for node in found:
            node["type"] += f" ({_speed(node)})"
    if devices:
        levels = sorted({level for node in found for level in node.get("domains", ())})
        where = (*(["host"] if any(node.get("host") for node in found) else ()), *levels)
        rows = [
            (
                *(node["name"], str(device["name"]), node["type"], _state(node, device)),
                *(_read(device.get("gpu") or {}) if has_gpus else ()),
                device["jobs"],
                *(_where(node, each) for each in where),
            )
            for node in found
            for device in node["devices"]
        ]
        read = READ_HEADINGS if has_gpus else ()
        show_table((*DEVICE_HEADINGS, *read, "jobs", *where), rows)
    else:
        more = GPU_HEADINGS if has_gpus else ()
        rows = [(*_row(node), *(_sums(_gpus(node)) if has_gpus else ())) for node in found]
        show_table((*HEADINGS, *more), rows)
    said = ((node["name"], line) for node in found for line in node["remarks"])
    remark("Note", by_sentence(said))
    remark("Left out", (f"{node['name']}: {node['why']}" for node in answer.get("left_out", ())))


def _speed(node: dict[str, Any]) -> str:
    """`0.33x`; with a question mark where nobody knows it."""
    return f"{node['speed']:g}x{'?' if node['speed_source'] == 'assumed' else ''}"


def _where(node: dict[str, Any], what: str) -> str:
    """Its host, or the name of its domain at a level."""
    return str((node["host"] if what == "host" else node["domains"].get(what)) or NOTHING)


def _state(node: dict[str, Any], device: dict[str, Any]) -> str:
    return "set aside" if device.get("set_aside") else str(node["state"])


def _gpus(node: dict[str, Any]) -> list[dict[str, Any]]:
    """What was read of its GPUs; nothing for CPU slots."""
    return [device["gpu"] for device in node["devices"] if device.get("gpu")]


def _sums(gpus: list[dict[str, Any]]) -> tuple[object, ...]:
    """Memory of all that answer, and their mean use."""
    read = [gpu for gpu in gpus if gpu["memory_bytes"] is not None]
    busy = [gpu["util"] for gpu in read if gpu["util"] is not None]
    used, total = (sum(gpu[name] for gpu in read) for name in ("memory_used_bytes", "memory_bytes"))
    memory = f"{used / GIB:.1f} of {total / GIB:.0f} GiB" if read else NOTHING
    return memory, percent(sum(busy) / len(busy) if busy else None)


def _read(gpu: dict[str, Any]) -> tuple[object, ...]:
    """What was read of one device."""
    if gpu.get("memory_bytes") is None:
        return (NOTHING,) * 5 + (gpu.get("trouble") or NOTHING,)
    limit = f" of {gpu['power_limit_w']} W" if gpu["power_limit_w"] else " W"
    bookable = gpu.get("bookable_bytes", gpu["memory_bytes"])
    said = [
        f"{bookable / GIB:g} GiB to book" if bookable < gpu["memory_bytes"] else "",
        f"MIG {gpu['mig']}" if gpu["mig"] else "",
        f"{gpu['ecc_errors']} ECC" if gpu["ecc_errors"] else "",
        f"XID {gpu['last_xid']}" if gpu["xid_events"] else "",
    ]
    return (
        f"{gpu['memory_used_bytes'] / GIB:.1f} of {gpu['memory_bytes'] / GIB:.0f} GiB",
        percent(gpu["util"]),
        NOTHING if gpu["temperature_c"] is None else f"{gpu['temperature_c']} C",
        NOTHING if gpu["power_w"] is None else f"{gpu['power_w']}{limit}",
        _near(gpu),
        ", ".join(filter(None, said)) or NOTHING,
    )


def _near(gpu: dict[str, Any]) -> str:
    """Whom it reaches quickly, and by what."""
    by_switch = [name for name in gpu["near"] if name not in gpu["nvlink"]]
    ways = (("NVLink", gpu["nvlink"]), ("PCIe switch", by_switch))
    return "; ".join(f"{way}: {', '.join(names)}" for way, names in ways if names) or NOTHING


def _row(node: dict[str, Any]) -> tuple[object, ...]:
    devices = node["devices"]
    jobs = list(dict.fromkeys(job for device in devices for job in device["jobs"]))
    is_away = node["state"] == "away"
    free = sum(not (device["jobs"] or device.get("set_aside") or is_away) for device in devices)
    memory = f"{node['memory_bytes'] / GIB:.0f} GiB"
    own = (node["name"], node["state"], node["type"], len(devices), free, node["cpus"])
    return (*own, memory, jobs, node["frozen"])
