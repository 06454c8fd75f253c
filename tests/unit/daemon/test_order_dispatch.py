"""Orders go out only while this manager leads: each of a long list, and those of a restart as well."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.builders import a_job
from trainmaster.config.limits import Limits
from trainmaster.core.controller import Controller
from trainmaster.daemon.clock import Clock
from trainmaster.daemon.daemon import Daemon
from trainmaster.daemon.driver import Driver
from trainmaster.daemon.inbox import Request
from trainmaster.daemon.lease import Lease
from trainmaster.daemon.live_job import LiveJob, StoredSubmission
from trainmaster.daemon.order_dispatch import OrderDispatcher
from trainmaster.daemon.policies import policy_of
from trainmaster.daemon.recovery import snapshot_of_driver
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.engines.local.engine import LocalEngine
from trainmaster.engines.protocol import Known, StrayRun, Tell, TellNode, any_job, ignore
from trainmaster.model import events as e
from trainmaster.model.actions import Order
from trainmaster.model.job import Run, gpus
from trainmaster.model.launch_spec import LaunchSpec
from trainmaster.model.policy_spec import PolicySpec
from trainmaster.model.topology import Topology, parse_shorthand
from trainmaster.store.errors import LeadershipLost, StoreAway
from trainmaster.store.open import open_store
from trainmaster.store.store import Store

FIFO = PolicySpec("fifo")
RECIPE = LaunchSpec(("true",), "/", "")
FOUR = parse_shorthand("1x4")


class SlowEngine(LocalEngine):
    """Every order takes three seconds of a made-up clock; what was ordered is remembered."""

    def __init__(self, folder: Path, topology: Topology = FOUR) -> None:
        super().__init__(folder, topology)
        self.now_s = 0.0
        self.executed: list[Order] = []

    async def execute(self, order: Order, spec: LaunchSpec) -> None:
        self.now_s += 3.0
        self.executed.append(order)


def a_driver(store: Store, engine: SlowEngine) -> Driver:
    controller = Controller(FOUR, policy_of(FIFO), make_policy=policy_of)
    return Driver(controller, store, engine, Clock(0), FIFO)


def four_jobs() -> Request:
    jobs = [a_job(str(number), gpus(1)) for number in range(1, 5)]
    return Request(
        events=[LoggedEvent(e.JobSubmitted(job)) for job in jobs],
        new_jobs=[LiveJob(job, job.id, StoredSubmission(RECIPE, job), {}) for job in jobs],
    )


def test_a_list_that_takes_long_to_send_does_not_outlive_the_lease(tmp_path: Path) -> None:
    """The lease is valid for five seconds: it is asked for again before the third order."""
    leader, standby = (open_store(f"sqlite:///{tmp_path}/trainmaster.db") for _ in range(2))
    engine = SlowEngine(tmp_path)

    async def scenario() -> None:
        driver = a_driver(leader, engine)
        driver.dispatcher.lease = Lease(leader, 10.0, lambda: engine.now_s)
        driver.inbox.request(four_jobs())
        await driver.step()
        assert len(engine.executed) == 4
        sent, engine.executed = engine.executed, []
        assert standby.acquire_leadership(by_force=True)
        driver.dispatcher.lease = Lease(leader, 10.0, lambda: engine.now_s)
        with pytest.raises(LeadershipLost):
            await driver.dispatcher.send(sent)

    try:
        assert leader.acquire_leadership()
        asyncio.run(scenario())
        assert len(engine.executed) == 2
    finally:
        leader.close()
        standby.close()


def test_orders_that_cannot_be_confirmed_wait_and_keep_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(f"sqlite:///{tmp_path}/trainmaster.db")
    engine = SlowEngine(tmp_path)

    def away() -> None:
        raise StoreAway("The server does not answer.")

    async def scenario() -> None:
        driver = a_driver(store, engine)
        driver.inbox.request(four_jobs())
        await driver.step()
        sent, engine.executed = engine.executed, []
        driver.dispatcher.lease = Lease(store, 10.0, lambda: engine.now_s)
        with monkeypatch.context() as patch:
            patch.setattr(store, "beat", away)
            await driver.dispatcher.send(sent)
        assert engine.executed == sent[:2]
        assert driver.dispatcher.unsent == sent[2:]
        await driver.dispatcher.send(())
        assert engine.executed == sent

    try:
        assert store.acquire_leadership()
        asyncio.run(scenario())
    finally:
        store.close()


def test_an_order_that_failed_is_not_forgotten_when_a_later_one_cannot_be_confirmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(SlowEngine):
        """Does not accept the first order."""

        async def execute(self, order: Order, spec: LaunchSpec) -> None:
            await super().execute(order, spec)
            if len(self.executed) == 1:
                raise OSError("The disk is full.")

    store = open_store(f"sqlite:///{tmp_path}/trainmaster.db")
    engine = Failing(tmp_path)

    def away() -> None:
        raise StoreAway("The server does not answer.")

    async def scenario() -> None:
        driver = a_driver(store, SlowEngine(tmp_path))
        driver.inbox.request(four_jobs())
        await driver.step()
        sent = list(driver.dispatcher.standing.values())
        dispatcher = OrderDispatcher(engine, driver.jobs, driver.clock, 0)
        dispatcher.lease = Lease(store, 10.0, lambda: engine.now_s)
        monkeypatch.setattr(store, "beat", away)
        await dispatcher.send(sent)
        assert engine.executed == sent[:2]
        assert dispatcher.unsent == [sent[0], *sent[2:]]

    try:
        assert store.acquire_leadership()
        asyncio.run(scenario())
    finally:
        monkeypatch.undo()
        store.close()


def test_a_manager_that_was_replaced_while_it_recovered_sends_nothing(tmp_path: Path) -> None:
    """Its store has launches that were not confirmed; another manager leads before they are sent again."""
    path = f"sqlite:///{tmp_path}/trainmaster.db"
    other = open_store(path)

    class Replaced(SlowEngine):
        async def open(self, tell: Tell, tell_node: TellNode = ignore) -> None:
            assert other.acquire_leadership(by_force=True)

        async def observe(
            self, runs: Mapping[Run, int], known: Known = any_job
        ) -> Sequence[StrayRun]:
            return ()

    engine = Replaced(tmp_path)

    async def stored() -> None:
        driver = a_driver(store, SlowEngine(tmp_path))
        driver.inbox.request(four_jobs())
        await driver.step()
        store.keep_snapshot(snapshot_of_driver(driver))

    async def scenario() -> None:
        silent = Limits(leader_silence=0)  # its lease has always run out
        await asyncio.wait_for(Daemon(store, engine, tmp_path, limits=silent).run(), 60)

    store = open_store(path)
    try:
        assert store.acquire_leadership()
        asyncio.run(stored())
        with pytest.raises(LeadershipLost):
            asyncio.run(scenario())
        assert engine.executed == []
    finally:
        store.close()
        other.close()
