"""Freezes and thaws CUDA processes from outside: `python -m trainmaster.gpu.checkpoint`

    freeze [--lock-timeout-ms N] PID...     take all that they have on GPUs into host memory, or nothing
    thaw [--map OLD=NEW]... PID...          give it back, on other GPUs of the same kind where told so
    state PID...

Lines of JSON on the standard output: what is to be done, each call, and how it ended (`end`):
    {"plan": [4711], "bytes": 2147483648}
    {"pid": 4711, "did": "lock", "ms": 0.4}
    {"end": "frozen" | "running" | "stuck", "why": "", "is_final": false, "is_short": false}

Processes without CUDA state may be among them: they are left alone. It asks for the state before each call,
so it may be killed and started again at any point. SIGTERM: turn round after the present call.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TypeVar

from trainmaster.gpu import freeze_conditions as conditions
from trainmaster.gpu.cuda_process import (
    BUSY,
    NOT_INITIALIZED,
    NOT_READY,
    NOT_SUPPORTED,
    OPERATING_SYSTEM,
    OUT_OF_MEMORY,
    CudaFault,
    CudaProcess,
    Find,
    NoCheckpoints,
    open_checkpoints,
)
from trainmaster.gpu.driver import Driver, DriverError, open_driver
from trainmaster.gpu.freeze_conditions import Refusal

FROZEN, RUNNING, STUCK = "frozen", "running", "stuck"
CALLS: Mapping[str, Mapping[str, str]] = {
    "locked": {"running": "lock"},
    "checkpointed": {"running": "lock", "locked": "checkpoint"},
    "restored": {"checkpointed": "restore"},
    "running": {"checkpointed": "restore", "locked": "unlock"},
}
"""For each goal the next call, by the state that the driver reports; none: it is there."""
FREEZE = ("locked", "checkpointed")
THAW = ("restored", "running")
NOT_CUDA = frozenset({1, NOT_INITIALIZED, OPERATING_SYSTEM})
"""What the driver says of processes that it does not know, have ended or are about to."""
LOCK_TIMEOUT_MS = 10_000
EXIT_S = 5.0
"""How long a process may take to end after the driver said that it does."""
MEMORY_S = 5.0
"""How long a restore waits for GPU memory that another process is giving back."""
LOOK_S = 0.05

T = TypeVar("T")
Say = Callable[[Mapping[str, object]], None]


class Ended(Exception):
    """The process has ended meanwhile, which is no fault."""


class Turned(Exception):
    """It is not wanted any more."""


def next_call(state: str, goal: str) -> str | None:
    """What brings a process from this state nearer to the goal; None: nothing has to be done."""
    return CALLS[goal].get(state)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where all processes are now, and why they are not where they should be."""

    end: str
    why: str = ""
    is_final: bool = False
    is_short: bool = False
    """Whether only GPU memory is missing that others have: nothing is broken, and it may come."""


class Walk:
    """Takes processes from the state that the driver reports to a goal, one call at a time."""

    def __init__(
        self,
        found: Mapping[int, CudaProcess],
        say: Say,
        is_turned: Callable[[], bool] = lambda: False,
        lock_ms: int = LOCK_TIMEOUT_MS,
    ) -> None:
        self._found = dict(found)
        self._say = say
        self._is_turned = is_turned
        self._lock_ms = lock_ms

    def freeze(self) -> Outcome:
        """All are locked before any is checkpointed; where one cannot be, all go on."""
        try:
            self._bring(FREEZE, {}, self._is_turned)
        except Turned:
            back = self.thaw({})
            return (
                back if back.end == STUCK else Outcome(RUNNING, "It was told to go on meanwhile.")
            )
        except CudaFault as fault:
            back = self.thaw({})
            why, is_final = words_of(fault)
            return Outcome(back.end, f"{why} {back.why}".strip(), is_final)
        return Outcome(FROZEN)

    def thaw(self, moves: Mapping[str, str]) -> Outcome:
        try:
            self._bring(THAW, moves, lambda: False)
        except CudaFault as fault:
            return Outcome(STUCK, words_of(fault)[0], is_short=fault.code == OUT_OF_MEMORY)
        return Outcome(RUNNING)

    def _bring(
        self, goals: Sequence[str], moves: Mapping[str, str], is_turned: Callable[[], bool]
    ) -> None:
        for goal in goals:
            for pid in [*self._found]:
                try:
                    while self._step(pid, goal, moves):
                        if is_turned():
                            raise Turned
                except Ended:
                    self._say({"pid": pid, "did": "end"})
                    del self._found[pid]
        if is_turned():
            raise Turned

    def _step(self, pid: int, goal: str, moves: Mapping[str, str]) -> bool:
        """One call, where one is needed; False: it is there."""
        process = self._found[pid]
        state = self._asked(pid, "state", process.state)
        if state == BUSY:
            time.sleep(LOOK_S)
            return True
        if state == "failed":
            raise CudaFault(0, f"The driver has failed process {pid}.")
        call = next_call(state, goal)
        if call is None:
            return False
        began = time.monotonic()
        doing: Mapping[str, Callable[[], None]] = {
            "lock": lambda: process.lock(self._lock_ms),
            "checkpoint": process.checkpoint,
            "restore": lambda: _restore(process, moves),
            "unlock": process.unlock,
        }
        self._asked(pid, call, doing[call])
        took_ms = round((time.monotonic() - began) * 1000, 3)
        self._say({"pid": pid, "did": call, "ms": took_ms})
        return True

    def _asked(self, pid: int, call: str, doing: Callable[[], T]) -> T:
        """Ended where the process has, or is about to."""
        try:
            return doing()
        except CudaFault as fault:
            if fault.code in NOT_CUDA and has_ended(pid, EXIT_S):
                raise Ended from None
            if fault.code == 0:
                raise
            raise CudaFault(
                fault.code,
                f"The driver could not {call} process {pid}: error {fault.code} ({fault}).",
            ) from None


def _restore(process: CudaProcess, moves: Mapping[str, str]) -> None:
    """Memory that another process has given back may appear a little later."""
    until = time.monotonic() + MEMORY_S
    while True:
        try:
            process.restore(moves)
            return
        except CudaFault as fault:
            is_late = time.monotonic() > until
            if fault.code != OUT_OF_MEMORY or is_late or process.state() != "checkpointed":
                raise
        time.sleep(LOOK_S)


def words_of(fault: CudaFault) -> tuple[str, bool]:
    """A fault as a sentence, and whether another try would meet it again."""
    if fault.code == NOT_SUPPORTED:
        return (
            "The driver cannot suspend it (error 801), as it cannot clients of MPS and programs with"
            " managed memory.",
            True,
        )
    if fault.code == NOT_READY:
        return f"{fault} It did not come to rest in time.", False
    return str(fault), False


def has_ended(pid: int, patience_s: float = 0.0) -> bool:
    until = time.monotonic() + patience_s
    while True:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                if file.read().rpartition(b")")[2].split()[0] in (b"Z", b"X"):
                    return True
        except OSError:
            return True
        if time.monotonic() >= until:
            return False
        time.sleep(LOOK_S)


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


# -- the program -------------------------------------------------------------------------------------------


def freeze(pids: Sequence[int], say: Say, is_turned: Callable[[], bool], lock_ms: int) -> Outcome:
    """Check, say what is to be done, and do it."""
    try:
        driver = open_driver()
        refused = conditions.driver_refusal(driver.version)
        if refused is not None:
            return _refused(refused)
        found = cuda_processes(candidates(pids, driver), open_checkpoints())
        held = memory_of(pids, driver)
        needed = sum(held.values()) or (used_by_all(driver) if found else 0)
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
    rooms = [conditions.machine_room(needed)]
    for pid, size in held.items():
        rooms += conditions.cgroup_rooms(pid, size)
    return conditions.nccl_refusal(len(found), has_communicators) or conditions.room_refusal(rooms)


def thaw(pids: Sequence[int], say: Say, moves: Mapping[str, str]) -> Outcome:
    try:
        found = cuda_processes(pids, open_checkpoints())
        pairs = full_map(*_by_uuid(moves, open_driver())) if moves else {}
    except (NoCheckpoints, DriverError, ValueError) as problem:
        return Outcome(STUCK, str(problem))
    except CudaFault as fault:
        return Outcome(STUCK, f"The driver does not say which processes it has: {fault}.")
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


def used_by_all(driver: Driver) -> int:
    """Where the driver counts processes by other numbers than we do, as in containers."""
    return sum(each.memory_used for each in driver.readings())


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
    if asked.verb == "freeze":
        outcome = freeze(asked.pids, _say, lambda: bool(turned), asked.lock_timeout_ms)
    else:
        outcome = thaw(asked.pids, _say, dict(asked.map))
    _say(asdict(outcome) | _kept(asked.pids))
    return int(outcome.end != (FROZEN if asked.verb == "freeze" else RUNNING))


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
