"""Sends orders to the engine, and remembers the last one to each job: a restart sends it again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import structlog

from trainmaster.core.lifecycle import Phase
from trainmaster.core.state import State
from trainmaster.daemon.clock import Clock
from trainmaster.daemon.failure_table import built_in_table
from trainmaster.daemon.found_jobs import TURNS
from trainmaster.daemon.launch_record import Beyond, LaunchRecord, placed_nodes
from trainmaster.daemon.lease import Lease
from trainmaster.daemon.live_job import LiveJob
from trainmaster.engines.protocol import Engine
from trainmaster.failures.reason_table import FailureReason, ReasonTable
from trainmaster.model.actions import Freeze, Kill, Launch, Order, Rebind, Thaw
from trainmaster.model.engine_reports import Frozen
from trainmaster.model.failure import HUNG_REASON
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import PRERUN_MS, LaunchSpec
from trainmaster.model.placement import Placement
from trainmaster.model.stop_reasons import EndCode, EndReason
from trainmaster.model.topology import Topology
from trainmaster.store.errors import LeadershipLost, StoreError

log = structlog.get_logger("trainmaster.daemon")

UNSETTLED = frozenset({Phase.STARTING, Phase.SUSPENDING, Phase.RESIZING, Phase.STOPPING})


class OrderDispatcher:
    """Engines execute each order once, so sending one again does no harm."""

    def __init__(
        self,
        engine: Engine,
        jobs: dict[str, LiveJob],
        clock: Clock,
        most_grace_ms: int,
        seq: int = 0,
        prerun_ms: int = PRERUN_MS,
        reasons: Callable[[], ReasonTable] = built_in_table,
        topology: Callable[[], Topology] | None = None,
    ) -> None:
        self._engine = engine
        self._jobs = jobs
        self._clock = clock
        self._most_grace_ms = most_grace_ms
        self._prerun_ms = prerun_ms
        self._reasons = reasons
        self._topology = topology or (lambda: engine.topology)
        """By which orders number nodes and devices."""
        self._seq = seq
        """The last step that is stored."""
        self.standing: dict[str, Order] = {}
        """The last order to each live job's run."""
        self.given: dict[int, int] = {}
        """By device: the last step since the manager's start that gave it to a run."""
        self.unsent: list[Order] = []
        """Orders that the engine did not accept; they are tried again."""
        self.lease: Lease | None = None
        """None: no other manager can lead."""

    def note(self, orders: Iterable[Order], seq: int) -> None:
        """These are stored with that step, so they must reach the engine, even after a crash."""
        self._seq = seq
        for order in orders:
            self.standing[order.run.job] = order
            placement: Placement | None = getattr(order, "placement", None)
            self.given.update(dict.fromkeys(() if placement is None else placement.gpus(), seq))

    def forget(self, job: str) -> None:
        self.standing.pop(job, None)

    async def send(self, orders: Iterable[Order]) -> None:
        """Send them in this order, after those that failed before; each only while this manager leads."""
        waiting, self.unsent = [*self.unsent, *orders], []
        for number, order in enumerate(waiting):
            try:
                if self.lease is not None:
                    await self.lease.confirm()
            except LeadershipLost:
                raise
            except StoreError:  # whether another manager leads cannot be found out now
                self.unsent += waiting[number:]
                return
            await self.send_unconfirmed([order])

    async def send_unconfirmed(self, orders: Iterable[Order]) -> None:
        """Send them without asking the store whether this manager still leads."""
        for order in orders:
            live = self._jobs.get(order.run.job)
            if live is None:
                continue
            if isinstance(order, Kill) and order.end is None:
                order = replace(order, end=live.history.end or EndReason(EndCode.CANCELLED))
            try:
                await self._engine.execute(order, self._launched_from(live, order))
            except Exception:
                log.exception(
                    "an order did not get through", order=type(order).__name__, run=order.run
                )
                self.unsent.append(order)

    def _launched_from(self, live: LiveJob, order: Order) -> LaunchSpec:
        """Its recipe; where it gets a place, with all that is needed to know it again without a store."""
        placement = getattr(order, "placement", None)
        if placement is None:
            return live.recipe_now(self._clock.now(), self._most_grace_ms, self._hung())
        return self._with_row(live, placement)

    def _hung(self) -> FailureReason:
        return self._reasons().of(HUNG_REASON)

    def _with_row(self, live: LiveJob, placement: Placement | None) -> LaunchSpec:
        now = self._clock.now()
        topology = self._topology()
        nodes, beyond = placed_nodes(placement, topology), Beyond.of(live.record, topology)
        record = LaunchRecord(live.row(now), placement, self._seq, nodes, beyond)
        recipe = live.recipe_now(now, self._most_grace_ms, self._hung())
        prerun = live.history.prerun
        return replace(
            recipe,
            prerun_ms=self._prerun_ms,
            prerun_attempts=0 if prerun is None else prerun.attempts,
            row=record.to_json(),
            speeds=_speeds(placement, topology),
        )

    async def write_rows(self, jobs: Iterable[str]) -> None:
        """Bring the record beside their runs up to date: it must say who suspended them, and the like."""
        for live in [self._jobs[id] for id in jobs if id in self._jobs]:
            record = live.record
            if record is not None and record.attempt > 0:
                spec = self._with_row(live, record.frozen or record.placement)
                await self._engine.write_row(record.run, spec)

    async def resend(self, state: State) -> None:
        """After a restart: send again what may not have reached the engine."""
        self.standing = {id: each for id, each in self.standing.items() if id in state.jobs}
        standing = [each for each in self.standing.values() if _is_open(each, state)]
        await self.send([order for each in standing for order in self._with_start(each, state)])

    def _with_start(self, order: Order, state: State) -> Iterable[Order]:
        """A run on CPU slots may be frozen before it has started, or gone on. The order to do that does not
        stand any more then, so it goes with the freeze until something is heard of it."""
        record, history = state.jobs[order.run.job], self._jobs[order.run.job].history
        if isinstance(order, Freeze) and record.frozen is not None:
            seen = history.seen if history.attempt == order.run.attempt else 0
            if seen == 0:
                yield Launch(order.run, record.frozen, record.work, record.is_prerun)
            elif self._is_still_frozen(order.run, seen):
                yield Thaw(order.run, record.frozen)
        yield order

    def _is_still_frozen(self, run: Run, seen: int) -> bool:
        """Whether it was frozen by an earlier order: that was taken in, and it has not gone on since."""
        recorded = self._engine.recorded(run)
        found = () if recorded is None else recorded.reports
        turns = [(report, number) for report, number in found if isinstance(report, TURNS)]
        return bool(turns) and isinstance(turns[-1][0], Frozen) and turns[-1][1] <= seen


def _speeds(placement: Placement | None, topology: Topology) -> tuple[tuple[str, int], ...]:
    """Of its nodes: each knows its devices, and not how fast those of the others are."""
    if placement is None or topology.is_uniform:
        return ()
    nodes = (topology.nodes[node] for node in placement.nodes)
    return tuple((node.name, node.type.speed_ppm) for node in nodes)


def _is_open(order: Order, state: State) -> bool:
    """Whether its result has not been reported yet."""
    record = state.jobs[order.run.job]
    if order.run in state.leaving or (isinstance(order, Rebind) and record.run == order.run):
        return True
    is_pending = record.id in state.pending_launches
    return record.run == order.run and record.phase in UNSETTLED and not is_pending
