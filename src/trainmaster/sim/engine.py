"""The simulated engine: takes orders, knows the truth, and turns both into facts in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from heapq import heappop, heappush
from typing import Any

from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.job import Run
from trainmaster.model.placement import Placement, Sharing
from trainmaster.model.trace import Outcome
from trainmaster.model.units import NOMINAL, ceil_div
from trainmaster.perf.world import Speeds
from trainmaster.sim.ledger import Account, Ledger


class Doing(IntEnum):
    """What a simulated run is busy with; the number is also the kind of its next event."""

    STARTING = 0
    TRAINING = 1
    SUSPENDING = 2
    FROZEN = 3
    THAWING = 4
    RESIZING = 5


class SimRun:
    """One launched run and the truth about it."""

    __slots__ = (
        "account",
        "base_work",
        "doing",
        "freezes",
        "placement",
        "run",
        "share",
        "since_ms",
        "speed_ppm",
        "ticket",
        "work",
    )

    def __init__(self, run: Run, account: Account, placement: Placement, work: int) -> None:
        self.run = run
        self.account = account
        self.placement = placement
        self.share = placement.total_share
        self.work = work
        """Work done in this attempt's line of checkpoints, up to `since_ms`."""
        self.base_work = work
        """What the checkpoint that it was launched from keeps."""
        self.doing = Doing.STARTING
        self.since_ms = 0
        self.speed_ppm = 0
        self.ticket = 0
        """Number of its next event in the heap; events with another number are stale."""
        self.freezes = False


class SimEngine:
    """Executes orders at once in virtual time; what takes time comes back as a later fact."""

    def __init__(
        self, speeds: Speeds, ledger: Ledger, profile: Callable[[Account], e.JobProfiled]
    ) -> None:
        self._speeds = speeds
        self._world = speeds.world
        self._ledger = ledger
        self._profile = profile
        """What is newly known of a job whose attempt has failed."""
        self._runs: dict[str, SimRun] = {}
        self._sharers: dict[int, set[str]] = {}
        """Jobs on each GPU that is not used exclusively."""
        self._heap: list[tuple[int, int, SimRun]] = []
        self._tickets = 0
        self._now_events: list[e.Event] = []

    # -- time ----------------------------------------------------------------------------------

    def next_time(self) -> int | None:
        """When the next fact becomes true."""
        heap = self._heap
        while heap:
            time, ticket, run = heap[0]
            if run.ticket == ticket:
                return time
            heappop(heap)
        return None

    def facts_at(self, now: int) -> list[e.Event]:
        """Everything that becomes true at this instant."""
        facts, self._now_events = self._now_events, []
        heap = self._heap
        while heap and heap[0][0] == now:
            _, ticket, run = heappop(heap)
            if run.ticket == ticket:
                ENDINGS[run.doing](self, run, now, facts)
        return facts

    def has_facts(self) -> bool:
        """Whether facts wait that are true already."""
        return bool(self._now_events)

    def _schedule(self, run: SimRun, time: int) -> None:
        self._tickets += 1
        run.ticket = self._tickets
        heappush(self._heap, (time, self._tickets, run))

    # -- orders --------------------------------------------------------------------------------

    def execute(self, order: a.Order, now: int) -> None:
        EXECUTIONS[type(order)](self, order, now)

    def _launch(self, order: a.Launch, now: int) -> None:
        account = self._ledger.accounts[order.run.job]
        run = SimRun(order.run, account, order.placement, order.work)
        self._runs[order.run.job] = run
        cost = self._world.switching
        self._ledger.took(account, run.share, order.placement, now)
        run.since_ms = now
        delay = cost.start_ms if order.run.attempt == 1 else cost.resume_ms
        if delay:
            self._schedule(run, now + delay)
        else:
            self._started(run, now, self._now_events)

    def _started(self, run: SimRun, now: int, facts: list[e.Event]) -> None:
        self._charge(run, now)
        self._ledger.started(run.account, now)
        self._train(run, now)
        facts.append(e.RunStarted(run.run, run.speed_ppm))
        if run.placement.sharing is not Sharing.EXCLUSIVE:
            self._join_sharers(run, now, facts)

    def _thawed(self, run: SimRun, now: int, facts: list[e.Event]) -> None:
        self._charge(run, now)
        self._train(run, now)
        facts.append(e.RunResumed(run.run, run.speed_ppm))

    def _train(self, run: SimRun, now: int) -> None:
        """Make progress from now on; the next event is the end of this attempt."""
        run.doing = Doing.TRAINING
        run.speed_ppm = self._speeds.alone(run.account.traced.job, run.placement)
        run.since_ms = now
        self._ledger.progress(run.share)
        self._schedule_end(run, now)

    def _schedule_end(self, run: SimRun, now: int) -> None:
        left = run.account.target - run.work
        self._schedule(run, now + ceil_div(max(0, left), run.speed_ppm))

    def _settle(self, run: SimRun, now: int) -> None:
        """Credit the work done since, never more than the attempt needs."""
        if run.doing is Doing.TRAINING:
            done = min((now - run.since_ms) * run.speed_ppm, run.account.target - run.work)
            run.work += done
            self._ledger.trained(run.account, run.share, now - run.since_ms, done)
            run.since_ms = now

    def _charge(self, run: SimRun, now: int) -> None:
        """Charge the time since as overhead on its GPUs."""
        if now > run.since_ms:
            self._ledger.charged(run.account, run.share, now - run.since_ms)
            run.since_ms = now

    def _stop_training(self, run: SimRun, now: int) -> None:
        if run.doing is Doing.TRAINING:
            self._settle(run, now)
            self._ledger.progress(-run.share)
            if run.placement.sharing is not Sharing.EXCLUSIVE:
                self._leave_sharers(run, now)
        elif run.doing is not Doing.FROZEN:
            self._charge(run, now)
        run.since_ms = now

    # -- ends of an attempt ----------------------------------------------------------------------

    def _ended(self, run: SimRun, now: int, facts: list[e.Event]) -> None:
        self._stop_training(run, now)
        account = run.account
        self._leave(run, now)
        if account.failures_left():
            account.next_attempt()
            self._ledger.failed(account, run.work)
            facts.append(e.RunFailed(run.run, work=0))
            facts.append(self._profile(account))
            return
        outcome = account.outcome
        self._ledger.ended(account, outcome, now)
        if outcome is Outcome.SUCCEEDED:
            facts.append(e.RunSucceeded(run.run))
        elif outcome is Outcome.FAILED:
            facts.append(e.RunFailed(run.run, work=0, retryable=False))
        else:
            facts.append(e.RunStopped(run.run))

    def _leave(self, run: SimRun, now: int) -> None:
        """Off its GPUs."""
        run.ticket = 0
        del self._runs[run.run.job]
        if run.doing is not Doing.FROZEN:
            self._ledger.left(run.account, run.share, now)

    # -- suspending ------------------------------------------------------------------------------

    def _freeze(self, order: a.Freeze, now: int) -> None:
        self._begin_suspension(order.run, now, freezes=True)

    def _halt(self, order: a.Halt, now: int) -> None:
        self._begin_suspension(order.run, now, freezes=False)

    def _begin_suspension(self, name: Run, now: int, *, freezes: bool) -> None:
        run = self._find(name)
        if run is None:
            return
        if run.doing is Doing.FROZEN:
            self._leave(run, now)
            self._now_events.append(e.RunSuspended(name, run.work))
            return
        is_training = run.doing is Doing.TRAINING
        self._stop_training(run, now)
        run.doing, run.freezes = Doing.SUSPENDING, freezes
        delay = self._world.switching.suspend_ms if is_training else 0
        if delay:
            self._schedule(run, now + delay)
        else:
            self._suspended(run, now, self._now_events)

    def _suspended(self, run: SimRun, now: int, facts: list[e.Event]) -> None:
        self._charge(run, now)
        if run.freezes:
            self._ledger.left(run.account, run.share, now)
            run.doing, run.ticket = Doing.FROZEN, 0
        else:
            self._leave(run, now)
        facts.append(e.RunSuspended(run.run, run.work, frozen=run.freezes))

    def _thaw(self, order: a.Thaw, now: int) -> None:
        run = self._find(order.run)
        if run is not None:
            self._ledger.took(run.account, run.share, run.placement, now)
            run.doing, run.since_ms = Doing.THAWING, now
            self._schedule(run, now + self._world.switching.thaw_ms)

    def _kill(self, order: a.Kill, now: int) -> None:
        run = self._find(order.run)
        if run is not None:
            self._stop_training(run, now)
            self._leave(run, now)
            self._ledger.ended(run.account, Outcome.CANCELLED, now)
            self._now_events.append(e.RunStopped(run.run))

    # -- resizing --------------------------------------------------------------------------------

    def _reshape(self, order: a.Reshape, now: int) -> None:
        run = self._find(order.run)
        if run is None:
            return
        self._stop_training(run, now)
        self._ledger.left(run.account, run.share, now)
        run.placement, run.share = order.placement, order.placement.total_share
        self._ledger.took(run.account, run.share, run.placement, now)
        run.doing, run.since_ms = Doing.RESIZING, now
        self._schedule(run, now + self._world.switching.resize_ms)

    def _resized(self, run: SimRun, now: int, facts: list[e.Event]) -> None:
        self._charge(run, now)
        self._train(run, now)
        facts.append(e.RunResized(run.run, run.work, run.speed_ppm))
        if run.placement.sharing is not Sharing.EXCLUSIVE:
            self._join_sharers(run, now, facts)

    # -- sharing ---------------------------------------------------------------------------------

    def _join_sharers(self, run: SimRun, now: int, facts: list[e.Event]) -> None:
        for gpu in run.placement.gpus():
            self._sharers.setdefault(gpu, set()).add(run.run.job)
        self._reprice(run.placement, now, facts)

    def _leave_sharers(self, run: SimRun, now: int) -> None:
        for gpu in run.placement.gpus():
            self._sharers.get(gpu, set()).discard(run.run.job)
        self._reprice(run.placement, now, self._now_events)

    def _reprice(self, placement: Placement, now: int, facts: list[e.Event]) -> None:
        """Neighbours of these GPUs run faster or slower from now on."""
        jobs = {job for gpu in placement.gpus() for job in self._sharers.get(gpu, ())}
        for job in sorted(jobs):
            run = self._runs[job]
            near = {other for gpu in run.placement.gpus() for other in self._sharers[gpu]} - {job}
            others = [
                (self._runs[other].account.traced.job, self._runs[other].placement)
                for other in sorted(near)
            ]
            mine = run.account.traced.job
            alone = self._speeds.alone(mine, run.placement)
            left = self._speeds.slowdown(mine, run.placement, others)
            speed = max(1, alone * left // NOMINAL)
            if speed != run.speed_ppm:
                self._settle(run, now)
                run.speed_ppm = speed
                self._schedule_end(run, now)
                facts.append(e.RunSpeedChanged(run.run, run.work, speed))

    def settle_all(self, now: int) -> None:
        """Bring every account up to this instant: the run is cut here."""
        for run in self._runs.values():
            if run.doing is Doing.TRAINING:
                self._settle(run, now)
            elif run.doing is not Doing.FROZEN:
                self._charge(run, now)

    # -- nodes -----------------------------------------------------------------------------------

    def fail_node(self, node: int, now: int) -> list[e.Event]:
        """The machine is gone: what ran there falls back to its last checkpoint."""
        facts: list[e.Event] = []
        for run in list(self._runs.values()):
            if all(piece.node != node for piece in run.placement.slices):
                continue
            self._stop_training(run, now)
            every = self._world.breakage.checkpoint_ms * NOMINAL
            saved = run.base_work + (run.work - run.base_work) // every * every
            self._ledger.crashed(run.account, run.work - saved, run.share, run.speed_ppm)
            self._leave(run, now)
            facts.append(e.RunLost(run.run, saved))
        facts.append(e.NodeLeft(node))
        return facts

    def _find(self, name: Run) -> SimRun | None:
        run = self._runs.get(name.job)
        return run if run is not None and run.run == name else None


EXECUTIONS: dict[type, Callable[[SimEngine, Any, int], None]] = {
    a.Launch: SimEngine._launch,
    a.Freeze: SimEngine._freeze,
    a.Halt: SimEngine._halt,
    a.Thaw: SimEngine._thaw,
    a.Kill: SimEngine._kill,
    a.Reshape: SimEngine._reshape,
}

ENDINGS: dict[Doing, Callable[[SimEngine, SimRun, int, list[e.Event]], None]] = {
    Doing.STARTING: SimEngine._started,
    Doing.TRAINING: SimEngine._ended,
    Doing.SUSPENDING: SimEngine._suspended,
    Doing.THAWING: SimEngine._thawed,
    Doing.RESIZING: SimEngine._resized,
}
