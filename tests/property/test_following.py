"""Stored steps that are followed lead to the jobs of the controller that made them, whoever decided."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import a_job, on
from tests.policies.cases import Scripted
from tests.property.drive import Step
from tests.property.test_any_plan import two_nodes
from tests.property.test_snapshot import LIVE, begun, made, recorded
from tests.property.worlds import scenarios
from trainmaster.core.controller import Controller
from trainmaster.core.invariants import check
from trainmaster.core.job_record import JobRecord
from trainmaster.core.lifecycle import Phase
from trainmaster.core.state import State
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.job import Demand, Shape
from trainmaster.model.topology import SLOT_TYPE, Topology
from trainmaster.model.units import GIB, HOUR, MIB, NOMINAL
from trainmaster.sim.driver import Scenario

COMPARED = (
    *("kept", "freeze_refusals", "cannot_freeze", "no_freeze_before_ms"),
    *("phase", "run", "placement", "frozen", "is_held", "retry_at_ms", "failures", "losses"),
    *("first_start_ms", "run_since_ms", "since_ms", "speed_ppm", "rate", "work", "saved_work"),
    *("attained", "launched_ms", "suspend_ordered_ms", "waiting_since_ms", "switch_ms"),
)
WAITS = {"phase": "waits", "placement": None}


def image(state: State, record: JobRecord) -> dict[str, Any]:
    """What a record says; of a start that is not sent, only that the job waits, or will."""
    found = {name: getattr(record, name) for name in COMPARED}
    if record.phase is Phase.STOPPING:
        del found["placement"]  # what it leaves is compared
    elif record.id in state.pending_launches or record.phase in (Phase.PENDING, Phase.SUSPENDED):
        found |= WAITS
    elif record.is_moving and record.placement is not None:
        left = state.leaving.get(record.run)
        is_there = record.phase is not Phase.SUSPENDING and left in (None, record.placement.slices)
        found["placement"] = record.placement if is_there else None
    return found


def compare(live: State, followed: State) -> None:
    for job, record in live.jobs.items():
        assert image(followed, followed.jobs[job]) == image(live, record), job
    assert followed.leaving == live.leaving
    assert followed.releasing == live.releasing
    assert not followed.pending_launches
    for name in ("queues", "draining", "away", "submitted"):
        assert getattr(followed, name) == getattr(live, name)


def follow(controller: Controller, step: Step) -> None:
    found = controller.follow(step.now, step.events, step.decision.orders)
    assert found == ([], [], [])


@pytest.mark.parametrize("contender", LIVE)
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(scenario=scenarios(), seed=st.integers(0, 1 << 16))
def test_what_any_policy_decided_is_followed(contender: str, scenario: Scenario, seed: int) -> None:
    live, followed = begun(scenario, contender), begun(scenario, contender)
    chance, is_following = Random(seed), False
    for step in recorded(scenario, contender, seed, may_ask=False):
        live.step(step.now, step.events)
        if not is_following and chance.random() < 0.9:
            followed.step(step.now, step.events)
            continue
        if not is_following:
            is_following = True
            followed.begin_following()
        follow(followed, step)
        compare(live.state, followed.state)
    followed.decide_by(made(contender))
    check(followed.state)
    assert followed.step(live.now, ()).planned


# -- plans of any kind, on slots and on GPUs -----------------------------------------------------------


def answer(order: a.Order, chance: Random) -> e.Event | None:
    """As an engine might; a run that was to be frozen may have been ended instead, or go on."""
    match order:
        case a.Launch():
            return e.RunStarted(order.run, NOMINAL)
        case a.Thaw():
            return e.RunResumed(order.run, NOMINAL)
        case a.Freeze() if chance.random() < 0.2:
            return e.RunNotFrozen(order.run, is_final=chance.random() < 0.2)
        case a.Freeze() | a.Halt():
            is_frozen = isinstance(order, a.Freeze) and chance.random() < 0.9
            host, gpu = chance.choice([(None, None), (GIB, 4 * MIB), (0, 500 * MIB), (40 * GIB, 0)])
            return e.RunSuspended(order.run, 0, frozen=is_frozen, host_bytes=host, gpu_bytes=gpu)
        case a.Kill():
            return e.RunStopped(order.run)
        case a.Reshape():
            return e.RunResized(order.run, 0, NOMINAL)
    return None


def owners(chance: Random, state: State) -> list[e.Event]:
    """What owners do, and what happens to runs by itself."""
    if chance.random() < 0.6:
        return []
    job = chance.choice(JOBS)
    kinds: list[e.Event] = [e.JobHeld(job), e.JobReleased(job), e.JobReleased(job)]
    kinds += [e.ActionRequested(a.Suspend(job)), e.JobWithdrawn(job)]
    record = state.jobs.get(job)
    is_off = record is None or job in state.pending_launches or record.frozen is not None
    if record is not None and not is_off:
        run = record.run
        kinds += [e.RunLost(run), e.RunFailed(run, retry_in_ms=400), e.RunSaved(run, 1)]
    return [chance.choice(kinds)]


def a_plan(chance: Random, topology: Topology) -> list[a.Action]:
    """Actions of every kind, on random devices: those that make no sense now are refused."""
    return [an_action(chance, topology) for _ in range(chance.randint(0, 5))]


def an_action(chance: Random, topology: Topology) -> a.Action:
    job = chance.choice(JOBS)
    kinds = (a.Start, a.Start, a.Resume, a.Resume, a.Migrate, a.Migrate, a.Resize, a.Resize)
    kind = chance.choice((*kinds, a.Suspend, a.Suspend, a.Suspend, a.Stop, a.Reserve))
    count = SIZES[job].nominal.count if kind is not a.Resize else chance.randint(1, 3)
    gpus = sorted(chance.sample(range(topology.gpu_count), count))
    if kind in (a.Suspend, a.Stop):
        return kind(job) if kind is a.Suspend or chance.random() < 0.2 else a.Suspend(job)
    placement = on(topology, *gpus)
    return a.Reserve(job, placement.slices) if kind is a.Reserve else kind(job, placement)


JOBS = "abcdef"
SIZES = dict(
    zip(
        JOBS,
        [
            Demand(Shape(n), low, n)
            for n, low in zip((1, 1, 2, 2, 3, 3), (1, 1, 1, 2, 1, 3), strict=True)
        ],
        strict=True,
    )
)


@pytest.mark.parametrize("kind", [SLOT_TYPE, "V100"])
@pytest.mark.parametrize("can_freeze", [True, False])
def test_what_was_ordered_for_any_plan_is_followed(kind: str, can_freeze: bool) -> None:
    seen: set[type] = set()
    for seed in range(150):
        saves = seed % 3 > 0
        seen |= compare_all(two_nodes(kind), Random(seed), can_freeze=can_freeze, saves=saves)
    wanted = {a.Launch, a.Halt, a.Kill, a.Reshape, a.Rebind}
    assert seen == wanted | ({a.Freeze, a.Thaw} if can_freeze else set())


def compare_all(topology: Topology, chance: Random, *, can_freeze: bool, saves: bool) -> set[type]:
    """The kinds of orders that were given."""
    script, seen = Scripted(), set[type]()
    script.wake_at = HOUR
    live, followed = (
        Controller(
            topology,
            policy,
            can_freeze=can_freeze,
            can_move_frozen=can_freeze and not saves,
            cannot_save_at_first=not saves,
        )
        for policy in (script, Scripted())
    )
    followed.begin_following()
    facts: list[e.Event] = [
        e.JobSubmitted(a_job(name, demand, retries=9)) for name, demand in SIZES.items()
    ]
    now, open_orders = 0, list[a.Order]()
    for _ in range(25):
        script.next = a_plan(chance, topology)
        live.state.log.needs_pass = True
        facts = [*owners(chance, live.state), *facts]
        decision = live.step(now, facts)
        seen |= {type(order) for order in decision.orders}
        follow(followed, Step(now, facts, decision))
        for job in set(followed.state.jobs) - set(live.state.jobs):
            assert followed.state.jobs[job].placement is None, "it was stopped while it waited"
            followed.follow(now, [e.JobWithdrawn(job)], ())
        compare(live.state, followed.state)
        now += chance.choice((0, 1, 500, 30_000))
        open_orders += decision.orders
        done = [order for order in open_orders if chance.random() < 0.7]
        open_orders = [order for order in open_orders if order not in done]
        facts = [fact for order in done if (fact := answer(order, chance)) is not None]
    followed.decide_by(Scripted())
    check(followed.state)
    return seen
