"""The simulated engine: takes orders, knows the truth, and turns both into facts in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from heapq import heappop, heappush
from typing import Any

from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.job import Run
from trainmaster.model.placement import Placement
from trainmaster.model.topology import CPU_TYPE
from trainmaster.model.trace import Outcome, TracedJob
from trainmaster.model.units import NOMINAL, ceil_div
from trainmaster.perf.world import Speeds
from trainmaster.sim.company import NOBODY, Company
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
        "alone_ppm",
        "base_work",
        "doing",
        "freezes",
        "gangs",
        "is_on_slots",
        "placement",
        "run",
        "share",
        "since_ms",
        "speed_ppm",
        "ticket",
        "wires",
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
        self.is_on_slots = False
        """Whether it runs on CPU slots."""
        self.alone_ppm = 0
        """Its speed if nobody were near; like the next two kept by the company it trains in."""
        self.wires: tuple[int, ...] = ()
        """What its gang talks over."""
        self.gangs = 1
        """Gangs on the most crowded of its wires, itself included."""


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
        self._company = Company(speeds) if speeds.world.interferes else None
        """Who may slow down whom; None where nobody ever does."""
        kinds = speeds.topology.type_of_gpu
        self._slots = {gpu for gpu, kind in enumerate(kinds) if kind.name == CPU_TYPE}
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
        if self._slots:
            run.is_on_slots = self._slots.issuperset(order.placement.gpus())
        self._runs[order.run.job] = run
        self._ledger.took(account, run.share, order.placement, now)
        run.since_ms = now
        cost = self._world.switching
        delay = cost.start_ms if order.run.attempt == 1 else cost.resuming(self._memory(run))
        if delay:
            self._schedule(run, now + delay)
        else:
            self._started(run, now, self._now_events)

    def _started(self, run: SimRun, now: int, facts: list[e.Event]) -> None:
        self._charge(run, now)
        self._ledger.started(run.account, now)
        felt_by = self._train(run, now)
        facts.append(e.RunStarted(run.run, run.speed_ppm))
        if felt_by:
            self._reprice(felt_by, now, facts)

    def _thawed(self, run: SimRun, now: int, facts: list[e.Event]) -> None:
        self._charge(run, now)
        felt_by = self._train(run, now)
        facts.append(e.RunResumed(run.run, run.speed_ppm))
        if felt_by:
            self._reprice(felt_by, now, facts)

    def _train(self, run: SimRun, now: int) -> Sequence[SimRun]:
        """Make progress from now on, until the end of this attempt; those who may feel it."""
        company, felt_by = self._company, NOBODY
        run.doing = Doing.TRAINING
        if company is None:
            run.speed_ppm = self._speeds.alone(run.account.traced.job, run.placement)
        else:
            felt_by = company.join(run)
            run.speed_ppm = company.speed(run)
        run.since_ms = now
        self._ledger.progress(run.placement, 1, now)
        self._schedule_end(run, now)
        return felt_by

    def _schedule_end(self, run: SimRun, now: int) -> None:
        left = run.account.target - run.work
        self._schedule(run, now + ceil_div(max(0, left), run.speed_ppm))

    def _settle(self, run: SimRun, now: int) -> None:
        """Credit the work done since, never more than the attempt needs."""
        if run.doing is Doing.TRAINING:
            done = min((now - run.since_ms) * run.speed_ppm, run.account.target - run.work)
            run.work += done
            self._ledger.trained(run.account, run.share, now - run.since_ms, done)
            if run.is_on_slots:
                run.account.on_slots += run.share * (now - run.since_ms)
            run.since_ms = now

    def _charge(self, run: SimRun, now: int) -> None:
        """Charge the time since as overhead on its GPUs."""
        if now > run.since_ms:
            self._ledger.charged(run.account, run.share, now - run.since_ms)
            run.since_ms = now

    def _stop_training(self, run: SimRun, now: int, facts: list[e.Event]) -> None:
        if run.doing is Doing.TRAINING:
            self._settle(run, now)
            self._ledger.progress(run.placement, -1, now)
            if self._company is not None:
                self._reprice(self._company.leave(run), now, facts)
        elif run.doing is not Doing.FROZEN:
            self._charge(run, now)
        run.since_ms = now

    # -- ends of an attempt ----------------------------------------------------------------------

    def _ended(self, run: SimRun, now: int, facts: list[e.Event]) -> None:
        self._stop_training(run, now, facts)
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
        self._stop_training(run, now, self._now_events)
        run.doing, run.freezes = Doing.SUSPENDING, freezes
        delay = self._world.switching.suspending(self._memory(run)) if is_training else 0
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
            self._schedule(run, now + self._world.switching.thawing(self._memory(run)))

    def _kill(self, order: a.Kill, now: int) -> None:
        run = self._find(order.run)
        if run is not None:
            self._stop_training(run, now, self._now_events)
            self._leave(run, now)
            self._ledger.ended(run.account, Outcome.CANCELLED, now)
            self._now_events.append(e.RunStopped(run.run))

    # -- resizing --------------------------------------------------------------------------------

    def _reshape(self, order: a.Reshape, now: int) -> None:
        run = self._find(order.run)
        if run is None:
            return
        self._stop_training(run, now, self._now_events)
        self._ledger.left(run.account, run.share, now)
        stays = _holdings(order.placement) == _holdings(run.placement)
        run.placement, run.share = order.placement, order.placement.total_share
        run.is_on_slots = self._slots.issuperset(order.placement.gpus())
        self._ledger.took(run.account, run.share, run.placement, now)
        run.doing, run.since_ms = Doing.RESIZING, now
        cost = 0 if stays else self._world.switching.resizing(self._memory(run))
        self._schedule(run, now + cost)

    def _resized(self, run: SimRun, now: int, facts: list[e.Event]) -> None:
        self._charge(run, now)
        felt_by = self._train(run, now)
        facts.append(e.RunResized(run.run, run.work, run.speed_ppm))
        if felt_by:
            self._reprice(felt_by, now, facts)

    # -- company ---------------------------------------------------------------------------------

    def _reprice(self, runs: Sequence[SimRun], now: int, facts: list[e.Event]) -> None:
        """Somebody came or went: these may run faster or slower from now on."""
        assert self._company is not None
        for run in runs:
            speed = self._company.speed(run)
            if speed != run.speed_ppm:
                self._settle(run, now)
                run.speed_ppm = speed
                self._schedule_end(run, now)
                facts.append(e.RunSpeedChanged(run.run, run.work, speed))

    def _memory(self, run: SimRun) -> int:
        """Bytes that each of its GPUs has to move, where moving them takes time."""
        cost = self._world.switching
        if cost.save_bytes_s is None and cost.load_bytes_s is None:
            return 0
        return self._speeds.memory_of(run.placement)

    def progress(self, now: int) -> Iterator[tuple[Run, TracedJob, int, int, int]]:
        """Elastic runs that train: (run, job, work done, GPUs, speed)."""
        for run in self._runs.values():
            traced = run.account.traced
            if run.doing is Doing.TRAINING and traced.job.demand.is_elastic:
                done = min(run.work + (now - run.since_ms) * run.speed_ppm, run.account.target)
                yield run.run, traced, done, len(run.placement.slices), run.speed_ppm

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
        hit = [
            (run, run.speed_ppm)
            for run in self._runs.values()
            if any(piece.node == node for piece in run.placement.slices)
        ]
        for run, speed_ppm in hit:
            self._stop_training(run, now, facts)
            every = self._world.breakage.checkpoint_ms * NOMINAL
            saved = run.base_work + (run.work - run.base_work) // every * every
            self._ledger.crashed(run.account, run.work - saved, run.share, speed_ppm)
            self._leave(run, now)
            facts.append(e.RunLost(run.run, saved))
        facts.append(e.NodeLeft(node))
        return facts

    def _find(self, name: Run) -> SimRun | None:
        run = self._runs.get(name.job)
        return run if run is not None and run.run == name else None


def _holdings(placement: Placement) -> tuple[object, ...]:
    """What a program notices of its placement: GPUs, memory and mode, not its role or its share."""
    return (placement.sharing, {(piece.gpu, piece.memory) for piece in placement.slices})


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
