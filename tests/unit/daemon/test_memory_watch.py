"""A run that is over its GPU memory is stopped, told why, and comes back with a larger booking."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.builders import a_job
from trainmaster.core.controller import Controller
from trainmaster.core.lifecycle import Phase
from trainmaster.daemon.clock import Clock
from trainmaster.daemon.driver import Driver
from trainmaster.daemon.inbox import Request
from trainmaster.daemon.live_job import Hold, LiveJob, StoredSubmission
from trainmaster.daemon.policies import policy_of
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.engines.local.engine import LocalEngine
from trainmaster.gpu.devices import machine_of
from trainmaster.gpu.driver import Gpu, GpuProcess, Reading
from trainmaster.gpu.watch import Look
from trainmaster.model import events as e
from trainmaster.model.actions import Halt
from trainmaster.model.engine_reports import Ended, Started, StopOrder
from trainmaster.model.job import Demand, Run, Shape
from trainmaster.model.job_state import JobState
from trainmaster.model.launch_spec import LaunchSpec
from trainmaster.model.placement import Sharing
from trainmaster.model.policy_spec import PolicySpec
from trainmaster.model.stop_reasons import Suspender
from trainmaster.model.units import GIB
from trainmaster.store.store import Store
from trainmaster.text.messages import story_sentence
from trainmaster.text.stop_messages import suspension_sentence

GPU = "GPU-a"
FIFO = PolicySpec("fifo")


class PlayedEngine(LocalEngine):
    """Launches nothing; the process of job 7 has number 7."""

    def run_of(self, pid: int) -> Run | None:
        return Run(str(pid), 1)

    async def execute(self, *_: object) -> None:
        """Nothing happens."""


def a_driver(store: Store, folder: Path) -> Driver:
    gpu = Gpu(0, "NVIDIA L4", GPU, 16 * GIB, frozenset({0}))
    machine = machine_of((gpu,), "vm", 8000, 64 * GIB)
    controller = Controller(
        machine.topology, policy_of(FIFO), make_policy=policy_of, can_freeze=True
    )
    engine = PlayedEngine(folder, machine.topology, machine.devices)
    return Driver(controller, store, engine, Clock(0), FIFO)


def a_half(id: str) -> LiveJob:
    demand = Demand(Shape(1, 500, 7 * GIB), 1, 1, host_memory=GIB, sharing=Sharing.TIME)
    job = a_job(id, demand, retries=0)
    return LiveJob(job, id, StoredSubmission(LaunchSpec(("true",), "/", ""), job), {})


def look(**used: float) -> Look:
    """Job `j7` uses so many GiB."""
    processes = tuple(GpuProcess(int(job[1:]), GPU, round(gib * GIB)) for job, gib in used.items())
    total = sum(each.memory for each in processes)
    return Look(readings=(Reading(GPU, 16 * GIB, total),), processes=processes)


async def two_halves(driver: Driver, by_mps: str = "") -> tuple[LiveJob, LiveJob]:
    """Both run; those named are clients of MPS."""
    lives = a_half("1"), a_half("2")
    events = [LoggedEvent(e.JobSubmitted(live.job)) for live in lives]
    asked = asyncio.create_task(driver.ask(Request(events=events, new_jobs=lives)))
    await asyncio.sleep(0)
    await driver.step()
    await asked
    for live in lives:
        driver.inbox.report(Started(Run(live.id, 1), 0, (1,), by_mps=live.id in by_mps), 1)
    await driver.step()
    assert [live.record and live.record.phase for live in lives] == [Phase.RUNNING] * 2
    return lives


def test_it_is_stopped_before_its_neighbour_fails_and_comes_back_with_more(
    store: Store, tmp_path: Path
) -> None:
    async def scenario() -> None:
        driver = a_driver(store, tmp_path)
        first, second = await two_halves(driver)
        await driver.readings.take(look(j1=6.9, j2=7.1))
        await driver.step()
        assert not second.holds  # within tolerance

        await driver.readings.take(look(j1=2, j2=12))
        await driver.step()
        assert first.record is not None
        assert second.record is not None
        assert first.record.phase is Phase.RUNNING
        assert second.record.phase is Phase.SUSPENDING
        order = driver.dispatcher.standing["2"]
        assert isinstance(order, Halt)  # frozen, it would come back as it was
        suspension = second.history.suspension
        assert suspension is not None
        assert suspension.by == Suspender.MEMORY
        assert suspension_sentence(suspension) == (
            "Stopped because it used 12.0 GiB of the 7.0 GiB it had booked on a GPU that it shares"
            " with job 1."
        )
        await driver.readings.take(look(j1=2, j2=12))  # it is still leaving
        await driver.step()
        assert second.holds == {Hold.MEMORY}

        left = Ended(Run("2", 1), 1, 0, StopOrder.HALT, has_left=True)
        driver.inbox.report(left, 2)
        await driver.step()
        await driver.step()  # what follows from its end; GPUs may not be read any more
        assert not second.holds
        assert second.job.demand.nominal.memory == round(13.2 * GIB // (1 << 20) + 1) * (1 << 20)
        assert second.record.phase is Phase.SUSPENDED  # 13.2 and 7 GiB are more than there are
        assert first.record.phase is Phase.RUNNING

    asyncio.run(scenario())


def test_nobody_is_stopped_who_harms_nobody(store: Store, tmp_path: Path) -> None:
    async def scenario() -> None:
        driver = a_driver(store, tmp_path)
        lives = await two_halves(driver)
        before, greedy = driver.writer.seq, look(j1=2, j2=12)
        for each in (look(j1=7, j2=9), Look(trouble="gone"), replace(greedy, readings=())):
            await driver.readings.take(each)
        assert not any(live.holds for live in lives)
        assert not driver.inbox.is_urgent
        assert driver.writer.seq == before

    asyncio.run(scenario())


def test_a_client_of_mps_is_not_stopped_for_its_context(store: Store, tmp_path: Path) -> None:
    """MPS limits what it allocates; its CUDA context may be on top of that."""

    async def scenario() -> None:
        driver = a_driver(store, tmp_path)
        first, second = await two_halves(driver, by_mps="2")
        await driver.readings.take(look(j1=2, j2=12))
        assert (first.holds, second.holds) == (set(), set())
        await driver.readings.take(look(j1=12, j2=2))
        assert (first.holds, second.holds) == ({Hold.MEMORY}, set()), "it is owed its own"

    asyncio.run(scenario())


OUT = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of"
    " 15.77 GiB of which 1.94 GiB is free. Including non-PyTorch memory, this process has {} GiB memory in"
    " use. Of the allocated memory 1.5 GiB is allocated by PyTorch."
)


async def out_of_memory(driver: Driver, had: float, neighbour: float) -> LiveJob:
    """Job 1 had so many GiB of its 7 when it could not have 2 more, and job 2 uses so many."""
    first, second = await two_halves(driver)
    await driver.readings.take(look(j1=had, j2=neighbour))
    await driver.step()
    driver.inbox.report(Ended(Run("1", 1), 1, 1, tail=OUT.format(had)), 2)
    await driver.step()
    await driver.readings.take(look(j2=neighbour))  # what failed on a GPU waits for that
    await driver.step()
    assert second.record is not None
    return first


def test_what_is_out_of_memory_because_of_its_neighbour_has_not_failed(
    store: Store, tmp_path: Path
) -> None:
    async def scenario() -> None:
        first = await out_of_memory(a_driver(store, tmp_path), had=3, neighbour=12)
        assert first.record is not None
        assert first.record.job.retries == 0
        assert (first.state, first.record.failures) == (JobState.PENDING, 0)
        assert first.record.demand.nominal.memory == 7 * GIB, "it needs no more than it said"
        (failed,) = (row for row in store.story("1") if row.what == "failed")
        told = story_sentence(failed.what, json.loads(failed.detail_json))
        assert (
            "GPU memory taken by a neighbour, blame: platform, retried without using up one" in told
        )
        assert "Job 2 used 12.0 GiB of the 7.0 GiB it had booked on the same GPU" in told

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("had", "neighbour"), [(6, 12), (3, 7)], ids=["it is over too", "its neighbour is not over"]
)
def test_what_is_out_of_memory_by_itself_has_failed(
    store: Store, tmp_path: Path, had: float, neighbour: float
) -> None:
    async def scenario() -> None:
        first = await out_of_memory(a_driver(store, tmp_path), had, neighbour)
        assert first.record is not None
        assert first.record.phase is Phase.FAILED

    asyncio.run(scenario())


def test_what_is_not_bookable_is_not_free(store: Store, tmp_path: Path) -> None:
    """A GPU of 48 GiB of which 16 may be booked."""

    async def scenario() -> None:
        driver = a_driver(store, tmp_path)
        first, second = await two_halves(driver)
        large = Reading(GPU, 48 * GIB, 14 * GIB)
        await driver.readings.take(replace(look(j1=2, j2=12), readings=(large,)))
        assert (first.holds, second.holds) == (set(), {Hold.MEMORY})

    asyncio.run(scenario())
