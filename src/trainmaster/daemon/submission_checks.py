"""Whether a job may be submitted here: what can never run is refused with the limit that forbids it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from trainmaster.core.occupancy import Occupancy
from trainmaster.core.quotas import limits_of
from trainmaster.daemon.cluster_nodes import known_nodes
from trainmaster.daemon.driver import Driver
from trainmaster.daemon.service_api import (
    RequestError,
    Submission,
    TooMany,
)
from trainmaster.model.job import Demand, Job, allows_type
from trainmaster.model.queue import DEFAULT_QUEUE
from trainmaster.model.topology import SLOT_TYPE, Node
from trainmaster.model.units import GIB, WHOLE
from trainmaster.placement.placers import ever_fits
from trainmaster.store.rows import JobFilter
from trainmaster.text.formatting import gpu_count, length, listing, plural, size
from trainmaster.text.suggest import did_you_mean

NEW_QUEUE = (
    "No queues are defined, and no job was in a queue {queue} before: if that is misspelled,"
    " `trainmaster set` changes it."
)


def check_known_queues(queues: Collection[str], names: Collection[str]) -> None:
    """Refuse a name that is none of the queues, where some are defined."""
    known = {*queues, DEFAULT_QUEUE}
    for name in sorted(set(names) - known) if queues else ():
        raise RequestError(f"there is no queue {name}; {did_you_mean(name, sorted(known))}")


class SubmissionChecks:
    """Compares jobs with the devices, the queues and the limits of this manager."""

    def __init__(self, driver: Driver, also: Sequence[Callable[[Submission], None]] = ()) -> None:
        self._driver = driver
        self._also = also
        """What other parts of the manager refuse."""
        self._known_space: Occupancy | None = None
        self._demands: dict[Demand, Demand] = {}
        """Equal demands are one object: the controller caches by identity."""
        self._queue_names = {DEFAULT_QUEUE, *(live.job.queue for live in driver.jobs.values())}
        """Of live jobs, and of those that came since the start: each of them is a label in the metrics."""

    def checked(self, asked: Submission) -> Submission:
        """The submission with the defaults of this cluster; a RequestError where it can never run here."""
        nodes = known_nodes(self._driver.controller.state)
        if not nodes:
            raise RequestError(
                "no node of the cluster has been there yet, so nothing can be said of what fits: submit again"
                " when `trainmaster nodes` lists one."
            )
        demand = _on_slots(asked.job.demand, nodes)
        demand = self._demands.setdefault(demand, demand)
        asked = replace(asked, job=replace(asked.job, demand=demand))
        is_moldable = self._driver.controller.policy.is_moldable
        self._check_type(demand.gpu_type)
        if not ever_fits(self._empty(), demand, is_moldable=is_moldable):
            spans = self._driver.engine.abilities.spans_machines
            raise RequestError(
                f"{asked.recipe.name or 'the job'} asks for {_demand_words(asked)}, but"
                f" {_capacity(nodes, bool(demand.nominal.memory), spans)}: ask for less, or for"
                " another type."
            )
        self.check_preemptible(asked.job)
        self._check_maximum(asked)
        self.check_grace(asked.recipe.grace_ms)
        for check in self._also:
            check(asked)
        most = self._driver.site_limits.array_elements
        if asked.array is not None and len(asked.array.indices) > most:
            raise RequestError(
                f"an array has at most {most:,} jobs here (the limit array_elements), not"
                f" {len(asked.array.indices):,}: submit several."
            )
        return asked

    def _empty(self) -> Occupancy:
        """All nodes that may come back, with nothing on them."""
        state, space = self._driver.controller.state, self._known_space
        if space is None or space.topology is not state.topology:
            space = self._known_space = Occupancy(state.topology)
            space.forget_nodes(state.forgotten)
        return space

    def check_number(self, asked: Sequence[Submission]) -> None:
        """Whether so many more jobs are taken."""
        limits, live = self._driver.site_limits, len(self._driver.jobs)
        count = sum(1 if each.array is None else len(each.array.indices) for each in asked)
        if count > limits.jobs_per_request:
            raise RequestError(
                f"a submission has at most {limits.jobs_per_request:,} jobs here (the limit"
                f" jobs_per_request), not {count:,}: submit them in several parts."
            )
        if live + count > limits.live_jobs:
            raise TooMany(
                f"this manager has {plural(live, 'job')} that have not ended and takes"
                f" {limits.live_jobs:,} (the limit live_jobs): wait until some have ended."
            )

    def check_user_jobs(self, asked: Sequence[Submission]) -> None:
        """Whether each user may have so many jobs that have not ended, in all and in each queue."""
        state = self._driver.controller.state
        new: Counter[tuple[str, str]] = Counter()
        for each in asked:
            count = 1 if each.array is None else len(each.array.indices)
            new[each.job.queue, each.job.user] += count
        bounds: dict[tuple[str, str], int] = {}
        for queue, user in new:
            limits = limits_of(state, user)
            if limits is not None and limits.max_jobs is not None:
                bounds["", user] = limits.max_jobs
            for name in state.queue_line(queue):
                most = state.queues[name].max_jobs_per_user
                if most is not None:
                    bounds[name, user] = most
        if bounds:
            live = Counter((each.job.queue, each.job.user) for each in self._driver.jobs.values())
            for (queue, user), most in bounds.items():
                self._check_user_jobs(queue, user, most, live, new)

    def _check_user_jobs(
        self,
        queue: str,
        user: str,
        most: int,
        live: Mapping[tuple[str, str], int],
        new: Mapping[tuple[str, str], int],
    ) -> None:
        line = self._driver.controller.state.queue_line
        old, more = (
            sum(
                number
                for (name, whose), number in counts.items()
                if whose == user and (not queue or queue in line(name))
            )
            for counts in (live, new)
        )
        if old + more > most:
            where = f" in queue {queue}" if queue else ""
            raise TooMany(
                f"{user} has {plural(old, 'job')}{where} that have not ended and may have {most:,}: wait"
                " until some have ended, or submit fewer at once."
            )

    def check_grace(self, grace_ms: int) -> None:
        most = self._driver.site_limits.max_grace
        if grace_ms > most:
            raise RequestError(
                f"a grace period of {length(grace_ms)} is longer than the {length(most)} that this"
                " manager allows (its limit max_grace): ask for less."
            )

    def _check_type(self, wanted: str | None) -> None:
        """A type that no node has is a mistake; `A|B` is either of them."""
        types = {node.type.name for node in known_nodes(self._driver.controller.state)}
        if not any(allows_type(wanted, kind) for kind in types):
            raise RequestError(
                f"gpus names {wanted!r}, a type that is not here (types: {', '.join(sorted(types))}):"
                " it is a number, or TYPE:NUMBER."
            )

    async def new_queues(self, names: Collection[str]) -> set[str]:
        """Those that no known job is in, where no queue is defined: they may be misspelled."""
        if self._driver.controller.state.queues:
            return set()
        store, unnamed = self._driver.store, set(names) - self._queue_names
        return {
            name
            for name in unnamed
            if not await asyncio.to_thread(store.jobs, JobFilter(queue=name, limit=1))
        }

    def check_queues(self, names: Collection[str]) -> None:
        """Where queues are defined, an unknown name is a mistake; else there is a limit to their number."""
        queues, most = self._driver.controller.state.queues, self._driver.site_limits.queue_names
        check_known_queues(queues, names)
        if (
            not queues
            and set(names) - self._queue_names
            and len(self._queue_names | set(names)) > most
        ):
            raise RequestError(
                f"jobs use {most:,} queues already (the limit queue_names): use one of them, or define"
                " queues with `trainmaster queue set`."
            )

    def remember_queues(self, names: Iterable[str]) -> None:
        """Jobs in these queues were accepted."""
        self._queue_names.update(names)

    def _check_maximum(self, asked: Submission) -> None:
        """Refuse a job that a maximum of its queue, of one around it, or of its user keeps out for good."""
        state = self._driver.controller.state
        queues, need = state.queues, self._need(asked.job.demand)
        limits, name = limits_of(state, asked.job.user), asked.recipe.name or "the job"
        if limits is not None and limits.max_gpus is not None and need > limits.max_gpus:
            raise RequestError(
                f"{name} asks for {gpu_count(need)}, but {asked.job.user} may use"
                f" {gpu_count(limits.max_gpus)} at most: ask for fewer."
            )
        queue = queues.get(asked.job.queue)
        while queue is not None:
            if queue.maximum is not None and need > queue.maximum:
                raise RequestError(
                    f"{name} asks for {gpu_count(need)}, but queue"
                    f" {queue.name} may hold {gpu_count(queue.maximum)} at most (its maximum): ask for"
                    " fewer, or choose another queue."
                )
            each = queue.max_gpus_per_user
            if each is not None and need > each:
                raise RequestError(
                    f"{name} asks for {gpu_count(need)}, but one user may use {gpu_count(each)} at most in"
                    f" queue {queue.name}: ask for fewer, or choose another queue."
                )
            queue = None if queue.parent is None else queues.get(queue.parent)

    def _need(self, demand: Demand) -> int:
        """The least GPUs that it could start with."""
        if self._driver.controller.policy.is_moldable:
            return demand.sized(demand.min_count).total_share
        return demand.nominal.total_share

    def check_preemptible(self, job: Job) -> None:
        """Refuse `preemptible: false` where its queue, or one around it, does not allow it."""
        queues, name = self._driver.controller.state.queues, job.queue
        while not job.preemptible and name in queues:
            if not queues[name].allow_unpreemptible:
                raise RequestError(
                    f"queue {name} does not allow `preemptible: false`: leave it out, or choose"
                    " another queue."
                )
            name = queues[name].parent or ""


def _on_slots(demand: Demand, nodes: Iterable[Node]) -> Demand:
    """A job on CPU slots books as much host memory as it may keep there while it is suspended.

    By default it is a quarter of the memory of a slot: the rest is for other jobs that are suspended in
    memory meanwhile.
    """
    slots = [node.type.memory for node in nodes if node.type.name == SLOT_TYPE]
    if not slots or demand.host_memory is not None:
        return demand
    return replace(demand, host_memory=min(slots))


def _demand_words(asked: Submission) -> str:
    demand, said = asked.job.demand, asked.recipe
    count, kind = demand.nominal.total_share / WHOLE, demand.gpu_type or "GPU"
    words = [f"{count:g} {kind}" if count == 1 else f"{count:g} {kind}s"]
    if demand.nominal.memory:
        words.append(f"{size(demand.nominal.memory)} of GPU memory on each (gpu_memory)")
    each = " for each" if demand.nominal.share == WHOLE else ""
    if said.memory is not None and demand.host_memory is not None:
        words.append(f"{demand.for_piece(demand.host_memory) / GIB:g} GiB of memory{each}")
    if said.cpus is not None and demand.cpus is not None:
        words.append(f"{demand.for_piece(demand.cpus) / 1000:g} cores{each}")
    return ", ".join(words)


def _capacity(nodes: Sequence[Node], with_memory: bool, spans_machines: bool) -> str:
    """What the largest node has, in words; and a GPU of it. A job has devices of one type."""
    node = max(nodes, key=lambda each: (each.gpus, each.memory))
    has = (
        f"{node.gpus} {node.type.name}s, {node.cpus / 1000:g} cores and {node.memory / GIB:.0f} GiB"
    )
    has += f", with {size(node.type.memory)} on each {node.type.name}" if with_memory else ""
    if len(nodes) == 1 and not spans_machines:
        return f"this machine has {has}"
    counts: Counter[str] = Counter()
    for each in nodes:
        counts[each.type.name] += each.gpus
    of_each = [f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in counts.items()]
    types = ", and a job has devices of one type" if len(counts) > 1 else ""
    return f"this cluster has {listing(of_each)}{types}; its largest node has {has}"
