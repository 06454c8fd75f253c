"""Freezing and thawing of one run, step by step: orders say what is wanted, and may change their mind.

Freeze: a freezer frees its devices, then every process of it is stopped. Thaw: the other way. A freeze that
fails is walked back, and the next freezer tried; a run that cannot be walked back is lost.
Only the standard library is imported here: supervisors load it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum

from trainmaster.engines.local.freezer import Freezer, Result, moves_between
from trainmaster.engines.local.process_freezer import Members, freeze, thaw
from trainmaster.gpu.freeze_end import FROZEN, RUNNING
from trainmaster_sdk.wire import Message

AGAIN_S = 0.01
"""How soon processes are stopped again where one forked meanwhile."""
TRIES = 3
"""How often a restore is begun before the run is given up."""
TRIES_FOR_MEMORY = 100
"""How often where only GPU memory is missing: for minutes. A run that is to end does not wait for it."""
CANNOT_MOVE = "It cannot go on on those GPUs: the driver moves a whole GPU to another one."
NO_FREEZER = "Nothing here can free its GPU memory."


class Phase(Enum):
    """What is being done to the run."""

    RUNNING = "running"
    RELEASING = "releasing"
    """A freezer frees its devices."""
    STOPPING = "stopping"
    """Its devices are free; its processes are being stopped."""
    FROZEN = "frozen"
    RESTORING = "restoring"
    """Its processes go on; a freezer gives everything back."""


class RunFreezing:
    """What is wanted of a run, and how far it is.

    `tell` gets the entries for the journal; `lose` is called for a run that can neither be frozen nor go on.
    """

    def __init__(
        self,
        members: Members,
        freezers: Sequence[Freezer],
        devices: Sequence[str],
        tell: Callable[[str, Message], None],
        lose: Callable[[str], None],
    ) -> None:
        self._members = members
        self._freezers = freezers
        self._devices = tuple(devices)
        self._tell = tell
        self._lose = lose
        self._phase = Phase.RUNNING
        self.is_wanted = False
        """Whether it is to be frozen."""
        self._owes_thawed = False
        self._was_refused = False
        self._untried: list[Freezer] = []
        self._chosen: Freezer | None = None
        self._failures: list[str] = []
        self._is_final = True
        self._is_turned = False
        self.may_keep: int | None = None
        """The same for each of its GPUs, as it was ordered."""
        self._may_keep: int | None = None
        """Bytes that it may keep on all its GPUs together; None: as many as it likes."""
        self._kept: dict[str, int] = {}
        """Bytes that it kept there when it was frozen last, by the name of the freezer."""
        self._tries = 0
        self._moves: dict[str, str] = {}
        self._next_devices = self._devices
        self._since = 0.0
        self._released = Result(FROZEN)
        self._frozen_ns = 0
        self.pauses: list[tuple[int, int]] = []
        """When it was stopped in memory, and when it went on."""

    @property
    def is_frozen(self) -> bool:
        return self._phase is Phase.FROZEN

    @property
    def is_busy(self) -> bool:
        """Whether it is neither running nor frozen."""
        return self._phase not in (Phase.RUNNING, Phase.FROZEN)

    @property
    def due_at(self) -> float | None:
        if self._phase is Phase.STOPPING:
            return time.monotonic() + AGAIN_S
        return self._chosen.due_at if self.is_busy and self._chosen is not None else None

    # -- orders --------------------------------------------------------------------------------------

    def freeze(self, may_keep: int | None = None) -> None:
        """Leave no more than so many bytes on each of its GPUs. One that is frozen stays so."""
        if self.is_wanted:
            return
        self.is_wanted, self._since = True, time.monotonic()
        self.may_keep = may_keep
        self._may_keep = None if may_keep is None else may_keep * len(set(self._devices))
        self._begin_choosing()
        self.step(self._since)

    def thaw(self, devices: Sequence[str] | None = None) -> None:
        """Let it go on, on these devices where they are given; one that runs is left alone."""
        if self._phase is Phase.RUNNING and not (self.is_wanted or self._was_refused):
            return
        now = time.monotonic()
        if devices and self._phase is Phase.FROZEN:
            moves = moves_between(self._devices, devices)
            if moves is None:
                self._lose(CANNOT_MOVE)
                return
            self._moves, self._next_devices = moves, tuple(devices)
        if self.is_wanted or self._phase is Phase.RUNNING:
            self._since = now
        self.is_wanted, self._owes_thawed, self._was_refused = False, True, False
        self.step(now)

    def let_go(self) -> None:
        """It is told to end: let it go on, so that it can save; nobody waits for an answer."""
        self.is_wanted, self._owes_thawed = False, False
        self.step(time.monotonic())

    def heard(self, rank: int, said: Message) -> None:
        for freezer in self._freezers:
            freezer.heard(rank, said)

    def close(self) -> None:
        """None of its processes is left."""
        self._phase, self.is_wanted, self._owes_thawed = Phase.RUNNING, False, False
        for freezer in self._freezers:
            freezer.close()

    # -- steps ---------------------------------------------------------------------------------------

    def step(self, now: float) -> None:
        """Go on for as long as there is something to do that need not be waited for."""
        steps: Mapping[Phase, Callable[[float], bool]] = {
            Phase.RUNNING: self._while_running,
            Phase.RELEASING: self._while_releasing,
            Phase.STOPPING: self._while_stopping,
            Phase.FROZEN: self._while_frozen,
            Phase.RESTORING: self._while_restoring,
        }
        while steps[self._phase](now):
            pass

    def _while_running(self, now: float) -> bool:
        self._answer_thaw(now)
        if not self.is_wanted:
            return False
        freezer = self._choose()
        if freezer is None:
            self.is_wanted, self._was_refused = False, True
            why = " ".join(dict.fromkeys(self._failures)) or NO_FREEZER
            self._tell("not frozen", {"why": why, "is_final": self._is_final})
            return False
        self._chosen, self._is_turned, self._phase = freezer, False, Phase.RELEASING
        freezer.release()
        return True

    def _while_releasing(self, now: float) -> bool:
        assert self._chosen is not None
        if not self.is_wanted and not self._is_turned:
            self._is_turned = True
            self._chosen.turn_back()
        result = self._chosen.result(now)
        if result is None:
            return False
        if result.end == FROZEN and result.gpu_bytes is not None:
            self._kept[self._chosen.name] = result.gpu_bytes
        excess = self._excess(self._chosen)
        if result.end == FROZEN and self.is_wanted and excess is not None:
            self._failures.append(excess)
            self._is_final = False
            self._begin_restore()
        elif result.end == FROZEN and self.is_wanted:
            self._released, self._phase = result, Phase.STOPPING
        elif result.end == RUNNING:
            self._phase = Phase.RUNNING
            self._remember(result)
        else:
            self._remember(result)
            self._begin_restore()
        return True

    def _while_stopping(self, now: float) -> bool:
        if not self.is_wanted:
            self._begin_restore()
            return True
        if not freeze(self._members):
            return False  # not yet
        self._answer_thaw(now)  # it was turned round too late, and wanted frozen again meanwhile
        self._phase, self._frozen_ns = Phase.FROZEN, time.time_ns()
        assert self._chosen is not None
        said = {"how": self._chosen.name, "why": " ".join((*self._failures, self._chosen.why))}
        kept: Message = {
            "host_bytes": self._released.host_bytes,
            "gpu_bytes": self._released.gpu_bytes,
            "is_all_on_gpus": self._released.is_all_on_gpus,
        }
        self._tell("frozen", {**said, **kept, "took_ms": self._took_ms(now)})
        return True

    def _while_frozen(self, now: float) -> bool:
        if self.is_wanted:
            return False
        self._begin_restore()
        return True

    def _while_restoring(self, now: float) -> bool:
        assert self._chosen is not None
        result = self._chosen.result(now)
        if result is None:
            return False
        if result.end == RUNNING:
            self._devices, self._moves = self._next_devices, {}
            self._phase = Phase.RUNNING
        elif self._tries < self._most_tries(result):
            self._tries += 1
            self._chosen.restore(self._moves)
        else:
            self._phase, self.is_wanted, self._owes_thawed = Phase.RUNNING, False, False
            self._lose(" ".join(("It could not be made to go on.", result.why)))
        return True

    def _most_tries(self, result: Result) -> int:
        is_ending = not (self._owes_thawed or self.is_wanted)
        if result.is_final or (result.is_short and is_ending):
            return 1
        return TRIES_FOR_MEMORY if result.is_short else TRIES

    def _answer_thaw(self, now: float) -> None:
        if self._owes_thawed:
            self._owes_thawed = False
            self._tell("thawed", {"took_ms": self._took_ms(now)})

    def _begin_restore(self) -> None:
        assert self._chosen is not None
        thaw(self._members)  # a stopped process does not answer the driver
        if self._phase is Phase.FROZEN:
            self.pauses.append((self._frozen_ns, time.time_ns()))
        self._phase, self._tries = Phase.RESTORING, 1
        self._chosen.restore(self._moves)

    # -- choosing ------------------------------------------------------------------------------------

    def _begin_choosing(self) -> None:
        self._untried, self._failures, self._is_final = [*self._freezers], [], True

    def _choose(self) -> Freezer | None:
        """The next one that may work; why the others do not is remembered."""
        while self._untried:
            freezer = self._untried.pop(0)
            refused, excess = freezer.refusal(), self._excess(freezer)
            if refused is None and excess is None:
                return freezer
            self._failures.append(excess or "" if refused is None else refused.why)
            self._is_final = self._is_final and refused is not None and refused.is_final
        return None

    def _excess(self, freezer: Freezer) -> str | None:
        """A sentence if it is known to keep more on the GPUs than the run may; else None."""
        kept = self._kept.get(freezer.name, 0)
        if self._may_keep is None or kept <= self._may_keep:
            return None
        return f"{freezer.why} That leaves {kept >> 20} MiB there, which the next job needs."

    def _remember(self, result: Result) -> None:
        self._failures.append(result.why)
        self._is_final = self._is_final and result.is_final and result.end == RUNNING

    def _took_ms(self, now: float) -> int:
        return max(0, round((time.monotonic() - self._since) * 1000))
