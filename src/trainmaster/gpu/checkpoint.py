"""Freezes and thaws CUDA processes from outside: `python -m trainmaster.gpu.checkpoint`

    freeze [--lock-timeout-ms N] PID...     take all that they have on GPUs into host memory, or nothing
           [--gpu UUID]...                  which GPUs they can have something on
           [--stay]                         and wait for a line: {"thaw": [4711], "map": {"OLD": "NEW"}}
    thaw [--map OLD=NEW]... PID...          give it back, on other GPUs of the same kind where told so
    state PID...

Lines of JSON on the standard output: what is to be done, each call, and how it ended (`end`):
    {"plan": [4711], "bytes": 2147483648}
    {"pid": 4711, "did": "lock", "ms": 0.4}
    {"end": "frozen" | "running" | "stuck", "why": "", "is_final": false, "is_short": false}

Processes without CUDA state may be among those to freeze, which leaves them alone; those to thaw are those of
the plan. It asks for the state before each call, so it may be killed and started again at any point. SIGTERM:
turn round after the present call. While it stays it has CUDA loaded and no context, so nothing on a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict

from trainmaster.gpu import freeze_conditions as conditions
from trainmaster.gpu.checkpoint_walk import (
    LOCK_TIMEOUT_MS,
    NOT_CUDA,
    Outcome,
    Say,
    Walk,
    has_ended,
    is_ending,
)
from trainmaster.gpu.cuda_process import (
    CudaFault,
    CudaProcess,
    Find,
    NoCheckpoints,
    open_checkpoints,
)
from trainmaster.gpu.driver import Driver, DriverError, open_driver
from trainmaster.gpu.freeze_conditions import Refusal
from trainmaster.gpu.freeze_end import FROZEN, RUNNING, STUCK


def candidates(pids: Sequence[int], driver: Driver) -> list[int]:
    """Those that may have CUDA state: by NVML, or where it counts by other numbers, that have CUDA loaded.

    Data loaders that were forked from a CUDA process have its libraries, and nothing on the GPU.
    """
    listed = {each.pid for each in driver.processes()}
    return [pid for pid in pids if pid in listed] or [pid for pid in pids if has_cuda(pid)]


def has_cuda(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            return any(b"/libcuda.so" in line for line in file)
    except OSError:
        return False


def cuda_processes(pids: Sequence[int], find: Find) -> dict[int, CudaProcess]:
    """Those of them that the driver knows; CudaFault where it does not answer."""
    found = {}
    for pid in pids:
        process = find(pid)
        try:
            process.state()
        except CudaFault as fault:
            if fault.code not in NOT_CUDA:
                raise
            continue
        found[pid] = process
    return found


def full_map(moves: Mapping[str, str], gpus: Sequence[str]) -> dict[str, str]:
    """With every GPU that the driver sees, as it wants to have it; empty where none moves.

    GPUs that are not moved stay where they are, or change places with those that are.
    """
    if all(old == new for old, new in moves.items()):
        return {}
    free = [uuid for uuid in gpus if uuid not in moves.values()]
    rest = [uuid for uuid in gpus if uuid not in moves]
    staying = {uuid: uuid for uuid in rest if uuid in free}
    others = [uuid for uuid in free if uuid not in staying]
    leaving = [uuid for uuid in rest if uuid not in staying]
    return {**moves, **staying, **dict(zip(leaving, others, strict=True))}


def freeze(
    pids: Sequence[int],
    say: Say,
    is_turned: Callable[[], bool],
    lock_ms: int,
    gpus: Collection[str] = (),
) -> Outcome:
    """Check, say what is to be done, and do it. `gpus`: those that they can use; empty: all."""
    try:
        driver = open_driver()
        refused = conditions.driver_refusal(driver.version)
        if refused is not None:
            return _refused(refused)
        found = cuda_processes(candidates(pids, driver), open_checkpoints())
        held = memory_of(pids, driver)
        needed = sum(held.values()) or (used_by_all(driver, gpus) if found else 0)
    except NoCheckpoints as problem:
        return _refused(Refusal(str(problem), True))
    except DriverError as problem:
        return _refused(Refusal(f"Its GPUs cannot be looked at: {problem}.", False))
    except CudaFault as fault:
        return _refused(Refusal(f"The driver does not say which processes it has: {fault}.", False))
    refused = refusal(found, held, needed)
    if refused is not None:
        return _refused(refused)
    say({"plan": [*found], "bytes": needed})
    if is_turned():
        return Outcome(RUNNING, "It was told to go on meanwhile.")
    outcome = Walk(found, say, is_turned, lock_ms).freeze()
    late = _late(pids, found, driver)
    if outcome.end == FROZEN and late:
        back = Walk(found, say).thaw({})
        return Outcome(back.end, f"Process {late[0]} came to the GPU meanwhile. {back.why}".strip())
    return outcome


def _late(pids: Sequence[int], found: Mapping[int, CudaProcess], driver: Driver) -> list[int]:
    """Processes that came to a GPU meanwhile; none where NVML does not say: what was frozen is frozen."""
    try:
        return [pid for pid in memory_of(pids, driver) if pid not in found]
    except DriverError:
        return []


def refusal(
    found: Mapping[int, CudaProcess], held: Mapping[int, int], needed: int
) -> Refusal | None:
    """Why these processes, with these bytes on GPUs, are not frozen; None where they can be."""
    unknown = [pid for pid in held if pid not in found and not has_ended(pid)]
    if unknown:
        return Refusal(
            f"Process {unknown[0]} has GPU memory, and the driver cannot suspend it.", False
        )
    has_communicators = any(each.has_communicators() for each in found.values())
    sizes = held or {pid: -(-needed // len(found)) for pid in found}  # NVML counts otherwise
    rooms = [conditions.machine_room(needed), *conditions.cgroup_rooms(sizes)]
    return conditions.nccl_refusal(len(found), has_communicators) or conditions.room_refusal(rooms)


def thaw(pids: Sequence[int], say: Say, moves: Mapping[str, str]) -> Outcome:
    try:
        found = cuda_processes(pids, open_checkpoints())
        pairs = full_map(*_by_uuid(moves, open_driver())) if moves else {}
    except (NoCheckpoints, DriverError, ValueError) as problem:
        return Outcome(STUCK, str(problem))
    except CudaFault as fault:
        return Outcome(STUCK, f"The driver does not say which processes it has: {fault}.")
    unknown = [pid for pid in pids if pid not in found and not is_ending(pid)]
    if unknown:
        return Outcome(
            STUCK, f"The driver does not know process {unknown[0]} any more, which has not ended."
        )
    say({"plan": [*found], "bytes": 0})
    return Walk(found, say).thaw(pairs)


def _by_uuid(moves: Mapping[str, str], driver: Driver) -> tuple[dict[str, str], list[str]]:
    """Moves between numbers or UUIDs as those between UUIDs, with all UUIDs of the machine."""
    gpus = driver.gpus()
    names = {str(gpu.number): gpu.uuid for gpu in gpus} | {gpu.uuid: gpu.uuid for gpu in gpus}
    unknown = [each for pair in moves.items() for each in pair if each not in names]
    if unknown:
        raise ValueError(f"This machine has no GPU {unknown[0]}.")
    return {names[old]: names[new] for old, new in moves.items()}, [gpu.uuid for gpu in gpus]


def memory_of(pids: Sequence[int], driver: Driver) -> dict[int, int]:
    """Bytes on all GPUs, of those that have any."""
    wanted, held = frozenset(pids), dict[int, int]()
    for each in driver.processes():
        if each.pid in wanted and each.memory:
            held[each.pid] = held.get(each.pid, 0) + each.memory
    return held


def used_by_all(driver: Driver, gpus: Collection[str] = ()) -> int:
    """Where the driver counts processes by other numbers than we do, as in containers."""
    return sum(each.memory_used for each in driver.readings() if not gpus or each.uuid in gpus)


def _refused(refused: Refusal) -> Outcome:
    return Outcome(RUNNING, refused.why, refused.is_final)


def _say(said: Mapping[str, object]) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


def _states(pids: Sequence[int]) -> None:
    find = open_checkpoints()
    for pid in pids:
        try:
            _say({"pid": pid, "state": find(pid).state()})
        except CudaFault as fault:
            _say({"pid": pid, "state": None, "code": fault.code})


def _pair(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not (old and equals and new):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form OLD=NEW")
    return old, new


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "trainmaster.gpu.checkpoint", description=__doc__.split("\n")[0]
    )
    parser.add_argument("verb", choices=("freeze", "thaw", "state"))
    parser.add_argument("pids", type=int, nargs="+", metavar="PID")
    parser.add_argument("--map", type=_pair, action="append", default=[], metavar="OLD=NEW")
    parser.add_argument("--lock-timeout-ms", type=int, default=LOCK_TIMEOUT_MS)
    parser.add_argument("--gpu", action="append", default=[], metavar="UUID")
    parser.add_argument("--stay", action="store_true")
    asked = parser.parse_args(argv)
    turned: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: turned.append(number))
    if asked.verb == "state":
        try:
            _states(asked.pids)
        except NoCheckpoints as problem:
            sys.stderr.write(f"{problem}\n")
            return 1
        return 0
    if asked.verb == "thaw":
        return _thaw(asked.pids, dict(asked.map))
    outcome = freeze(asked.pids, _say, lambda: bool(turned), asked.lock_timeout_ms, asked.gpu)
    _say(asdict(outcome) | _kept(asked.pids))
    if outcome.end != FROZEN:
        return 1
    line = sys.stdin.readline() if asked.stay else ""  # empty: nobody will say it any more
    if line:
        said = json.loads(line)
        return _thaw(said["thaw"], said["map"])
    return 0


def _thaw(pids: Sequence[int], moves: Mapping[str, str]) -> int:
    outcome = thaw(pids, _say, moves)
    _say(asdict(outcome) | _kept(pids))
    return int(outcome.end != RUNNING)


def _kept(pids: Sequence[int]) -> dict[str, int]:
    """What they have on GPUs now, where that is known: NVML does not list a process that is out."""
    try:
        held = memory_of(pids, open_driver())
    except DriverError:
        return {}
    return {"gpu_bytes": sum(held.values())} if held else {}


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # the driver's threads are not waited for
