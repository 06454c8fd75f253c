"""A controller is found again from its snapshot and steps, on a real store, whoever decided and where."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.builders import a_job, on
from tests.policies.cases import Scripted
from tests.unit.core.test_slots import slots
from trainmaster.config.limits import Limits
from trainmaster.core.controller import Controller
from trainmaster.core.invariants import check
from trainmaster.core.lifecycle import Phase
from trainmaster.core.policy import Policy
from trainmaster.daemon.clock import Clock
from trainmaster.daemon.data_folder import Identity
from trainmaster.daemon.driver import Driver
from trainmaster.daemon.launch_record import LaunchRecord
from trainmaster.daemon.live_job import LiveJob, StoredSubmission
from trainmaster.daemon.metrics import Metrics
from trainmaster.daemon.policies import policy_of
from trainmaster.daemon.recovery import Replayed, recovered, replayed, snapshot_of_driver
from trainmaster.engines.local.engine import LocalEngine
from trainmaster.engines.protocol import RecordedRun
from trainmaster.model import actions as a
from trainmaster.model import codec
from trainmaster.model import engine_reports as r
from trainmaster.model import events as e
from trainmaster.model.job import Run, gpus
from trainmaster.model.launch_spec import LaunchSpec
from trainmaster.model.policy_spec import PolicySpec
from trainmaster.model.topology import Topology
from trainmaster.model.units import NOMINAL
from trainmaster.store.rows import Batch, StepRow, StoredJob
from trainmaster.store.store import Store

FIFO = PolicySpec("fifo")
RECIPE = LaunchSpec(("true",), "/", "")


class Manager:
    """Steps and stores as a manager does; nothing is launched."""

    def __init__(
        self,
        store: Store,
        folder: Path,
        *,
        policy: Policy | None = None,
        spec: PolicySpec = FIFO,
        topology: Topology | None = None,
    ) -> None:
        self.store, self.folder, self.spec = store, folder, spec
        self.topology = topology or slots(count=4)
        self.controller = Controller(
            self.topology, policy or policy_of(spec), can_freeze=True, cannot_save_at_first=True
        )
        self.now = self.seq = 0
        self.keep()

    @property
    def engine(self) -> LocalEngine:
        return LocalEngine(self.folder, self.topology)

    def keep(self, **changes: object) -> None:
        driver = Driver(self.controller, self.store, self.engine, Clock(0), self.spec, seq=self.seq)
        row = snapshot_of_driver(driver)
        body = json.loads(row.body_json) | changes
        self.store.keep_snapshot(replace(row, body_json=json.dumps(body)))

    def step(self, *events: e.Event) -> tuple[a.Order, ...]:
        self.now, self.seq = self.now + 1_000, self.seq + 1
        orders = tuple(self.controller.step(self.now, events).orders)
        step = StepRow(self.seq, self.now, codec.dumps(events), codec.dumps(orders))
        self.store.append([Batch(step, jobs=tuple(self.rows()))])
        return orders

    def rows(self) -> Iterator[StoredJob]:
        for record in self.controller.state.jobs.values():
            live = LiveJob(record.job, record.id, StoredSubmission(RECIPE, record.job), {})
            live.record = record
            yield live.row(self.now)

    def submit(self, *names: str, size: int = 1) -> tuple[a.Order, ...]:
        orders = self.step(*(e.JobSubmitted(a_job(name, gpus(size))) for name in names))
        started = [e.RunStarted(x.run, NOMINAL) for x in orders if isinstance(x, a.Launch)]
        return orders if not started else (*orders, *self.step(*started))

    def found(self, topology: Topology | None = None) -> Replayed:
        found = replayed(self.store, topology or self.topology, FIFO, can_freeze=True)
        check(found.controller.state)
        return found


def script(manager: Manager, *actions: a.Action) -> None:
    assert isinstance(manager.controller.policy, Scripted)
    manager.controller.policy.next = list(actions)
    manager.controller.state.log.needs_pass = True


def images(controller: Controller) -> Sequence[object]:
    records = controller.state.jobs.values()
    return [(x.id, x.phase, x.run, x.placement, x.frozen, x.work, x.attained) for x in records]


def test_the_same_policy_decides_again_and_remembers(store: Store, tmp_path: Path) -> None:
    manager = Manager(store, tmp_path, spec=PolicySpec("las"))
    manager.submit(*"abcdef")
    found = manager.found()
    assert images(found.controller) == images(manager.controller)
    assert found.controller.memo == manager.controller.memo
    assert (found.is_as_stored, found.lost) == (True, set())


def decided_otherwise(store: Store, folder: Path, spec: PolicySpec) -> Manager:
    """What fifo would not do: the last slots first, and a freeze."""
    manager = Manager(store, folder, policy=Scripted(), spec=spec)
    topology = manager.topology
    script(manager, a.Start("a", on(topology, 3)), a.Start("b", on(topology, 2)))
    manager.submit("a", "b", "c")
    script(manager, a.Suspend("b"))
    assert manager.step() == (a.Freeze(Run("b", 1)),)
    script(manager, a.Resume("b", on(topology, 2)))
    assert manager.step(e.RunSuspended(Run("b", 1), 5, frozen=True)) == (a.Thaw(Run("b", 1)),)
    return manager


def test_where_another_one_decided_its_orders_are_followed(store: Store, tmp_path: Path) -> None:
    manager = decided_otherwise(store, tmp_path, FIFO)
    found = manager.found()
    assert images(found.controller) == images(manager.controller)
    assert found.lost == set()
    assert found.trouble == ""
    assert not found.is_as_stored, "a snapshot is needed"
    assert found.standing == {
        "a": a.Launch(Run("a", 1), on(manager.topology, 3), 0),
        "b": a.Thaw(Run("b", 1)),
    }
    assert found.controller.policy.name == "fifo"
    decision = found.controller.step(manager.now, ())
    assert [order.run for order in decision.orders] == [Run("c", 1)], "what waits is started"


def test_a_policy_that_cannot_be_made_ends_nothing(store: Store, tmp_path: Path) -> None:
    manager = decided_otherwise(store, tmp_path, PolicySpec("mine.py", source="1 / 0"))
    found = manager.found()
    assert images(found.controller) == images(manager.controller)
    assert found.lost == set()
    assert "mine.py" in found.trouble
    assert found.controller.policy.name == "fifo"


def test_a_policy_that_was_changed_since_ends_nothing(store: Store, tmp_path: Path) -> None:
    """The stand-in decided while the file was broken; a change to another policy came later."""
    manager = decided_otherwise(store, tmp_path, FIFO)
    manager.controller.make_policy = lambda _: policy_of(FIFO)
    manager.step(e.PolicyChanged("las", (("quantum_s", "1"),)))
    found = manager.found()
    assert found.policy == PolicySpec("las", (("quantum_s", "1"),))
    assert found.controller.policy.name == "las"
    assert found.lost == set()


def test_a_memo_of_a_type_that_is_gone_ends_nothing(store: Store, tmp_path: Path) -> None:
    manager = Manager(store, tmp_path, spec=PolicySpec("las"))
    row = store.snapshot()
    assert row is not None
    body = json.loads(row.body_json)
    body["controller"]["memo"] = {"is": "policies.Gone", "since": 3}
    store.keep_snapshot(replace(row, body_json=json.dumps(body)))
    manager.submit("a", "b")
    found = manager.found()
    assert images(found.controller) == images(manager.controller)
    assert found.controller.policy.name == "las"


def with_more_slots(store: Store, folder: Path, policy: Policy) -> Manager:
    """As earlier versions stored it: the newest snapshot has two slots, and now there are four."""
    manager = Manager(store, folder, topology=slots(count=2))
    manager.keep(steps_have_topology=False)
    manager.topology = slots(count=4)
    manager.controller = Controller(manager.topology, policy, can_freeze=True)
    return manager


def test_steps_after_other_devices_came_are_decided_again_on_those(
    store: Store, tmp_path: Path
) -> None:
    manager = with_more_slots(store, tmp_path, policy_of(FIFO))
    manager.submit("a", "b", "c")
    found = manager.found()
    assert images(found.controller) == images(manager.controller)
    assert (found.lost, found.is_as_stored) == (set(), False)


def test_orders_on_other_devices_are_followed_there_and_lose_only_what_is_gone(
    store: Store, tmp_path: Path
) -> None:
    manager = with_more_slots(store, tmp_path, Scripted())
    topology = manager.topology
    script(manager, a.Start("a", on(topology, 2)), a.Start("b", on(topology, 3)))
    manager.submit("a", "b")
    found = manager.found()
    assert images(found.controller) == images(manager.controller)
    assert found.lost == set()
    found = manager.found(slots(count=3))
    assert found.lost == {Run("b", 1)}
    jobs = found.controller.state.jobs
    assert (jobs["a"].phase, jobs["b"].phase) == (Phase.RUNNING, Phase.PENDING)


def test_orders_that_stand_name_the_devices_of_today(store: Store, tmp_path: Path) -> None:
    """Job a was sent to the last of four slots, and of those two are left."""
    manager = Manager(store, tmp_path, policy=Scripted())
    script(manager, a.Start("a", on(manager.topology, 3)))
    manager.submit("a")
    found = manager.found(slots(count=2))
    placement = found.controller.state.jobs["a"].placement
    assert placement is not None
    assert set(placement.gpus()) <= {0, 1}
    assert found.standing["a"] == a.Launch(Run("a", 1), placement, 0)


# -- rows ----------------------------------------------------------------------------------------------


class Knowing(LocalEngine):
    """It knows a second run of job a, on the second slot."""

    row: StoredJob

    def recorded(self, run: Run) -> RecordedRun | None:
        placement = on(self.topology, 1)
        return RecordedRun(LaunchRecord(self.row, placement).to_json(), (), has_begun=True)


def driver_of(manager: Manager, engine: LocalEngine) -> tuple[Driver, Replayed]:
    return recovered(manager.store, engine, None, Metrics(), Identity(), Limits())


def with_row(manager: Manager, row: StoredJob) -> None:
    """One more step, which says of the job only what its row says."""
    manager.seq += 1
    step = StepRow(manager.seq, manager.now, codec.dumps(()), codec.dumps(()))
    manager.store.append([Batch(step, jobs=(row,))])


def test_a_later_run_that_the_row_and_the_engine_know_is_taken_over(
    store: Store, tmp_path: Path
) -> None:
    manager = Manager(store, tmp_path)
    manager.submit("a")
    (row,) = manager.rows()
    history = json.loads(row.record_json) | {"attempts": 2, "attempt": 2, "preemptions": 5}
    with_row(manager, replace(row, record_json=json.dumps(history)))
    engine = Knowing(tmp_path, manager.topology)
    engine.row = row
    driver, found = driver_of(manager, engine)
    record = driver.controller.state.jobs["a"]
    assert (record.run, record.phase) == (Run("a", 2), Phase.RUNNING)
    assert record.placement == on(manager.topology, 1)
    assert record.preemptions == 5
    assert not found.is_as_stored
    check(driver.controller.state)


def test_a_job_that_has_ended_by_its_row_is_not_live(store: Store, tmp_path: Path) -> None:
    manager = Manager(store, tmp_path)
    manager.submit("a", "b")
    row = next(iter(manager.rows()))
    with_row(manager, replace(row, state="cancelled", finish_ms=manager.now))
    driver, found = driver_of(manager, manager.engine)
    assert list(driver.jobs) == list(driver.controller.state.jobs) == ["b"]
    assert not found.is_as_stored
    check(driver.controller.state)


@pytest.mark.parametrize("state", ["pending", "suspended"])
def test_a_later_run_is_not_taken_over_where_the_row_says_that_it_does_not_run(
    store: Store, tmp_path: Path, state: str
) -> None:
    manager = Manager(store, tmp_path, topology=slots(count=1))
    manager.submit("b", "a")
    _, row = manager.rows()
    history = json.loads(row.record_json) | {"attempts": 2, "attempt": 2}
    with_row(manager, replace(row, state=state, record_json=json.dumps(history)))
    engine = Knowing(tmp_path, slots(count=2))
    engine.row = row
    driver, found = driver_of(manager, engine)
    record = driver.controller.state.jobs["a"]
    assert (record.phase, record.placement, record.attempt) == (Phase.PENDING, None, 2)
    assert not found.is_as_stored
    check(driver.controller.state)


def test_a_live_job_that_was_not_replayed_is_submitted_again(store: Store, tmp_path: Path) -> None:
    manager = Manager(store, tmp_path)
    manager.submit("a")
    job = StoredSubmission(RECIPE, a_job("ghost", gpus(1)))
    live = LiveJob(job.job, "ghost", job, {})
    ghost = replace(live.row(manager.now), queue="research")
    with_row(manager, replace(ghost, state="running", start_ms=5))
    driver, _ = driver_of(manager, manager.engine)
    assert [*driver.jobs] == ["a", "ghost"]
    (again,) = driver.inbox.take().followups
    assert isinstance(again.event, e.JobSubmitted)
    assert (again.event.job.id, again.event.job.queue) == ("ghost", "research")
    assert again.event.first_start_ms == 5


# -- killed while the devices changed --------------------------------------------------------------------


def killed_on(manager: Manager, topology: Topology) -> Driver:
    """A manager with other devices that stores its snapshot and is killed; the one that comes next."""
    engine = LocalEngine(manager.folder, topology)
    driver, _ = driver_of(manager, engine)
    manager.store.keep_snapshot(snapshot_of_driver(driver))
    return driver_of(manager, engine)[0]


def test_a_job_that_lost_its_devices_to_a_killed_manager_does_not_run_on(
    store: Store, tmp_path: Path
) -> None:
    manager = Manager(store, tmp_path, topology=slots(count=2))
    manager.submit("a", "b")
    _, row = manager.rows()
    history = json.loads(row.record_json) | {"since_ms": manager.now, "run_ms": 500}
    with_row(manager, replace(row, record_json=json.dumps(history)))
    driver = killed_on(manager, slots(count=1))
    lost = driver.jobs["b"]
    assert lost.record is not None
    assert (lost.record.phase, lost.history.since_ms) == (Phase.PENDING, None)
    assert lost.history.lost_ms > 0
    (told,) = driver.inbox.take().followups
    assert told.event == e.RunLost(Run("b", 1), 0)
    assert told.detail["lost_s"] > 0


def test_new_slots_are_told_after_a_manager_was_killed_before_it_told_them(
    store: Store, tmp_path: Path
) -> None:
    manager = Manager(store, tmp_path, policy=Scripted())
    script(manager, a.Start("a", on(manager.topology, 3)))
    manager.submit("a")
    fewer = slots(count=2)
    driver = killed_on(manager, fewer)
    place = driver.controller.state.jobs["a"].placement
    assert place in (on(fewer, 0), on(fewer, 1))
    assert driver.dispatcher.standing == {"a": a.Rebind(Run("a", 1), place)}


# -- killed before a start got through -------------------------------------------------------------------


class Remembering(LocalEngine):
    """It executes nothing, and remembers what was ordered."""

    def __init__(self, folder: Path, topology: Topology, *reports: r.Report) -> None:
        super().__init__(folder, topology)
        self.executed: list[a.Order] = []
        self.reports = reports
        """What the run's files tell."""

    async def execute(self, order: a.Order, spec: LaunchSpec) -> None:
        self.executed.append(order)

    def recorded(self, run: Run) -> RecordedRun | None:
        numbered = tuple((report, number) for number, report in enumerate(self.reports, 1))
        return RecordedRun("", numbered, has_begun=bool(numbered))


def sent_again(manager: Manager, *reports: r.Report, seen: int = 0) -> list[a.Order]:
    """What a new manager orders; `seen`: how many of the reports the last one has stored."""
    (row,) = manager.rows()
    history = json.loads(row.record_json) | {"attempt": 1, "seen": seen}
    with_row(manager, replace(row, record_json=json.dumps(history)))
    engine = Remembering(manager.folder, manager.topology, *reports)
    driver, _ = driver_of(manager, engine)
    asyncio.run(driver.dispatcher.resend(driver.controller.state))
    return engine.executed


A1 = Run("a", 1)
STARTED, FROZEN, THAWED = r.Started(A1, 1_000), r.Frozen(A1, 2_000), r.Thawed(A1, 3_000)


def on_a_slot(store: Store, folder: Path) -> tuple[Manager, tuple[a.Order, ...]]:
    manager = Manager(store, folder, policy=Scripted())
    script(manager, a.Start("a", on(manager.topology, 3)))
    return manager, manager.step(e.JobSubmitted(a_job("a", gpus(1))))


def frozen(manager: Manager) -> tuple[a.Order, ...]:
    script(manager, a.Suspend("a"))
    orders = manager.step()
    assert [type(order) for order in orders] == [a.Freeze]
    return orders


def test_a_launch_that_may_not_have_arrived_is_sent_again_before_a_freeze(
    store: Store, tmp_path: Path
) -> None:
    manager, launched = on_a_slot(store, tmp_path)
    ordered = (*launched, *frozen(manager))
    assert sent_again(manager) == [*ordered]


def test_a_launch_of_which_something_was_heard_is_not_sent_again_before_a_freeze(
    store: Store, tmp_path: Path
) -> None:
    manager, _ = on_a_slot(store, tmp_path)
    ordered = frozen(manager)
    assert sent_again(manager, STARTED, seen=1) == [*ordered]


@pytest.mark.parametrize(
    ("since", "has_gone_on"), [((), False), ((THAWED,), True), ((THAWED, FROZEN), True)]
)
def test_a_thaw_is_sent_again_before_a_freeze_where_the_run_has_not_gone_on(
    store: Store, tmp_path: Path, since: tuple[r.Report, ...], has_gone_on: bool
) -> None:
    manager, _ = on_a_slot(store, tmp_path)
    manager.step(e.RunStarted(A1, NOMINAL))
    frozen(manager)
    manager.step(e.RunSuspended(A1, 0, frozen=True))
    place = on(manager.topology, 3)
    script(manager, a.Start("a", place))
    assert [type(order) for order in manager.step()] == [a.Thaw]
    (freeze,) = frozen(manager)
    thaw = [] if has_gone_on else [a.Thaw(A1, place)]
    assert sent_again(manager, STARTED, FROZEN, *since, seen=2) == [*thaw, freeze]
