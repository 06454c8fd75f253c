"""Operating the cluster: its queues, its nodes and its policy."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from trainmaster.daemon.cluster_nodes import jobs_on, known_nodes
from trainmaster.daemon.device_health import is_aside_for, set_aside
from trainmaster.daemon.device_names import device_name
from trainmaster.daemon.driver import Driver
from trainmaster.daemon.inbox import Request
from trainmaster.daemon.policies import policy_of
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.daemon.self_tests import SelfTests, TestedDevice
from trainmaster.daemon.service_api import (
    Conflict,
    NotFound,
    RequestError,
)
from trainmaster.daemon.submission_checks import check_known_queues
from trainmaster.model import events as e
from trainmaster.model.device_aside import AsideCause, GpuAside
from trainmaster.model.policy_spec import PolicySpec
from trainmaster.model.queue import DEFAULT_QUEUE, Queue
from trainmaster.model.quota import Prices, UserLimits
from trainmaster.model.reservation import Reservation
from trainmaster.model.topology import Node
from trainmaster.model.units import DAY
from trainmaster.policy_files import is_path
from trainmaster.text.formatting import listing, plural, utc_time

FARTHEST_MS = 3653 * DAY
MOST_RESERVATIONS = 1000


class WantedReservation(NamedTuple):
    """What somebody wants to be kept free, and when."""

    places: tuple[str, ...]
    """Nodes, or `node:number` for one device; for maintenance, nodes or `all`."""
    devices: int
    """So many devices, whichever; 0: those of `places`."""
    begin_ms: int | None
    """None: now."""
    length_ms: int
    user: str = ""
    queue: str = ""
    """For whom; neither: it is maintenance."""
    reason: str = ""
    force: bool = False


class ClusterControl:
    """Turns an operator's requests into events; every method returns when what it did is durable."""

    def __init__(self, driver: Driver, self_tests: SelfTests) -> None:
        self._driver = driver
        self._self_tests = self_tests
        self._numbering = asyncio.Lock()

    async def define_queue(self, queue: Queue) -> None:
        await self._submit_event(e.QueueDefined(queue))

    async def remove_queue(self, name: str) -> None:
        """Forget a queue that nothing is in: no job that has not ended, and no other queue."""
        state = self._driver.controller.state
        if name not in state.queues and name == DEFAULT_QUEUE:
            raise Conflict(
                f"queue {name} is always there, for jobs that name no other: it cannot be removed."
            )
        if name not in state.queues:
            raise NotFound(f"there is no queue {name}: `trainmaster queues` lists them.")
        inside = sorted(each.name for each in state.queues.values() if each.parent == name)
        if inside:
            raise Conflict(
                f"queue {name} has queues in it ({', '.join(inside)}): remove them first."
            )
        jobs = [record.id for record in state.jobs.values() if record.job.queue == name]
        if jobs:
            raise Conflict(
                f"queue {name} has {plural(len(jobs), 'job')} that have not ended:"
                f" `trainmaster set {jobs[0]} queue=NAME` moves one to another queue."
            )
        await self._submit_event(e.QueueRemoved(name))

    async def limit_user(self, limits: UserLimits) -> None:
        """From now on this user, or everybody, may have so much; empty limits are taken back."""
        await self._submit_event(e.UserLimited(limits))

    async def set_prices(self, prices: Prices) -> None:
        """GPU hours cost this from now on."""
        await self._submit_event(e.PricesChanged(prices))

    async def drain(self, node: str) -> None:
        """Start nothing more there; the policy moves what runs there, or it stays until it ends."""
        await self._submit_event(e.NodeDraining(self._driver.node(node).index))

    async def undrain(self, node: str) -> None:
        await self._submit_event(e.NodeUndrained(self._driver.node(node).index))

    async def forget(self, node: str) -> None:
        """Remove a node that does not come back: its name is free for another."""
        known, state = self._driver.node(node), self._driver.controller.state
        if not self._driver.engine.abilities.spans_machines:
            raise Conflict(f"{node} is this machine: it cannot be forgotten.")
        if known.index not in state.away:
            raise Conflict(
                f"node {node} is there: `trainmaster node drain {node}` lets nothing more start there, and a"
                " node that has left the cluster can be forgotten."
            )
        held = jobs_on(state, known.index)
        if held:
            raise Conflict(
                f"node {node} may still have runs of job {listing(held)}: wait until it is certain that they"
                f" are gone, or cancel {'it' if len(held) == 1 else 'them'}."
            )
        await self._submit_event(e.NodeForgotten(known.index))

    async def block(self, name: str) -> None:
        """Set a device aside, or all of a node: nothing more is started there, and nothing is moved."""
        state, why = self._driver.controller.state, "A user set it aside."
        await self._submit_events(
            set_aside(state.topology, gpu, AsideCause.USER, why).event
            for gpu in self.devices(name)
            if not is_aside_for(state, gpu, AsideCause.USER)
        )

    async def unblock(self, name: str) -> None:
        """Bring a device back, or all of a node, whatever it is set aside for, unless others hold it."""
        state = self._driver.controller.state
        found = {
            gpu: state.gpus_aside[gpu] for gpu in self.devices(name) if gpu in state.gpus_aside
        }
        if not found:
            raise Conflict(f"{name} is not set aside: `trainmaster nodes --devices` shows what is.")
        if all(aside.is_only_taken for aside in found.values()):
            raise Conflict(
                f"other users of the cluster hold {name}: it is used when they give it back."
            )
        nodes = state.topology.node_of_gpu
        await self._submit_events(
            e.GpuReturned(nodes[gpu], gpu, cause)
            for gpu, aside in found.items()
            for cause in _causes_to_end(aside)
        )

    async def test(self, name: str) -> Sequence[TestedDevice]:
        """Run the self-test on a device, or on all of a node; what is broken is set aside."""
        return await self._self_tests.test(self.devices(name))

    def devices(self, name: str) -> Sequence[int]:
        """The devices of NODE, or the one of NODE:NUMBER."""
        nodes = self._driver.controller.state.topology.node_by_name
        own, colon, number = name.rpartition(":")
        if name in nodes or not colon:
            node = self._driver.node(name)
            return range(node.first_gpu, node.first_gpu + node.gpus)
        node = self._driver.node(own)
        if not number.isdecimal() or int(number[:9]) >= node.gpus:
            raise NotFound(
                f"there is no device {name}: {own} has {own}:0 to {own}:{node.gpus - 1}."
                if node.gpus
                else f"there is no device {name}: {own} has none."
            )
        return [node.first_gpu + int(number)]

    async def reserve(self, wanted: WantedReservation, by: str) -> int:
        """Keep devices free for maintenance, or for a user or a queue; returns its number."""
        async with self._numbering:
            state = self._driver.controller.state
            last = max(state.last_kept_free, *state.kept_free, 0)
            made = self._reservation(wanted, by, last + 1)
            await self._submit_event(e.ReservationMade(made))
            return made.number

    def _reservation(self, wanted: WantedReservation, by: str, number: int) -> Reservation:
        state, now = self._driver.controller.state, self._driver.clock.now()
        begin = now if wanted.begin_ms is None else max(now, wanted.begin_ms)
        end = (begin if wanted.begin_ms is None else wanted.begin_ms) + wanted.length_ms
        if end <= now:
            raise RequestError(f"the time was over at {utc_time(end)}: it is {utc_time(now)} now.")
        check_known_queues(state.queues, {wanted.queue} - {""})
        if begin > now + FARTHEST_MS:
            raise RequestError("it begins in more than ten years: check the date.")
        if len(state.kept_free) >= MOST_RESERVATIONS:
            raise Conflict(f"there are {MOST_RESERVATIONS} already: cancel some first.")
        nodes: tuple[int, ...] = ()
        if not (wanted.user or wanted.queue):
            nodes = tuple(sorted({node.index for node in self._nodes(wanted.places)}))
            gpus = tuple(gpu for node in nodes for gpu in self._devices_of(node))
        else:
            gpus = tuple(sorted({gpu for place in wanted.places for gpu in self.devices(place)}))
            gpus = gpus or self._any_devices(wanted.devices, begin, end)
        made = Reservation(
            *(number, gpus, begin, end, nodes),
            *(wanted.user, wanted.queue, wanted.reason, by, wanted.force),
        )
        self._check_overlap(made)
        return made

    def _nodes(self, places: Sequence[str]) -> Iterable[Node]:
        """The nodes of these names; `all` is every one."""
        nodes = known_nodes(self._driver.controller.state)
        if "all" in places and not any(node.name == "all" for node in nodes):
            return nodes
        return [self._driver.node(place) for place in places]

    def _devices_of(self, node: int) -> range:
        own = self._driver.controller.state.topology.nodes[node]
        return range(own.first_gpu, own.first_gpu + own.gpus)

    def _any_devices(self, count: int, begin: int, end: int) -> tuple[int, ...]:
        """So many devices that are not kept free then: idle ones first, on as few nodes as possible."""
        state = self._driver.controller.state
        held = [
            each for each in state.kept_free.values() if each.begin_ms < end and begin < each.end_ms
        ]
        taken = {gpu for each in held for gpu in each.gpus}
        free = [gpu for gpu in range(state.topology.gpu_count) if gpu not in taken]
        free = [gpu for gpu in free if state.occupancy.is_offered(gpu)]
        if len(free) < count:
            raise Conflict(
                f"the number of devices that can be reserved then is {len(free)}, not {count}: the others"
                " are reserved, in maintenance, set aside or on drained nodes."
            )
        node_of, mode = state.topology.node_of_gpu, state.occupancy.mode
        idle = Counter(node_of[gpu] for gpu in free if mode[gpu] is None)
        free.sort(key=lambda gpu: (-min(count, idle[node_of[gpu]]), mode[gpu] is not None, gpu))
        return tuple(sorted(free[:count]))

    def _check_overlap(self, made: Reservation) -> None:
        """Refuse to promise a device to two at once; maintenance goes before."""
        if made.is_maintenance:
            return
        topology = self._driver.controller.state.topology
        for each in self._driver.controller.state.kept_free.values():
            both = sorted(set(made.gpus) & set(each.gpus))
            is_at_once = made.begin_ms < each.end_ms and each.begin_ms < made.end_ms
            if both and is_at_once:
                raise Conflict(
                    f"{device_name(topology, both[0])} is kept free already then, by number {each.number}"
                    f" ({utc_time(each.begin_ms)} to {utc_time(each.end_ms)}):"
                    " `trainmaster reservations` lists them."
                )

    async def cancel_reservation(self, number: int) -> None:
        """Use its devices as before."""
        if number not in self._driver.controller.state.kept_free:
            raise NotFound(
                f"there is no reservation {number}: `trainmaster reservations` lists them."
            )
        await self._submit_event(e.ReservationCancelled(number))

    async def unblock_input(self, path: str) -> str:
        """Let jobs start again that name an input which is set aside; its path as it is listed."""
        found = self._driver.inputs.path_of(path)
        if found is None:
            raise NotFound(
                f"the input {path} is not set aside: `trainmaster inputs` lists those that are."
            )
        self._driver.inputs.note_return(found, "it was unblocked")
        await self._submit_event(e.InputReturned(found))
        return found

    async def set_policy(self, spec: PolicySpec) -> None:
        """Its files must come with it: the manager reads none of its own accord."""
        if is_path(spec.name) and not spec.source:
            raise RequestError(
                f"{spec.name} is a path, and the manager reads no files: `trainmaster policy set"
                f" {spec.name}` sends its text."
            )
        await asyncio.to_thread(policy_of, spec, _without_content)
        await self._submit_event(e.PolicyChanged.to(spec))

    async def _submit_event(self, event: e.Event) -> None:
        await self._submit_events([event])

    async def _submit_events(self, events: Iterable[e.Event]) -> None:
        await self._driver.ask(Request(events=[LoggedEvent(event) for event in events]))


def _causes_to_end(aside: GpuAside) -> Sequence[AsideCause | None]:
    """All at once, unless others hold the device: that stays."""
    causes = [each.cause for each in aside.whys]
    if AsideCause.TAKEN not in causes:
        return [None]
    return [cause for cause in causes if cause is not AsideCause.TAKEN]


def _without_content(file: str) -> str:
    """A policy that is asked for names a file: what lies there may be secret, hang, or never end."""
    raise RequestError(
        f"{file} is a path, and the manager reads no files: `trainmaster policy set` sends the text of a file"
        " that an option names."
    )
