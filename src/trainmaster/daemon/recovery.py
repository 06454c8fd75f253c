"""Recovery: the newest snapshot, the steps since, the runs that exist, the orders not yet confirmed.

Nothing is launched before the engine has been asked which runs exist: a run of an attempt that the
controller knows is adopted with everything that happened to it meanwhile; an earlier one of a known job is
ended; any other is left alone and named.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import structlog

from trainmaster.config.limits import Limits
from trainmaster.core.controller import Controller
from trainmaster.core.followed_orders import has_devices
from trainmaster.core.snapshot import Restored, restored, snapshot_of
from trainmaster.core.state import State
from trainmaster.daemon.clock import Clock
from trainmaster.daemon.data_folder import Identity
from trainmaster.daemon.device_change import DeviceChange, settle_loss
from trainmaster.daemon.driver import Driver
from trainmaster.daemon.job_history import JobHistory
from trainmaster.daemon.live_job import Hold, from_row, stored_submission
from trainmaster.daemon.metrics import Metrics
from trainmaster.daemon.order_dispatch import UNSETTLED
from trainmaster.daemon.policies import DEFAULT_POLICY, policy_of, stored_policy_of, usable_policy
from trainmaster.daemon.request_errors import BadStart
from trainmaster.daemon.row_check import (
    drop_ended,
    has_run,
    submitted_again,
    take_counts,
    take_over_later_run,
)
from trainmaster.engines.protocol import Engine, KnownJob, StrayRun
from trainmaster.model import codec
from trainmaster.model import events as e
from trainmaster.model.actions import Launch, Order, Rebind, Reshape
from trainmaster.model.job import Run
from trainmaster.model.job_state import ENDED_STATES, LIVE_STATES
from trainmaster.model.policy_spec import PolicySpec
from trainmaster.model.topology import Topology
from trainmaster.model.type_speeds import with_speeds
from trainmaster.store.rows import SnapshotRow, StepRow
from trainmaster.store.store import Store
from trainmaster.text.formatting import listing

log = structlog.get_logger("trainmaster.recovery")


@dataclass(slots=True)
class Replayed:
    """The controller as it was when the last step was stored."""

    controller: Controller
    policy: PolicySpec
    """The policy that was chosen last."""
    trouble: str = ""
    """Why another one decides; empty where the chosen one does."""
    policy_since_ms: int | None = None
    """When it was chosen; None: the store does not say."""
    seq: int = 0
    now_ms: int = 0
    standing: dict[str, Order] = field(default_factory=dict)
    lost: set[Run] = field(default_factory=set)
    """Runs whose devices are gone."""
    change: DeviceChange | None = None
    """The devices of the last manager, and what is different now."""
    is_as_stored: bool = True
    """Whether the newest snapshot and the steps since lead here again: else a new snapshot is needed."""

    def note(self, step: StepRow, orders: Sequence[Order]) -> None:
        """The step is taken in, and these orders stand."""
        for order in orders:
            self.standing[order.run.job] = order
        self.seq, self.now_ms = step.seq, step.now_ms


def snapshot_of_driver(driver: Driver) -> SnapshotRow:
    """Everything that `replayed` needs to continue from here."""
    state, policy = driver.controller.state, driver.policy
    body = json.dumps(
        {
            "controller": snapshot_of(driver.controller),
            "topology": codec.encode(state.topology),
            "steps_have_topology": True,
            "policy": [policy.name, policy.options],
            "policy_content": [policy.source, policy.files],
            "policy_since_ms": driver.policy_since_ms,
            "standing": codec.encode(tuple(driver.dispatcher.standing.values())),
            "engine": driver.engine.name,
            "can_freeze": state.can_freeze,
            "can_move_frozen": state.can_move_frozen,
            "home": driver.identity.home,
            "store": driver.identity.store,
            "left_alone": driver.identity.left_alone,
        },
        separators=(",", ":"),
    )
    return SnapshotRow(driver.writer.seq, driver.controller.now, body)


# -- replaying -----------------------------------------------------------------------------------------


class Freezing(NamedTuple):
    """What the engine can do of suspending runs in memory."""

    can_freeze: bool
    can_move_frozen: bool = False


def replayed(
    store: Store,
    topology: Topology,
    first_policy: PolicySpec,
    *,
    can_freeze: bool,
    can_move_frozen: bool = False,
    grows: bool = False,
) -> Replayed:
    """Restore the controller from the store, on the devices that exist now.

    `grows`: on all devices that it ever had, since its nodes may come back.
    """
    freezing = Freezing(can_freeze, can_move_frozen)
    snapshot = store.snapshot()
    if snapshot is None:
        policy = policy_of(first_policy)
        fresh = Controller(
            topology,
            policy,
            can_freeze=can_freeze,
            can_move_frozen=can_move_frozen,
            cannot_save_at_first=True,
            make_policy=policy_of,
        )
        return Replayed(fresh, first_policy)
    if grows:
        topology = from_snapshot(snapshot, freezing=freezing).controller.state.topology
    found = _decided_again(store, snapshot, topology, freezing)
    if found is None:
        found = _followed(store, snapshot, topology, freezing)
    before = found.controller.state
    known = with_speeds(topology, before.topology.speed_by_type)
    if before.topology != known and not grows:  # jobs on gone devices are queued again
        body = snapshot_of(found.controller)
        back, found.trouble = _restored(body, topology, found.policy, freezing)
        found.controller, found.is_as_stored = back.controller, False
        found.lost |= set(back.lost)
        found.standing = dict(_renamed(found.standing, back.controller.state))
        log.warning("the devices have changed", lost_runs=len(back.lost))
    jobs = found.controller.state.jobs
    found.lost = {run for run in found.lost if run.job in jobs and jobs[run.job].run == run}
    found.change = DeviceChange.between(before, found.controller.state, found.lost)
    return found


def _decided_again(
    store: Store, snapshot: SnapshotRow, topology: Topology, freezing: Freezing
) -> Replayed | None:
    """Ask the policy at every step again, so that it remembers; None where it decides otherwise now."""
    for found in _begun(snapshot, topology, freezing):
        for step in store.steps(after=found.seq):
            if not found.trouble and replay_step(found, step) == _orders_of(step):
                continue
            log.warning("a stored step gives other orders now", step=step.seq, why=found.trouble)
            break
        else:
            return found
    return None


def _followed(
    store: Store, snapshot: SnapshotRow, topology: Topology, freezing: Freezing
) -> Replayed:
    """Take in what was ordered, whoever decided it; the policy remembers nothing."""
    begun = list(_begun(snapshot, topology, freezing))
    found = next((each for each in begun if _has_all_devices(each, store)), begun[0])
    found.controller.begin_following()
    for step in store.steps(after=found.seq):
        follow_step(found, step)
    policy, found.trouble = usable_policy(found.policy)
    found.controller.decide_by(policy)
    found.is_as_stored = False
    return found


def _begun(snapshot: SnapshotRow, topology: Topology, freezing: Freezing) -> Iterator[Replayed]:
    """The controller that a snapshot was taken of, on the devices that the steps after it may mean.

    Earlier managers that had other devices than the newest snapshot stored a new one only if runs were lost.
    """
    own = from_snapshot(snapshot, freezing=freezing)
    is_sure = json.loads(snapshot.body_json).get("steps_have_topology", False)
    if not is_sure and own.controller.state.topology != topology:
        other = from_snapshot(snapshot, topology, freezing)
        other.is_as_stored = False
        if not other.lost:
            yield other
    yield own


def _renamed(standing: Mapping[str, Order], state: State) -> Iterator[tuple[str, Order]]:
    """The orders that stand, with the present names of the devices that they mean."""
    for job, order in standing.items():
        record = state.jobs.get(job)
        place = None if record is None or record.run != order.run else record.placement
        if isinstance(order, Launch | Rebind | Reshape) and place is not None:
            order = replace(order, placement=place)
        yield job, order


def _has_all_devices(found: Replayed, store: Store) -> bool:
    """Whether the orders of its steps name no devices but those that this controller has."""
    topology = found.controller.state.topology
    orders = (order for step in store.steps(after=found.seq) for order in _orders_of(step))
    return all(has_devices(topology, order) for order in orders)


def _restored(
    body: dict[str, Any], topology: Topology, policy: PolicySpec, freezing: Freezing
) -> tuple[Restored, str]:
    """The controller, and why another policy than the chosen one decides."""
    made, trouble = usable_policy(policy)
    if trouble or not _is_readable(body["memo"]):  # types of its memo may be gone with it
        body = {**body, "memo": None}
    back = restored(
        body,
        topology,
        made,
        can_freeze=freezing.can_freeze,
        can_move_frozen=freezing.can_move_frozen,
        cannot_save_at_first=True,
        make_policy=stored_policy_of,
    )
    return back, trouble


def _is_readable(memo: codec.Json) -> bool:
    """Whether this version knows all types of it."""
    try:
        codec.decode(memo)
    except codec.CodecError as error:
        log.warning("what the policy remembered cannot be read", why=str(error))
        return False
    return True


def from_snapshot(
    snapshot: SnapshotRow, topology: Topology | None = None, freezing: Freezing | None = None
) -> Replayed:
    """The controller that a snapshot was taken of, or the same on another topology."""
    body: dict[str, Any] = json.loads(snapshot.body_json)
    policy = _stored_spec(*body["policy"], *body.get("policy_content", ()))
    own = codec.decode(body["topology"])
    assert isinstance(own, Topology)
    freezing = freezing or Freezing(body["can_freeze"], body.get("can_move_frozen", False))
    back, trouble = _restored(body["controller"], topology or own, policy, freezing)
    orders = codec.decode(body["standing"])
    assert isinstance(orders, tuple)
    return Replayed(
        back.controller,
        policy,
        trouble,
        body.get("policy_since_ms"),
        seq=snapshot.seq,
        now_ms=back.controller.now,
        standing={order.run.job: order for order in orders},
        lost=set(back.lost),
    )


def replay_step(found: Replayed, step: StepRow) -> tuple[Order, ...]:
    """Decide a stored step again; the orders of today. Nothing happens where its policy cannot be made."""
    events = _events_of(step)
    _note_policy(found, events, step.now_ms)
    if found.trouble:
        return ()
    decision = found.controller.step(step.now_ms, events)
    found.note(step, _orders_of(step))
    return tuple(decision.orders)


def follow_step(found: Replayed, step: StepRow) -> None:
    """Take in what was ordered in a stored step."""
    events, orders = _events_of(step), _orders_of(step)
    _note_policy(found, events, step.now_ms)
    followed = found.controller.follow(step.now_ms, events, orders)
    found.note(step, (*orders, *followed.unstored))
    found.lost |= set(followed.lost)
    for misfit in followed.misfits:
        log.error("a stored step does not fit", step=step.seq, what=misfit)


def _note_policy(found: Replayed, events: Sequence[e.Event], now_ms: int) -> None:
    for change in [event for event in events if isinstance(event, e.PolicyChanged)]:
        found.policy, found.policy_since_ms = change.spec, now_ms
        _, found.trouble = usable_policy(found.policy)


def _events_of(step: StepRow) -> tuple[e.Event, ...]:
    events = codec.loads(step.events_json)
    assert isinstance(events, tuple)
    return events


def _orders_of(step: StepRow) -> tuple[Order, ...]:
    orders = codec.loads(step.orders_json)
    assert isinstance(orders, tuple)
    return orders


def _stored_spec(
    name: str, options: list[list[str]], source: str = "", files: list[list[str]] | None = None
) -> PolicySpec:
    return PolicySpec(name, _pairs(options), source, _pairs(files or []))


def _pairs(stored: list[list[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((key, value) for key, value in stored)


# -- continuing ------------------------------------------------------------------------------------------


def recovered(
    store: Store,
    engine: Engine,
    stated_policy: PolicySpec | None,
    metrics: Metrics,
    identity: Identity,
    limits: Limits,
) -> tuple[Driver, Replayed]:
    """A driver that continues where the last manager stopped, and how it was found."""
    able, first = engine.abilities, stated_policy or DEFAULT_POLICY
    before = _engine_before(store)
    found = replayed(
        store,
        engine.topology,
        first,
        can_freeze=able.can_freeze,
        can_move_frozen=able.can_move_frozen,
        grows=able.spans_machines and before == engine.name,
    )
    if before not in ("", engine.name):
        _refuse_runs_of_other_engine(found, before, engine)
    clock = Clock(found.now_ms)
    driver = Driver(
        found.controller, store, engine, clock, found.policy, found.seq, metrics, identity, limits
    )
    driver.followed_ms = found.now_ms
    driver.policy_trouble = found.trouble
    if found.policy_since_ms is not None:
        driver.policy_since_ms = found.policy_since_ms
    driver.dispatcher.standing = found.standing | dict(_rebinds(found))
    if _reload_jobs(driver, found.lost):
        found.is_as_stored = False
    if found.policy.source:  # a user's file: it may raise, and who waits should know why
        driver.raised = found.controller.raises_now()
    for job in found.change.lost if found.change is not None else ():  # they wait since now
        found.controller.state.jobs[job.id].waiting_since_ms = clock.now()
    return driver, found


def _engine_before(store: Store) -> str:
    """The name of the engine that the last manager had; empty if there was none."""
    snapshot = store.snapshot()
    return "" if snapshot is None else str(json.loads(snapshot.body_json).get("engine", "local"))


def _refuse_runs_of_other_engine(found: Replayed, before: str, engine: Engine) -> None:
    """BadStart where a run goes on that this engine can neither follow nor end."""
    state = found.controller.state
    runs = [*found.lost, *(each.run for each in state.jobs.values() if has_run(each))]
    if runs:
        jobs = listing(sorted({run.job for run in runs}))
        raise BadStart(
            f"Jobs of this data folder are on the {before} engine, which this start does not have (its engine"
            f" is {engine.name}): start as at the last time, and cancel or suspend {jobs} before the change."
        )


def _rebinds(found: Replayed) -> Iterator[tuple[str, Order]]:
    """New slots of runs stand until they are told, also after a crash; orders without a result come first."""
    jobs = found.controller.state.jobs
    for order in () if found.change is None else found.change.moved:
        if jobs[order.run.job].phase not in UNSETTLED:
            yield order.run.job, order


def _reload_jobs(driver: Driver, lost: Collection[Run]) -> bool:
    """Every live job as the store has it; whether the replay had to be corrected by that."""
    controller = driver.controller
    rows = {row.id: row for row in driver.store.all_jobs(frozenset(LIVE_STATES))}
    for id in [id for id in controller.state.jobs if id not in rows]:
        row = driver.store.job(id)
        if row is not None and row.state not in ENDED_STATES:
            rows[id] = row
    corrected = [drop_ended(controller, rows)]
    for record in list(controller.state.jobs.values()):
        row = rows[record.id]
        live = driver.jobs[row.id] = from_row(row, record)
        if record.run not in lost:
            corrected.append(take_over_later_run(controller, driver.engine, live, row.state))
            take_counts(live, row.state)
            if live.history.since_ms is not None and not has_run(record):
                settle_loss(live, driver)
    for id in rows.keys() - driver.jobs.keys():
        driver.jobs[id], event = submitted_again(rows[id], driver.clock.now())
        driver.inbox.follow_up([event])
    driver.dependencies.register(driver.jobs.values())
    driver.live_programs.register(driver.jobs.values())
    driver.memory_forecasts.read_back(driver.store)
    driver.run_times.read_back(driver.store)
    driver.run_times.register(driver.jobs.values(), driver.clock.now())
    driver.preruns.register(driver.jobs.values())
    for live in driver.jobs.values():
        driver.limit(live)
    driver.usage.adopt(driver.jobs.values())
    return any(corrected)


async def reconcile(driver: Driver, lost: set[Run]) -> Sequence[StrayRun]:
    """Reconcile the controller with the runs that exist; those that no live job needs.

    Lost ones, whose devices are gone, are ended.
    """
    runs: dict[Run, int] = {}
    for record in driver.controller.state.jobs.values():
        live = driver.jobs[record.id]
        if has_run(record) and record.run not in lost:
            runs[record.run] = live.history.seen if live.history.attempt == record.attempt else 0
    strays = await driver.engine.observe(runs, lambda id: _known_job(driver, id))
    await driver.dispatcher.resend(driver.controller.state)
    for live in list(driver.jobs.values()):
        if Hold.DEPENDENCY in live.holds:
            driver.check_dependencies(live, driver.state_of)
    driver.inbox.follow_up(driver.dependencies.release_free_places())
    driver.memory_watch.release(driver.jobs.values())
    driver.inbox.follow_up(driver.preruns.follow_up_all(driver.clock.now()))
    return strays


def _known_job(driver: Driver, id: str) -> KnownJob | None:
    live = driver.jobs.get(id)
    if live is not None:
        attempts = 0 if live.record is None else live.record.attempt
        return KnownJob(live.recipe.uuid, attempts)
    row = driver.store.job(id)
    if row is None:
        return None
    history = JobHistory.from_json(row.record_json)
    return KnownJob(stored_submission(row).recipe.uuid, history.attempts)
