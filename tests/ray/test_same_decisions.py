"""The same jobs on the local engine, on Ray and in the simulator: the same decisions in the same order.

Both managers have two nodes of two slots. A job is submitted once its manager has decided all that the
simulator had decided by then, and `GAP_S` later: an engine needs less than that to start or suspend a job.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.reality_live import steps_of
from tests.builders import a_job
from tests.live.daemons import LiveDaemon, sweep, until
from tests.ray.cluster import RayCluster
from tests.ray.conftest import OWN_CLUSTER
from trainmaster.daemon.policies import policy_of
from trainmaster.gpu.devices import detect_machine
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.job import Run, gpus
from trainmaster.model.policy_spec import PolicySpec
from trainmaster.model.trace import Trace, TracedJob
from trainmaster.perf.perf_model import IDEAL
from trainmaster.perf.preemption_cost import PreemptionCost
from trainmaster.sim.driver import Estimates, Scenario, Simulation

pytestmark = OWN_CLUSTER
PROGRAM = Path(__file__).with_name("chaos_job.py")
SLOTS = "2x2"
STEP_MS = 100
GAP_S = 1.5
PATIENCE_S = 120.0
FREEZES = replace(IDEAL, preemption_cost=PreemptionCost(can_freeze=True))
"""As both engines do: no switch costs anything, as none takes long in reality."""
SIGNS = {a.Freeze: "<", a.Halt: "<", a.Thaw: "^", a.Reshape: "*"}


@dataclass(frozen=True)
class Planned:
    """A job that is submitted `at_s` after the first, and runs for `seconds` on its least number of slots."""

    name: str
    at_s: float
    slots: tuple[int, int]
    seconds: float

    @property
    def asks(self) -> str:
        least, most = self.slots
        return str(least) if least == most else f"{least}-{most}"


@dataclass(frozen=True)
class Workload:
    policy: PolicySpec
    jobs: tuple[Planned, ...]
    want: str
    """What is decided: > starts, < suspended, ^ resumed, * resized; and when it is known: . has ended."""


WORKLOADS = {
    "fifo": Workload(
        PolicySpec("fifo"),
        (
            Planned("a", 0, (2, 2), 4),
            Planned("b", 1, (2, 2), 7),
            Planned("c", 2, (4, 4), 1.5),
            Planned("d", 3, (1, 1), 1),
        ),
        ">a >b .a .b >c .c >d .d",
    ),
    "tiresias-l": Workload(
        PolicySpec("tiresias-l", (("thresholds_gpu_s", "4"),)),
        (
            Planned("a", 0, (4, 4), 24),  # a resumed run stays ten times as long as its switch took
            Planned("b", 3, (2, 2), 7),
            Planned("c", 7, (1, 1), 2.5),
        ),
        ">a <a >b <b ^a <a >c ^b .c <b ^a .a ^b .b",
    ),
    "max-min": Workload(
        PolicySpec("max-min"),
        (Planned("a", 0, (1, 4), 36), Planned("b", 3, (2, 2), 4)),
        ">a *a >b .b *a .a",
    ),
}

Step = tuple[int, tuple[Any, ...], Sequence[Any]]
"""Its time, its facts and its orders."""


def decisions(steps: Iterable[Step], names: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """When what was decided, of the jobs that are named.

    A frozen run that is to go on elsewhere is halted before that: it has been suspended already.
    """
    frozen: set[Run] = set()
    for now, events, orders in steps:
        for event in events:
            if isinstance(event, e.RunSucceeded) and event.run.job in names:
                yield now, f".{names[event.run.job]}"
            if isinstance(event, e.RunSuspended) and event.frozen:
                frozen.add(event.run)
        for order in orders:
            is_news = order.run not in frozen or not isinstance(order, a.Halt)
            if order.run.job in names and is_news:
                yield now, sign(order) + names[order.run.job]
            frozen.discard(order.run)


def sign(order: a.Order) -> str:
    if isinstance(order, a.Launch):
        return ">" if order.run.attempt == 1 else "^"
    return SIGNS.get(type(order), type(order).__name__)


def simulated(work: Workload) -> list[tuple[int, str]]:
    jobs = tuple(
        TracedJob(
            a_job(each.name, gpus(each.slots[0], maximum=each.slots[1]), at_s=each.at_s),
            round(1000 * each.seconds),
        )
        for each in work.jobs
    )
    topology = detect_machine(SLOTS).topology
    scenario = Scenario(Trace(jobs), topology, SLOTS, FREEZES, Estimates(known=False))
    simulation = Simulation(scenario, policy_of(work.policy))
    steps: list[Step] = []
    decide = simulation.controller.step

    def recorded(now: int, events: Any) -> Any:
        decision = decide(now, events)
        steps.append((now, tuple(events), decision.orders))
        return decision

    simulation.controller.step = recorded  # type: ignore[method-assign]
    simulation.run()
    return list(decisions(steps, {each.name: each.name for each in work.jobs}))


def lived(daemon: LiveDaemon, work: Workload, like: Sequence[tuple[int, str]]) -> str:
    """What the manager decides of these jobs."""
    policy = {"name": work.policy.name, "options": dict(work.policy.options)}
    daemon.call("PUT", "/api/v1/policy", policy)
    names: dict[str, str] = {}

    def decided() -> list[str]:
        with daemon.open("/api/v1/record/events") as answer:
            lines = answer.read().decode().splitlines()
        return [what for _, what in decisions(steps_of(lines), names)]

    for each in work.jobs:
        before = [what for at_ms, what in like if at_ms < 1000 * each.at_s]
        until(
            lambda before=before: len(decided()) >= len(before),
            f"{before} to be decided on {daemon.arguments[:2]}",
            PATIENCE_S,
        )
        time.sleep(GAP_S)
        steps = str(round(each.seconds * 1000) // STEP_MS)
        words = (steps, str(STEP_MS * each.slots[0]), "10", str(daemon.folder / "wrote"))
        id = daemon.submit(
            name=f"{work.policy.name}-{each.name}",
            command=[sys.executable, "-S", str(PROGRAM), *words],
            workdir=str(daemon.folder),
            gpus=each.asks,
            ranks="gpu",
        )
        names[id] = each.name
    for id in names:
        until(lambda id=id: daemon.job(id)["state"] == "succeeded", f"job {id} to end", PATIENCE_S)
    return " ".join(decided())


@pytest.fixture(scope="module")
def managers(
    small_cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LiveDaemon, LiveDaemon]]:
    """Of this machine, and of a Ray cluster."""
    folder = tmp_path_factory.mktemp("same")
    local = LiveDaemon(folder / "local", "--slots", SLOTS)
    local.start()
    try:
        words = ("--engine", "ray", "--address", small_cluster.address)
        on_ray = LiveDaemon(folder / "ray", *words)
        try:
            on_ray.start()
            local.until_active()
            on_ray.until_active()
            yield local, on_ray
        finally:
            on_ray.kill()
    finally:
        local.kill()
        sweep(folder)


@pytest.mark.parametrize("policy", WORKLOADS)
def test_the_order_of_decisions_is_the_same(
    managers: tuple[LiveDaemon, LiveDaemon], policy: str
) -> None:
    work = WORKLOADS[policy]
    like = simulated(work)
    assert " ".join(what for _, what in like) == work.want
    with ThreadPoolExecutor() as pool:
        local, on_ray = pool.map(lambda daemon: lived(daemon, work, like), managers)
    assert local == work.want
    assert on_ray == work.want
