"""Delay scheduling: how long a gang waits for GPUs close together depends on what distance costs its model.

A gang accepts a placement that loses a part l of its speed once it has waited as long as that loss would cost
it: `patience` x l / (1 - l) of its expected remaining time. Until then it takes closer placements or waits. A
loss below `ignored` is always accepted. Losses are the published ones of the model, corrected by observed
speeds (locality_estimator.py): if distance turns out to cost nothing, gangs do not wait for locality. Small
gangs avoid nodes where they and other gangs would slow each other down, if another node in use has room.
(Philly, ATC'19, relaxes locality after retries; Tiresias, NSDI'19, consolidates models by their skew; neither
measures.)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable
from dataclasses import dataclass, field

from trainmaster.core.occupancy import Occupancy
from trainmaster.core.state import JobRecord
from trainmaster.mechanisms.preemptive_scheduling import FailedPlacement
from trainmaster.model.plan import FrozenMap
from trainmaster.model.units import NOMINAL
from trainmaster.placement.placers import RELAXING, Placer
from trainmaster.policies.trainmaster.gang_placers import BoundedSpread, ContentionAware, NodeLimits
from trainmaster.policies.trainmaster.locality_estimator import (
    LocalityEstimator,
    PenaltyKey,
    PublishedLosses,
)
from trainmaster.policies.trainmaster.options import LocalityTerms
from trainmaster.policies.trainmaster.priority import left_ms
from trainmaster.policies.trainmaster.scheduling_pass import Pass

LOSS_LEVELS_PPM = (0, 60_000, 120_000, 240_000, 400_000, 700_000)
"""Losses that a gang accepts one after another while it waits; at the last level, any loss."""
FULL_PATIENCE_RUNS = 4
"""Below this many observed spread runs, the delay is reduced proportionally."""
EMPTY_NODE_HARM = 800_000
"""Harm assigned to using an empty node, in millionths of a GPU lost."""


@dataclass(slots=True)
class PlacerCache:
    """Placers, with the topology and the corrections that they were built from."""

    published: PublishedLosses
    corrections: FrozenMap[PenaltyKey, int]
    by_limits: dict[tuple[NodeLimits, bool], Placer] = field(default_factory=dict)
    by_loss_level: dict[tuple[int, str, Hashable, int], Placer] = field(default_factory=dict)


def _cache(p: Pass) -> PlacerCache:
    """The cache, rebuilt if the topology or the corrections have changed."""
    cache, corrections = p.caches.placers, p.memo.locality.believed
    if cache is None or cache.published.topology is not p.view.topology:
        cache = PlacerCache(PublishedLosses(p.view.topology), corrections)
    elif cache.corrections is not corrections:
        cache = PlacerCache(cache.published, corrections, cache.by_limits)
    p.caches.placers = cache
    return cache


def estimated_losses(p: Pass) -> LocalityEstimator:
    """The current estimate of what gangs lose when spread, or next to other gangs."""
    return LocalityEstimator(p.view, _cache(p).published, p.memo.locality)


class DelayScheduling:
    """Chooses the placer of each job in one pass."""

    def __init__(self, p: Pass, terms: LocalityTerms) -> None:
        seen = p.memo.locality
        self.terms = terms
        self.losses = estimated_losses(p)
        self._pass = p
        self._cache = _cache(p)
        self._patience_ppm = (
            terms.patience_ppm * min(seen.witnesses + 1, FULL_PATIENCE_RUNS) // FULL_PATIENCE_RUNS
        )
        self._avoiding: dict[Placer, Placer] = {}

    # -- answering ---------------------------------------------------------------------------------

    def placer(self, record: JobRecord) -> Placer:
        """The placer of this job, given how long it has waited."""
        inner = self._by_distance(record)
        if not self.terms.avoids_gangs or record.demand.nominal.count < 2:
            return inner
        found = self._avoiding.get(inner)
        if found is None:
            found = self._avoiding[inner] = ContentionAware(inner, self.harm, EMPTY_NODE_HARM)
        return found

    def group(self, record: JobRecord, group: Hashable) -> Hashable:
        """Jobs of one demand fit alike if they accept the same losses."""
        placer = self._by_distance(record)
        return group if placer is RELAXING else (group, placer)

    def accepts_more_at(self, record: JobRecord) -> int | None:
        """When a waiting job will accept GPUs farther apart; None: it already accepts all it ever will."""
        if record.placement is not None or self._by_distance(record) is RELAXING:
            return None
        loss_level = self._accepted_loss_level(record) + 1
        if loss_level == len(LOSS_LEVELS_PPM):
            return None
        return record.waiting_since_ms + self._wait_ms(
            self.left_ms(record), LOSS_LEVELS_PPM[loss_level]
        )

    def takes_free_gpus_at(self, record: JobRecord, space: Occupancy) -> int | None:
        """When a waiting job will accept GPUs that are free now; None: it does, or never will."""
        if self.accepts_more_at(record) is None:
            return None
        left = self.left_ms(record)
        for level in range(self._accepted_loss_level(record) + 1, len(LOSS_LEVELS_PPM)):
            if self._placer_at(record, level).place(space, record) is not None:
                return record.waiting_since_ms + self._wait_ms(left, LOSS_LEVELS_PPM[level])
        return None

    def left_ms(self, record: JobRecord) -> int:
        """Expected remaining time of the job."""
        return left_ms(self._pass, record)

    def harm(self, record: JobRecord, node: int) -> int:
        """Loss of the job plus loss of the gang on the node if they shared it, each times its GPUs."""
        gangs = [each for each in self.losses.gangs_on(node) if each is not record]
        if not gangs:
            return 0
        harm = self.losses.neighbour_loss(record) * record.demand.nominal.count
        if len(gangs) == 1:
            harm += self.losses.neighbour_loss(gangs[0]) * gangs[0].demand.nominal.count
        return harm

    # -- distance ----------------------------------------------------------------------------------

    def _by_distance(self, record: JobRecord) -> Placer:
        if record.demand.nominal.count < 2 or not record.is_whole or self._has_to_leave(record):
            return RELAXING
        loss_level = self._accepted_loss_level(record)
        key = (record.group, record.job.model, self.losses.profile_key(record), loss_level)
        found = self._cache.by_loss_level.get(key)
        if found is None:
            found = self._cache.by_loss_level[key] = self._placer_at(record, loss_level)
        return found

    def _has_to_leave(self, record: JobRecord) -> bool:
        """Whether one of its nodes is being drained: then any other place will do."""
        placement, draining = record.placement, self._pass.view.draining
        if not draining or placement is None:
            return False
        return any(piece.node in draining for piece in placement.slices)

    def _accepted_loss_level(self, record: JobRecord) -> int:
        """Index of the loss level that the job accepts after its waiting time."""
        if record.placement is not None:
            return 0
        waited = self._pass.now - record.waiting_since_ms
        if not waited:
            return 0
        left = self.left_ms(record)
        return (
            bisect_right(LOSS_LEVELS_PPM, waited, 1, key=lambda loss: self._wait_ms(left, loss)) - 1
        )

    def _wait_ms(self, left_ms: int, loss: int) -> int:
        patience = self._patience_ppm * left_ms // NOMINAL
        return max(1, patience * loss // (NOMINAL - loss))

    def _placer_at(self, record: JobRecord, loss_level: int) -> Placer:
        limits, demand = (
            self._limits(record, max(LOSS_LEVELS_PPM[loss_level], self.terms.ignored_ppm)),
            record.demand,
        )
        count = demand.nominal.count
        if LOSS_LEVELS_PPM[loss_level] == LOSS_LEVELS_PPM[-1] or min(limits) == count:
            return RELAXING
        is_strict = max(limits) <= self.losses.published.fewest_nodes(demand, count)
        return self._cache.by_limits.setdefault(
            (limits, is_strict), BoundedSpread(limits, is_strict)
        )

    def _limits(self, record: JobRecord, accepted: int) -> NodeLimits:
        """For each level: on how many nodes of one domain the loss stays within `accepted`."""
        demand = record.demand
        limits = []
        for level in range(self.losses.topology.node_level):
            nodes = 0
            while nodes < demand.nominal.count:
                if self.losses.loss_at(record, level, nodes + 1) > accepted:
                    break
                nodes += 1
            limits.append(nodes)
        return tuple(limits)


def drop_relaxed_failures(stuck: dict[Hashable, FailedPlacement]) -> None:
    """Forget failed placements of jobs that accept more than the fewest nodes: try them in every pass."""
    for group in [each for each in stuck if not _is_strict(each)]:
        del stuck[group]


def _is_strict(group: Hashable) -> bool:
    placer = group[-1] if isinstance(group, tuple) else None
    return not isinstance(placer, BoundedSpread) or placer.is_strict


def use_locality(p: Pass) -> None:
    """Use delay scheduling to place gangs in this pass."""
    if p.settings.locality is not None:
        p.locality = DelayScheduling(p, p.settings.locality)


def learn_locality(p: Pass) -> None:
    """Observe the speeds of gangs if that is due; if corrections change, all jobs are ranked again."""
    terms, seen = p.settings.locality, p.memo.locality
    if terms is None:
        return
    use_locality(p)
    p.is_observation_due = p.now >= seen.next_look_ms
    if p.is_observation_due and p.locality is not None:
        observed = p.locality.losses.observed(seen, p.now + terms.look_ms)
        p.remember(locality=observed)
        if observed.believed is not seen.believed:
            p.view.invalidate_ranks()
            use_locality(p)
