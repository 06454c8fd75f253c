"""A folder that plays the GPU driver: what a real machine answered, and what programs of tests allocate.

The standard library only, so that any program may say what it has on its GPUs:

    from trainmaster.gpu import fake_driver
    fake_driver.allocate(2 << 30, util_ppm=600_000)  # on each GPU of CUDA_VISIBLE_DEVICES
    fake_driver.step()                               # waits while the process is locked or checkpointed

`machine.json` has the GPUs, `processes/<pid>.json` what each process has, `faults.json` what fails and
`events.json` what happened. A process that has ended has nothing, whatever its file says. More than one GPU,
NVLink, MIG, XID and ECC events are played by NVIDIA's documentation: not seen on hardware.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
import uuid as uuids
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainmaster.gpu.driver import (
    FAKE_GPUS,
    NO_SLICES,
    DriverError,
    Gpu,
    GpuEvent,
    GpuProcess,
    Reading,
)

MIB = 1 << 20
RECORDED = Path(__file__).parent / "recorded"
KINDS: Mapping[str, tuple[str, int, int]] = {
    "H200": ("NVIDIA H200", 0, 0),
    "H100": ("NVIDIA H100 80GB HBM3", 81_559, 700),
    "A100": ("NVIDIA A100-SXM4-40GB", 40_960, 400),
    "L4": ("NVIDIA L4", 23_034, 72),
}
"""Name, memory in MiB and power limit; 0: as recorded."""
LEFT_BEHIND = 4 * MIB
"""What a checkpointed process keeps on its GPU. The driver counts it there, and lists the process no more."""
RUNNING, LOCKED, CHECKPOINTED, FAILED = "running", "locked", "checkpointed", "failed"
STATES = (RUNNING, LOCKED, CHECKPOINTED, FAILED)
LOOK_S = 0.02
"""How often a process that is locked looks whether it may go on."""
HANG_S = 3600.0


# -- the machine -------------------------------------------------------------------------------------------


def make_folder(
    folder: str | Path,
    gpus: int = 1,
    kind: str | Sequence[str] = "H200",
    islands: Sequence[Sequence[int]] = (),
    mig: Mapping[int, Sequence[str]] | None = None,
    memory: int | None = None,
    driver_version: str | None = None,
) -> Path:
    """A machine of so many GPUs out of the recording.

    `kind` is one for all, or one for each. `islands` are numbers of GPUs that NVLink joins: none, and all
    are joined. `mig` cuts up GPUs by number, into profiles such as 1g.18gb. `memory` is in bytes.
    """
    folder = Path(folder)
    (folder / "processes").mkdir(parents=True, exist_ok=True)
    recorded = recording()
    kinds = [kind] * gpus if isinstance(kind, str) else list(kind)
    groups = [frozenset(each) for each in islands] or [frozenset(range(len(kinds)))]
    rows = []
    for number, each in enumerate(kinds):
        name, mib, limit = KINDS[each]
        row = dict(recorded["gpus"][0])
        linked = next((group for group in groups if number in group), frozenset())
        row |= {"number": number, "uuid": f"GPU-{_uuid(each, number)}", "name": name}
        row |= {"memory": memory or mib * MIB or row["memory"]}
        row |= {"power_limit_w": limit or row["power_limit_w"]}
        row |= {"linked": sorted(linked - {number}), "near": sorted(linked | {number})}
        profiles = (mig or {}).get(number)
        if profiles is not None:
            row["slices"] = [
                {"uuid": f"MIG-{_uuid(each, number, place)}", "profile": profile}
                | {"memory": _slice_memory(profile)}
                for place, profile in enumerate(profiles)
            ]
        rows.append(row)
    _write(
        folder / "machine.json",
        {
            "driver_version": driver_version or recorded["driver_version"],
            "cuda_version": recorded["cuda_version"],
            "gpus": rows,
        },
    )
    return folder


def recording(name: str = "h200") -> dict[str, Any]:
    """What a real machine answered."""
    found: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text())
    return found


def change_gpu(uuid: str, folder: str | Path | None = None, **said: Any) -> None:
    """Other answers of one GPU: temperature_c=91, ecc_errors=2, lost="GPU is lost", number=3."""
    place = _folder(folder)
    with _lock(place / "machine.lock"):
        machine = _read(place / "machine.json", {})
        for row in machine["gpus"]:
            if row["uuid"] == uuid:
                row |= said
        machine["gpus"].sort(key=lambda row: row["number"])
        _write(place / "machine.json", machine)


def add_event(uuid: str, code: int, kind: str = "xid", folder: str | Path | None = None) -> None:
    """Something happens to a GPU."""
    place = _folder(folder)
    with _lock(place / "machine.lock"):
        past = _read(place / "events.json", [])
        _write(place / "events.json", [*past, {"uuid": uuid, "kind": kind, "code": code}])


# -- what a process has --------------------------------------------------------------------------------------


def allocate(
    size: int,
    gpus: Sequence[str] | None = None,
    *,
    pid: int | None = None,
    folder: str | Path | None = None,
    **said: Any,
) -> None:
    """More bytes on each of these GPUs, by UUID; None: on those of CUDA_VISIBLE_DEVICES.

    MemoryError where one has not so much left. `said` may be util_ppm, mps, managed and nccl. Waits while
    the process is locked, as every call of CUDA does.
    """
    place, pid = _folder(folder), pid or os.getpid()
    step(pid=pid, folder=place)
    wanted = visible_uuids(place) if gpus is None else tuple(gpus)
    free = {
        each.uuid: each.memory_total - each.memory_used for each in FakeDriver(place).readings()
    }
    for uuid in wanted:
        if size > free.get(uuid, 0):
            raise MemoryError(
                f"CUDA out of memory: {size} bytes on {uuid}, {free.get(uuid, 0)} free"
            )
    with _changed(place, pid) as mine:
        for uuid in wanted:
            mine["gpus"][uuid] = mine["gpus"].get(uuid, 0) + size
        mine |= said


def release(pid: int | None = None, folder: str | Path | None = None) -> None:
    """The process has nothing on any GPU any more."""
    place = _folder(folder)
    (place / "processes" / f"{pid or os.getpid()}.json").unlink(missing_ok=True)


def step(seconds: float = 0.0, *, pid: int | None = None, folder: str | Path | None = None) -> None:
    """Compute for so long; not while the process is locked or checkpointed."""
    time.sleep(seconds)
    place = _folder(folder)
    while process_of(pid or os.getpid(), place).get("state", RUNNING) in (LOCKED, CHECKPOINTED):
        time.sleep(LOOK_S)


def set_state(pid: int, state: str, folder: str | Path | None = None) -> None:
    """As the driver's calls leave it: running, locked, checkpointed or failed."""
    assert state in STATES, state
    with _changed(_folder(folder), pid) as it:
        it["state"] = state


def state_of(pid: int, folder: str | Path | None = None) -> str | None:
    """running, locked, checkpointed or failed; None for a process without a GPU, or one that has ended."""
    found: str | None = process_of(pid, folder).get("state")
    return found


def set_util(pid: int, util_ppm: int, folder: str | Path | None = None) -> None:
    """Which part of the time it computes."""
    with _changed(_folder(folder), pid) as it:
        it["util_ppm"] = util_ppm


def move_memory(pid: int, moves: Mapping[str, str], folder: str | Path | None = None) -> None:
    """What it has on the old GPUs is on the new ones (not seen on hardware)."""
    with _changed(_folder(folder), pid) as it:
        it["gpus"] = {moves.get(uuid, uuid): size for uuid, size in it["gpus"].items()}


def process_of(pid: int, folder: str | Path | None = None) -> dict[str, Any]:
    """All that is said of a process; empty where nothing is, or where it has ended."""
    found: dict[str, Any] = _read(_folder(folder) / "processes" / f"{pid}.json", {})
    started = _started(pid)
    if started is None or found.get("started", started) != started:
        return {}
    return found


def visible_uuids(folder: str | Path | None = None) -> tuple[str, ...]:
    """The devices that CUDA_VISIBLE_DEVICES leaves this process, in its order; all where it is not set."""
    known = FakeDriver(_folder(folder)).gpus()
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    if setting is None:
        return tuple(gpu.uuid for gpu in known)
    return tuple(
        gpu.uuid
        for each in setting.split(",")
        for gpu in known
        if each and (each == str(gpu.number) or gpu.uuid.startswith(each))
    )


# -- what fails ----------------------------------------------------------------------------------------------


def add_fault(
    call: str,
    does: str = "fail",
    *,
    pid: int | None = None,
    nth: int | None = None,
    code: int = 999,
    folder: str | Path | None = None,
) -> None:
    """Let a call fail, hang, or end the process that it is about (die).

    `call` is lock, checkpoint, restore, unlock or state, or one of the driver: gpus, readings, processes,
    events. `nth` counts the calls that it concerns, from 1; None: all of them.
    """
    place = _folder(folder)
    said = {"call": call, "pid": pid, "nth": nth, "does": does, "code": code}
    with _lock(place / "faults.lock"):
        past = _read(place / "faults.json", [])
        _write(
            place / "faults.json",
            [*past, {name: each for name, each in said.items() if each is not None}],
        )


def clear_faults(folder: str | Path | None = None) -> None:
    (_folder(folder) / "faults.json").unlink(missing_ok=True)


def take_fault(
    call: str, pid: int | None = None, folder: str | Path | None = None
) -> dict[str, Any] | None:
    """What goes wrong with this call, which is counted; None if nothing does."""
    place = _folder(folder)
    if not (place / "faults.json").exists():
        return None
    with _lock(place / "faults.lock"):
        faults = _read(place / "faults.json", [])
        struck = None
        for fault in faults:
            if fault["call"] != call or fault.get("pid", pid) != pid:
                continue
            fault["seen"] = fault.get("seen", 0) + 1
            if struck is None and fault.get("nth", fault["seen"]) == fault["seen"]:
                struck = fault
        _write(place / "faults.json", faults)
    return struck


# -- the driver ----------------------------------------------------------------------------------------------


class FakeDriver:
    """Answers out of the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._told = len(_read(folder / "events.json", []))

    @property
    def version(self) -> str:
        return str(self._machine()["driver_version"])

    def gpus(self) -> tuple[Gpu, ...]:
        self._fault("gpus")
        rows = self._rows()
        found = tuple(gpu for row in rows for gpu in _gpus_of(row))
        if rows and not found:
            raise DriverError(NO_SLICES)
        return found

    def readings(self) -> tuple[Reading, ...]:
        self._fault("readings")
        running = list(self._running())
        return tuple(
            _reading_of(row, uuid, memory, running)
            for row in self._rows()
            for uuid, memory in _devices_of(row)
        )

    def processes(self) -> tuple[GpuProcess, ...]:
        self._fault("processes")
        return tuple(
            GpuProcess(pid, uuid, memory, said.get("util_ppm"))
            for pid, said in self._running()
            if said.get("state") != CHECKPOINTED
            for uuid, memory in _held(said).items()
        )

    def events(self) -> tuple[GpuEvent, ...]:
        self._fault("events")
        rows = _read(self._folder / "events.json", [])
        new, self._told = rows[self._told :], len(rows)
        return tuple(GpuEvent(row["uuid"], row["kind"], row["code"]) for row in new)

    def close(self) -> None:
        """Nothing is held."""

    def _machine(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self._folder / "machine.json").read_text())
        except (OSError, ValueError) as problem:
            raise DriverError(f"{FAKE_GPUS}={self._folder} plays no driver: {problem}") from None
        return found

    def _rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._machine()["gpus"]
        return found

    def _running(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for place in sorted((self._folder / "processes").glob("*.json")):
            if place.stem.isdecimal() and (said := process_of(int(place.stem), self._folder)):
                yield int(place.stem), said

    def _fault(self, call: str) -> None:
        fault = take_fault(call, None, self._folder)
        if fault is None:
            return
        if fault["does"] == "hang":
            time.sleep(HANG_S)
        raise DriverError(f"the GPU driver does not answer (error {fault['code']} of {call})")


def _gpus_of(row: Mapping[str, Any]) -> Iterator[Gpu]:
    number, name = row["number"], row["name"]
    for each in row.get("slices", ()):
        near = frozenset({number})
        slice_ = each["profile"]
        yield Gpu(number, name, each["uuid"], each["memory"], near, slice=slice_, minor=number)
    if "slices" not in row:
        near, linked = frozenset(row["near"]), frozenset(row["linked"])
        yield Gpu(number, name, row["uuid"], row["memory"], near, linked, minor=number)


def _devices_of(row: Mapping[str, Any]) -> list[tuple[str, int]]:
    """UUID and memory of the GPU, or of its slices."""
    if "slices" in row:
        return [(each["uuid"], each["memory"]) for each in row["slices"]]
    return [(row["uuid"], row["memory"])]


def _reading_of(
    row: Mapping[str, Any],
    uuid: str,
    memory: int,
    running: Sequence[tuple[int, dict[str, Any]]],
) -> Reading:
    if row.get("lost"):
        return Reading(uuid, trouble=row["lost"])
    here = [said for _, said in running if uuid in said["gpus"]]
    busy = sum(said.get("util_ppm") or 0 for said in here if said.get("state") == RUNNING)
    return Reading(
        uuid=uuid,
        memory_total=memory,
        memory_used=row["memory_used"] + sum(_held(said)[uuid] for said in here),
        util_ppm=None if "slices" in row else min(1_000_000, busy),
        temperature_c=row["temperature_c"],
        power_w=row["power_w"],
        power_limit_w=row["power_limit_w"],
        ecc_errors=row["ecc_errors"],
    )


def _held(said: Mapping[str, Any]) -> dict[str, int]:
    """Bytes by GPU."""
    is_out = said.get("state") == CHECKPOINTED
    return {uuid: min(size, LEFT_BEHIND) if is_out else size for uuid, size in said["gpus"].items()}


# -- files ---------------------------------------------------------------------------------------------------


def _folder(said: str | Path | None) -> Path:
    return Path(os.environ[FAKE_GPUS] if said is None else said)


@contextlib.contextmanager
def _changed(folder: Path, pid: int) -> Iterator[dict[str, Any]]:
    """What is said of a process, to be changed; written when done."""
    place = folder / "processes" / f"{pid}.json"
    with _lock(folder / "processes" / f"{pid}.lock"):
        found = process_of(pid, folder) or {"gpus": {}, "state": RUNNING, "started": _started(pid)}
        yield found
        _write(place, found)


@contextlib.contextmanager
def _lock(place: Path) -> Iterator[None]:
    opened = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def _read(place: Path, without: Any) -> Any:
    try:
        return json.loads(place.read_text())
    except FileNotFoundError:
        return without


def _write(place: Path, said: Any) -> None:
    beside = place.with_name(f"{place.name}.{os.getpid()}.{time.monotonic_ns()}")
    beside.write_text(json.dumps(said, indent=1))
    os.replace(beside, place)


def _started(pid: int) -> str | None:
    """When a process started, by the kernel's clock, so that a number used again is another process; None
    for one that has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()


def _uuid(*said: Any) -> str:
    return str(uuids.uuid5(uuids.NAMESPACE_OID, repr(said)))


def _slice_memory(profile: str) -> int:
    """1g.18gb has 18 GB, less what the driver keeps for itself."""
    return int(profile.rpartition(".")[2].removesuffix("gb")) * 1000 * MIB
