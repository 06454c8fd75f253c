"""Freezes a run by the CUDA driver, which a program of its own calls: each call takes long, and may hang.

Only the standard library is imported here: supervisors load it.
"""

from __future__ import annotations

import selectors
import signal
import time
from collections.abc import Mapping, Sequence

from trainmaster.engines.local.freezer import Result
from trainmaster.engines.local.helper_process import HelperProcess
from trainmaster.engines.local.process_freezer import Members
from trainmaster.gpu.freeze_conditions import Refusal, device_refusal
from trainmaster.gpu.freeze_end import FROZEN, RUNNING, STUCK
from trainmaster_sdk.wire import Message

PROGRAM = ("-m", "trainmaster.gpu.checkpoint")
FREEZE = ("freeze", "--stay")
START_S = 90.0
"""How long the program may take until it says what it is going to do."""
LEAST_S = 60.0
BYTES_PER_S = 200_000_000
"""How long its calls may take: a tenth of the speed that was measured."""
ROUNDS = 3
RETRY_S = 0.5
KILLED = "The program that freezes it was killed."
MPS_PIPE = "CUDA_MPS_PIPE_DIRECTORY"


class DriverFreezer:
    """Starts the program for a freeze, and gives it as long as the bytes may take.

    It stays for the thaw, because its start takes longer than a small restore does. Where it has died
    meanwhile, another one is started.
    """

    name = "driver"
    why = "The CUDA driver takes out its GPU memory."

    def __init__(
        self,
        members: Members,
        ranks: Members,
        devices: Sequence[str],
        env: Mapping[str, str],
        selector: selectors.BaseSelector,
        outsiders: set[int],
    ) -> None:
        self._members = members
        self._ranks = ranks
        self._devices = [*dict.fromkeys(devices)]
        self._moves: Mapping[str, str] = {}
        self._refusal = device_refusal(devices, bool(env.get(MPS_PIPE)))
        self._selector = selector
        self._outsiders = outsiders
        self._helper: HelperProcess | None = None
        self._staying: HelperProcess | None = None
        """The one that froze it, which waits for the line that says to thaw."""
        self._words: tuple[str, ...] = ()
        """What the program is told; empty: nothing is to be done."""
        self._asked: list[int] = []
        """The processes that it is told of."""
        self._has_plan = False
        self._planned: set[int] = set()
        """Those that it has touched, or may have, since it was last running."""
        self._given_s = self._until = 0.0
        self._rounds = 0
        self._bytes = 0
        self._is_turned = False

    @property
    def due_at(self) -> float | None:
        if not self._words:
            return None
        return self._until if self._helper is not None else time.monotonic() + RETRY_S

    def refusal(self) -> Refusal | None:
        return self._refusal

    def release(self) -> None:
        self._rounds, self._bytes, self._is_turned = 1, 0, False
        self._planned = set()
        self._begin_freeze()

    def turn_back(self) -> None:
        """The program turns round itself, after its present call."""
        self._is_turned = True
        if self._helper is not None:
            self._helper.send(signal.SIGTERM)

    def restore(self, moves: Mapping[str, str]) -> None:
        words = [f"--map={old}={new}" for old, new in moves.items()]
        pids = [pid for pid in self._members() if pid in self._planned]
        staying, self._staying, self._moves = self._staying, None, moves
        self._begin(("thaw", *words), pids)
        if staying is not None and pids:
            staying.lines.clear()
            if staying.tell({"thaw": pids, "map": dict(moves)}):
                self._helper = staying
                return
        if staying is not None:
            staying.kill()

    def result(self, now: float) -> Result | None:
        if not self._words:
            return None
        if not self._asked:  # nothing of it is on a GPU, or all of that has ended
            is_release = self._is_release
            self.close()
            return Result(FROZEN if is_release else RUNNING)
        if self._helper is None and not self._is_started() and now < self._until:
            return None
        helper = self._helper
        if helper is not None:
            helper.read()
            self._read_plan(helper, now)
            if helper.lines and "end" in helper.lines[-1]:
                return self._ended(helper, helper.lines[-1])
            if not helper.is_over and now < self._until:
                return None
        is_over = helper is not None and helper.is_over
        end = RUNNING if self._is_release and not self._planned else STUCK
        self.close()
        late = f"The GPU driver did not answer within {self._given_s:.0f} s."
        return Result(end, KILLED if is_over else late)

    def heard(self, rank: int, said: Message) -> None:
        pass

    def close(self) -> None:
        for helper in (self._helper, self._staying):
            if helper is not None:
                helper.kill()
        self._helper, self._staying, self._words = None, None, ()

    @property
    def _is_release(self) -> bool:
        return self._words[:1] == FREEZE[:1]

    def _begin_freeze(self) -> None:
        gpus = [f"--gpu={uuid}" for uuid in self._devices]
        self._begin((*FREEZE, *gpus), [*self._members()])

    def _begin(self, words: tuple[str, ...], pids: list[int]) -> None:
        self.close()
        self._words, self._asked, self._has_plan = words, pids, False
        self._given_s = START_S
        self._until = time.monotonic() + START_S

    def _is_started(self) -> bool:
        """False where the machine cannot start more processes: it is tried again."""
        pids = map(str, self._asked)
        try:
            self._helper = HelperProcess(
                (*PROGRAM, *self._words, *pids), self._selector, self._outsiders
            )
        except OSError:
            return False
        return True

    def _read_plan(self, helper: HelperProcess, now: float) -> None:
        """It has begun: from here on the bytes count."""
        if not self._has_plan and helper.lines and "plan" in helper.lines[0]:
            self._has_plan = True
            self._planned.update(helper.lines[0]["plan"])
            self._bytes = max(self._bytes, helper.lines[0].get("bytes", 0))
            self._given_s = LEAST_S + self._bytes / BYTES_PER_S
            self._until = now + self._given_s

    def _ended(self, helper: HelperProcess, last: Message) -> Result | None:
        end, is_release = last["end"], self._is_release
        if end == FROZEN and self._has_grown() and self._rounds < ROUNDS:
            self._rounds += 1
            self._begin_freeze()
            return self.result(time.monotonic())
        if end == FROZEN:
            self._helper, self._staying = None, helper
            self._words = ()
        else:
            self.close()
        if not is_release and end == RUNNING:
            self._devices = [self._moves.get(uuid, uuid) for uuid in self._devices]
        if is_release and end == RUNNING and self._rounds > 1:
            end = STUCK  # what the first round froze has to be walked back too
        return Result(
            end,
            last.get("why", ""),
            is_final=bool(last.get("is_final")),
            is_short=bool(last.get("is_short")),
            host_bytes=self._bytes if end == FROZEN else None,
            gpu_bytes=last.get("gpu_bytes"),
            is_all_on_gpus=self._planned.issuperset(self._ranks()) if end == FROZEN else None,
        )

    def _has_grown(self) -> bool:
        """Whether it has started processes meanwhile, which may use the GPU."""
        return not self._is_turned and not set(self._members()) <= set(self._asked)
