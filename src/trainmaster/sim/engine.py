"""The simulated engine: takes orders, knows the truth, and turns both into facts in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Any

from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.failure import Failure
from trainmaster.model.job import Run
from trainmaster.model.topology import CPU_TYPE
from trainmaster.model.trace import Outcome, TracedJob
from trainmaster.model.units import NOMINAL, ceil_div
from trainmaster.perf.perf_model import Speeds
from trainmaster.sim.accounting import Account, Ledger
from trainmaster.sim.failure_judge import FailureJudge
from trainmaster.sim.interference import NOBODY, InterferenceTracker
from trainmaster.sim.sim_run import Activity, SimRun

NEVER = 1 << 80
"""More work than any job has."""


class SimEngine:
    """Executes orders at once in virtual time; anything that takes time becomes a later fact."""

    def __init__(
        self,
        speeds: Speeds,
        ledger: Ledger,
        profile: Callable[[Account], e.JobProfiled],
        judge: FailureJudge,
    ) -> None:
        self._speeds = speeds
        self._perf = speeds.perf
        self._ledger = ledger
        self._profile = profile
        """New estimate of a job whose attempt has failed."""
        self._judge = judge
        self.runs: dict[str, SimRun] = {}
        self.interference = InterferenceTracker(speeds) if speeds.perf.interferes else None
        """Which runs slow each other down; None in a model without interference."""
        kinds = speeds.topology.type_of_gpu
        self._slots = {gpu for gpu, kind in enumerate(kinds) if kind.name == CPU_TYPE}
        self._heap: list[tuple[int, int, SimRun]] = []
        self._tickets = 0
        self.pending_facts: list[e.Event] = []
        self._saves_on_demand = self._perf.preemption_cost.saves_on_demand
        self._save_every = self._perf.node_failures.checkpoint_ms * NOMINAL
        """Work between two checkpoints."""
        if not self._perf.preemption_cost.saves_ever:
            self._save_every = NEVER
        self._dead: set[int] = set()
        """Failed nodes whose failure is not detected yet."""
        self.futile_suspensions = 0
        """Consecutive suspensions, of any run, that lost all of the run's work."""
        self._freezes = 0
        """Orders to freeze a run, so far."""

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
        facts, self.pending_facts = self.pending_facts, []
        heap = self._heap
        while heap and heap[0][0] == now:
            _, ticket, run = heappop(heap)
            if run.ticket == ticket:
                ENDINGS[run.activity](self, run, now, facts)
        return facts

    def has_facts(self) -> bool:
        """Whether facts of the current instant are left."""
        return bool(self.pending_facts)

    def _schedule(self, run: SimRun, time: int) -> None:
        self._tickets += 1
        run.ticket = self._tickets
        heappush(self._heap, (time, self._tickets, run))

    # -- orders --------------------------------------------------------------------------------

    def execute(self, order: a.Order, now: int) -> None:
        EXECUTIONS[type(order)](self, order, now)

    def _launch(self, order: a.Launch, now: int) -> None:
        account = self._ledger.accounts[order.run.job]
        run = SimRun(order.run, account, order.placement, order.work, is_prerun=order.is_prerun)
        if self._slots:
            run.is_on_slots = self._slots.issuperset(order.placement.gpus())
        self.runs[order.run.job] = run
        self._ledger.took(account, run.share, order.placement, now)
        run.since_ms = now
        if self._stalls(run):
            return
        cost = self._perf.preemption_cost
        delay = cost.start_ms if order.run.attempt == 1 else cost.resuming(self._size(run))
        delay += 0 if run.is_prerun else account.profiling_ms
        if delay:
            self._schedule(run, now + delay)
        else:
            self._begin_training(run, now, self.pending_facts)

    def _begin_training(self, run: SimRun, now: int, facts: list[e.Event]) -> None:
        """The run was started, thawed or resized."""
        account, was = run.account, run.activity
        self._charge(run, now)
        if run.is_prerun:
            self._begin_prerun(run, now, facts)
            return
        if was is Activity.STARTING:
            account.profiling_ms = 0
            account.start_ms = now if account.start_ms is None else account.start_ms
        felt_by = self._train(run, now)
        facts.append(BEGINNINGS[was](run))
        if felt_by:
            self._reprice(felt_by, now, facts)

    def _begin_prerun(self, run: SimRun, now: int, facts: list[e.Event]) -> None:
        """Its time on one device is charged as overhead: nothing that it does is kept."""
        run.activity, run.since_ms, run.speed_ppm = Activity.PRERUN, now, NOMINAL
        facts.append(e.RunStarted(run.run, NOMINAL))
        self._schedule(run, now + self._judge.prerun(run.account)[0])

    def _prerun_ended(self, run: SimRun, now: int, facts: list[e.Event]) -> None:
        run_ms, failure = self._judge.prerun(run.account)
        self._charge(run, now)
        self._leave(run, now)
        if failure is None:
            self._judge.prerun_gpu_ms += run_ms * run.share
            facts.append(e.RunPassed(run.run))
        else:
            self._fail(run, failure, run_ms, now, facts)

    def _train(self, run: SimRun, now: int) -> Sequence[SimRun]:
        """Train from now on; returns the runs that this may slow down."""
        tracker, felt_by = self.interference, NOBODY
        run.activity = Activity.TRAINING
        if tracker is None:
            run.speed_ppm = self._speeds.alone(run.account.traced.job, run.placement)
        else:
            felt_by = tracker.join(run)
            run.speed_ppm = tracker.speed(run)
        run.since_ms = now
        self._ledger.progress(run.placement, 1, now)
        self._schedule_next(run, now)
        return felt_by

    def _schedule_next(self, run: SimRun, now: int) -> None:
        """The end of this attempt, or a checkpoint before it where it matters when those are written."""
        left = run.account.target - run.work
        if not self._saves_on_demand:
            left = min(left, run.until_saved(self._save_every))
        self._schedule(run, now + ceil_div(max(0, left), run.speed_ppm))

    def _settle(self, run: SimRun, now: int) -> None:
        """Credit the work done since the last update, at most what the attempt needs."""
        if run.activity is Activity.TRAINING:
            done = min((now - run.since_ms) * run.speed_ppm, run.account.target - run.work)
            run.work += done
            self._ledger.trained(run.account, run.share, now - run.since_ms, done)
            if run.is_on_slots:
                run.account.on_slots += run.share * (now - run.since_ms)
            run.since_ms = now

    def _charge(self, run: SimRun, now: int) -> None:
        """Charge the time since the last update as overhead on its GPUs."""
        if now > run.since_ms:
            run.account.charged += run.share * (now - run.since_ms)
            run.since_ms = now

    def _stop_training(self, run: SimRun, now: int, facts: list[e.Event]) -> None:
        if run.activity is Activity.TRAINING:
            self._settle(run, now)
            self._ledger.progress(run.placement, -1, now)
            if self.interference is not None:
                self._reprice(self.interference.leave(run), now, facts)
        elif run.activity is not Activity.FROZEN:
            self._charge(run, now)
        run.since_ms = now

    # -- ends of an attempt ----------------------------------------------------------------------

    def _reached(self, run: SimRun, now: int, facts: list[e.Event]) -> None:
        """The end, or a checkpoint on the way there."""
        if not self._saves_on_demand:
            self._settle(run, now)
            if run.work < run.account.target:
                self.futile_suspensions = 0
                facts.append(e.RunSaved(run.run, run.saved(self._save_every)))
                self._schedule_next(run, now)
                return
        self._ended(run, now, facts)

    def _ended(self, run: SimRun, now: int, facts: list[e.Event]) -> None:
        self._stop_training(run, now, facts)
        self.futile_suspensions = 0
        account = run.account
        self._leave(run, now)
        failure = self._judge.failure_of(account)
        if failure is not None:
            share = account.traced.job.demand.nominal.total_share
            self._fail(run, failure, account.attempt_trained // share, now, facts)
            return
        outcome = account.outcome
        self._ledger.ended(account, outcome, now)
        if outcome is Outcome.SUCCEEDED:
            facts.append(e.RunSucceeded(run.run))
        else:
            facts.append(e.RunStopped(run.run))

    def _fail(
        self, run: SimRun, failure: Failure, run_ms: int, now: int, facts: list[e.Event]
    ) -> None:
        """Its attempt has failed, after this time on the GPUs that it asks for, or in a pre-run on one."""
        account = run.account
        gpus = run.share if run.is_prerun else account.traced.job.demand.nominal.total_share
        is_retried, delay_ms = self._judge.is_retried(account, failure, run_ms, gpus, now)
        if account.has_failures_left:
            account.attempt_index += 1
            self._ledger.failed(account, run.work)
        if is_retried:
            facts.append(e.RunFailed(run.run, work=0, retry_in_ms=delay_ms, failure=failure))
            facts.append(self._profile(account))
        else:
            self._ledger.ended(account, Outcome.FAILED, now)
            facts.append(e.RunFailed(run.run, work=0, retryable=False, failure=failure))

    def _leave(self, run: SimRun, now: int) -> None:
        """Release its GPUs."""
        run.ticket = 0
        del self.runs[run.run.job]
        if run.activity is not Activity.FROZEN:
            self._ledger.left(run.account, run.share, now)

    # -- suspending ------------------------------------------------------------------------------

    def _suspend(self, order: a.Freeze | a.Halt, now: int) -> None:
        run = self._find(order.run)
        if run is None:
            return
        if run.activity is Activity.FROZEN:
            # It saves and ends like others, but holds no GPUs while doing so.
            run.freezes = False
            self._schedule(run, now + self._perf.preemption_cost.suspending(self._size(run)))
            return
        is_training = run.activity is Activity.TRAINING
        self._stop_training(run, now, self.pending_facts)
        run.activity = Activity.SUSPENDING
        run.freezes = isinstance(order, a.Freeze) and run.account.traced.stays_in_memory
        run.refuses = is_training and run.freezes and self._is_refused()
        delay = 0
        if is_training:
            delay = self._perf.preemption_cost.suspending(self._size(run), freezes=run.freezes)
        if delay:
            self._schedule(run, now + delay)
        else:
            self._suspended(run, now, self.pending_facts)

    def _is_refused(self) -> bool:
        """Whether the next freeze fails."""
        every = self._perf.preemption_cost.refuse_every
        self._freezes += 1
        return every > 0 and self._freezes % every == 0

    def _suspended(self, run: SimRun, now: int, facts: list[e.Event]) -> None:
        if run.activity is not Activity.FROZEN:
            self._charge(run, now)
        if run.refuses:
            run.refuses = False
            felt_by = self._train(run, now)
            facts.append(e.RunNotFrozen(run.run))
            if felt_by:
                self._reprice(felt_by, now, facts)
            return
        if run.freezes:
            self._ledger.left(run.account, run.share, now)
            run.activity, run.ticket = Activity.FROZEN, 0
        else:
            self._fall_back(run)
            self._leave(run, now)
        facts.append(e.RunSuspended(run.run, run.work, frozen=run.freezes))

    def _fall_back(self, run: SimRun) -> None:
        """Lose the work since the last checkpoint, if ending a run does not save."""
        if not self._saves_on_demand:
            has_lost_all = self._lose_unsaved(run) and run.work == run.base_work
            self.futile_suspensions += 1 if has_lost_all else 0

    def _lose_unsaved(self, run: SimRun) -> int:
        """Roll back to its last checkpoint; returns the lost work."""
        saved = run.saved(self._save_every)
        lost, run.work = run.work - saved, saved
        self._ledger.fell_back(run.account, lost, run.share, run.speed_ppm)
        return lost

    def _thaw(self, order: a.Thaw, now: int) -> None:
        run = self._named(order.run)
        if run is None:
            return
        if order.placement is not None:
            run.reshape(order.placement)
        self._ledger.took(run.account, run.share, run.placement, now)
        run.activity, run.since_ms = Activity.THAWING, now
        if not self._stalls(run):
            self._schedule(run, now + self._perf.preemption_cost.thawing(self._size(run)))

    def _rebind(self, order: a.Rebind, now: int) -> None:
        """What it holds changes under its feet, and its speed where others come or go beside it."""
        run = self._named(order.run)
        if run is None:
            return
        trains, before = run.activity is Activity.TRAINING, run.speed_ppm
        if trains:
            self._stop_training(run, now, self.pending_facts)
        self._ledger.left(run.account, run.share, now)
        run.reshape(order.placement)
        self._ledger.took(run.account, run.share, run.placement, now)
        if trains:
            felt_by = self._train(run, now)
            if run.speed_ppm != before:
                self.pending_facts.append(e.RunSpeedChanged(run.run, run.work, run.speed_ppm))
            if felt_by:
                self._reprice(felt_by, now, self.pending_facts)

    def _kill(self, order: a.Kill, now: int) -> None:
        run = self._find(order.run)
        if run is not None:
            self._stop_training(run, now, self.pending_facts)
            self._leave(run, now)
            self._ledger.ended(run.account, Outcome.CANCELLED, now)
            self.pending_facts.append(e.RunStopped(run.run))

    # -- resizing --------------------------------------------------------------------------------

    def _reshape(self, order: a.Reshape, now: int) -> None:
        run = self._find(order.run)
        if run is None:
            return
        self._stop_training(run, now, self.pending_facts)
        self._ledger.left(run.account, run.share, now)
        is_noticed = run.reshape(order.placement)
        run.is_on_slots = self._slots.issuperset(order.placement.gpus())
        self._ledger.took(run.account, run.share, run.placement, now)
        run.activity, run.since_ms = Activity.RESIZING, now
        if self._stalls(run):
            return
        cost = self._perf.preemption_cost.resizing(self._size(run)) if is_noticed else 0
        self._schedule(run, now + cost)

    # -- tracker ---------------------------------------------------------------------------------

    def _reprice(self, runs: Sequence[SimRun], now: int, facts: list[e.Event]) -> None:
        """A neighbour started or stopped: these runs may be faster or slower from now on."""
        assert self.interference is not None
        for run in runs:
            speed = self.interference.speed(run)
            if speed != run.speed_ppm:
                self._settle(run, now)
                run.speed_ppm = speed
                self._schedule_next(run, now)
                facts.append(e.RunSpeedChanged(run.run, run.work, speed))

    def _size(self, run: SimRun) -> int:
        """Bytes that each of its GPUs has to move, where moving them takes time."""
        return self._speeds.moving(run.placement)

    def progress(self, now: int) -> Iterator[tuple[Run, TracedJob, int, int, int]]:
        """Elastic runs that train: (run, job, work done, GPUs, speed)."""
        for run in self.runs.values():
            traced = run.account.traced
            if run.activity is Activity.TRAINING and traced.job.demand.is_elastic:
                done = min(run.work + (now - run.since_ms) * run.speed_ppm, run.account.target)
                yield run.run, traced, done, len(run.placement.slices), run.speed_ppm

    def settle_all(self, now: int) -> None:
        """Bring every account up to this instant, at the end of the simulation."""
        for run in self.runs.values():
            if run.activity is Activity.TRAINING:
                self._settle(run, now)
            elif run.activity is not Activity.FROZEN:
                self._charge(run, now)

    # -- nodes -----------------------------------------------------------------------------------

    def break_node(self, node: int, now: int) -> list[e.Event]:
        """The machine stops, undetected: gangs with a part there make no progress but hold their GPUs."""
        facts: list[e.Event] = []
        self._dead.add(node)
        hit = [run for run in self._on(node) if run.activity is not Activity.FROZEN]
        speeds = [run.speed_ppm for run in hit]
        for run, speed_ppm in zip(hit, speeds, strict=True):
            self._stop_training(run, now, facts)
            run.activity, run.ticket, run.speed_ppm = Activity.STALLED, 0, speed_ppm
        return facts

    def lose_node(self, node: int, now: int) -> list[e.Event]:
        """The failure is detected: runs there roll back to their last checkpoint."""
        if node not in self._dead:
            return []
        facts: list[e.Event] = []
        self._dead.discard(node)
        for run in self._on(node):
            if run.activity is not Activity.FROZEN:
                self._charge(run, now)
            self._lose_unsaved(run)
            self._leave(run, now)
            facts.append(e.RunLost(run.run, run.work))
        facts.append(e.NodeLeft(node))
        return facts

    def _on(self, node: int) -> list[SimRun]:
        """Runs with a part on this node, frozen ones too."""
        return [run for run in self.runs.values() if node in run.placement.nodes]

    def _is_cut_off(self, run: SimRun) -> bool:
        """Whether a part of it is on a failed node, where it can neither train nor take orders."""
        return bool(self._dead) and not self._dead.isdisjoint(run.placement.nodes)

    def _stalls(self, run: SimRun) -> bool:
        """Whether it was just launched on a failed node."""
        if not self._is_cut_off(run):
            return False
        run.activity, run.ticket = Activity.STALLED, 0
        return True

    def _named(self, name: Run) -> SimRun | None:
        run = self.runs.get(name.job)
        return run if run is not None and run.run == name else None

    def _find(self, name: Run) -> SimRun | None:
        """The run that an order is for; None if it has ended, or is on a failed node."""
        run = self._named(name)
        return None if run is None or self._is_cut_off(run) else run


EXECUTIONS: dict[type, Callable[[SimEngine, Any, int], None]] = {
    a.Launch: SimEngine._launch,
    a.Freeze: SimEngine._suspend,
    a.Halt: SimEngine._suspend,
    a.Thaw: SimEngine._thaw,
    a.Rebind: SimEngine._rebind,
    a.Kill: SimEngine._kill,
    a.Reshape: SimEngine._reshape,
}

ENDINGS: dict[Activity, Callable[[SimEngine, SimRun, int, list[e.Event]], None]] = {
    Activity.STARTING: SimEngine._begin_training,
    Activity.TRAINING: SimEngine._reached,
    Activity.SUSPENDING: SimEngine._suspended,
    Activity.FROZEN: SimEngine._suspended,
    Activity.THAWING: SimEngine._begin_training,
    Activity.RESIZING: SimEngine._begin_training,
    Activity.PRERUN: SimEngine._prerun_ended,
}

BEGINNINGS: dict[Activity, Callable[[SimRun], e.Event]] = {
    Activity.STARTING: lambda run: e.RunStarted(run.run, run.speed_ppm),
    Activity.THAWING: lambda run: e.RunResumed(run.run, run.speed_ppm),
    Activity.RESIZING: lambda run: e.RunResized(run.run, run.work, run.speed_ppm),
}
