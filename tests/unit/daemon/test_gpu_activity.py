"""Supervisors are told how busy the GPUs of their runs are, as far as that is known."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.unit.daemon.test_memory_watch import GPU, a_driver, two_halves
from trainmaster.daemon.clock import Clock
from trainmaster.daemon.gpu_activity import TELL_MS
from trainmaster.gpu.driver import GpuProcess, Reading
from trainmaster.gpu.watch import Look
from trainmaster.model.job import Run
from trainmaster.model.units import GIB
from trainmaster.store.store import Store

HALF, ALL = 500_000, 1_000_000


def look(whole: int | None, **busy: int | None) -> Look:
    """Job `j7` computes for so many millionths of the time, all together for `whole`."""
    processes = tuple(GpuProcess(int(job[1:]), GPU, GIB, ppm) for job, ppm in busy.items())
    return Look(readings=(Reading(GPU, 16 * GIB, 2 * GIB, whole),), processes=processes)


CASES = {
    "each by its own processes, the highest of several looks": (
        (look(HALF, j1=HALF, j2=0), look(0, j1=0, j2=0)),
        {"1": HALF, "2": 0},
    ),
    "by all programs where nothing is known of its own": (
        (look(ALL, j1=0, j2=None),),
        {"1": 0, "2": ALL},
    ),
    "nothing where the driver does not say": ((look(None, j1=None, j2=0),), {"2": 0}),
    "nothing where the driver does not answer": ((Look(trouble="gone"),), {}),
}


@pytest.mark.parametrize(("looks", "want"), CASES.values(), ids=CASES)
def test_supervisors_are_told(
    looks: tuple[Look, ...], want: dict[str, int], store: Store, tmp_path: Path
) -> None:
    heard: dict[str, int] = {}

    def hear(run: Run, util_ppm: int) -> None:
        heard[run.job] = util_ppm

    async def scenario() -> None:
        driver = a_driver(store, tmp_path)
        await two_halves(driver)
        driver.engine.tell_gpu_use = hear  # type: ignore[method-assign]
        for each in looks:
            if each is looks[-1]:
                assert not heard
                driver.clock = Clock(driver.clock.now() + TELL_MS)
            await driver.readings.take(each)

    asyncio.run(scenario())
    assert heard == want
