"""Resizing of elastic runs: they grow into idle GPUs, and give them back as soon as a job waits.

Reclaiming, before jobs are started. For each waiting job in rank order that finds no placement, runs that
have grown beyond their nominal size give up GPUs. A GPU's value is what it adds to the run's speed, divided
by the expected service of a completion (the Gittins cost). If the waiting job fits on one node, one node is
cleared; otherwise the least valuable GPUs of the cluster are taken. A run that is being resized cannot
shrink yet: a job that needs its GPUs waits for the end of that resize, and preempts no run meanwhile.

Growing, after jobs are started. Idle GPUs go to the runs to which they are most valuable. A run doubles its
size, or takes what is left, if enough time has passed since its start or last resize and the actual GPUs make
it faster by more than `gain_ppm`. Untried sizes are assumed to scale like the average job, and GPUs that turn
out to be useless are released. A run expands to a node that hosts another gang only if it gains more than
that gang loses.

To avoid oscillation, a run shrinks only if a job starts in its place, and waits before it grows again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from trainmaster.core.lifecycle import Phase
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.estimators.throughput import key_of
from trainmaster.mechanisms.apply_allocation import carry_out
from trainmaster.mechanisms.gpu_claims import is_divisible
from trainmaster.mechanisms.resize import by_gpu, can_resize, fullest_first, idle_beside, resized
from trainmaster.mechanisms.speedup_curves import Curves, SpeedupCurve
from trainmaster.model.placement import Placement, Slice
from trainmaster.model.plan import FrozenMap
from trainmaster.model.units import NOMINAL, WHOLE
from trainmaster.perf.default_parameters import ELASTICITY
from trainmaster.policies.trainmaster.delay_scheduling import estimated_losses
from trainmaster.policies.trainmaster.memo import ResizingMemo
from trainmaster.policies.trainmaster.options import ResizingTerms
from trainmaster.policies.trainmaster.priority import cost
from trainmaster.policies.trainmaster.scheduling_pass import Pass


def reclaim_growth(p: Pass) -> None:
    """Shrink runs that have grown, for waiting jobs that find no placement."""
    if p.settings.resizing is not None and has_elastic(p):
        p.resizing = Resizing(p, p.settings.resizing)
        p.resizing.reclaim()


def grow_runs(p: Pass) -> None:
    """Give idle GPUs to elastic runs that gain from them."""
    if p.resizing is not None:
        memo = p.resizing.grow()
        p.wake_by(memo.due_ms)
        p.remember(resizing=memo)


class ElasticJobs:
    """Index of the live elastic jobs, updated with the changes of the view."""

    def __init__(self) -> None:
        self._jobs: set[int] = set()

    def exist(self, view: View) -> bool:
        for record in view.changes(ElasticJobs).read_jobs():
            if record.id in view.jobs and is_divisible(record):
                self._jobs.add(record.seq)
            else:
                self._jobs.discard(record.seq)
        return bool(self._jobs)


def has_elastic(p: Pass) -> bool:
    """Whether there is any elastic job."""
    return p.view.index(ElasticJobs).exist(p.view)


def is_due(p: Pass) -> bool:
    """Whether this stage needs a pass although no event has happened."""
    due = p.memo.resizing.due_ms
    return due is not None and due <= p.now


@dataclass(slots=True)
class GrownRun:
    """A run with more GPUs than its nominal size."""

    record: JobRecord
    curve: SpeedupCurve
    cost: int
    """Expected service of a completion (Gittins cost)."""
    slices: tuple[Slice, ...]
    """Its GPUs after what was reclaimed in this pass."""

    @property
    def nominal(self) -> int:
        return self.record.demand.nominal.count

    @property
    def is_settled(self) -> bool:
        """Whether it can shrink now: no resize is under way."""
        return self.record.phase is Phase.RUNNING

    @property
    def has_grown(self) -> bool:
        return len(self.slices) > self.nominal

    def worth(self, count: int) -> float:
        """Value of the last GPU when the run has this many."""
        curve = self.curve
        return (
            (curve.speeds[count] - curve.speeds[count - 1]) * self.nominal / curve.unit / self.cost
        )


Reclaimed = list[tuple[GrownRun, list[Slice]]]


class Resizing:
    """Resizes of one pass: `reclaim` before jobs are started, `grow` after."""

    def __init__(self, p: Pass, terms: ResizingTerms) -> None:
        if p.caches.curves is None:
            p.caches.curves = Curves(p.view.topology)
        self._pass = p
        self._terms = terms
        self._view = p.view
        self._draft = p.draft
        self._now = p.now
        self._runs = _elastic_runs(p)
        self._curves = p.caches.curves
        self._memo = p.memo.resizing
        self._measured = self._curves.learned(self._runs, self._memo.measured, p.view.jobs)
        self._tried = self._most_tried()
        self._losses = estimated_losses(p)
        self._grown: list[GrownRun] = []
        self._shrunk: list[GrownRun] = []

    def _most_tried(self) -> FrozenMap[str, int]:
        """The largest size at which jobs of each kind were observed."""
        before, after, known = self._memo.measured.seen, self._measured.seen, self._memo.tried
        tried = dict[str, int]()
        for record in self._runs if before is not after else ():
            shown = after.get(record.id)
            if shown is not None and before.get(record.id) != shown:
                key = key_of(record.job)
                if shown[1] > max(tried.get(key, 0), known.get(key, 0)):
                    tried[key] = shown[1]
        return known.updated(tried) if tried else known

    def _cost(self, record: JobRecord) -> int:
        return max(1, cost(self._pass, record))

    def _resizable(
        self, phase: Phase = Phase.RUNNING
    ) -> Iterator[tuple[JobRecord, Placement, SpeedupCurve]]:
        """Elastic runs that can be resized in this pass, with their placement and speedup curve.

        With RESIZING: those that can be at the end of their present resize.
        """
        for record in self._runs:
            held = record.placement
            if held is None or self._draft.is_touched(record):
                continue
            if can_resize(record, self._draft.space, phase):
                yield record, held, self._curves.of(record, self._measured.corrections)

    # -- reclaiming --------------------------------------------------------------------------------

    def reclaim(self) -> None:
        """Shrink runs for waiting jobs that find no placement, best rank first."""
        p, draft = self._pass, self._draft
        if not p.ranks.has_waiting():
            return
        self._grown = [
            GrownRun(record, curve, self._cost(record), held.slices)
            for phase in (Phase.RUNNING, Phase.RESIZING)
            for record, held, curve in self._resizable(phase)
            if record.demand.nominal.count < len(held.slices) <= curve.high
        ]
        if not self._grown:
            return
        candidates = p.ranks.candidates(self._now)
        occupied: list[tuple[JobRecord, Placement]] = []
        for _, group, record in candidates:
            placement = p.placer(record).place(draft.space, record)
            if placement is None:
                placement = self._place_by_shrinking(record)
            if placement is None and self._place_after_resizes(record):
                continue
            if placement is None:
                candidates.drop(group)
                continue
            draft.occupy(record, placement)
            occupied.append((record, placement))
            if not draft.space.total_free() and not any(each.has_grown for each in self._grown):
                break
        for record, placement in reversed(occupied):
            draft.vacate(record, placement)
        self._shrunk = [run for run in self._grown if draft.is_placed(run.record)]

    def _place_by_shrinking(self, record: JobRecord) -> Placement | None:
        """Shrink grown runs so that the job can start, and return where; None if that is not possible."""
        settled = [run for run in self._grown if run.is_settled]
        reclaimed = self._gpus_to_reclaim(record, settled) if record.is_whole else []
        return self._place_without(record, reclaimed)

    def _place_after_resizes(self, record: JobRecord) -> bool:
        """Whether the job can start once runs that are being resized have shrunk further.

        What else it needs is cleared now and kept for it.
        """
        if not record.is_whole or all(run.is_settled for run in self._grown):
            return False
        draft = self._draft
        reclaimed = self._gpus_to_reclaim(record, self._grown)
        mark = draft.checkpoint()
        placement = self._place_without(record, reclaimed)
        if placement is None:
            return False
        draft.roll_back(mark)
        for run, _ in reclaimed:
            if run.is_settled:
                self._shrink(run, run.slices)
        draft.postpone(record, tuple(filter(self._is_free, placement.slices)))
        return True

    def _place_without(self, record: JobRecord, reclaimed: Reclaimed) -> Placement | None:
        """Where the job can start on these GPUs; where it cannot, nothing has changed."""
        if not reclaimed:
            return None
        mark = self._draft.checkpoint()
        before = [(run, run.slices) for run, _ in reclaimed]
        for run, pieces in reclaimed:
            self._shrink(run, tuple(piece for piece in run.slices if piece not in pieces))
        placement = self._pass.placer(record).place(self._draft.space, record)
        if placement is None:
            self._draft.roll_back(mark)
            for run, slices in before:
                run.slices = slices
        return placement

    def _shrink(self, run: GrownRun, slices: tuple[Slice, ...]) -> None:
        draft, record = self._draft, run.record
        assert record.placement is not None
        smaller = resized(draft.view, record.placement, slices)
        (draft.replace if draft.is_placed(record) else draft.resize)(record, smaller)
        run.slices = slices

    def _gpus_to_reclaim(self, record: JobRecord, grown: list[GrownRun]) -> Reclaimed:
        """The least valuable GPUs of these runs that make room for the job; empty if none do."""
        space, need = self._draft.space, record.demand.nominal.count
        kinds = space.kinds_for(record.demand)
        usable = {
            piece.node
            for run in grown
            if run.has_grown
            for piece in run.slices
            if space.node_type[piece.node] in kinds
        }
        if need <= max(space.largest[kind] for kind in kinds):
            tries = [
                self._least_valuable(grown, {node}, need - space.whole[node].bit_count())
                for node in sorted(usable)
            ]
        else:
            free = sum(space.free_gpus[kind] for kind in kinds)
            tries = [self._least_valuable(grown, usable, need - free)]
        found = [each for each in tries if each is not None]
        return min(found, key=lambda each: each[0])[1] if found else []

    def _least_valuable(
        self, grown: list[GrownRun], nodes: set[int], missing: int
    ) -> tuple[float, Reclaimed] | None:
        """The `missing` least valuable GPUs of these nodes and their total value; None if too few."""
        heap: list[tuple[float, int, int]] = []
        offers: list[list[Slice]] = []
        for index, run in enumerate(grown):
            here = fullest_first([piece for piece in run.slices if piece.node in nodes])
            offers.append(here)
            if here and run.has_grown:
                heap.append((run.worth(len(run.slices)), index, 0))
        heapify(heap)
        taken = dict[int, int]()
        total = 0.0
        while missing > 0 and heap:
            worth, index, given = heappop(heap)
            run = grown[index]
            count = len(run.slices) - given
            taken[index], total, missing = given + 1, total + worth, missing - 1
            if given + 1 < len(offers[index]) and count - 1 > run.nominal:
                heappush(heap, (run.worth(count - 1), index, given + 1))
        if missing > 0 or not taken:
            return None
        return total, [(grown[index], offers[index][-n:]) for index, n in taken.items()]

    def _undo_futile(self) -> None:
        """Cancel the shrinking of runs whose GPUs no job took."""
        draft = self._draft
        for run in self._shrunk:
            held, planned = run.record.placement, draft.placement_of(run.record)
            if held is None or planned is None or not draft.is_placed(run.record):
                continue
            given = [piece for piece in held.slices if piece not in planned.slices]
            has_room = self._pass.has_room(run.record, len(given) * WHOLE)
            if has_room and all(map(self._is_free, given)):
                draft.replace(run.record, held)

    def _is_free(self, piece: Slice) -> bool:
        """Whether nothing uses that GPU, and it is kept for nobody."""
        space, node = self._draft.space, piece.node
        return bool(space.whole[node] >> (piece.gpu - space.first_gpu[node]) & 1)

    # -- growing -----------------------------------------------------------------------------------

    def grow(self) -> ResizingMemo:
        """Grow runs, and return the memo."""
        self._undo_futile()
        self._release_useless_gpus()
        return self._new_memo(self._grow_into_idle() if self._draft.space.total_free() else None)

    def _new_memo(self, due: int | None) -> ResizingMemo:
        resized = {record.id: self._now for record in self._runs if self._draft.is_placed(record)}
        times = self._memo.resized_ms
        if resized:
            times = times.only(self._view.jobs).updated(resized)
        elif self._measured is self._memo.measured and due == self._memo.due_ms:
            return self._memo
        return ResizingMemo(self._measured, times, self._tried, due)

    def _release_useless_gpus(self) -> None:
        """Release GPUs that do not make the run faster."""
        for record, held, curve in self._resizable():
            count, nominal = len(held.slices), record.demand.nominal.count
            if nominal < count <= curve.high:
                useful = max(nominal, curve.useful[count])
                if useful < count:
                    kept = by_gpu(fullest_first(held.slices)[:useful])
                    self._draft.resize(record, resized(self._view, held, kept))

    def _grow_into_idle(self) -> int | None:
        """Grow runs while GPUs are idle; returns when the next run may grow."""
        rest_ms = max(self._terms.rest_ms, self._terms.rest_switches * self._view.handover_ms)
        wake_at: int | None = None
        ready: list[tuple[float, int, JobRecord, int]] = []
        for record, held, curve in self._resizable():
            more = min(2 * len(held.slices), curve.high)
            value = self._value(record, curve, len(held.slices), more)
            if value is None or record.run_since_ms is None:
                continue
            resized_ms = self._memo.resized_ms.get(record.id, 0)
            rested = max(record.run_since_ms, resized_ms) + rest_ms
            if rested <= self._now:
                ready.append((-value, record.seq, record, more))
            elif wake_at is None or rested < wake_at:
                wake_at = rested
        for _, _, record, count in sorted(ready, key=lambda each: each[:2]):
            self._grow(record, count)
        return wake_at

    def _value(self, record: JobRecord, curve: SpeedupCurve, count: int, more: int) -> float | None:
        """Best-case value per GPU of growing from `count` to `more`; None if the gain is too small."""
        if count >= more:
            return None
        before, after = curve.speeds[count], curve.speeds[more]
        after = max(after, self._optimistic_speed(record, before, count, more))
        if not self._gains(before, after):
            return None
        gained = (after - before) * record.demand.nominal.count / (curve.unit * (more - count))
        return gained / self._cost(record)

    def _optimistic_speed(self, record: JobRecord, before: int, count: int, more: int) -> int:
        """Speed on an untried size if the run scaled like the average job; 0 if a larger size was tried."""
        if self._tried.get(key_of(record.job), 0) > count:
            return 0
        return before * ELASTICITY.speedup("", more) // ELASTICITY.speedup("", count)

    def _gains(self, before: int, after: int) -> bool:
        return (after - before) * NOMINAL > before * self._terms.gain_ppm

    def _room_for(self, record: JobRecord, held: int, count: int) -> int:
        """How many more GPUs a run may take on its way to `count`.

        If preemptions take time, growth beyond the nominal size leaves some GPUs idle for new jobs.
        """
        owed = max(0, record.demand.nominal.count - held)
        free, room = self._draft.space.total_free(), self._pass.headroom(record)
        count = count if room is None else min(count, held + room // WHOLE)
        gpus = self._view.topology.training_gpus
        spare = gpus // self._terms.spare_part if self._view.handover_ms else 0
        return min(count - held, max(min(owed, free), free - spare))

    def _grow(self, record: JobRecord, count: int) -> None:
        """Take the fastest GPUs nearby; if they do not gain enough, those of its own nodes."""
        draft, held = self._draft, record.placement
        assert held is not None
        room = self._room_for(record, len(held.slices), count)
        if room <= 0:
            return
        mark = draft.checkpoint()
        carry_out(draft, [(record, len(held.slices) + room)], self._speed, shrinks_for_growth=False)
        grown = draft.placement_of(record)
        assert grown is not None
        if len(grown.slices) == len(held.slices) or self._is_worthwhile(record, held, grown):
            return
        draft.roll_back(mark)
        beside = idle_beside(draft, record, held, room)
        if beside:
            grown = resized(draft.view, held, (*held.slices, *beside))
            if self._is_worthwhile(record, held, grown):
                draft.resize(record, grown)

    def _speed(self, record: JobRecord, placement: Placement) -> int:
        """Speed at a placement: measured or predicted, or the optimistic one for an untried size."""
        held, count, corrections = (
            record.placement,
            len(placement.slices),
            self._measured.corrections,
        )
        predicted = self._curves.speed(record, placement, corrections)
        if held is None or count <= len(held.slices):
            return predicted
        before = self._curves.speed(record, held, corrections)
        return max(predicted, self._optimistic_speed(record, before, len(held.slices), count))

    def _is_worthwhile(self, record: JobRecord, held: Placement, grown: Placement) -> bool:
        """Whether the GPUs are available now and gain more than they cost neighbouring gangs."""
        had = set(held.gpus())
        if any(gpu not in had and not self._draft.is_at_hand(gpu) for gpu in grown.gpus()):
            return False
        nominal = record.demand.nominal.count
        is_return = len(grown.slices) <= nominal
        neighbours = [] if is_return else self._new_neighbours(record, held, grown)
        before, after = self._speed(record, held), self._speed(record, grown)
        if neighbours:
            after -= after * self._losses.neighbour_loss(record) // NOMINAL
        if not self._gains(before, after):
            return False
        gained = (after - before) / NOMINAL * nominal / self._cost(record)
        return gained > sum(
            self._losses.neighbour_loss(other)
            / NOMINAL
            * _size(other.placement)
            / self._cost(other)
            for other in neighbours
        )

    def _new_neighbours(
        self, record: JobRecord, held: Placement, grown: Placement
    ) -> list[JobRecord]:
        """Gangs on the nodes to which the run would expand."""
        placement_of = self._draft.placement_of
        known = set(held.nodes) if _size(held) > 1 else set()
        found = {
            other.seq: other
            for node in grown.nodes
            if node not in known
            for other in self._view.residents(node)
            if other is not record and _size(placement_of(other)) > 1
        }
        return [found[seq] for seq in sorted(found)]


def _size(placement: Placement | None) -> int:
    return 0 if placement is None else len(placement.slices)


def _elastic_runs(p: Pass) -> list[JobRecord]:
    """Elastic runs, in order of submission."""
    runs = [
        record
        for line in p.ranks.running.values()
        for _, _, _, _, record in line.entries
        if is_divisible(record)
    ]
    runs.sort(key=lambda record: record.seq)
    return runs
