"""Self-tests by the manager: what fails or hangs is set aside, what is slow is told by its own past."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.unit.core.stage import Strings
from tests.unit.core.test_gpu_uuids import gpus
from tests.unit.core.test_other_slots import slots
from tests.unit.daemon.test_gpu_readings import EngineOf
from trainmaster.config.limits import Limits
from trainmaster.daemon.gpu_readings import MUCH, GpuReadings
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.daemon.self_tests import FILE, SelfTests
from trainmaster.engines.local import probes
from trainmaster.engines.protocol import Probed
from trainmaster.failures.self_test_rule import SelfTest, Verdict
from trainmaster.gpu.driver import GpuProcess
from trainmaster.gpu.watch import Look
from trainmaster.model import events as e
from trainmaster.model.device_aside import AsideCause
from trainmaster.model.topology import Topology
from trainmaster.model.units import SECOND


class Stage:
    """A cluster, and a program that says of each device what it is to say."""

    def __init__(self, folder: Path, topology: Topology, said: dict[str, str]) -> None:
        self.world = Strings(topology, can_freeze=False)
        self.facts: list[e.Event] = []
        driver = SimpleNamespace(
            controller=self.world.controller,
            site_limits=Limits(self_test=60 * SECOND),
            inbox=SimpleNamespace(follow_up=self.follow_up),
            dispatcher=SimpleNamespace(given={}),
            readings=GpuReadings(EngineOf(topology)),  # type: ignore[arg-type]
            engine=SimpleNamespace(
                probe=self.probe, abilities=SimpleNamespace(spans_machines=False)
            ),
        )
        self.tests = SelfTests(driver, folder)  # type: ignore[arg-type]
        self.says(said)

    def follow_up(self, events: list[LoggedEvent]) -> None:
        self.facts += [each.event for each in events]

    def says(self, said: dict[str, str]) -> None:
        code = f"import sys, time; exec({said!r}[sys.argv[2].partition('x')[0]])"
        self.command: tuple[str, ...] = (sys.executable, "-S", "-c", code)

    async def probe(self, node: str, words: Sequence[str], limit_s: float) -> Probed:
        return await probes.ended((*self.command, *words[1:]), limit_s)

    def run(self, *devices: int) -> list[Verdict]:
        return [each.verdict for each in asyncio.run(self.tests.test(devices))]


def good(speed: float) -> str:
    said = {"is_tested": True, "is_right": True, "copy_mib_s": speed}
    return f"print({json.dumps(json.dumps(said))})"


WRONG = """print('{"is_tested": true, "is_right": false, "why": "a copy came out wrong"}')"""
TEST = AsideCause.SELF_TEST
UNTESTED = """print('{"is_tested": false, "why": "there is no driver"}')"""


def test_what_fails_is_set_aside_and_what_has_a_job_is_left_out(tmp_path: Path) -> None:
    said = {"0": good(1.0), "1": WRONG, "2": "sys.exit(9)", "3": WRONG}
    stage = Stage(tmp_path, slots(4), said)
    stage.world.running("x", 3)
    bad, left_out = Verdict.BAD, Verdict.UNTESTED
    assert stage.run(0, 1, 2, 3) == [Verdict.GOOD, bad, bad, left_out]
    assert stage.facts == [
        e.GpuSetAside(0, 1, "Its self-test failed: a copy came out wrong.", TEST),
        e.GpuSetAside(0, 2, "Its self-test failed: it ended with 9.", TEST),
    ]
    stage.world.tell(*stage.facts)
    assert not stage.tests.notes(), "they are said to be set aside"


def test_a_test_that_hangs_is_ended_and_its_device_set_aside(tmp_path: Path) -> None:
    stage = Stage(tmp_path, slots(2), {"0": "time.sleep(600)"})
    stage.tests._driver.site_limits = Limits(self_test=SECOND)
    assert stage.run(0) == [Verdict.BAD]
    assert stage.facts == [
        e.GpuSetAside(0, 0, "Its self-test failed: it did not end within 1 s.", TEST)
    ]


def test_a_test_does_not_count_that_a_job_or_another_program_came_into(tmp_path: Path) -> None:
    stage = Stage(tmp_path, gpus(("n0", "H100", "abc")), dict.fromkeys("abc", WRONG))
    driver, test = stage.tests._driver, stage.tests._run
    other = GpuProcess(os.getppid(), "c", MUCH)

    async def run(topology: Topology, gpu: int) -> SelfTest:
        """A job comes onto `a` and leaves again, one stays on `b`, and a program begins on `c`."""
        found = await test(topology, gpu)
        if gpu == 0:
            driver.dispatcher.given[gpu] = 7
        elif gpu == 1:
            stage.world.running("x", gpu)
        else:
            await driver.readings.take(Look(processes=(other,)))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage.tests, "_run", run)
        assert stage.run(0, 1, 2) == [Verdict.UNTESTED] * 3
        (said,) = asyncio.run(stage.tests.test([2]))
    assert said.sentence == "A program that is not a job is on it: it was not tested."
    assert not stage.facts
    assert not stage.tests.last
    assert not (tmp_path / FILE).exists()
    small = replace(other, memory=MUCH - 1)
    asyncio.run(driver.readings.take(Look(processes=(small,))))
    assert stage.run(2) == [Verdict.BAD], "a desktop, or MPS, does not disturb"


def test_where_no_device_would_be_left_the_test_is_suspected(tmp_path: Path) -> None:
    stage = Stage(tmp_path, slots(2), {"0": WRONG, "1": WRONG})
    assert stage.run(0, 1) == [Verdict.BAD, Verdict.BAD]
    assert not stage.facts
    assert stage.tests.notes()[0] == "n0:0: Its self-test failed: a copy came out wrong."
    stage.says({"0": UNTESTED, "1": "print('nonsense')"})
    assert stage.run(0, 1) == [Verdict.UNTESTED, Verdict.UNTESTED]
    assert not stage.facts


def test_after_trouble_a_device_is_tested_when_its_run_has_left_and_the_note_says_how(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path, slots(4), {"0": good(2_048.0), "1": WRONG})
    stage.world.running("x", 0)
    causes = {0: AsideCause.FAILURES, 1: AsideCause.XID, 2: AsideCause.USER, 3: AsideCause.RESTART}
    stage.world.tell(*(e.GpuSetAside(0, gpu, "Bad.", cause) for gpu, cause in causes.items()))
    asyncio.run(stage.tests.test_suspects())
    failed = e.GpuSetAside(0, 1, "Its self-test failed: a copy came out wrong.", TEST)
    assert stage.facts == [failed], "a run is on 0, and of 2 and 3 it would say nothing"
    stage.world.tell(e.RunSucceeded(stage.world.job("x").run))
    asyncio.run(stage.tests.test_suspects())
    why = "Bad. Its self-test passed: copies at 2.0 GiB/s."
    passed = e.GpuSetAside(0, 0, why, AsideCause.FAILURES, is_tested=True)
    assert stage.facts == [failed, passed], "it is still set aside"
    stage.world.tell(*stage.facts)
    assert stage.world.state.gpus_aside[0].why == why
    assert stage.world.state.gpus_aside[1].why == f"Bad. {failed.why}"
    stage.tests = SelfTests(stage.tests._driver, tmp_path)
    asyncio.run(stage.tests.test_suspects())
    assert len(stage.facts) == 2, "once, also after a restart of the manager"


def test_a_gpu_is_compared_with_its_own_past_and_a_slow_slot_is_only_said(tmp_path: Path) -> None:
    fast = {uuid: good(8_000.0) for uuid in "ab"}
    stage = Stage(tmp_path, gpus(("n0", "H100", "ab")), fast)
    for _ in range(3):
        assert stage.run(0, 1) == [Verdict.GOOD, Verdict.GOOD]
    assert json.loads((tmp_path / FILE).read_text())["a"] == [8_000.0] * 3
    stage = Stage(tmp_path, gpus(("n0", "H100", "ba")), fast | {"a": good(3_000.0)})
    assert stage.run(0, 1) == [Verdict.GOOD, Verdict.SLOW], "by its UUID, after a restart"
    assert [each.gpu for each in stage.facts if isinstance(each, e.GpuSetAside)] == [1]

    slot = Stage(tmp_path / "..", slots(2), {"0": good(8_000.0)})
    slot.tests._file.write_text(json.dumps({"n0:0": [90_000.0] * 3}))
    assert slot.run(0) == [Verdict.SLOW]
    assert not slot.facts
    assert "n0:0: Its self-test is slow" in slot.tests.notes()[0]


def test_gpus_are_tested_before_their_first_use_and_slots_only_where_asked_for(
    tmp_path: Path,
) -> None:
    said = {"a": good(8_000.0), "b": WRONG, "c": UNTESTED}
    stage = Stage(tmp_path, gpus(("n0", "H100", "abc")), said)
    asyncio.run(stage.tests.test_at_start(all_devices=False))
    verdicts = [each.verdict for each in stage.tests.last.values()]
    assert verdicts == [Verdict.GOOD, Verdict.BAD, Verdict.UNTESTED]
    again = Stage(tmp_path, gpus(("n0", "H100", "abc")), said)
    asyncio.run(again.tests.test_at_start(all_devices=False))
    assert list(again.tests.last) == ["n0:1", "n0:2"], "not the one that has passed"
    all_of_them = Stage(tmp_path, gpus(("n0", "H100", "abc")), said)
    asyncio.run(all_of_them.tests.test_at_start(all_devices=True))
    assert list(all_of_them.tests.last) == ["n0:0", "n0:1", "n0:2"]

    slot = Stage(tmp_path / "slots", slots(1), {"0": WRONG})
    asyncio.run(slot.tests.test_at_start(all_devices=False))
    assert not slot.tests.last


def test_a_test_that_cannot_begin_brings_nothing_down(tmp_path: Path) -> None:
    stage = Stage(tmp_path, gpus(("n0", "H100", "a")), {"a": good(1.0)})
    stage.command = (str(tmp_path / "missing"),)
    asyncio.run(stage.tests.test_at_start(all_devices=True))
    assert not stage.tests.last
