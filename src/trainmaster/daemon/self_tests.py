"""Self-tests of devices: in a process for each, with a time limit, against what each device did before.

A device that fails its test, or hangs it, is set aside; not where all devices do, as the test is then the
likelier cause. Devices that jobs, or other programs, are on are left out, and a test that one came into does
not count. Copy speeds are kept in `self-tests.json` of the data folder.

Nodes that join are tested like those that are there at the start. Where devices may differ, how fast those of
a node compute becomes a fact, once: the relative speeds of their types follow from it.

A device that was set aside for failures, or an XID, is tested too, and what the test says is added to why it
is set aside: it comes back by a user's word alone.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from trainmaster.core.state import State
from trainmaster.daemon.cluster_nodes import known_nodes
from trainmaster.daemon.device_health import is_aside_for, set_aside
from trainmaster.daemon.device_names import device_key, device_name
from trainmaster.daemon.driver import Driver
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.durable_files import write_whole
from trainmaster.engines.protocol import EngineError
from trainmaster.failures.self_test_rule import SelfTest, Verdict, verdict
from trainmaster.model.device_aside import AsideCause, AsideWhy, GpuAside
from trainmaster.model.events import NodeMeasured
from trainmaster.model.topology import Node, Topology
from trainmaster.model.units import SECOND

log = structlog.get_logger("trainmaster.health")

KEPT = 20
"""Earlier tests of a device that are remembered."""
FILE = "self-tests.json"
LOOK_S = 2.0
"""How often it is looked for devices to be tested after trouble, and for nodes that have joined."""
AT_ONCE = 16
"""Nodes that are tested at the same time."""
MOST_TRIES = 3
"""How often a node is measured in vain, for as long as it is there."""
JOB = "A job is"
OUTSIDE = "A program that is not a job is"
PROGRAM = "trainmaster.gpu.self_test"


@dataclass(frozen=True, slots=True)
class TestedDevice:
    """What a test says of one device."""

    device: str
    verdict: Verdict
    sentence: str
    mflop_s: int = 0
    """What it computes, in millions of operations per second; 0: not measured."""


class SelfTests:
    """Tests the devices of a node one after another, so that they do not slow each other down."""

    def __init__(self, driver: Driver, folder: Path) -> None:
        self._driver = driver
        self._file = folder / FILE
        self._turns: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        """By node."""
        self._writing = asyncio.Lock()
        self._looking = asyncio.Lock()
        self._tests_all = False
        """Whether all devices of a node are tested when it joins, and not only new GPUs."""
        self._joined: set[str] = set()
        """Nodes that are there and were tested since they came, ..."""
        self._measured: set[str] = set()
        """... and those of them of which it was told how fast they are."""
        self._tries: Counter[str] = Counter()
        """How often nodes were measured in vain."""
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
        self._tests_all = all_devices
        await self._look()

    async def watch(self) -> None:
        """Test devices after trouble, and nodes that join, in the background."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self._look()

    async def _look(self) -> None:
        try:
            async with self._looking:
                await self.test_joined()
                await self.test_suspects()
        except OSError as problem:  # no process, or no room on the disk
            log.warning("a device could not be tested", why=str(problem))

    async def test_joined(self) -> None:
        """Test nodes that have come since the last look, and measure those that nobody has measured."""
        state = self._driver.controller.state
        there = [node for node in known_nodes(state) if node.index not in state.away]
        names = {node.name for node in there}
        new = [node for node in there if node.name not in self._joined]
        self._joined, self._measured = names, self._measured & names
        for name in self._tries.keys() - names:
            del self._tries[name]
        known = await asyncio.to_thread(self._history) if new and not self._tests_all else {}
        turn = asyncio.Semaphore(AT_ONCE)

        async def test(gpus: Sequence[int]) -> None:
            async with turn:
                await self.test(gpus)

        wanted = [self._untested(node, known) for node in new] + [
            self._to_measure(node) for node in there if node not in new
        ]
        await asyncio.gather(*(test(gpus) for gpus in wanted if gpus))

    def _untested(self, node: Node, known: Collection[str]) -> Sequence[int]:
        """Devices of a node that has joined that are to be tested, or one of them to be measured."""
        topology = self._driver.controller.state.topology
        gpus = range(node.first_gpu, node.first_gpu + node.gpus)
        if self._tests_all:
            return gpus
        new = [gpu for gpu in gpus if node.uuids and device_key(topology, gpu) not in known]
        return new or self._to_measure(node)

    def _to_measure(self, node: Node) -> Sequence[int]:
        """One device of a node of which nobody knows how fast it is, where nodes may differ."""
        state = self._driver.controller.state
        may_differ = self._driver.engine.abilities.spans_machines or len(state.topology.types) > 1
        is_known = node.name in state.rates or node.name in self._measured
        if not may_differ or is_known or self._tries[node.name] >= MOST_TRIES:
            return ()
        gpus = range(node.first_gpu, node.first_gpu + node.gpus)
        return [gpu for gpu in gpus if gpu not in state.gpus_aside and not self._why_busy(gpu)][:1]

    async def test_suspects(self) -> None:
        """Test each device that was set aside for trouble, once, as soon as nothing is on it."""
        state = self._driver.controller.state
        for gpu, aside in sorted(state.gpus_aside.items()):
            suspicion = aside.suspicion
            if state.topology.node_of_gpu[gpu] in state.away:
                continue
            if suspicion is None or self._suspected.get(gpu) == aside or self._why_busy(gpu):
                continue
            said = await self._tested(gpu)
            if said.verdict is Verdict.UNTESTED and self._why_busy(gpu):
                continue
            self._suspected[gpu] = aside
            if state.gpus_aside.get(gpu) != aside:
                continue
            if self._is_wrong(gpu, said.verdict):
                fact = set_aside(state.topology, gpu, AsideCause.SELF_TEST, said.sentence)
            else:
                cause, why = suspicion.cause, f"{suspicion.why} {said.sentence}"
                fact = set_aside(state.topology, gpu, cause, why, is_tested=True)
            self._driver.inbox.follow_up([fact])

    def _is_gpu(self, gpu: int) -> bool:
        topology = self._driver.controller.state.topology
        return bool(topology.nodes[topology.node_of_gpu[gpu]].uuids)

    def _is_wrong(self, gpu: int, verdict: Verdict) -> bool:
        """Slots are slow when others compute."""
        return verdict is Verdict.BAD or (verdict is Verdict.SLOW and self._is_gpu(gpu))

    def _is_idle(self, gpu: int) -> bool:
        state = self._driver.controller.state
        return state.occupancy.mode[gpu] is None and gpu not in state.releasing

    def _why_busy(self, gpu: int) -> str:
        """Who disturbs a test there, as far as that is known; empty: nobody."""
        topology = self._driver.controller.state.topology
        if not self._is_idle(gpu):
            return JOB
        key = device_key(topology, gpu)
        is_used = self._is_gpu(gpu) and self._driver.readings.is_used_outside(key)
        return OUTSIDE if is_used else ""

    async def test(self, gpus: Iterable[int]) -> list[TestedDevice]:
        """Test these devices where they are idle; set aside what is broken, and tell how fast they are."""
        found: dict[int, TestedDevice] = {}
        for gpu in gpus:
            found[gpu] = await self._tested(gpu)
        self._judge(found)
        self._driver.inbox.follow_up(self._rates(found))
        return list(found.values())

    def _rates(self, found: Mapping[int, TestedDevice]) -> Iterator[LoggedEvent]:
        """How fast their nodes are, by the fastest device: what disturbs one makes it slower."""
        state, rates = self._driver.controller.state, dict[int, int]()
        for gpu, each in found.items():
            node = state.topology.node_of_gpu[gpu]
            rates[node] = max(rates.get(node, 0), each.mflop_s)
        for node, rate in rates.items():
            name = state.topology.nodes[node].name
            if rate:
                self._measured.add(name)
                yield LoggedEvent(NodeMeasured(node, rate))
            elif name not in state.rates:
                self._tries[name] += 1

    async def _tested(self, gpu: int) -> TestedDevice:
        async with self._turns[self._driver.controller.state.topology.node_of_gpu[gpu]]:
            return await self._tested_in_turn(gpu)

    async def _tested_in_turn(self, gpu: int) -> TestedDevice:
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
        async with self._writing:
            history = await asyncio.to_thread(self._history)
            said = TestedDevice(name, *verdict(test, history.get(key, ())), test.mflop_s)
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
        cores = max(1, node.cpus // max(1, node.gpus) // 1000)
        which = ("gpu", node.uuids[number]) if node.uuids else ("slot", f"{number}x{cores}")
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
        bad = [gpu for gpu, each in found.items() if self._is_wrong(gpu, each.verdict)]
        left = {self._is_gpu(gpu) for gpu in self._good_for_jobs() - set(bad)}
        self._driver.inbox.follow_up(
            set_aside(state.topology, gpu, cause, found[gpu].sentence)
            for gpu in bad
            # where none would be left, the test of GPUs, or that of slots, is the likelier cause
            if self._is_gpu(gpu) in left and not is_aside_for(state, gpu, cause)
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
