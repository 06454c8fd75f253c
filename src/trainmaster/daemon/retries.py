"""Retries: a job that failed or was lost is tried again at growing intervals, and not for ever."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from trainmaster.config.limits import Limits
from trainmaster.core.next_attempt import can_have_more
from trainmaster.core.occupancy import Occupancy
from trainmaster.core.reducer import losses_after
from trainmaster.core.state import JobRecord, is_on_slots
from trainmaster.daemon.device_names import device_key, devices_named
from trainmaster.failures import retry_rules
from trainmaster.failures.reason_table import ReasonTable
from trainmaster.failures.retry_rules import (
    AFTER_FAILURE,
    AFTER_LOSS,
    Device,
    FailedAttempt,
    Resources,
    RetryLimits,
    decide,
    devices_to_avoid,
    more_memory,
)
from trainmaster.model import events as e
from trainmaster.model.failure import Failure
from trainmaster.model.job import Demand
from trainmaster.model.launch_spec import LaunchSpec, Ranks
from trainmaster.model.placement import Placement, Sharing
from trainmaster.model.reasons import Reason, Retry, Why
from trainmaster.model.retry import RetryDecision
from trainmaster.model.stop_reasons import EndCode, EndReason
from trainmaster.model.topology import Topology
from trainmaster.model.units import SECOND, WHOLE
from trainmaster.text.formatting import listing

MOST_ATTEMPTS = 8
"""Failed attempts of a job that are remembered to compare the next one with."""
SPEAKS_AGAINST = 2
"""Losses in a row after which the devices are not used again by the next attempt."""


@dataclass(frozen=True, slots=True)
class RetryTerms:
    """What decides over retries besides the job: the table of reasons and the cluster."""

    table: ReasonTable
    space: Occupancy

    def devices_of(self, node: int) -> range:
        first = self.space.first_gpu[node]
        return range(first, first + self.space.topology.nodes[node].gpus)


def delay_ms(times: int, factor: int, limits: Limits) -> int:
    """How long to wait before the retry after that many failures or losses."""
    return retry_rules.delay_ms(times, factor, limits.retry_delay, limits.max_retry_delay)


def failed_run(record: JobRecord, limits: Limits, *, can_help: bool) -> e.RunFailed:
    """Its run ended with an error; `can_help`: another attempt may end otherwise."""
    wait = delay_ms(record.failures + 1, AFTER_FAILURE, limits)
    return e.RunFailed(record.run, record.saved_work, can_help, wait)


@dataclass(frozen=True, slots=True)
class JudgedFailure:
    """A failed run: the fact, the attempt as it is remembered, and why it is tried again or not."""

    event: e.RunFailed
    attempt: FailedAttempt
    decision: RetryDecision


def judged(
    record: JobRecord,
    failed: FailedAttempt,
    earlier: Sequence[FailedAttempt],
    recipe: LaunchSpec,
    limits: Limits,
    terms: RetryTerms,
) -> JudgedFailure:
    """What follows from a failure by the rules; `failed` does not name its devices yet."""
    bounds = RetryLimits(
        *(record.job.retries, record.failures),
        *(limits.retry_delay, limits.max_retry_delay, limits.outage_delay),
    )
    topology = terms.space.topology
    had = replace(
        resources_of(record.placement, record.demand_after_prerun or record.demand, terms.space),
        largest_gpu=max(kind.memory for kind in topology.types),
        largest_node=max(node.memory for node in topology.nodes),
        is_gpu_memory_stated=record.job.demand.states_gpu_memory,
        is_memory_stated=recipe.memory is not None,
        is_too_large=_is_too_large(record),
    )
    row = terms.table.of(failed.failure.reason)
    decision = decide(failed, earlier, row, had, bounds)
    here: tuple[Device, ...] = ()
    if decision.avoids_place and record.placement is not None:
        here = devices_of_failure(topology, record.placement, failed.failure, recipe.ranks)
        failed = replace(failed, device_keys=tuple(device_key(topology, gpu) for _, gpu in here))
    before = devices_named(topology, (key for each in earlier for key in each.device_keys))
    avoid = devices_to_avoid(failed.failure.reason, here, before, terms.devices_of)
    event = e.RunFailed(
        record.run,
        record.saved_work,
        decision.is_retried,
        bounds.delay_after(row) if decision.is_counted else decision.delay_ms,
        failed.failure,
        avoid if decision.is_retried else (),
        decision.gpu_memory,
        decision.memory,
        is_counted=decision.is_counted,
    )
    return JudgedFailure(event, failed, decision)


def _is_too_large(record: JobRecord) -> bool:
    """Whether it had more devices than its program can use, and may have fewer."""
    most, held = record.most_gpus, record.placement
    if most is None or held is None or record.is_prerun:
        return False
    return record.demand.nominal.count <= most < len(held.slices)


def devices_of_failure(
    topology: Topology, placement: Placement, failure: Failure, ranks: Ranks
) -> tuple[Device, ...]:
    """The devices of the run that its failure names; else those of the rank that failed first."""
    if not failure.devices:
        is_launched = ranks is Ranks.PER_NODE  # its launcher counts ranks of its own
        first = failure.shown_by if is_launched else failure.rank
        return devices_of_rank(placement, first, ranks)
    named = (
        piece for piece in placement.slices if device_key(topology, piece.gpu) in failure.devices
    )
    return tuple((piece.node, piece.gpu) for piece in named)


def devices_of_rank(placement: Placement, rank: int | None, ranks: Ranks) -> tuple[Device, ...]:
    """The devices of the rank that failed first; all of the run's where it is not known."""
    slices = placement.slices
    if rank is not None and ranks is Ranks.PER_NODE and rank < len(placement.nodes):
        slices = tuple(piece for piece in slices if piece.node == placement.nodes[rank])
    elif rank is not None and ranks is Ranks.PER_GPU and rank < len(slices):
        slices = (slices[rank],)
    return tuple((piece.node, piece.gpu) for piece in slices)


def resources_of(placement: Placement | None, demand: Demand, space: Occupancy) -> Resources:
    """What a run had there, and what another could have."""
    if placement is None:
        return Resources()
    types = space.topology.type_of_gpu
    whole = min(types[gpu].memory for gpu in placement.gpus())
    parts = [piece.memory or whole for piece in placement.slices]
    is_alone = placement.sharing is Sharing.EXCLUSIVE
    shares: dict[int, int] = {}
    for piece in placement.slices:
        shares[piece.node] = shares.get(piece.node, 0) + (WHOLE if is_alone else piece.share)
    nodes = space.topology.nodes
    for node in shares if demand.nominal.count > len(placement.slices) else ():  # a pre-run
        shares[node] = WHOLE * min(demand.nominal.count, nodes[node].gpus)
    gpu_memory = whole if is_alone else min(parts)
    had = Resources(
        gpu_memory,
        _more_gpu_memory(gpu_memory, whole, demand, space),
        min(space.host_part(node, WHOLE, demand) for node in shares),
        min(nodes[node].memory * WHOLE // share for node, share in shares.items()),
        has_gpu=not is_on_slots(space.topology, placement),
    )
    if can_have_more(space, demand, memory=more_memory(had)):
        return had
    return replace(had, most_memory=had.memory)


def _more_gpu_memory(had: int, whole: int, demand: Demand, space: Occupancy) -> int:
    """All the memory of a GPU like its own, or else the next that enough GPUs have; 0: none is more."""
    sizes = {kind.memory for kind in space.topology.types if kind.memory > had}
    by_choice = sorted(sizes, key=lambda size: (size < whole, abs(size - whole)))
    return next((size for size in by_choice if can_have_more(space, demand, size)), 0)


def lost_run(
    record: JobRecord, now: int, limits: Limits, unfit: tuple[Device, ...] = ()
) -> e.RunLost:
    """Its run is gone, and did not end by itself; `unfit`: devices of nodes that cannot run it."""
    losses = losses_after(record, now)
    wait = delay_ms(losses, AFTER_LOSS, limits)
    at = record.placement or record.frozen
    is_suspect = losses >= SPEAKS_AGAINST and at is not None
    avoid = devices_of_rank(at, None, Ranks.PER_GPU) if at is not None and is_suspect else ()
    avoid = tuple(dict.fromkeys((*avoid, *unfit)))
    may_retry = losses <= limits.losses
    return e.RunLost(record.run, record.saved_work, may_retry, wait, avoid=avoid)


def devices_of_nodes(topology: Topology, names: Collection[str]) -> tuple[Device, ...]:
    """All devices of these nodes."""
    return tuple(
        (node.index, gpu)
        for node in topology.nodes
        if node.name in names
        for gpu in range(node.first_gpu, node.first_gpu + node.gpus)
    )


def retry_detail(event: e.RunFailed | e.RunLost, record: JobRecord) -> dict[str, object]:
    """When it is tried again, for its story; nothing where it is not."""
    is_free = isinstance(event, e.RunLost) or not event.is_counted
    is_retried = event.retryable and (is_free or record.failures < record.job.retries)
    return {"retry_in_s": event.retry_in_ms / SECOND} if is_retried and event.retry_in_ms else {}


def lost_too_often(record: JobRecord, now: int, why: str) -> EndReason:
    """Why a job has failed that was lost more often than the limit allows."""
    return EndReason(EndCode.LOST, times=losses_after(record, now), detail=why)


def retry_reason(record: JobRecord, limits: Limits) -> Reason | None:
    """Why a job waits whose retry is delayed; None for any other."""
    if record.retry_at_ms is None:
        return None
    was_lost = record.losses > 0
    times, most = (
        (record.losses, limits.losses) if was_lost else (record.failures, record.job.retries)
    )
    need = record.demand.nominal.total_share
    retry = Retry(times + 1, most + 1, was_lost)
    return Reason(Why.RETRY_DELAY, need, until_ms=record.retry_at_ms, retry=retry)


def avoidance_reason(record: JobRecord, space: Occupancy) -> Reason | None:
    """Why a job waits that could only have devices again on which it failed; None for any other."""
    if record.avoid_until_ms is None:
        return None
    nodes, node_of = space.topology.nodes, space.node_of
    idle = [
        f"{nodes[node_of[gpu]].name}:{gpu - space.first_gpu[node_of[gpu]]}"
        for gpu in record.demand.avoid
        if space.whole[node_of[gpu]] >> (gpu - space.first_gpu[node_of[gpu]]) & 1
    ]
    need, until = record.demand.nominal.total_share, record.avoid_until_ms
    if not idle:
        return None
    return Reason(Why.AVOIDS_DEVICES, need, until_ms=until, detail=listing(idle))
