"""Locality and interference: what a gang loses when its GPUs lie apart, or beside another gang on its node.

Published is a table of speeds by span and number of nodes (perf/locality.py) and by neighbours
(perf/network_contention.py). It is corrected by observation: every few minutes, in passes that are made
anyway, the speed of each gang is looked at once a run. Gangs as near as can be tell what is normal for
their model; the others, what distance costs; small gangs that share a node, what a neighbour costs. Until
enough runs of a model were seen, those of all models count. What was observed is a value, for the memo.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from trainmaster.core.lifecycle import Phase
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.model.codec import stored_as
from trainmaster.model.job import Demand
from trainmaster.model.placement import Placement, Sharing
from trainmaster.model.plan import FrozenMap
from trainmaster.model.topology import Topology
from trainmaster.model.units import NOMINAL
from trainmaster.perf.default_parameters import LOCALITY, NEIGHBOURS
from trainmaster.perf.model_zoo import table_name
from trainmaster.perf.network_contention import Wire
from trainmaster.perf.perf_model import PerfModel, Speeds

PRIOR_RUNS = 1
"""Runs that what is believed without them counts for."""
HALVED_AFTER_RUNS = 64
"""Runs after which older ones count half."""
LEAST_LOSS = 15_000
"""A model that is said to lose nothing is predicted this much wherever unknown models lose anything."""
MOST_LOSS = 950_000
"""No loss is predicted beyond this."""


def upgraded(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Older stores call predicted losses foretold."""
    return {("predicted" if name == "foretold" else name): held for name, held in body.items()}


@stored_as("locality.Penalty", upgraded)
@dataclass(frozen=True, slots=True)
class Penalty:
    """What was seen of some runs, summed up; speeds and losses in parts per million."""

    near: int = 0
    """Runs that lay as near as can be ..."""
    near_speed: int = 0
    apart: int = 0
    """... and those that did not."""
    predicted: int = 0
    lost: int = 0

    def with_near(self, speed: int) -> Penalty:
        kept = self._aged()
        return replace(kept, near=kept.near + 1, near_speed=kept.near_speed + speed)

    def with_spread(self, predicted: int, lost: int) -> Penalty:
        kept = self._aged()
        predicted, lost = kept.predicted + predicted, kept.lost + lost
        return replace(kept, apart=kept.apart + 1, predicted=predicted, lost=lost)

    def _aged(self) -> Penalty:
        names: tuple[str, ...] = ("near", "near_speed") if self.near >= HALVED_AFTER_RUNS else ()
        if self.apart >= HALVED_AFTER_RUNS:
            names += ("apart", "predicted", "lost")
        return replace(self, **{name: getattr(self, name) // 2 for name in names})

    def near_ppm(self) -> int:
        """Speed of runs that lie near: nominal until some were seen."""
        return (self.near_speed + PRIOR_RUNS * NOMINAL) // (self.near + PRIOR_RUNS)

    def correction_ppm(self, believed_ppm: int = NOMINAL) -> int:
        """What a predicted loss is to be multiplied with."""
        if not self.predicted:
            return believed_ppm
        seen = self.lost * self.apart * NOMINAL // self.predicted
        return (seen + PRIOR_RUNS * believed_ppm) // (self.apart + PRIOR_RUNS)


class PublishedLosses:
    """Published losses on one topology; caches only pure results."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._speeds = Speeds(PerfModel("published", locality=LOCALITY), topology)

    def loss(self, model: str, demand: Demand, count: int, span: int, nodes: int) -> int:
        """Part of its speed that a gang is said to lose there, at its nearest nothing."""
        unknown = NOMINAL - self._speeds.placed("", demand, count, span, nodes)
        own = NOMINAL - self._speeds.placed(model, demand, count, span, nodes)
        return max(own, LEAST_LOSS) if unknown or own else 0

    def neighbour_loss(self, model: str) -> int:
        """Part of its speed that a gang is said to lose to another one on its node."""
        return max(LEAST_LOSS, NOMINAL - NEIGHBOURS.remaining_speed(model, Wire.SERVER, 2))

    def fewest_nodes(self, demand: Demand, count: int) -> int:
        return self._speeds.nearest(demand, count)[1]


INFORMATIVE_LOSS = 50_000
"""A gang that is predicted to lose less tells nothing about other models, nor about other places."""
LEAST_CHANGE_PART = 4
"""A correction is believed when it differs from the one before by this part, one in four."""
LEAST_CORRECTION = NOMINAL // 32
"""One below this is none at all."""

PenaltyKey = tuple[str, ...]
"""Model, as tables name it, and type of GPU; in which situation, where it is not plain distance."""
SMALL_LOSS = "quiet"
"""Apart, where it is said to lose next to nothing."""
ALONE, BESIDE = "alone", "beside"
"""Small gangs on one node: alone there, and beside others."""
ANY: PenaltyKey = ()
ANY_BESIDE: PenaltyKey = (BESIDE,)


@stored_as("locality.Observations")
@dataclass(frozen=True, slots=True)
class LocalityObservations:
    """What was seen of distance and neighbours."""

    felt: FrozenMap[PenaltyKey, Penalty] = field(default_factory=FrozenMap)
    believed: FrozenMap[PenaltyKey, int] = field(default_factory=FrozenMap)
    """What predicted losses are multiplied with, in parts per million."""
    witnesses: int = 0
    """Runs apart that this rests on."""
    looked_at: FrozenMap[int, int] = field(default_factory=FrozenMap)
    """Runs that go on and have been observed at: attempts by number of the job."""
    next_look_ms: int = 0


NOTHING_SEEN = LocalityObservations()


class LocalityEstimator:
    """Losses of jobs at places: as published for a topology, corrected by what was observed."""

    def __init__(self, view: View, published: PublishedLosses, seen: LocalityObservations) -> None:
        self.view = view
        self.topology = view.topology
        self.published = published
        self._corrections = seen.believed

    # -- answering ---------------------------------------------------------------------------------

    def loss(self, record: JobRecord, placement: Placement) -> int:
        """Part of its speed that the job is expected to lose there."""
        return self._corrected(self._predicted_at(record, placement), self._kind(record, placement))

    def loss_at(self, model: str, demand: Demand, span: int, nodes: int) -> int:
        """The same for a gang on so many nodes of one domain, on the worst of its types of GPU."""
        predicted = self.published.loss(model, demand, demand.nominal.count, span, nodes)
        name = table_name(model)
        kinds = [kind.name for kind in self.topology.types if demand.allows(kind.name)]
        return max((self._corrected(predicted, (name, kind)) for kind in kinds), default=0)

    def neighbour_loss(self, record: JobRecord) -> int:
        """Part of its speed that the job is expected to lose to another gang on its node."""
        name, anybody = table_name(record.job.model), self._corrections.get(ANY_BESIDE, NOMINAL)
        types = self.topology.types
        known = max(self._corrections.get((name, kind.name, BESIDE), anybody) for kind in types)
        return self.published.neighbour_loss(record.job.model) * known // NOMINAL

    @cached_property
    def training_gangs(self) -> list[JobRecord]:
        """Gangs that train on what they asked for, in order of submission; found by node, not by job."""
        found = {
            each.seq: each
            for node in range(len(self.topology.nodes))
            for each in self.view.residents(node)
            if _trains(each)
        }
        return [found[seq] for seq in sorted(found)]

    def gangs_on(self, node: int) -> list[JobRecord]:
        return [each for each in self.view.residents(node) if _holds_several(each)]

    def _corrected(self, predicted: int, kind: PenaltyKey) -> int:
        if predicted < INFORMATIVE_LOSS:
            correction = self._corrections.get((*kind, SMALL_LOSS), NOMINAL)
        else:
            correction = self._corrections.get(kind, self._corrections.get(ANY, NOMINAL))
        return min(MOST_LOSS, predicted * correction // NOMINAL)

    def _predicted_at(self, record: JobRecord, placement: Placement) -> int:
        span, count = placement.span, len(placement.slices)
        nodes = 1 if span >= self.topology.node_level else len(placement.nodes)
        return self.published.loss(record.job.model, record.demand, count, span, nodes)

    def _kind(self, record: JobRecord, placement: Placement) -> PenaltyKey:
        kind = self.topology.type_of_gpu[placement.slices[0].gpu]
        return table_name(record.job.model), kind.name

    # -- looking -----------------------------------------------------------------------------------

    def observed(self, seen: LocalityObservations, next_look_ms: int) -> LocalityObservations:
        """What is known after a look at all runs that were not observed at before."""
        gangs = self.training_gangs
        known = seen.looked_at
        new = [record for record in gangs if known.get(record.seq) != record.attempt]
        if not new:
            return replace(seen, next_look_ms=next_look_ms)
        felt = dict(seen.felt)
        for record in new:
            assert record.placement is not None
            self._observe(felt, record, record.placement)
        looked_at = FrozenMap({record.seq: record.attempt for record in gangs})
        believed = _corrections(felt, seen.believed)
        witnesses = seen.witnesses if believed is seen.believed else felt.get(ANY, Penalty()).apart
        return LocalityObservations(FrozenMap(felt), believed, witnesses, looked_at, next_look_ms)

    def _observe(
        self, felt: dict[PenaltyKey, Penalty], record: JobRecord, placement: Placement
    ) -> None:
        kind, speed = self._kind(record, placement), record.speed_ppm
        own = felt.get(kind, Penalty())
        predicted = self._predicted_at(record, placement)
        if not predicted:
            felt[kind] = own.with_near(speed)
            self._observe_neighbours(felt, record, placement, kind)
            return
        lost = max(0, NOMINAL - speed * NOMINAL // own.near_ppm())
        if predicted >= INFORMATIVE_LOSS:
            _add(felt, kind, predicted, lost)
            _add(felt, ANY, predicted, lost)
        else:
            _add(felt, (*kind, SMALL_LOSS), predicted, lost)

    def _observe_neighbours(
        self,
        felt: dict[PenaltyKey, Penalty],
        record: JobRecord,
        placement: Placement,
        kind: PenaltyKey,
    ) -> None:
        node = placement.slices[0].node
        is_whole_node = len(placement.slices) == self.topology.nodes[node].gpus
        if is_whole_node or len(placement.nodes) > 1:
            return
        alone = felt.get((*kind, ALONE), Penalty())
        if len(self.gangs_on(node)) == 1:
            felt[*kind, ALONE] = alone.with_near(record.speed_ppm)
            return
        predicted = self.published.neighbour_loss(record.job.model)
        lost = max(0, NOMINAL - record.speed_ppm * NOMINAL // alone.near_ppm())
        _add(felt, (*kind, BESIDE), predicted, lost)
        if predicted >= INFORMATIVE_LOSS:
            _add(felt, ANY_BESIDE, predicted, lost)


def _holds_several(record: JobRecord) -> bool:
    return record.placement is not None and len(record.placement.slices) > 1


def _add(felt: dict[PenaltyKey, Penalty], kind: PenaltyKey, predicted: int, lost: int) -> None:
    felt[kind] = felt.get(kind, Penalty()).with_spread(predicted, lost)


def _trains(record: JobRecord) -> bool:
    """Whether it trains alone on the GPUs that it asked for, several of them."""
    placement, count = record.placement, record.demand.nominal.count
    return (
        count > 1
        and record.phase is Phase.RUNNING
        and record.since_ms is not None
        and placement is not None
        and placement.sharing is Sharing.EXCLUSIVE
        and len(placement.slices) == count
    )


def _corrections(
    felt: Mapping[PenaltyKey, Penalty], before: FrozenMap[PenaltyKey, int]
) -> FrozenMap[PenaltyKey, int]:
    """Corrections, changed where they differ much from those believed so far."""
    changed: dict[PenaltyKey, int] = {}
    for kind, seen in felt.items():
        if seen.apart:
            found = seen.correction_ppm(_of_other_models(felt, kind))
            correction, old = found if found >= LEAST_CORRECTION else 0, before.get(kind, NOMINAL)
            if abs(correction - old) * LEAST_CHANGE_PART > max(correction, old):
                changed[kind] = correction
    return before.updated(changed) if changed else before


def _of_other_models(felt: Mapping[PenaltyKey, Penalty], kind: PenaltyKey) -> int:
    """What is believed of a model in a situation before it was seen."""
    if kind in (ANY, ANY_BESIDE) or SMALL_LOSS in kind:
        return NOMINAL
    others = ANY_BESIDE if BESIDE in kind else ANY
    return felt.get(others, Penalty()).correction_ppm()
