"""Recovery: the newest snapshot, the steps since, the runs that exist, the orders not yet confirmed.

Nothing is launched before the engine has been asked which runs exist: a run of an attempt that the
controller knows is adopted with everything that happened to it meanwhile; an earlier one of a known job is
ended; any other is left alone and named.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from trainmaster.config.limits import Limits
from trainmaster.core.controller import Controller, MakePolicy
from trainmaster.core.lifecycle import WAITING, Phase
from trainmaster.core.snapshot import Restored, restored, snapshot_of
from trainmaster.core.state import JobRecord
from trainmaster.daemon.clock import Clock
from trainmaster.daemon.data_folder import Identity
from trainmaster.daemon.driver import Driver
from trainmaster.daemon.job_history import JobHistory
from trainmaster.daemon.live_job import Hold, from_row, stored_submission
from trainmaster.daemon.metrics import Metrics
from trainmaster.daemon.policies import DEFAULT_POLICY, policy_of, stored_policy_of, usable_policy
from trainmaster.daemon.report_events import loss_of
from trainmaster.daemon.stored_orders import NoDecisions, requests_for
from trainmaster.engines.protocol import Engine, KnownJob, StrayRun
from trainmaster.model import codec
from trainmaster.model import events as e
from trainmaster.model.actions import Order
from trainmaster.model.job import Run
from trainmaster.model.job_state import LIVE_STATES
from trainmaster.model.policy_spec import PolicySpec
from trainmaster.model.topology import Topology
from trainmaster.store.rows import SnapshotRow, StepRow
from trainmaster.store.store import Store

log = structlog.get_logger("trainmaster.recovery")


@dataclass(slots=True)
class Replayed:
    """The controller as it was when the last step was stored."""

    controller: Controller
    policy: PolicySpec
    """The policy that was chosen last."""
    trouble: str = ""
    """Why another one decides; empty where the chosen one does."""
    seq: int = 0
    now_ms: int = 0
    standing: dict[str, Order] = field(default_factory=dict)
    doubtful: set[Run] = field(default_factory=set)
    """Runs whose orders differ in the replay, or whose devices are gone."""
    follows_orders: bool = False
    """Whether stored orders are followed, because a policy that gave them cannot be made any more."""

    def follow_orders_in_trouble(self) -> None:
        if self.trouble and not self.follows_orders:
            self.follows_orders = True
            self.controller.policy, self.controller.memo = NoDecisions(), None


def snapshot_of_driver(driver: Driver) -> SnapshotRow:
    """Everything that `replayed` needs to continue from here."""
    state, policy = driver.controller.state, driver.policy
    body = json.dumps(
        {
            "controller": snapshot_of(driver.controller),
            "topology": codec.encode(state.topology),
            "policy": [policy.name, policy.options],
            "policy_content": [policy.source, policy.files],
            "standing": codec.encode(tuple(driver.dispatcher.standing.values())),
            "can_freeze": state.can_freeze,
            "home": driver.identity.home,
            "store": driver.identity.store,
            "left_alone": driver.identity.left_alone,
        },
        separators=(",", ":"),
    )
    return SnapshotRow(driver.writer.seq, driver.controller.now, body)


# -- replaying -----------------------------------------------------------------------------------------


def replayed(
    store: Store, topology: Topology, first_policy: PolicySpec, *, can_freeze: bool
) -> Replayed:
    """Restore the controller from the store, on the devices that exist now."""
    snapshot = store.snapshot()
    if snapshot is None:
        policy = policy_of(first_policy)
        fresh = Controller(
            topology,
            policy,
            can_freeze=can_freeze,
            cannot_save_at_first=True,
            make_policy=policy_of,
        )
        return Replayed(fresh, first_policy)
    found = from_snapshot(snapshot, can_freeze=can_freeze)
    for step in store.steps(after=found.seq):
        replay_step(found, step)
    has_other_devices = found.controller.state.topology != topology
    if has_other_devices or found.follows_orders:  # jobs on devices that are gone are queued again
        body = snapshot_of(found.controller)
        back, found.trouble = _restored(body, topology, found.policy, can_freeze=can_freeze)
        found.controller = back.controller
        found.doubtful |= set(back.lost)
        if has_other_devices:
            log.warning("the devices have changed", lost_runs=len(back.lost))
    return found


def _restored(
    body: dict[str, Any], topology: Topology, policy: PolicySpec, *, can_freeze: bool
) -> tuple[Restored, str]:
    """The controller, and why another policy than the chosen one decides."""
    made, trouble = usable_policy(policy)
    make: MakePolicy = stored_policy_of
    if trouble:  # types of its memo may be gone with it
        body = {**body, "memo": None}
    back = restored(
        body,
        topology,
        made,
        can_freeze=can_freeze,
        cannot_save_at_first=True,
        make_policy=make,
    )
    return back, trouble


def from_snapshot(snapshot: SnapshotRow, *, can_freeze: bool | None = None) -> Replayed:
    """The controller that a snapshot was taken of."""
    body: dict[str, Any] = json.loads(snapshot.body_json)
    policy = _stored_spec(*body["policy"], *body.get("policy_content", ()))
    topology = codec.decode(body["topology"])
    assert isinstance(topology, Topology)
    freezes = body["can_freeze"] if can_freeze is None else can_freeze
    back, trouble = _restored(body["controller"], topology, policy, can_freeze=freezes)
    orders = codec.decode(body["standing"])
    assert isinstance(orders, tuple)
    return Replayed(
        back.controller,
        policy,
        trouble,
        seq=snapshot.seq,
        now_ms=back.controller.now,
        standing={order.run.job: order for order in orders},
        doubtful=set(back.lost),
    )


def replay_step(found: Replayed, step: StepRow) -> Sequence[Order]:
    """Replay one stored step; where its orders differ, the stored ones count."""
    events, orders = codec.loads(step.events_json), codec.loads(step.orders_json)
    assert isinstance(events, tuple)
    assert isinstance(orders, tuple)
    changes = [event for event in events if isinstance(event, e.PolicyChanged)]
    for change in changes:
        found.policy = change.spec
        _, found.trouble = usable_policy(found.policy)
    found.follow_orders_in_trouble()
    if found.follows_orders:
        given = [event for event in events if event not in changes]
        given += requests_for(orders, found.controller.state)
    else:
        given = list(events)
    decision = found.controller.step(step.now_ms, given)
    if tuple(decision.orders) != orders:
        differing = set(decision.orders) ^ set(orders)
        log.warning("a stored step gives other orders now", step=step.seq, orders=len(differing))
        found.doubtful |= {order.run for order in differing}
    for order in orders:
        found.standing[order.run.job] = order
    found.seq, found.now_ms = step.seq, step.now_ms
    return tuple(decision.orders)


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
) -> tuple[Driver, set[Run]]:
    """A driver that continues where the last manager stopped, and the runs that `reconcile` must end."""
    can_freeze = engine.abilities.can_freeze
    first = stated_policy or DEFAULT_POLICY
    found = replayed(store, engine.topology, first, can_freeze=can_freeze)
    clock = Clock(found.now_ms)
    driver = Driver(
        found.controller, store, engine, clock, found.policy, found.seq, metrics, identity, limits
    )
    driver.policy_trouble = found.trouble
    driver.dispatcher.standing = found.standing
    _reload_jobs(driver)
    return driver, found.doubtful


def _reload_jobs(driver: Driver) -> None:
    """Every live job as the store has it."""
    records = driver.controller.state.jobs
    rows = [row for row in driver.store.all_jobs(frozenset(LIVE_STATES)) if row.id in records]
    for row in sorted(rows, key=lambda row: records[row.id].seq):
        driver.jobs[row.id] = from_row(row, records[row.id])
    driver.dependencies.register(driver.jobs.values())
    for live in driver.jobs.values():
        driver.limit(live)


async def reconcile(driver: Driver, doubtful: set[Run]) -> Sequence[StrayRun]:
    """Reconcile the controller with the runs that exist; those that no live job needs."""
    runs: dict[Run, int] = {}
    for record in driver.controller.state.jobs.values():
        live = driver.jobs[record.id]
        if has_run(record) and record.run not in doubtful:
            runs[record.run] = live.history.seen if live.history.attempt == record.attempt else 0
    strays = await driver.engine.observe(runs, lambda id: _known_job(driver, id))
    await driver.dispatcher.resend(driver.controller.state)
    for run in doubtful:
        claimed = driver.controller.state.jobs.get(run.job)
        if claimed is not None and claimed.run == run:
            why = "the manager came back with other devices or decisions"
            now = driver.clock.now()
            lost = loss_of(claimed, {"why": why}, now, driver.site_limits)
            driver.inbox.follow_up([lost])
    for live in list(driver.jobs.values()):
        if Hold.DEPENDENCY in live.holds:
            driver.check_dependencies(live, driver.state_of)
    driver.inbox.follow_up(driver.dependencies.release_free_places())
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


def has_run(record: JobRecord) -> bool:
    """Whether processes of its present attempt may exist."""
    rests = record.phase in WAITING or record.phase is Phase.HELD
    return record.attempt > 0 and (not rests or record.frozen is not None)
