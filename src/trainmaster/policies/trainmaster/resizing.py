"""Elastic runs that breathe: they give GPUs back to whoever waits, and grow into what is idle.

For a policy that runs jobs in rank order. Before its pass runs shrink, so that those who wait find room
(shrink.py); after it, an elastic job that still waits may start on fewer GPUs than it asks for, and
what nobody waits for goes to runs that gain by it (grow.py). Growth is by doubling, by the speed that
was measured or is foretold for the very GPUs; a run rests between two resizings. So nothing goes to and
fro: a run shrinks only where somebody starts, and does not grow again before it has rested.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from trainmaster.core.draft import Draft
from trainmaster.core.rank_index import RankIndex
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.estimators.throughput import key_of
from trainmaster.mechanisms.gpu_claims import is_divisible
from trainmaster.mechanisms.rank_order import PlacerOf
from trainmaster.mechanisms.resize import can_resize
from trainmaster.mechanisms.speedup_curves import Curves, Measured
from trainmaster.model.codec import stored_as
from trainmaster.model.plan import FrozenMap
from trainmaster.model.units import MINUTE, WHOLE
from trainmaster.policies.trainmaster.gang_interference import Company
from trainmaster.policies.trainmaster.grow import Filling, Growth
from trainmaster.policies.trainmaster.shrink import Giver, Giving

IsExempt = Callable[[JobRecord], bool]
"""Whether a job must have all the GPUs that it asks for: what it was promised depends on them."""
PriceAt = Callable[[JobRecord, int], int]
"""The service that a completion of the job is expected to cost at that time: 1/G, or what is known."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What runs may be asked to do."""

    shrinks: bool = False
    """Whether jobs go below the number that they ask for, to let others in."""
    grows: bool = True
    """Whether they go beyond it, where GPUs are idle; who went below it comes back in any case."""
    rest_ms: int = MINUTE
    """Between a start or a resizing of a run and its growth, at least."""
    rest_switches: int = 10
    """The same in changes of hands as they were seen to cost: growth is to last longer than it takes."""
    gain_ppm: int = 50_000
    """A run grows only if that makes it faster by more than this."""
    spare_part: int = 16
    """One GPU in so many is left idle for newcomers, where a change of hands takes time."""
    margin: float = 1.2
    """A run goes below its number if the newcomer is worth so many times what it loses."""


@stored_as("resizing.Memo")
@dataclass(frozen=True, slots=True)
class Breaths:
    """What is remembered: measured speeds, and when runs were last resized."""

    measured: Measured = field(default_factory=Measured)
    resized_ms: FrozenMap[str, int] = field(default_factory=FrozenMap)
    company: Company = field(default_factory=Company)
    tried: FrozenMap[str, int] = field(default_factory=FrozenMap)
    """By model and nominal size, or by job: the most GPUs that were seen at work."""
    due_ms: int | None = None
    """When a run that could grow will have rested, if GPUs are idle."""


NO_BREATHS = Breaths()


class Breathing:
    """The mechanism; holds caches only, `forget` drops them."""

    def __init__(self, terms: Terms, price_at: PriceAt) -> None:
        self.terms = terms
        self.price_at = price_at
        self._curves: Curves | None = None
        self._newest = -1
        self._has_elastic = False

    def forget(self) -> None:
        self._curves = None
        self._newest = -1
        self._has_elastic = False

    def curves(self, view: View) -> Curves:
        if self._curves is None:
            self._curves = Curves(view.topology)
        return self._curves

    def is_idle(self, view: View) -> bool:
        """Whether there has been no elastic job so far: then nothing else need be called."""
        if self._has_elastic or not (self.terms.shrinks or self.terms.grows):
            return not self._has_elastic
        newest = self._newest
        self._has_elastic = any(is_divisible(record) for record in view.requeued)
        for record in view.newest_first():
            if record.seq <= self._newest:
                break
            newest = max(newest, record.seq)
            self._has_elastic = self._has_elastic or is_divisible(record)
        self._newest = newest
        return not self._has_elastic

    def is_due(self, memo: Breaths, now: int) -> bool:
        """Whether a pass is worth while although nothing else has changed."""
        return memo.due_ms is not None and memo.due_ms <= now

    def begin(
        self,
        view: View,
        draft: Draft,
        ranks: RankIndex | None,
        memo: Breaths,
        now: int,
        is_exempt: IsExempt = lambda record: False,
    ) -> Breath:
        """The mechanism for one pass; no order where nobody waits."""
        return Breath(self, view, draft, ranks, memo, now, is_exempt)


class Breath:
    """One pass: `make_room` before jobs are run in order, `end` after."""

    def __init__(
        self,
        breathing: Breathing,
        view: View,
        draft: Draft,
        ranks: RankIndex | None,
        memo: Breaths,
        now: int,
        is_exempt: IsExempt,
    ) -> None:
        self._is_exempt = is_exempt
        self._terms = breathing.terms
        self._price_at = breathing.price_at
        self._view = view
        self._draft = draft
        self._order = ranks
        self._now = now
        self._runs = _elastic_runs(view, ranks)
        self._curves = breathing.curves(view)
        self._memo = memo
        self._measured = self._curves.learned(self._runs, memo.measured, view.jobs)
        self._company, self._tried = self._seen()
        self._shrunk: list[Giver] = []

    def _seen(self) -> tuple[Company, FrozenMap[str, int]]:
        """What gangs beside others have lost, each run counted once at each number of GPUs; and the
        most GPUs at which jobs of one kind were seen."""
        memo, after = self._memo, self._measured.seen
        company, before, tried = memo.company, memo.measured.seen, dict[str, int]()
        if before is after:
            return company, memo.tried
        for record in self._runs:
            shown = after.get(record.id)
            if shown is not None and before.get(record.id) != shown:
                company = company.saw(record, self._curves, self._view)
                key = key_of(record.job)
                most = max(tried.get(key, 0), memo.tried.get(key, 0))
                if shown[1] > most:
                    tried[key] = shown[1]
        return company, memo.tried.updated(tried) if tried else memo.tried

    def _price(self, record: JobRecord) -> int:
        return max(1, self._price_at(record, self._now))

    # -- before ----------------------------------------------------------------------------------

    def make_room(self, placer_of: PlacerOf) -> None:
        """Runs that lose least give GPUs to those who wait and find no room."""
        ranks = self._order
        if ranks is None or not ranks.has_waiting():
            return
        givers = self._givers(ranks)
        if givers:
            giving = Giving(self._draft, givers, self._price, self._terms.margin)
            self._shrunk = giving.make_room(ranks, placer_of, self._now)

    def _givers(self, ranks: RankIndex) -> list[Giver]:
        found = []
        for record in self._runs:
            if not can_resize(record, self._draft.space) or self._draft.is_touched(record):
                continue
            assert record.placement is not None
            demand, held = record.demand, len(record.placement.slices)
            floor = demand.min_count if self._shrinks(record) else demand.nominal.count
            if held > floor:
                curve = self._curves.of(record, self._measured.corrections)
                if held <= curve.high:
                    key = ranks.key_of(record, self._now)
                    found.append(Giver(record, curve, floor, self._price(record), key))
        return found

    def _shrinks(self, record: JobRecord) -> bool:
        """Whether the job may have fewer GPUs than it asks for."""
        return self._terms.shrinks and not self._is_exempt(record)

    # -- after -----------------------------------------------------------------------------------

    def end(self, placer_of: PlacerOf) -> tuple[Breaths, int | None]:
        """Start who can do with less, let runs grow; what to remember, and when to look again."""
        self._take_back()
        if self._terms.shrinks and self._order is not None:
            self._start_smaller(self._order, placer_of)
        filling = Filling(
            self._draft,
            self._curves,
            self._measured.corrections,
            self._price,
            self._growth(),
            self._tried,
        )
        filling.give_up(self._runs)
        due = filling.fill(self._runs, self._memo.resized_ms, self._now)
        return self._remembered(due), due

    def _growth(self) -> Growth:
        """What changes of hands cost says how long growth must last, and that some GPUs stay idle."""
        terms, switch_ms = self._terms, self._view.switch_ms
        spare = self._view.topology.training_gpus // terms.spare_part if switch_ms else 0
        rest_ms = max(terms.rest_ms, terms.rest_switches * switch_ms)
        return Growth(rest_ms, terms.gain_ppm, terms.grows, self._company.kept, spare)

    def _remembered(self, due: int | None) -> Breaths:
        resized = {record.id: self._now for record in self._runs if self._draft.is_placed(record)}
        times = self._memo.resized_ms
        if resized:
            times = times.only(self._view.jobs).updated(resized)
        elif self._measured is self._memo.measured and due == self._memo.due_ms:
            return self._memo
        return Breaths(self._measured, times, self._company, self._tried, due)

    def _take_back(self) -> None:
        """A run that shrank for nobody, since others have better uses for the room, does not shrink."""
        draft, space = self._draft, self._draft.space
        for giver in self._shrunk:
            held, planned = giver.record.placement, draft.placement_of(giver.record)
            if held is None or planned is None or not draft.is_placed(giver.record):
                continue
            given = [piece for piece in held.slices if piece not in planned.slices]
            if all(
                space.whole[piece.node] >> (piece.gpu - space.first_gpu[piece.node]) & 1
                for piece in given
            ) and space.affords(len(given) * WHOLE):
                draft.replace(giver.record, held)

    def _start_smaller(self, ranks: RankIndex, placer_of: PlacerOf) -> None:
        """Elastic jobs that wait start on what is free, best rank first."""
        draft = self._draft
        candidates = ranks.candidates(self._now)
        if not draft.space.total_free():
            return
        for _, group, record in candidates:
            if draft.is_placed(record):
                continue
            if not self._starts_on_fewer(record, placer_of):
                candidates.drop(group)
            elif not draft.space.total_free():
                return

    def _starts_on_fewer(self, record: JobRecord, placer_of: PlacerOf) -> bool:
        space, demand = self._draft.space, record.demand
        if not is_divisible(record) or not self._shrinks(record):
            return False
        free = sum(space.free_gpus[kind] for kind in space.kinds_for(demand))
        for count in range(min(free, demand.nominal.count - 1), demand.min_count - 1, -1):
            shape = demand.sized(count)
            placement = placer_of(record).shaped(space, demand, shape, record.job.role)
            if placement is not None:
                self._draft.start(record, placement)
                return True
        return False


def _elastic_runs(view: View, ranks: RankIndex | None) -> list[JobRecord]:
    """Runs that could have another number of GPUs, in order of submission."""
    if ranks is None:
        return [record for record in view.running() if is_divisible(record)]
    runs = [
        record
        for line in ranks.running.values()
        for _, _, _, _, record in line.entries
        if is_divisible(record)
    ]
    runs.sort(key=lambda record: record.seq)
    return runs
