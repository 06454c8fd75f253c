"""What-ifs of a stored state, as the process of one answers them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.builders import a_job, cluster
from trainmaster.core.controller import Controller
from trainmaster.daemon.clock import Clock
from trainmaster.daemon.driver import Driver
from trainmaster.daemon.inbox import Request
from trainmaster.daemon.live_job import Hold, LiveJob, StoredSubmission
from trainmaster.daemon.policies import policy_of
from trainmaster.daemon.recovery import snapshot_of_driver
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.daemon.whatif_rows import WhatIfResult
from trainmaster.engines.local.engine import LocalEngine
from trainmaster.model import events as e
from trainmaster.model.job import gpus
from trainmaster.model.launch_spec import LaunchSpec
from trainmaster.model.policy_spec import PolicySpec
from trainmaster.model.result import Stint
from trainmaster.model.submission import Array, Dependency
from trainmaster.model.topology import CPU_TYPE, GpuType, NodeSpec, Topology, build
from trainmaster.model.units import MINUTE, WHOLE
from trainmaster.store.open import open_store
from trainmaster.store.rows import ChargeRow
from trainmaster.store.store import Store
from trainmaster.whatif import history
from trainmaster.whatif.counted_devices import CountedDevices
from trainmaster.whatif.live_state import read_state
from trainmaster.whatif.question import PolicyAsked, Question, QuestionError
from trainmaster.whatif.study import answered
from trainmaster.whatif.world import cluster_of, usual_node

RECIPE = LaunchSpec(("true",), "/", "")
FIFO = PolicySpec("fifo")
ONE_NODE = cluster("1x2")
SLOTS = GpuType(CPU_TYPE)
GPUS_AND_SLOTS = build(
    ("cluster", "node", "gpu"),
    [
        NodeSpec("g", 2, (0,)),
        NodeSpec("c1", 64, (0,), type=SLOTS),
        NodeSpec("c2", 64, (0,), type=SLOTS),
    ],
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path}/trainmaster.db")
    assert opened.acquire_leadership()
    yield opened
    opened.close()


def waiting(id: str, size: int = 1, *, array: str | None = None, **stored: object) -> LiveJob:
    job = a_job(id, gpus(size))
    kept = replace(StoredSubmission(RECIPE, job), **stored)  # type: ignore[arg-type]
    holds = {Hold.DEPENDENCY} if kept.depends_on else set()
    return LiveJob(job, id, kept, {}, array=array, holds=holds)


def stored_queue(
    store: Store, folder: Path, lives: list[LiveJob], topology: Topology = ONE_NODE
) -> int:
    """These jobs wait under fifo on one node of two GPUs, or elsewhere; the time of the question."""

    async def scenario() -> int:
        controller = Controller(topology, policy_of(FIFO), make_policy=policy_of)
        engine = LocalEngine(folder, topology)
        driver = Driver(controller, store, engine, Clock(0), FIFO)
        events = [LoggedEvent(e.JobSubmitted(live.job, held=bool(live.holds))) for live in lives]
        driver.dependencies.register(lives)
        asking = asyncio.create_task(driver.ask(Request(events=events, new_jobs=lives)))
        await asyncio.sleep(0)
        await driver.step()
        await asking
        store.keep_snapshot(snapshot_of_driver(driver))
        return driver.clock.now()

    return asyncio.run(scenario())


def asked(store: Store, now_ms: int, **question: object) -> WhatIfResult:
    return answered(store.address, Question(queue_now=True, **question), now_ms)  # type: ignore[arg-type]


def starts(result: WhatIfResult, side: int) -> dict[str, int]:
    """Minutes from now."""
    return {
        job.job: round(((job.sides[side].start_s or 0) - result.from_s) * 1000 / MINUTE)
        for job in result.jobs
    }


def test_the_queue_goes_on_with_dependencies_and_limits_and_on_more_nodes(
    store: Store, tmp_path: Path
) -> None:
    one = Array((0, 1, 2), 1)
    sweep = []
    for at in range(3):
        live = waiting(f"3_{at}", array="3")
        live.stored = replace(live.stored, array=one)
        live.holds = {Hold.ARRAY} if at else set()
        sweep.append(live)
    lives = [
        waiting("1", 2),
        waiting("2", depends_on=(Dependency("1"),)),
        *sweep,
        waiting("4", 2),
    ]
    now = stored_queue(store, tmp_path, lives)
    found = asked(store, now, more_nodes=1)
    # Nothing is known of any job: each is taken to run for a minute.
    assert starts(found, 0) == {"1": 0, "2": 1, "3_0": 1, "3_1": 3, "3_2": 4, "4": 2}
    more = starts(found, 1)
    assert (more["1"], more["3_0"], more["2"], more["3_1"]) == (0, 0, 1, 1)
    assert [side.gpus for side in found.sides] == [2, 4]
    assert found.sides[1].name == "fifo, 1 more node"


def test_what_cannot_be_asked_of_the_queue_is_refused(store: Store, tmp_path: Path) -> None:
    now = stored_queue(store, tmp_path, [waiting("1")])
    with pytest.raises(QuestionError, match="ask for more nodes"):
        asked(store, now, cluster={})
    for name, said in (
        ("fifi", "did you mean"),
        ("srtf", "in simulations only"),
        ("./x.py", "There is no"),
    ):
        with pytest.raises(QuestionError, match=said):
            asked(store, now, policies=(PolicyAsked(name),))
    with pytest.raises(QuestionError, match="not for a what-if"):
        asked(store, now, policies=(PolicyAsked("gittins", (("service_samples", "/etc/passwd"),)),))
    with pytest.raises(QuestionError, match="has ended: there is nothing to compare yet"):
        answered(store.address, Question(), now)


def test_a_maximum_of_a_queue_holds_from_now_on(store: Store, tmp_path: Path) -> None:
    now = stored_queue(store, tmp_path, [waiting("0", 2), waiting("1"), waiting("2")])
    found = asked(store, now, set_queues={"default": {"maximum_gpus": 1}})
    assert (starts(found, 0), starts(found, 1)) == (
        {"0": 0, "1": 1, "2": 1},
        {"0": 0, "1": 1, "2": 2},
    )
    assert found.sides[1].name == "fifo, default: maximum 1"


def on_slots(id: str, size: int) -> LiveJob:
    job = a_job(id, replace(gpus(size), gpu_type=CPU_TYPE))
    return LiveJob(job, id, StoredSubmission(RECIPE, job), {}, array=None, holds=set())


def test_beside_gpus_cpu_slots_and_their_jobs_are_not_counted(store: Store, tmp_path: Path) -> None:
    lives = [waiting("1", 2), waiting("2", 2), on_slots("3", 60)]
    now = stored_queue(store, tmp_path, lives, GPUS_AND_SLOTS)
    found = asked(store, now, more_nodes=1)
    assert [side.gpus for side in found.sides] == [2, 4]
    assert [side.utilisation for side in found.sides] == [1.0, 0.5]
    assert starts(found, 1) == {"1": 0, "2": 0, "3": 0}, "the node that is added has GPUs"


def test_where_there_are_cpu_slots_alone_they_are_counted(store: Store, tmp_path: Path) -> None:
    slots = build(("cluster", "node", "gpu"), [NodeSpec("c", 2, (0,), type=SLOTS)])
    now = stored_queue(store, tmp_path, [on_slots("1", 2), on_slots("2", 2)], slots)
    found = asked(store, now, more_nodes=1)
    assert [side.gpus for side in found.sides] == [2, 4]
    assert found.sides[0].utilisation == 1.0


def test_the_past_counts_what_was_held_of_gpus_alone() -> None:
    row = ChargeRow("1", "ada", "default", "gpu", 0, MINUTE, MINUTE * WHOLE, 0, None, "")
    charges = [row, replace(row, job="2", gpu_type=CPU_TYPE)]
    store: Any = SimpleNamespace(charges=lambda _since, _until: charges)
    state: Any = SimpleNamespace(jobs={})
    past = history.Past(0, MINUTE, (), ())
    devices = CountedDevices.of(GPUS_AND_SLOTS)
    assert len(list(history._real_stays(store, past, state, devices))) == 1
    jobs = [SimpleNamespace(job_id=id, gpus_milli=WHOLE) for id in "12"]
    stints = [Stint("1", (0, 1), 0, MINUTE), Stint("2", (2, 3), 0, MINUTE)]
    result: Any = SimpleNamespace(jobs=jobs, stints=stints)
    stays = list(history._stays(result, GPUS_AND_SLOTS, 0))
    assert [stay.milli for stay in stays] == [2 * WHOLE]


def test_a_cluster_without_nodes_is_said_to_be_the_reason(store: Store, tmp_path: Path) -> None:
    now = stored_queue(store, tmp_path, [waiting("1", 2)])
    present = replace(read_state(store, now).present, forgotten=frozenset({0}))
    for ask in (
        lambda: usual_node(present),
        lambda: cluster_of(present, Question(), ()),
    ):
        with pytest.raises(QuestionError, match="has no nodes"):
            ask()
