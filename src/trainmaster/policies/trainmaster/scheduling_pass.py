"""One scheduling pass of `trainmaster`: the state that its stages share."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from trainmaster.core.draft import Draft
from trainmaster.core.rank_index import RankIndex
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View, by_demand
from trainmaster.estimators.service.gittins_by_bin import BinProbabilityForecast
from trainmaster.estimators.service.predictor import BY_BINS, ServicePredictor, service_bound
from trainmaster.mechanisms.fair_share.queue_tree import TreeCache
from trainmaster.mechanisms.preemption_guards import PreemptionGuards
from trainmaster.mechanisms.preemptive_scheduling import FailedPlacement
from trainmaster.mechanisms.speedup_curves import Curves
from trainmaster.mechanisms.type_choice import TypeChoice
from trainmaster.model.deadline_notices import DeadlineNotice
from trainmaster.model.plan import Plan
from trainmaster.placement.placers import RELAXING, Placer
from trainmaster.policies.trainmaster.colocation_speeds import kind_of
from trainmaster.policies.trainmaster.deadlines.admission import DeadlineAdmission
from trainmaster.policies.trainmaster.memo import TrainmasterMemo
from trainmaster.policies.trainmaster.options import Settings
from trainmaster.policies.trainmaster.shared_gpus import can_share

if TYPE_CHECKING:
    from trainmaster.policies.trainmaster.colocation import Colocation, GainCache
    from trainmaster.policies.trainmaster.delay_scheduling import DelayScheduling, PlacerCache
    from trainmaster.policies.trainmaster.queues import QueueRanks, TrainmasterQueuePass
    from trainmaster.policies.trainmaster.resizing import Resizing


@dataclass(slots=True)
class Caches:
    """Caches that can be rebuilt from view and memo at any time."""

    predictor: ServicePredictor[BinProbabilityForecast]
    trees: TreeCache
    stuck: dict[Hashable, FailedPlacement] = field(default_factory=dict)
    stuck_in: dict[str, dict[Hashable, FailedPlacement]] = field(default_factory=dict)
    """The same by queue."""
    placers: PlacerCache | None = None
    gains: GainCache | None = None
    curves: Curves | None = None

    @classmethod
    def new(cls, settings: Settings, trees: TreeCache) -> Caches:
        classes = len(BY_BINS.weights) - (not settings.learns_programs)
        return cls(
            ServicePredictor(
                BY_BINS,
                classes * settings.learns_classes,
                asks_siblings=settings.learns_siblings,
            ),
            trees,
        )


@dataclass(slots=True)
class Pass:
    """View, draft, memo and time of one pass, and the results of its stages."""

    settings: Settings
    caches: Caches
    view: View
    memo: TrainmasterMemo
    now: int
    draft: Draft
    has_queues: bool = False
    """Whether queues were stated; if not, all jobs are ranked together."""
    queue_pass: TrainmasterQueuePass | None = None
    ranks: RankIndex | QueueRanks = field(init=False)
    locality: DelayScheduling | None = None
    colocation: Colocation | None = None
    resizing: Resizing | None = None
    type_choice: TypeChoice | None = None
    """How jobs choose between types of devices of different speed; None: they take the fastest."""
    is_observation_due: bool = False
    """Whether this pass observes speeds of gangs and consolidates spread ones."""
    due_ms: int | None = None
    """When a stage wants to be called again."""
    notices: tuple[DeadlineNotice, ...] = ()

    @property
    def guards(self) -> PreemptionGuards:
        return self.settings.guards

    def remember(self, **values: object) -> None:
        """Put new values into the memo."""
        memo = self.memo
        if all(getattr(memo, name) is value for name, value in values.items()):
            return
        self.memo = replace(memo, **values)  # type: ignore[arg-type]

    def wake_by(self, time: int | None) -> None:
        """Plan again no later than this."""
        if time is not None and (self.due_ms is None or time < self.due_ms):
            self.due_ms = time

    def plan(self) -> Plan[TrainmasterMemo]:
        """The plan of all stages."""
        return self.draft.plan(self.memo, self.due_ms, self.notices)

    # -- about a job -------------------------------------------------------------------------------

    def forecast(self, record: JobRecord) -> BinProbabilityForecast:
        """The forecast of the job's total service."""
        return self.caches.predictor.forecast(self.memo.service, record)

    def has_guarantee(self, record: JobRecord) -> bool:
        """Whether the job is guaranteed a run or has an accepted deadline, so that it must not share."""
        return record.id in self.memo.owed.until or record.id in self.memo.deadlines.accepted

    def deadlines(self) -> DeadlineAdmission:
        """Deadline admission with the current cost of a preemption and service estimates."""

        def bound(record: JobRecord) -> int | None:
            return service_bound(self.caches.predictor, self.memo.service, record)

        margin = self.settings.deadline_margin_ppm or 0
        return DeadlineAdmission(margin, self.memo.handover_ms, bound)

    # -- what its queue may hold -------------------------------------------------------------------

    def headroom(self, record: JobRecord) -> int | None:
        """How much more the job's queue may hold, in thousandths of a GPU; None: no limit."""
        return None if self.queue_pass is None else self.queue_pass.headroom(record)

    def has_room(self, record: JobRecord, share: int) -> bool:
        room = self.headroom(record)
        return room is None or share <= room

    # -- where a job may go ------------------------------------------------------------------------

    def own_placer(self, record: JobRecord) -> Placer:
        """The placer for exclusive GPUs."""
        return RELAXING if self.locality is None else self.locality.placer(record)

    def placer(self, record: JobRecord) -> Placer:
        """The placer for exclusive GPUs or, with colocation, also for a share of one."""
        own = self.own_placer(record)
        return own if self.colocation is None else self.colocation.placer(record, own)

    def group(self, record: JobRecord) -> Hashable:
        """The job's group: jobs of one group either all fit or none does."""
        group: Hashable = by_demand(record)
        if self.locality is not None:
            group = self.locality.group(record, group)
        if self.settings.packing is None or not can_share(record):
            return group
        return group, kind_of(record)


Stage = Callable[[Pass], None]
