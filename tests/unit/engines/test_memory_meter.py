"""What processes have on GPUs by the driver's count, asked through the program that answers it."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from trainmaster.engines.local import memory_meter
from trainmaster.engines.local.memory_meter import MemoryMeter
from trainmaster.gpu import fake_driver
from trainmaster.gpu.driver import FAKE_GPUS


@pytest.fixture
def meter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryMeter]:
    """On a machine of two GPUs that are played; nothing is late on it."""
    fake_driver.make_folder(tmp_path, gpus=2)
    monkeypatch.setenv(FAKE_GPUS, str(tmp_path))
    monkeypatch.setattr(memory_meter, "ANSWER_S", 60.0)
    outsiders: set[int] = set()
    with selectors.DefaultSelector() as selector:
        meter = MemoryMeter(selector, outsiders)
        yield meter
        meter.close()
        for pid in outsiders:
            os.waitpid(pid, 0)


def answer(meter: MemoryMeter) -> Mapping[int, int]:
    while (held := meter.held(time.monotonic())) is None:
        time.sleep(0.02)
    return held


def test_it_says_what_the_driver_lists_now(meter: MemoryMeter) -> None:
    uuids = [gpu.uuid for gpu in fake_driver.FakeDriver(Path(os.environ[FAKE_GPUS])).gpus()]
    own = os.getpid()
    fake_driver.allocate(300, uuids)
    meter.start()
    meter.ask([own, 1])
    assert answer(meter) == {own: 600}
    fake_driver.release()
    meter.start()
    meter.ask([own, 1])
    assert answer(meter) == {}, "a driver that counts otherwise lists nobody either"
    assert meter.due_at is None


def test_a_program_that_died_hangs_or_cannot_start_is_not_waited_for(
    meter: MemoryMeter, monkeypatch: pytest.MonkeyPatch
) -> None:
    meter.ask([1])
    assert meter.held(time.monotonic()) == {}, "none was started"
    fake_driver.add_fault("processes", "hang")
    meter.start()
    meter.ask([1])
    assert meter.held(time.monotonic()) is None
    assert meter.held(time.monotonic() + 61) == {}
    monkeypatch.setattr(memory_meter, "PROGRAM", ("-c", "pass"))
    meter.start()
    meter.ask([1])
    assert answer(meter) == {}
