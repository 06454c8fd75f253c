"""Resizing elastic runs: they grow into idle GPUs, and give those back as soon as a job waits.

Before jobs are started in rank order, runs that have grown give back what waiting jobs need
(give_back.py); after it, idle GPUs go to runs that gain by them (grow.py). Growth is by doubling, by the
speed that was measured or is predicted for the very GPUs; a run rests between two resizings. So nothing
goes to and fro: a run shrinks only where a job starts, and does not grow again before it has rested.
"""

from __future__ import annotations

from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.estimators.throughput import key_of
from trainmaster.mechanisms.gpu_claims import is_divisible
from trainmaster.mechanisms.resize import can_resize
from trainmaster.mechanisms.speedup_curves import Curves
from trainmaster.model.plan import FrozenMap
from trainmaster.model.units import WHOLE
from trainmaster.policies.trainmaster.delay_scheduling import estimated_losses
from trainmaster.policies.trainmaster.give_back import Giver, Giving
from trainmaster.policies.trainmaster.grow import Growing, Growth
from trainmaster.policies.trainmaster.memo import ResizingMemo
from trainmaster.policies.trainmaster.options import ResizingTerms
from trainmaster.policies.trainmaster.priority import cost
from trainmaster.policies.trainmaster.scheduling_pass import Pass


def give_back_growth(p: Pass) -> None:
    """Runs that have grown give GPUs to waiting jobs that find no room."""
    if p.settings.resizing is not None and has_elastic(p):
        p.resizing = Resizing(p, p.settings.resizing)
        p.resizing.give_back()


def grow_runs(p: Pass) -> None:
    """Idle GPUs go to elastic runs that gain by them."""
    if p.resizing is not None:
        memo = p.resizing.grow()
        p.wake_by(memo.due_ms)
        p.remember(resizing=memo)


class ElasticJobs:
    """Which live jobs are elastic, kept up with the changes of the view."""

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
    """Whether there is an elastic job: else there is nothing to resize."""
    return p.view.index(ElasticJobs).exist(p.view)


def is_due(p: Pass) -> bool:
    """Whether a pass is worth it although nothing has happened."""
    due = p.memo.resizing.due_ms
    return due is not None and due <= p.now


class Resizing:
    """Resizings of one pass: `give_back` before jobs are started, `grow` after."""

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
        self._shrunk: list[Giver] = []

    def _most_tried(self) -> FrozenMap[str, int]:
        """The most GPUs at which jobs of one kind were seen."""
        before, after, known = self._memo.measured.seen, self._measured.seen, self._memo.tried
        tried = dict[str, int]()
        for record in self._runs if before is not after else ():
            shown = after.get(record.id)
            if shown is not None and before.get(record.id) != shown:
                key = key_of(record.job)
                if shown[1] > max(tried.get(key, 0), known.get(key, 0)):
                    tried[key] = shown[1]
        return known.updated(tried) if tried else known

    def _price(self, record: JobRecord) -> int:
        return max(1, cost(self._pass, record))

    # -- before ----------------------------------------------------------------------------------

    def give_back(self) -> None:
        """Runs that lose least give GPUs to waiting jobs that find no room."""
        p = self._pass
        givers = self._givers() if p.ranks.has_waiting() else []
        if givers:
            self._shrunk = Giving(self._draft, givers).make_room(p.ranks, p.placer, self._now)

    def _givers(self) -> list[Giver]:
        found = []
        for record in self._runs:
            if not can_resize(record, self._draft.space) or self._draft.is_touched(record):
                continue
            assert record.placement is not None
            demand, held = record.demand, len(record.placement.slices)
            if held > demand.nominal.count:
                curve = self._curves.of(record, self._measured.corrections)
                if held <= curve.high:
                    found.append(Giver(record, curve, self._price(record)))
        return found

    # -- after -----------------------------------------------------------------------------------

    def grow(self) -> ResizingMemo:
        """Let runs grow; what to remember."""
        self._take_back()
        filling = Growing(
            self._draft,
            self._curves,
            self._measured.corrections,
            self._price,
            self._growth(),
            self._tried,
            self._pass.headroom,
            estimated_losses(self._pass),
        )
        filling.give_up(self._runs)
        due = filling.fill(self._runs, self._memo.resized_ms, self._now)
        return self._remembered(due)

    def _growth(self) -> Growth:
        """What changes of hands cost says how long growth must last, and that some GPUs stay idle."""
        terms, switch_ms = self._terms, self._view.switch_ms
        spare = self._view.topology.training_gpus // terms.spare_part if switch_ms else 0
        rest_ms = max(terms.rest_ms, terms.rest_switches * switch_ms)
        return Growth(rest_ms, terms.gain_ppm, spare)

    def _remembered(self, due: int | None) -> ResizingMemo:
        resized = {record.id: self._now for record in self._runs if self._draft.is_placed(record)}
        times = self._memo.resized_ms
        if resized:
            times = times.only(self._view.jobs).updated(resized)
        elif self._measured is self._memo.measured and due == self._memo.due_ms:
            return self._memo
        return ResizingMemo(self._measured, times, self._tried, due)

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
            ) and self._pass.has_room(giver.record, len(given) * WHOLE):
                draft.replace(giver.record, held)


def _elastic_runs(p: Pass) -> list[JobRecord]:
    """Runs that could have another number of GPUs, in order of submission."""
    runs = [
        record
        for line in p.ranks.running.values()
        for _, _, _, _, record in line.entries
        if is_divisible(record)
    ]
    runs.sort(key=lambda record: record.seq)
    return runs
