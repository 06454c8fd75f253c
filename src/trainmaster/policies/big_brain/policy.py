"""Big Brain (Arasanipalai and Shetty): whole jobs in slots of GPUs, split where none is left.

Section 4 of its report: `concurrency` is the most whole jobs per GPU. In order of submission: if a GPU
has a free slot, the job goes there; else if two GPUs have room for half of it each, it is split in two;
else it waits, and so do all behind it. The wrapper alone prevents running out of memory: a job goes
beside others only where its stated memory fits; one that states none, and one of several GPUs, has its
GPUs for itself. With `concurrency=auto` the factor is found by measuring, for each class of jobs
(model and quarter of utilisation), only jobs of one class share a GPU, and a job is split only where
its class was found to gain from sharing.

Deviations. The report leaves the factor to its user and asks for the sweet spot: the tuner is ours. A
free slot is taken on the least crowded GPU. At most one half sits on a GPU. A run that was packed for
a trial is not undone when the trial shows a loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from trainmaster.config.options import allows, choice, option, positive_seconds, whole_number
from trainmaster.core.draft import Draft
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.mechanisms.base_policy import BasePolicy
from trainmaster.mechanisms.gpu_occupants import remaining_jobs
from trainmaster.mechanisms.measured_memory import rebook_measured
from trainmaster.mechanisms.preemptive_scheduling import evacuate
from trainmaster.mechanisms.unmeasured_jobs import with_unmeasured
from trainmaster.model.placement import Placement, Sharing
from trainmaster.model.plan import Plan, Rank
from trainmaster.model.reasons import Reason
from trainmaster.model.units import NOMINAL, to_ms
from trainmaster.placement.placers import RELAXING
from trainmaster.policies.big_brain.packing_factor_tuner import PackingFactorTuner, TunerMemo
from trainmaster.policies.big_brain.packing_slots import IsOpen, place_halves, place_in_slot, slot

MOST_CLIENTS = 48  # processes that a GPU serves at once under MPS, Volta and later
QUARTERS = 4


@allows(f"auto|1 to {MOST_CLIENTS}")
def factor_or_auto(text: str) -> str:
    try:
        return text if text == "auto" else str(whole_number(1, MOST_CLIENTS)(text))
    except ValueError as error:
        raise ValueError(f"auto or {error}") from None


@dataclass(frozen=True, slots=True)
class BigBrainOptions:
    concurrency: int | str = option(
        "auto",
        factor_or_auto,
        "most whole jobs on one GPU; auto: the number that measurements show to be best",
    )
    split: str = option("on", choice("on", "off"), "split a job in two where no slot is free")
    sharing: str = option("time", choice("time", "mps"), "how jobs on one GPU share it")
    trial_s: float = option(
        30.0,
        positive_seconds,
        "auto: seconds each packing factor is measured",
    )


@dataclass(slots=True)
class Occupants:
    """The jobs on each shared GPU, including the ones that this pass has added."""

    draft: Draft
    added: dict[int, list[tuple[JobRecord, Placement]]] = field(default_factory=dict)

    def on(self, gpu: int) -> Iterator[tuple[JobRecord, Placement]]:
        yield from remaining_jobs(self.draft, gpu)
        yield from self.added.get(gpu, ())

    def start(self, record: JobRecord, placement: Placement) -> None:
        self.draft.start(record, placement)
        for gpu in placement.gpus():
            self.added.setdefault(gpu, []).append((record, placement))


class BigBrain(BasePolicy[BigBrainOptions, TunerMemo]):
    name = "big-brain"
    options_type = BigBrainOptions
    memo_type = TunerMemo

    def __init__(self, options: BigBrainOptions) -> None:
        super().__init__(options)
        self._fixed = None if options.concurrency == "auto" else int(options.concurrency)
        self._tuner = PackingFactorTuner(to_ms(options.trial_s))
        self._sharing = Sharing(options.sharing)
        self.splits = options.split == "on"

    def rank(self, view: View, record: JobRecord, now: int) -> Rank:
        return Rank(-record.job.priority, record.job.submit_ms)

    def plan(self, view: View, memo: TunerMemo, now: int) -> Plan[TunerMemo]:
        measurements = self._tuner.learned(memo, view, now)
        draft = Draft(view)
        occupants = Occupants(draft)
        is_changed = False
        if not view.has_nothing_to_schedule():
            if view.draining:
                evacuate(view, draft, self.placer)
            is_changed = self._open_measured(draft, measurements)
            for _, _, record in self.ranked_jobs(view, now, with_running=False).candidates(now):
                placement = self._place(occupants, measurements, record)
                if placement is None:
                    break
                occupants.start(record, placement)
        if self._fixed is None:
            measurements = self._tuner.watching(
                measurements, self._measured_runs(occupants, measurements), now
            )
        due = None if view.has_nothing_to_schedule() else self._tuner.due(measurements, view, now)
        return draft.plan(measurements, now + 1 if is_changed else due)

    def _open_measured(self, draft: Draft, measurements: TunerMemo) -> bool:
        """Give runs that had a GPU for themselves a slot of it, once their memory is known."""
        if self._sharing is not Sharing.TIME:
            return False
        found = False
        for record in draft.view.measured_runs():
            if self._can_share(record):
                ceiling = self._fixed or self._tuner.ceiling(measurements, label_of(record))
                found |= rebook_measured(draft, record, slot(ceiling, splits=self.splits))
        return found

    def wake(self, view: View, memo: TunerMemo, now: int) -> int | None:
        """A run that has just started can be measured from now on."""
        return None if view.has_nothing_to_schedule() else self._tuner.due(memo, view, now)

    def _measured_runs(
        self, occupants: Occupants, measurements: TunerMemo
    ) -> Iterator[tuple[JobRecord, str, int]]:
        """Packed runs that are measured or new, except on GPUs that also hold half of a split job."""
        jobs, draft = occupants.draft.view.jobs, occupants.draft
        known = [jobs[watch.job] for watch in measurements.watched if watch.job in jobs]
        here = [(record, record.placement) for record in known if not draft.is_touched(record)]
        new = [pair for pairs in occupants.added.values() for pair in pairs]
        for record, placement in (*here, *new):
            if placement is None or not self._is_packed(record, placement):
                continue
            beside = list(occupants.on(placement.slices[0].gpu))
            if all(len(each.slices) == 1 for _, each in beside):
                yield record, label_of(record), len(beside)

    def _is_packed(self, record: JobRecord, placement: Placement) -> bool:
        is_shared = placement.sharing is self._sharing and self._can_share(record)
        return is_shared and len(placement.slices) == 1

    def _can_share(self, record: JobRecord) -> bool:
        return has_known_memory(record) and self._may_share(record)

    def _may_share(self, record: JobRecord) -> bool:
        """A job of one whole GPU that does not ask for another way of sharing."""
        demand = record.demand
        is_single = demand.nominal.is_whole and demand.nominal.count == 1
        return is_single and demand.sharing in (None, self._sharing)

    def explain(self, view: View, memo: TunerMemo, record: JobRecord, now: int) -> Reason:
        reason = super().explain(view, memo, record, now)
        if self._fixed == 1:
            return reason
        return with_unmeasured(view, record, reason, self._may_share, has_known_memory)

    def _place(
        self, occupants: Occupants, measurements: TunerMemo, record: JobRecord
    ) -> Placement | None:
        """Into a slot, else in two halves; a job that cannot share gets GPUs for itself."""
        space, demand = occupants.draft.space, record.demand
        if not self._can_share(record):
            return RELAXING.place(space, record, occupants.draft.budget)
        label = label_of(record)
        ceiling = self._fixed or self._tuner.ceiling(measurements, label)
        is_open = self._open_to(occupants, measurements, label)
        share = slot(ceiling, splits=self.splits)
        placement = place_in_slot(space, record, share, self._sharing, is_open)
        if placement is not None or not self._may_split(measurements, label):
            return placement
        for split in demand.splits:
            if len(split.parts) == 2 and all(part.memory > 0 for part in split.parts):
                is_open = self._open_to_half(occupants, label)
                return place_halves(space, demand, split, self._sharing, is_open)
        return None

    def _may_split(self, measurements: TunerMemo, label: str) -> bool:
        """With `auto`, a job is split only if sharing was found to pay for its class."""
        if self._fixed is not None:
            return self.splits
        is_known = self._tuner.next_trial(measurements, label) is None
        return self.splits and is_known and self._tuner.factor(measurements, label) > 1

    def _open_to(self, occupants: Occupants, measurements: TunerMemo, label: str) -> IsOpen:
        """Shared GPUs that may take one more whole job of a class."""
        if self._fixed is not None:
            most = self._fixed
            return lambda gpu: self._count(occupants, gpu) < most
        factor, trial = (
            self._tuner.factor(measurements, label),
            self._tuner.next_trial(measurements, label),
        )
        on_trial = self._on_trial(occupants, measurements, label, factor)

        def is_open(gpu: int) -> bool:
            if not _is_among_its_own(occupants, gpu, label):
                return False
            most = trial if trial is not None and on_trial <= {gpu} else factor
            return self._count(occupants, gpu) < most

        return is_open

    def _on_trial(
        self, occupants: Occupants, measurements: TunerMemo, label: str, factor: int
    ) -> set[int]:
        """GPUs that hold more jobs of the class than its best factor."""
        jobs = occupants.draft.view.jobs
        held = [
            jobs[w.job].placement
            for w in measurements.watched
            if w.label == label and w.job in jobs
        ]
        known = {placement.slices[0].gpu for placement in held if placement is not None}
        return {
            gpu
            for gpu in known | occupants.added.keys()
            if self._count(occupants, gpu) > factor and _is_among_its_own(occupants, gpu, label)
        }

    def _count(self, occupants: Occupants, gpu: int) -> int:
        return sum(self._is_packed(*each) for each in occupants.on(gpu))

    def _open_to_half(self, occupants: Occupants, label: str) -> IsOpen:
        """GPUs that may take half a job: without another half and, with `auto`, only jobs of its class."""

        def is_open(gpu: int) -> bool:
            is_unsplit = all(len(placement.slices) == 1 for _, placement in occupants.on(gpu))
            is_fine = self._fixed is not None or _is_among_its_own(occupants, gpu, label)
            return is_unsplit and is_fine

        return is_open


def has_known_memory(record: JobRecord) -> bool:
    return record.gpu_memory > 0


def label_of(record: JobRecord) -> str:
    """The class of a job: its model, and in which quarter its utilisation lies."""
    used = record.util_ppm
    quarter = "?" if used is None else str(min(QUARTERS - 1, used * QUARTERS // NOMINAL))
    return f"{record.job.model}/{quarter}"


def _is_among_its_own(occupants: Occupants, gpu: int, label: str) -> bool:
    return all(label_of(record) == label for record, _ in occupants.on(gpu))
