"""How near together each gang has to be: what distance costs its model decides how long it waits.

A gang accepts a place where it would lose a part l of its speed once it has waited as long as that loss
would cost it: `patience` x l / (1 - l) of the time that it is expected to go on. Before that it takes
nearer places or waits; a loss below `ignored` never matters. What a place costs is what was published
for the model, put right by what was seen (locality_estimator.py): where distance turns out to cost
nothing, nobody waits for nearness. Small gangs keep away from nodes where they and others would slow
each other down, if another node that is in use has room. (Philly, ATC'19, relaxes locality after
retries; Tiresias, NSDI'19, consolidates models by their skew; neither measures.)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.mechanisms.rank_order import Stuck
from trainmaster.model.plan import Rank
from trainmaster.model.units import MINUTE, NOMINAL
from trainmaster.placement.placers import RELAXING, Placer
from trainmaster.policies.trainmaster.bounded_spread import Limited, Limits
from trainmaster.policies.trainmaster.contention_aware import Considerate
from trainmaster.policies.trainmaster.locality_estimator import NOTHING_SEEN, Distances, Nearness

STEPS = (0, 60_000, 120_000, 240_000, 400_000, 700_000)
"""Losses that a gang comes to accept, one after another, in parts per million; at the last, any."""
WITNESSES = 4
"""Until so many runs were seen apart, gangs wait only for a part of the time."""
BREAKING = 800_000
"""What beginning an empty node counts for: the loss of so many millionths of a GPU."""

LeftMs = Callable[[JobRecord, int], int]
"""How long a job is expected to go on, at a time."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How much nearness is worth."""

    ignored_ppm: int = 30_000
    """A loss of this part of its speed is accepted at once."""
    patience_ppm: int = 2 * NOMINAL
    """A gang waits for nearness this many times what distance would cost it."""
    is_considerate: bool = True
    """Whether small gangs keep away from each other's nodes."""
    look_ms: int = 5 * MINUTE
    """How often runs are looked at, and gathered."""
    rest_ms: int = 10 * MINUTE
    """A run is left where it is for so long before it moves."""


class Closeness:
    """Which placer for which job. Everything held here is a cache of what was seen and of the view."""

    def __init__(self, terms: Terms, left_ms: LeftMs) -> None:
        self.left_ms = left_ms
        self.terms = terms
        self._seen = NOTHING_SEEN
        self._distances: Distances | None = None
        self._now = 0
        self._patience_ppm = 0
        self._placers: dict[tuple[int, str, int], Placer] = {}
        self._by_limits: dict[tuple[Limits, bool], Placer] = {}
        self._considerate: dict[Placer, Placer] = {}

    # -- learning ----------------------------------------------------------------------------------

    def is_due(self, seen: Nearness, now: int) -> bool:
        """Whether runs are to be looked at, and gathered, in this pass."""
        return now >= seen.next_look_ms

    def learn(self, seen: Nearness, view: View, now: int) -> Nearness:
        """What is known after a look at the runs, if one is due; a change ranks everybody anew."""
        self.show(seen, view, now)
        if not self.is_due(seen, now):
            return seen
        looked = self.distances.looked(seen, now + self.terms.look_ms)
        if looked.believed is not seen.believed:
            view.rerank()
        self.show(looked, view, now)
        return looked

    def show(self, seen: Nearness, view: View, now: int) -> None:
        """Answer from this from now on, for this time."""
        self._now = now
        if self._distances is None or self._distances.view is not view:
            self._distances = Distances(view)
            self._forget_placers()
        if seen.believed is not self._seen.believed:
            self._forget_placers()
        self._seen = seen
        self._distances.believe(seen)
        part = 1 + min(seen.witnesses, WITNESSES - 1)
        self._patience_ppm = self.terms.patience_ppm * part // WITNESSES

    def _forget_placers(self) -> None:
        self._placers.clear()
        self._considerate.clear()

    @property
    def distances(self) -> Distances:
        assert self._distances is not None
        return self._distances

    # -- answering ---------------------------------------------------------------------------------

    def placer(self, record: JobRecord) -> Placer:
        """The placer for this job after it has waited so long."""
        inner = self._by_distance(record)
        if not self.terms.is_considerate or record.demand.nominal.count < 2:
            return inner
        found = self._considerate.get(inner)
        if found is None:
            found = self._considerate[inner] = Considerate(inner, self.harm, BREAKING)
        return found

    def group(self, record: JobRecord, group: Hashable) -> Hashable:
        """Jobs of one demand fit alike if they put up with the same distances."""
        placer = self._by_distance(record)
        return group if placer is RELAXING else (group, placer)

    def rank(self, record: JobRecord, rank: Rank) -> Rank:
        """The same rank, valid until the job puts up with more."""
        if record.placement is not None or self._by_distance(record) is RELAXING:
            return rank
        step = self._step(record) + 1
        if step == len(STEPS):
            return rank
        left = self.left_ms(record, self._now)
        due = record.waiting_since_ms + self._wait_ms(left, STEPS[step])
        return rank._replace(until_ms=due if rank.until_ms is None else min(due, rank.until_ms))

    def unstick(self, stuck: dict[Hashable, Stuck]) -> None:
        """Who would accept more than the fewest nodes is to be tried again in every pass."""
        for group in [each for each in stuck if not _is_strict(each)]:
            del stuck[group]

    def harm(self, record: JobRecord, node: int) -> int:
        """What the job and another gang on the node would lose to each other, times GPUs."""
        distances = self.distances
        gangs = [each for each in distances.gangs_on(node) if each is not record]
        if not gangs:
            return 0
        harm = distances.loss_beside(record) * record.demand.nominal.count
        if len(gangs) == 1:
            harm += distances.loss_beside(gangs[0]) * gangs[0].demand.nominal.count
        return harm

    # -- distance ----------------------------------------------------------------------------------

    def _by_distance(self, record: JobRecord) -> Placer:
        if record.demand.nominal.count < 2 or not record.is_whole or self._has_to_leave(record):
            return RELAXING
        step = self._step(record)
        key = (record.group, record.job.model, step)
        found = self._placers.get(key)
        if found is None:
            found = self._placers[key] = self._placer_at(record, step)
        return found

    def _has_to_leave(self, record: JobRecord) -> bool:
        """Whether a node of its is to be emptied: then anywhere is better than there."""
        placement, draining = record.placement, self.distances.view.draining
        if not draining or placement is None:
            return False
        return any(piece.node in draining for piece in placement.slices)

    def _step(self, record: JobRecord) -> int:
        """How many steps of loss it has come to accept by waiting."""
        if record.placement is not None:
            return 0
        waited = self._now - record.waiting_since_ms
        if not waited:
            return 0
        left = self.left_ms(record, self._now)
        return bisect_right(STEPS, waited, 1, key=lambda loss: self._wait_ms(left, loss)) - 1

    def _wait_ms(self, left_ms: int, loss: int) -> int:
        patience = self._patience_ppm * left_ms // NOMINAL
        return max(1, patience * loss // (NOMINAL - loss))

    def _placer_at(self, record: JobRecord, step: int) -> Placer:
        limits, demand = (
            self._limits(record, max(STEPS[step], self.terms.ignored_ppm)),
            record.demand,
        )
        count = demand.nominal.count
        if STEPS[step] == STEPS[-1] or min(limits) == count:
            return RELAXING
        is_strict = max(limits) <= self.distances.foretold.fewest_nodes(demand, count)
        return self._by_limits.setdefault((limits, is_strict), Limited(limits, is_strict))

    def _limits(self, record: JobRecord, accepted: int) -> Limits:
        """On how many nodes of one domain of each level it loses no more than is accepted."""
        demand, model = record.demand, record.job.model
        limits = []
        for level in range(self.distances.topology.node_level):
            nodes = 0
            while nodes < demand.nominal.count:
                if self.distances.loss_at(model, demand, level, nodes + 1) > accepted:
                    break
                nodes += 1
            limits.append(nodes)
        return tuple(limits)


def _is_strict(group: Hashable) -> bool:
    placer = group[-1] if isinstance(group, tuple) else None
    return not isinstance(placer, Limited) or placer.is_strict
