"""A supervisor's watch over its run: notices that it hangs, has its stacks taken, and says so.

It hears of steps and output as they come, and looks at what the run's processes do by itself, so it needs no
manager; only how busy a GPU is must be told to it.
Only the standard library is imported here: supervisors load it.
"""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable
from dataclasses import asdict

from trainmaster.engines.local.helper_process import HelperProcess
from trainmaster.engines.local.privileges import as_argument
from trainmaster.engines.local.process_freezer import Members
from trainmaster.engines.local.runfile import HangPlan
from trainmaster.failures.hang_rule import DEFAULT_LIMITS, Hang, Rhythm, hang_of
from trainmaster.model.launch_spec import Account
from trainmaster.text.hangs import hang_sentence
from trainmaster_sdk.process_tree import stat_of
from trainmaster_sdk.wire import FULL_PACE, Message

LOOKS = 20
"""How often its processes are looked at in the shortest time that may be a hang, ..."""
MOST_EVERY_S = 30.0
LEAST_EVERY_S = 0.25
LATE = 3
"""A look that comes so many times too late: the machine, or this process, stood still meanwhile."""
BUSY_CORE = 0.1
"""Part of a core above which a process computes: threads that only wait for others use less."""
BUSY_BYTES = 100_000
"""Bytes in a second above which a process reads data or writes a checkpoint."""
BUSY_PPM = 50_000
"""The same for a GPU."""
FRESH_S = 60.0
"""How long it counts what was said of a GPU."""
STACKS_S = 20.0
"""How long taking stacks may last."""
STACKS = "trainmaster.engines.local.stack_dump"
NO_STACKS: Message = {"stacks": [], "trouble": f"they could not be read in {STACKS_S:.0f} s"}
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class RhythmClock:
    """Counts the times of one run: between its steps, between its signs of life, and now."""

    def __init__(self, now: float, known_ms: int = 0) -> None:
        """`known_ms`: its longest silence in earlier attempts."""
        self._at = now
        self._lost_s = 0.0
        """Time that does not count: it was suspended or held back."""
        self._steps = 0
        self._last_step: int | None = None
        self._stepped_ms = self._signed_ms = self._busy_ms = self._own_ms(now)
        self._longest_step_ms, self._longest_silence_ms = 0, known_ms

    def _own_ms(self, now: float) -> int:
        return round((now - self._lost_s) * 1000)

    def step(self, step: int, now: float) -> bool:
        """So many steps are done; whether that is news."""
        if step == self._last_step:
            return False
        self._last_step = step
        if self._steps:
            since_ms = self._own_ms(now) - self._stepped_ms
            self._longest_step_ms = max(self._longest_step_ms, since_ms)
        self.sign(now)
        self._steps += 1
        self._stepped_ms = self._own_ms(now)
        return True

    def sign(self, now: float) -> None:
        """It gave a sign of life."""
        own_ms = self._own_ms(now)
        if self._steps:
            self._longest_silence_ms = max(self._longest_silence_ms, own_ms - self._signed_ms)
        self._signed_ms = own_ms

    def pass_time(self, now: float, most_s: float, pace: int) -> None:
        """Until now it was held back to this pace; of a longer time than `most_s` nothing is known."""
        passed_s = now - self._at
        self._at = now
        counted_s = min(passed_s, most_s) * pace / FULL_PACE
        self._lost_s += passed_s - counted_s

    def busy(self, now: float) -> None:
        """Its device was busy until now."""
        self._busy_ms = self._own_ms(now)

    def rhythm(self, now: float) -> Rhythm:
        own_ms = self._own_ms(now)
        return Rhythm(
            steps=self._steps,
            longest_silence_ms=self._longest_silence_ms,
            longest_step_ms=self._longest_step_ms,
            silent_ms=max(0, own_ms - self._signed_ms),
            stepless_ms=max(0, own_ms - self._stepped_ms),
            idle_ms=max(0, own_ms - self._busy_ms),
        )


class ProcessMeter:
    """Whether a process of a run has computed, read or written since the last look."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self._used: dict[int, tuple[int, int]] = {}
        self._at = 0.0

    def is_busy(self, now: float) -> bool:
        before, since_s = self._used, now - self._at
        self._at = now
        self._used = {pid: (_cpu_ticks(pid), _bytes_moved(pid)) for pid in self._members()}
        ticks, moved = BUSY_CORE * TICKS_PER_S * since_s, BUSY_BYTES * since_s
        known = ((used, before[pid]) for pid, used in self._used.items() if pid in before)
        return any(new[0] - old[0] > ticks or new[1] - old[1] > moved for new, old in known)


def _cpu_ticks(pid: int) -> int:
    """Its CPU time so far, that of children that have ended included."""
    return sum(map(int, stat_of(pid)[11:15]))


def _bytes_moved(pid: int) -> int:
    """What it has read and written so far, from disks or not; 0 where that may not be read."""
    try:
        with open(f"/proc/{pid}/io", "rb") as file:
            return sum(int(file.readline().split()[1]) for _ in ("rchar", "wchar"))
    except (OSError, IndexError, ValueError):
        return 0


class GpuMeter:
    """How busy a run's GPUs are, as the manager says now and then."""

    def __init__(self, has_gpus: bool) -> None:
        self._has_gpus = has_gpus
        self._util_ppm = 0
        self._said_at: float | None = None

    def said(self, util_ppm: int, now: float) -> None:
        self._util_ppm, self._said_at = util_ppm, now

    def is_busy(self, now: float) -> bool:
        """A GPU of which nothing is known lately may be busy."""
        if not self._has_gpus:
            return False
        is_known = self._said_at is not None and now - self._said_at < FRESH_S
        return not is_known or self._util_ppm >= BUSY_PPM


class HangWatch:
    """Of one generation of a run. `tell` writes into the journal, `end` stops a run that is to be restarted.

    `outsiders` are children of the supervisor that are not of the run. Without a plan it is not watched.
    """

    def __init__(
        self,
        folder: str,
        plan: HangPlan | None,
        has_gpus: bool,
        members: Members,
        selector: selectors.BaseSelector,
        outsiders: set[int],
        tell: Callable[[str, Message], None],
        end: Callable[[], None],
        account: Account | None = None,
    ) -> None:
        now = time.monotonic()
        self._folder = folder
        self._account = account
        self._plan = plan
        limits = DEFAULT_LIMITS if plan is None else plan.limits
        shortest_s = min(limits.idle_ms, limits.busy_ms, limits.start_ms) / 1000
        self._limits = limits
        self._every_s = min(MOST_EVERY_S, max(LEAST_EVERY_S, shortest_s / LOOKS))
        self._members = members
        self._selector = selector
        self._outsiders = outsiders
        self._tell = tell
        self._end = end
        self._clock = RhythmClock(now, 0 if plan is None else plan.known_ms)
        self._processes = ProcessMeter(members)
        self._gpu = GpuMeter(has_gpus)
        self._due_at = now + self._every_s
        self._hang: Hang | None = None
        self.words = ""
        """How it hung the last time, in sentences."""
        self._helper: HelperProcess | None = None
        self._helper_until = 0.0

    @property
    def due_at(self) -> float | None:
        """When `tick` wants to be called; None: it is not watched."""
        if self._plan is None:
            return None
        return self._due_at if self._helper is None else min(self._due_at, self._helper_until)

    @property
    def longest_ms(self) -> int:
        """The longest silence that it has shown and lived through."""
        return self._clock.rhythm(time.monotonic()).longest_ms

    def step_done(self, step: int) -> None:
        if self._plan is not None and self._clock.step(step, time.monotonic()):
            self._go_on()

    def sign(self) -> None:
        """It wrote output, or saved; what it does because it is told to end is not a sign of life."""
        if self._plan is not None:
            self._clock.sign(time.monotonic())
            self._go_on()

    def gpu_used(self, util_ppm: object) -> None:
        """As the manager says: how busy its GPUs are."""
        if isinstance(util_ppm, int):
            self._gpu.said(util_ppm, time.monotonic())

    def tick(self, now: float, *, is_suspended: bool, pace: int) -> None:
        if self._plan is None or (now < self._due_at and self._helper is None):
            return
        if now >= self._due_at:
            self._due_at = now + self._every_s
            self._clock.pass_time(now, LATE * self._every_s, 0 if is_suspended else pace)
            if self._is_busy(now):
                self._clock.busy(now)
            if self._hang is None and not is_suspended:
                self._hang = hang_of(self._clock.rhythm(now), self._limits)
                if self._hang is not None:
                    self._take_stacks(now)
        helper = self._helper
        if helper is not None and (helper.is_over or now >= self._helper_until):
            self._report(helper.lines[-1] if helper.lines else NO_STACKS)

    def close(self) -> None:
        """It stops: nothing is watched or learned any more."""
        self._plan = None
        self._drop_helper()

    def _is_busy(self, now: float) -> bool:
        """Or may be, where nothing is known."""
        is_seen = self._plan is not None and self._plan.sees_processes
        return not is_seen or self._processes.is_busy(now) or self._gpu.is_busy(now)

    def _take_stacks(self, now: float) -> None:
        """By a process of its own, which may be killed: reading another process may last."""
        pids = [str(pid) for pid in self._members()]
        argv = ["-m", STACKS, self._folder, as_argument(self._account), *pids]
        try:
            self._helper = HelperProcess(argv, self._selector, self._outsiders)
            self._helper_until = now + STACKS_S
        except OSError as problem:
            why = f"no process could be started to read them: {problem.strerror}"
            self._report({"stacks": [], "trouble": why})

    def _report(self, found: Message) -> None:
        assert self._hang is not None
        assert self._plan is not None
        self._drop_helper()
        restarts = self._plan.restarts
        self.words = " ".join((hang_sentence(self._hang), *found["stacks"]))
        self._tell("hung", asdict(self._hang) | found | {"restarts": restarts})
        if restarts:
            self._end()

    def _go_on(self) -> None:
        """It has given a sign of life since then, so it did not hang."""
        if self._hang is None:
            return
        self._hang = None
        if self._helper is None:
            self._tell("went on", {})
        self._drop_helper()

    def _drop_helper(self) -> None:
        if self._helper is not None:
            self._helper.kill()
            self._helper = None
