"""Facts about the machine, its GPUs, and the file systems on it."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator, Sequence, Set
from pathlib import Path

from trainmaster.cli.diagnosis.facts import FileSystem, GpuDevice, Gpus, Machine
from trainmaster.engines.local.cgroup_probe import probe
from trainmaster.engines.local.descriptors import HARD
from trainmaster.engines.local.privileges import interpreter_remark
from trainmaster.engines.local.processes import variables_of
from trainmaster.engines.local.stack_dump import py_spy
from trainmaster.gpu.devices import has_device_files
from trainmaster.gpu.driver import FAKE_GPUS, Driver, DriverError, open_driver
from trainmaster.gpu.mps import control_program
from trainmaster_sdk.process_tree import stat_of

SHM = Path("/dev/shm")
PTRACE = Path("/proc/sys/kernel/yama/ptrace_scope")
CONTAINERS = ("docker", "podman", "apptainer", "singularity")
UNSYNCHRONISED = 0x0040
"""STA_UNSYNC of adjtimex(2)."""
STATUS_AT = 10 if ctypes.sizeof(ctypes.c_long) == 8 else 5
"""Where `status` is in `struct timex`, counted in ints: after modes, padding, offset, freq and two errors."""
JOB = "TRAINMASTER_JOB"


def machine() -> Machine:
    is_linux = sys.platform == "linux"
    probed = probe() if is_linux else None
    return Machine(
        python=sys.version_info[:2],
        kernel=f"{platform.system()} {platform.release()}",
        is_linux=is_linux,
        open_files=HARD,
        cgroup_remarks=() if probed is None else probed.remarks,
        filters_devices=probed is not None and bool(probed.plan.devices_in),
        shm=file_system(SHM) if SHM.is_dir() else None,
        shm_bytes=shutil.disk_usage(SHM).total if SHM.is_dir() else 0,
        ptrace_scope=_number(PTRACE),
        has_py_spy=py_spy() is not None,
        containers=tuple(name for name in CONTAINERS if shutil.which(name)),
        clock_is_synchronised=_is_synchronised() if is_linux else None,
        now_ms=round(time.time() * 1000),
        interpreter_remark=interpreter_remark(),
    )


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _is_synchronised() -> bool | None:
    """As the kernel was told by whoever keeps its clock; it is only read."""
    asked = (ctypes.c_int * 128)()
    if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(asked)) < 0:
        return None
    return not asked[STATUS_AT] & UNSYNCHRONISED


def file_system(path: Path) -> FileSystem:
    """Of the nearest folder that is there."""
    while not path.exists():
        path = path.parent
    found = os.statvfs(path)
    kind, options = _mount_of(path)
    return FileSystem(
        kind=kind,
        options=frozenset(options),
        free=found.f_bavail * found.f_frsize,
        inodes_free=found.f_favail if found.f_files else None,
    )


def _mount_of(path: Path) -> tuple[str, Sequence[str]]:
    """The kind and the options of the mount that a path is on: the one that is mounted last and nearest."""
    real, best, found = str(path.resolve()), "", ("", "")
    try:
        lines = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return "", ()
    for line in lines:
        _, at, kind, options, *_ = line.split()
        at = at.encode().decode("unicode_escape")
        is_below = real == at or real.startswith(at.rstrip("/") + "/")
        if is_below and len(at) >= len(best):
            best, found = at, (kind, options)
    return found[0], found[1].split(",")


def gpus(managers: Set[int]) -> Gpus:
    """`managers`: processes whose own self-tests do not count as other programs."""
    driver = open_driver()
    version, trouble, devices = "", "", tuple[GpuDevice, ...]()
    try:
        version = driver.version
        if version:
            devices = _devices(driver, managers)
    except DriverError as error:
        trouble = str(error)
    finally:
        driver.close()
    return Gpus(
        driver=version,
        trouble=trouble,
        has_device_files=has_device_files(),
        devices=devices,
        has_cuda_core=_has_cuda_core(),
        has_mps=control_program() is not None,
    )


def _has_cuda_core() -> bool:
    try:
        return importlib.util.find_spec("cuda.core") is not None
    except ModuleNotFoundError:
        return False


def _devices(driver: Driver, managers: Set[int]) -> tuple[GpuDevice, ...]:
    readings = {each.uuid: each for each in driver.readings()}
    strangers = [each for each in driver.processes() if is_stranger(each.pid, managers)]
    persistent = _persistence()
    found = []
    for gpu in driver.gpus():
        reading = readings.get(gpu.uuid)
        found.append(
            GpuDevice(
                name=gpu.name,
                uuid=gpu.uuid,
                persistence=persistent.get(gpu.number),
                ecc_errors=None if reading is None else reading.ecc_errors,
                has_slices=bool(gpu.slice),
                trouble="" if reading is None else reading.trouble,
                others=tuple(
                    (each.pid, each.memory) for each in strangers if each.uuid == gpu.uuid
                ),
            )
        )
    return tuple(found)


def _persistence() -> dict[int, bool]:
    """By number: whether the driver stays loaded without a program; empty where it does not say."""
    if os.environ.get(FAKE_GPUS):
        return {}
    import pynvml  # type: ignore[import-untyped]

    try:
        pynvml.nvmlInit()
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return {
            number: bool(pynvml.nvmlDeviceGetPersistenceMode(handle))
            for number, handle in enumerate(handles)
        }
    except pynvml.NVMLError:
        return {}


def is_stranger(pid: int, managers: Set[int]) -> bool:
    """Whether neither a job nor a manager started it, as far as this user can see."""
    return variables_of(pid, (JOB,)) is None and not managers & {*_line_of(pid)}


def _line_of(pid: int) -> Iterator[int]:
    """A process and those above it."""
    while pid > 1:
        yield pid
        fields = stat_of(pid)
        pid = int(fields[1]) if fields else 0
