"""An opportunistic run beside a guaranteed one that becomes slower, under a real supervisor."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.frozen_runs import (
    FrozenRun,
    Kit,
    cooperative_kit,
    driver_kit,
    frozen_run,
    until,
)
from tests.live.stage import state_of
from trainmaster.engines.local import gpu_neighbours
from trainmaster.engines.local.gpu_neighbours import Notice

pytestmark = pytest.mark.live

GPU = "vm:0"
REPORTS = """
count = 0
def step():
    global count
    count += 1
    time.sleep(0.01)
    session.progress(step=count)
    session.should_stop()
"""


def silent_kit(folder: Path) -> Kit:
    """A program that says nothing of its steps: it is stopped for part of the time."""
    return driver_kit(folder)


def reporting_kit(folder: Path) -> Kit:
    kit = cooperative_kit(folder)
    return replace(kit, prepare=kit.prepare + REPORTS)


@contextmanager
def neighbour(folder: Path, step_us: int) -> Iterator[None]:
    """A guaranteed run whose steps take 100 us alone, and now so long."""
    is_over = threading.Event()

    def be_there() -> None:
        while not is_over.is_set():
            at = time.time()
            notice = Notice("9.1", "guaranteed", at, 100, 30_000, step_us, 100, at)
            gpu_neighbours.write(str(folder), [GPU], notice)
            is_over.wait(0.05)
        gpu_neighbours.remove(str(folder), [GPU], "9.1")

    thread = threading.Thread(target=be_there)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def is_still(run: FrozenRun) -> bool:
    before = run.ticks()
    time.sleep(0.7)
    return run.ticks() == before


@pytest.mark.parametrize(("make", "is_stopped"), [(silent_kit, True), (reporting_kit, False)])
def test_it_stands_still_while_its_neighbour_is_slow_and_goes_on_when_that_has_ended(
    tmp_path: Path, make: Callable[[Path], Kit], is_stopped: bool
) -> None:
    (tmp_path / "run").mkdir()
    folder = tmp_path / "shared"
    shares = {"role": "opportunistic", "gpus_folder": str(folder)}
    with frozen_run(tmp_path / "run", replace(make(tmp_path / "gpus"), more=shares)) as run:
        with neighbour(folder, step_us=200):
            until(lambda: [each for each in run.entries("paced") if each["pace"] == 0])
            until(lambda: is_still(run))
            assert state_of(run.pids[0]) == ("T" if is_stopped else "S")
            (told,) = gpu_neighbours.read(str(folder), [GPU], "9.1", time.time())
            assert (told.run, told.pace) == ("1.1", 0)
            assert run.freeze()["how"] == run.kit.how, "held back or not"
            until(lambda: not gpu_neighbours.read(str(folder), [GPU], "9.1", time.time()))
            run.thaw()
        until(lambda: run.entries("paced")[-1]["pace"] == 100)
        assert run.entries("paced")[-1]["why"] == ""
        run.goes_on()
    why = run.entries("paced")[-2]["why"]
    assert why == "A step of job 9 takes 100 % longer than alone; its tolerance is 3 %."
