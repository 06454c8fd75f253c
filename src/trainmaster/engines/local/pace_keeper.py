"""A supervisor's part in the sharing of a GPU: measures the steps of its run, or holds it back for another.

A guaranteed run's supervisor says how long its steps take, and how long they take alone. An opportunistic
run's supervisor reads that and holds its own program back (pace_law.py). Neither needs the manager.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable

from trainmaster.engines.local import gpu_neighbours, pace_law, runfile
from trainmaster.engines.local.gpu_neighbours import OPPORTUNISTIC, Notice
from trainmaster.engines.local.pace_law import Pace
from trainmaster.engines.local.runfile import RunFile
from trainmaster_sdk.wire import FULL_PACE, Message

EVERY_S = 1.0
SETTLE_S = 1.5
"""How long a change of pace takes to be felt: a step has to end, and counting programs look once a second."""
SAMPLES = 5
STILL_S = 120.0
STILL_STEPS = 10
"""A run that has made no step for so long, and for the time of so many steps, makes none now."""
SAY_S = 10.0
"""Changes of pace are written down at most this often, but for the ends of the scale."""
FIRST = pace_law.Pace(pace_law.SETTLED)
"""An opportunistic run begins carefully."""


class StepClock:
    """How long the steps of a run take: lately, and without opportunistic runs beside it."""

    def __init__(self) -> None:
        self.step_us = 0
        self.since = 0.0
        self._begin: tuple[int, float] | None = None
        self._last: tuple[int, float] = (0, 0.0)
        """The last step, and when it was counted first."""
        self._alone: deque[int] = deque(maxlen=SAMPLES)
        self._alone_since: float | None = None

    @property
    def alone_us(self) -> int:
        return sorted(self._alone)[len(self._alone) // 2] if self._alone else 0

    def lately_us(self, now: float) -> int:
        """How long its steps take now; 0: it makes none, as while it evaluates or waits for its user."""
        is_still = now - self._last[1] > max(STILL_S, STILL_STEPS * self.step_us / 1e6)
        return 0 if is_still else self.step_us

    def set_alone(self, is_alone: bool, now: float) -> None:
        if not is_alone:
            self._alone_since = None
        elif self._alone_since is None:
            self._alone_since = now

    def reset(self) -> None:
        """It was suspended: the present measurement is void."""
        self._begin = None

    def count(self, step: int, now: float) -> None:
        """So many steps are done."""
        if step != self._last[0]:
            self._last = (step, now)
        if self._begin is None or step < self._begin[0]:
            self._begin = (step, now)
            return
        first, begin = self._begin
        if step == first or now - begin < EVERY_S:
            return
        self.step_us, self.since = round((now - begin) * 1e6 / (step - first)), begin
        self._begin = (step, now)
        if self._alone_since is not None and begin >= self._alone_since + SETTLE_S:
            self._alone.append(self.step_us)


class PaceKeeper:
    """`ask` sends a pace to the program; `tell` writes into the journal. Times are in seconds since 1970.

    `gpus_of` says which GPUs a run has: a frozen one may go on on others.
    """

    def __init__(
        self,
        folder: str,
        run: RunFile,
        gpus_of: Callable[[RunFile], list[str]],
        ask: Callable[[int], None],
        tell: Callable[[str, Message], None],
    ) -> None:
        self._path = runfile.path_of(folder, run.generation)
        self._run_folder = folder
        self._run = run
        self._gpus_of = gpus_of
        self._gpus = gpus_of(run) if run.gpus_folder else []
        self._ask = ask
        self._tell = tell
        self._clock = StepClock()
        self._pace = Pace()
        self.is_heeded = True
        """Whether its program can be held back now; else it runs at full speed, whatever its pace is."""
        self._why = ""
        self._changed_at = 0.0
        self._is_begun = False
        """Whether its pace follows the step time of another run."""
        self._used_since = 0.0
        """The measurement that was used last, by its beginning."""
        self._said: tuple[int, bool] = (FULL_PACE, True)
        """The pace that was written down last, and whether it was heeded, ..."""
        self._said_at = 0.0
        """... and when."""
        self._is_published = False
        self._due_at = time.monotonic()
        self._read_at = -1

    @property
    def due_at(self) -> float | None:
        """When `tick` wants to be called, by time.monotonic(); None: the run shares nothing."""
        return self._due_at if self._gpus else None

    @property
    def pace(self) -> int:
        return self._pace.percent

    def step_done(self, step: int) -> None:
        if self._gpus:
            self._clock.count(step, time.time())

    def tick(self, now: float, is_suspended: bool) -> None:
        """Once a second: read the neighbours, and do or say what follows."""
        if not self._gpus or now < self._due_at:
            return
        self._due_at = now + EVERY_S
        if is_suspended:
            self._clock.reset()
            self._withdraw()
            return
        self._read_run()
        at = time.time()
        others = gpu_neighbours.read(self._run.gpus_folder, self._gpus, self._run.name, at)
        if self._run.role == OPPORTUNISTIC:
            self._yield_to([each for each in others if each.role != OPPORTUNISTIC], at)
            self._publish(at)
        else:
            self._change(Pace(), "", at)
            self._be_seen_by([each for each in others if each.role == OPPORTUNISTIC], at)
        self._write_down(at)

    def close(self) -> None:
        """It stops: it may use all of the time that is left, and nobody need wait for it."""
        at = time.time()
        self._change(Pace(), "", at)
        self._write_down(at)
        self._withdraw()
        self._gpus = []

    def _be_seen_by(self, others: list[Notice], at: float) -> None:
        self._clock.set_alone(all(each.pace == 0 for each in others), at)
        if others:
            self._publish(at)
        else:
            self._withdraw()

    def _yield_to(self, others: list[Notice], at: float) -> None:
        measured = [each for each in others if each.step_us]
        if not measured:
            self._is_begun = False
            self._change(Pace(), "", at)
            return
        unknown = [each for each in measured if not each.alone_us]
        if unknown:
            self._is_begun = False
            why = f"How fast job {_job(unknown[0])} is alone is being measured."
            self._change(Pace(0), why, at)
            return
        if not self._is_begun:
            self._is_begun = True
            self._change(FIRST, f"It begins carefully beside job {_job(measured[0])}.", at)
        worst = max(measured, key=lambda each: _slowdown(each) - each.tolerance_ppm)
        if worst.since <= self._used_since or worst.since < self._changed_at + SETTLE_S:
            return
        self._used_since = worst.since
        pace = pace_law.next_pace(self._pace, _slowdown(worst), worst.tolerance_ppm)
        if pace.percent < self._pace.percent:
            self._why = (
                f"A step of job {_job(worst)} takes {_slowdown(worst) / 10_000:.0f} % longer than alone; "
                f"its tolerance is {worst.tolerance_ppm / 10_000:g} %."
            )
        self._change(pace, self._why, at)

    def _change(self, pace: Pace, why: str, at: float) -> None:
        before, self._pace, self._why = self._pace.percent, pace, why
        if pace.percent != before:
            self._changed_at = at
            self._ask(pace.percent)

    def _write_down(self, at: float) -> None:
        """Its pace, where it has changed; one that is not heeded is said to be so."""
        percent = self._pace.percent
        is_heeded = self.is_heeded or percent == FULL_PACE
        is_urgent = percent in (0, FULL_PACE) or is_heeded != self._said[1]
        if (percent, is_heeded) != self._said and (is_urgent or at >= self._said_at + SAY_S):
            self._said, self._said_at = (percent, is_heeded), at
            self._tell("paced", {"pace": percent, "why": self._why, "is_heeded": is_heeded})

    def _publish(self, at: float) -> None:
        clock = self._clock
        notice = Notice(
            self._run.name,
            self._run.role,
            at,
            self._pace.percent if self.is_heeded else FULL_PACE,
            self._run.tolerance_ppm,
            clock.lately_us(at),
            clock.alone_us,
            clock.since,
        )
        gpu_neighbours.write(self._run.gpus_folder, self._gpus, notice)
        self._is_published = True

    def _withdraw(self) -> None:
        if self._is_published:
            self._is_published = False
            gpu_neighbours.remove(self._run.gpus_folder, self._gpus, self._run.name)

    def _read_run(self) -> None:
        """The manager writes another role, and other GPUs, into the run's file when they change."""
        try:
            changed_at = os.stat(self._path).st_mtime_ns
            if changed_at == self._read_at:
                return
            run = runfile.read(self._run_folder, self._run.generation)
        except (OSError, ValueError):
            return
        gpus = self._gpus_of(run)
        if gpus != self._gpus:
            self._withdraw()
        self._run, self._gpus, self._read_at = run, gpus, changed_at


def _slowdown(notice: Notice) -> int:
    return pace_law.slowdown_ppm(notice.step_us, notice.alone_us)


def _job(notice: Notice) -> str:
    return notice.run.rpartition(".")[0]
