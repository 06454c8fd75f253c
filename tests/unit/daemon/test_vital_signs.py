"""Vital signs: what makes a manager degraded, and what failing."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from trainmaster.config.limits import Limits
from trainmaster.daemon import vital_signs as signs
from trainmaster.daemon.service_api import Health
from trainmaster.model.units import GIB, MIB

LIMITS = Limits()
WELL = signs.VitalSigns(3600.0, 0.0, 0.0, 100 * GIB, 50, 1024)


def test_a_manager_without_anything_to_do_is_well() -> None:
    assert (WELL.trouble(LIMITS), WELL.notes(LIMITS)) == ("", [])
    assert Health("active", signs=WELL).state == "ok"


@pytest.mark.parametrize(
    ("sick", "said"),
    [
        (replace(WELL, step_for_s=7.0), "A step has taken 7 s"),
        (replace(WELL, thread_wait_s=7.0), "Work has waited 7 s"),
        (replace(WELL, open_files=900), "900 of 1,024 files"),
        (replace(WELL, disk_free=200 * MIB), "Only 200 MiB are free"),
    ],
)
def test_what_runs_short_is_a_note(sick: signs.VitalSigns, said: str) -> None:
    (note,) = sick.notes(LIMITS)
    assert note.startswith(said)
    assert not sick.trouble(LIMITS)
    assert Health("active", notes=(note,)).state == "degraded"


@pytest.mark.parametrize(
    ("dead", "said"),
    [
        (replace(WELL, step_for_s=31.0), "at one step for 31 s"),
        (replace(WELL, thread_wait_s=31.0), "threads have been busy for 31 s"),
        (replace(WELL, open_files=1000), "1,000 of 1,024 files open"),
    ],
)
def test_what_does_not_work_is_a_trouble(dead: signs.VitalSigns, said: str) -> None:
    assert said in dead.trouble(LIMITS)
    assert Health("active", dead.trouble(LIMITS)).state == "failing"


def test_threads_that_are_all_busy_are_noticed() -> None:
    async def play() -> None:
        loop, free = asyncio.get_running_loop(), threading.Event()
        loop.set_default_executor(ThreadPoolExecutor(1))
        busy = asyncio.create_task(asyncio.to_thread(free.wait))
        watch = signs.ThreadWatch()
        watching = asyncio.create_task(watch.watch())
        while watch.wait_s < 0.05:
            await asyncio.sleep(0.01)
        free.set()
        await busy
        while watch.wait_s > 0:
            await asyncio.sleep(0.01)
        watching.cancel()

    asyncio.run(play())


def test_a_data_folder_that_is_gone_has_no_room(tmp_path: Path) -> None:
    found = signs.vital_signs(tmp_path, 0.0, None, 0.0)
    assert (found.step_for_s, found.open_files > 0, found.disk_free > 0) == (0.0, True, True)
    assert signs.vital_signs(tmp_path / "gone", 0.0, None, 0.0).disk_free == 0
