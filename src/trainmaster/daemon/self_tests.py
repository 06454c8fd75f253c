"""Self-tests of devices: in a process for each, with a time limit, against what each device did before.

A device that fails its test, or hangs it, is set aside; not where all devices do, as the test is then the
likelier cause. Devices that jobs, or other programs, are on are left out, and a test that one came into does
not count. Copy speeds are kept in `self-tests.json` of the data
folder. A device that was set aside for failures, or an XID, is tested too, and what the test says is added to
why it is set aside: it comes back by a user's word alone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from trainmaster.core.state import State
from trainmaster.daemon.device_health import is_aside_for, set_aside
from trainmaster.daemon.device_names import device_key, device_name
from trainmaster.daemon.driver import Driver
from trainmaster.durable_files import write_whole
from trainmaster.engines.protocol import EngineError
from trainmaster.failures.self_test_rule import SelfTest, Verdict, verdict
from trainmaster.model.device_aside import AsideCause, AsideWhy, GpuAside
from trainmaster.model.topology import Topology
from trainmaster.model.units import SECOND

log = structlog.get_logger("trainmaster.health")

KEPT = 20
"""Earlier tests of a device that are remembered."""
FILE = "self-tests.json"
LOOK_S = 2.0
"""How often it is looked for devices to be tested after trouble."""
JOB = "A job is"
OUTSIDE = "A program that is not a job is"
PROGRAM = "trainmaster.gpu.self_test"


@dataclass(frozen=True, slots=True)
class TestedDevice:
    """What a test says of one device."""

    device: str
    verdict: Verdict
    sentence: str


class SelfTests:
    """Tests devices one after another, so that they do not slow each other down."""

    def __init__(self, driver: Driver, folder: Path) -> None:
        self._driver = driver
        self._file = folder / FILE
        self._turn = asyncio.Lock()
        self.last: dict[str, TestedDevice] = {}
        """By device: what its last test said."""
        self._suspected: dict[int, GpuAside] = {}
        """Devices that were tested after trouble, and what was known of them then."""

    def notes(self) -> list[str]:
        """Devices that are slow, or failed and are used all the same: a sentence each."""
        aside = self._driver.controller.state.gpus_aside
        topology = self._driver.controller.state.topology
        names = {device_name(topology, gpu) for gpu in aside}
        return [
            f"{each.device}: {each.sentence}"
            for each in self.last.values()
            if each.verdict in (Verdict.BAD, Verdict.SLOW) and each.device not in names
        ]

    async def test_at_start(self, *, all_devices: bool) -> None:
        """Test all devices, or the GPUs that have passed no test yet: slots are this machine, which works."""
        try:
            topology = self._driver.controller.state.topology
            known = {} if all_devices else await asyncio.to_thread(self._history)
            await self.test(
                gpu
                for gpu, node in enumerate(topology.node_of_gpu)
                if (all_devices or topology.nodes[node].uuids)
                and device_key(topology, gpu) not in known
            )
        except OSError as problem:  # no process, or no room on the disk
            log.warning("a device could not be tested", why=str(problem))

    async def watch(self) -> None:
        """Test devices after trouble, in the background."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self.test_suspects()
            except OSError as problem:
                log.warning("a device could not be tested", why=str(problem))

    async def test_suspects(self) -> None:
        """Test each device that was set aside for trouble, once, as soon as nothing is on it."""
        state = self._driver.controller.state
        for gpu, aside in sorted(state.gpus_aside.items()):
            suspicion = aside.suspicion
            if state.topology.node_of_gpu[gpu] in state.away:
                continue
            if suspicion is None or self._suspected.get(gpu) == aside or self._why_busy(gpu):
                continue
            async with self._turn:
                said = await self._tested(gpu)
            if said.verdict is Verdict.UNTESTED and self._why_busy(gpu):
                continue
            self._suspected[gpu] = aside
            if state.gpus_aside.get(gpu) != aside:
                continue
            if said.verdict in self._wrong():
                fact = set_aside(state.topology, gpu, AsideCause.SELF_TEST, said.sentence)
            else:
                cause, why = suspicion.cause, f"{suspicion.why} {said.sentence}"
                fact = set_aside(state.topology, gpu, cause, why, is_tested=True)
            self._driver.inbox.follow_up([fact])

    def _wrong(self) -> Collection[Verdict]:
        """Slots are slow when others compute."""
        is_gpu = self._driver.controller.state.topology.uuids
        return {Verdict.BAD, Verdict.SLOW} if is_gpu else {Verdict.BAD}

    def _is_idle(self, gpu: int) -> bool:
        state = self._driver.controller.state
        return state.occupancy.mode[gpu] is None and gpu not in state.releasing

    def _why_busy(self, gpu: int) -> str:
        """Who disturbs a test there, as far as that is known; empty: nobody."""
        topology = self._driver.controller.state.topology
        if not self._is_idle(gpu):
            return JOB
        is_used = topology.uuids and self._driver.readings.is_used_outside(topology.uuids[gpu])
        return OUTSIDE if is_used else ""

    async def test(self, gpus: Iterable[int]) -> list[TestedDevice]:
        """Test these devices where they are idle, and set aside what is broken."""
        async with self._turn:
            found: dict[int, TestedDevice] = {}
            for gpu in gpus:
                found[gpu] = await self._tested(gpu)
            self._judge(found)
            return list(found.values())

    async def _tested(self, gpu: int) -> TestedDevice:
        state = self._driver.controller.state
        name, key = device_name(state.topology, gpu), device_key(state.topology, gpu)
        if busy := self._why_busy(gpu):
            return TestedDevice(name, Verdict.UNTESTED, f"{busy} on it: it was not tested.")
        given = self._driver.dispatcher.given
        before = given.get(gpu)
        test = await self._run(state.topology, gpu)
        busy = self._why_busy(gpu) or (JOB if given.get(gpu) != before else "")
        if busy:  # what it measured says nothing of the device
            why = f"{busy} on it since its test began: it was not tested."
            return TestedDevice(name, Verdict.UNTESTED, why)
        history = await asyncio.to_thread(self._history)
        said = TestedDevice(name, *verdict(test, history.get(key, ())))
        if said.verdict in (Verdict.GOOD, Verdict.SLOW):
            history[key] = [*history.get(key, ()), test.copy_mib_s][-KEPT:]
            await asyncio.to_thread(write_whole, self._file, json.dumps(history))
        log.info("self-test", device=name, verdict=said.verdict.value, why=said.sentence)
        self.last[name] = said
        return said

    async def _run(self, topology: Topology, gpu: int) -> SelfTest:
        """What the program says; a device that hangs it is broken."""
        node = topology.nodes[topology.node_of_gpu[gpu]]
        number = gpu - node.first_gpu
        which = ("gpu", node.uuids[number]) if node.uuids else ("slot", str(number))
        limit_s = self._driver.site_limits.self_test / SECOND
        try:
            probed = await self._driver.engine.probe(node.name, (PROGRAM, *which), limit_s)
        except EngineError as problem:
            return SelfTest(why=str(problem).rstrip("."))
        if probed.code is None:
            why = f"it did not end within {limit_s:g} s"
            return SelfTest(is_tested=True, is_right=False, why=why)
        try:
            said = json.loads(probed.output or b"{}")
            if probed.code or not isinstance(said, dict):
                why = f"it ended with {probed.code}"
                return SelfTest(is_tested=True, is_right=False, why=why)
            return SelfTest(**said)
        except (ValueError, TypeError) as problem:
            return SelfTest(why=f"its answer cannot be read ({problem})")

    def _judge(self, found: dict[int, TestedDevice]) -> None:
        """Set aside what is broken, and GPUs that have become slow."""
        state, cause = self._driver.controller.state, AsideCause.SELF_TEST
        bad = [gpu for gpu, each in found.items() if each.verdict in self._wrong()]
        if not self._good_for_jobs() - set(
            bad
        ):  # none would be left: the test is the likelier cause
            return
        self._driver.inbox.follow_up(
            set_aside(state.topology, gpu, cause, found[gpu].sentence)
            for gpu in bad
            if not is_aside_for(state, gpu, cause)
        )

    def _good_for_jobs(self) -> set[int]:
        """Devices that are in use, or will be as soon as the disk has room."""
        state = self._driver.controller.state
        closed = state.draining | state.away | state.set_aside.keys()
        return {
            gpu
            for gpu, node in enumerate(state.topology.node_of_gpu)
            if node not in closed
            and all(each.cause is AsideCause.DISK for each in _whys(state, gpu))
        }

    def _history(self) -> dict[str, Sequence[float]]:
        try:
            found: dict[str, Sequence[float]] = json.loads(self._file.read_text())
        except (OSError, ValueError):
            return {}
        return found


def _whys(state: State, gpu: int) -> Sequence[AsideWhy]:
    aside = state.gpus_aside.get(gpu)
    return () if aside is None else aside.whys
