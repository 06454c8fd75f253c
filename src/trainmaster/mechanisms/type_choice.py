"""Which type of device a job gets that may have types of different speed: the one where it ends first.

A job with `gpus: cpu|H100:1` starts on a CPU slot where that ends it sooner than to wait for a GPU, and waits
where the slot is too slow. When GPUs will be free, and who gets them, is predicted by list scheduling: the
waiting jobs in their order, each on the type where it ends first, by what is known of how long jobs still
take. A job of which that is not known takes what is free. On a type where a job has run its own speed counts,
else that of the type.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

from trainmaster.core.draft import Draft
from trainmaster.core.occupancy import Occupancy
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.mechanisms.expected_end import expected_end
from trainmaster.model.job import Demand, Shape
from trainmaster.model.placement import Placement, Role, Sharing
from trainmaster.model.reasons import Reason, Why
from trainmaster.model.units import NOMINAL, SECOND, ceil_div
from trainmaster.placement.placers import LocalityRule, Placer

FIRST_END = "first-end"
TYPE_CHOICES = (FIRST_END, "first-free")
TYPE_CHOICE_HELP = (
    "which type a job gets that may have devices of different speed: where it is expected to end first, or "
    "the fastest that is free"
)
MOST_LOOKED_AT = 1_000
"""Waiting jobs whose starts are predicted in one pass; those behind take what is free."""

PlacerOf = Callable[[JobRecord], Placer]
LeftMs = Callable[[JobRecord], int | None]
"""How long a job still takes: at its present speed, or at nominal speed while it waits; None: not known."""


class Choice(NamedTuple):
    """Where a waiting job is expected to end first."""

    kind: int
    """Index of the type."""
    start_ms: int


class TypeChoice:
    """The choices of one pass."""

    def __init__(
        self, view: View, draft: Draft, now: int, left_ms: LeftMs, line: Iterable[JobRecord]
    ) -> None:
        self._view = view
        self._draft = draft
        self._now = now
        self._left_ms = left_ms
        self._line = line
        self._choices: dict[str, Choice] | None = None
        self._declined: dict[str, Choice] = {}

    @staticmethod
    def of(
        view: View,
        draft: Draft,
        now: int,
        left_ms: LeftMs | None = None,
        line: Iterable[JobRecord] | None = None,
    ) -> TypeChoice | None:
        """None where all types are equally fast. `line`: the waiting jobs, else in order of submission."""
        if view.topology.is_uniform:
            return None
        left_ms = left_ms or (lambda record: view.remaining(record, now))
        return TypeChoice(view, draft, now, left_ms, view.waiting() if line is None else line)

    def placers(self, own: PlacerOf) -> PlacerOf:
        """Placers that do not take slower devices than those where a job ends first."""

        def placer(record: JobRecord) -> Placer:
            return FirstEnd(own(record), self) if self._chooses(record) else own(record)

        return placer

    def has_declined(self, record: JobRecord) -> bool:
        """Whether the job waits in this pass although slower devices are free for it."""
        return record.id in self._declined

    def explained(self, record: JobRecord, own: PlacerOf, reason: Reason) -> Reason:
        """Why it waits although devices are free for it: it is to end sooner on faster ones."""
        if reason.why not in (Why.NEXT_PASS, Why.BEHIND_OTHERS) or not self._chooses(record):
            return reason
        self.placers(own)(record).place(self._draft.space, record)
        choice = self._declined.get(record.id)
        if choice is None:
            return reason
        kind = self._view.topology.types[choice.kind].name
        return replace(
            reason, why=Why.FASTER_TYPE, detail=kind, until_ms=choice.start_ms, held_by=()
        )

    def next_look(self) -> int | None:
        """When a device is expected to be free that a job waits for: by then it may not be."""
        return min(
            (max(each.start_ms, self._now + SECOND) for each in self._declined.values()),
            default=None,
        )

    def accepts(self, record: JobRecord, found: Placement) -> bool:
        choice = self.choices.get(record.id)
        if choice is None or choice.start_ms <= self._now:
            return (
                True  # a device that is free now, and that the placer does not take, cannot be had
            )
        kinds = self._view.topology.type_of_gpu
        slowest = min(record.speed_on(kinds[gpu]) for gpu in found.gpus())
        is_fast = slowest >= record.speed_on(self._view.topology.types[choice.kind])
        if not is_fast:
            self._declined[record.id] = choice
        return is_fast

    # -- predicting ----------------------------------------------------------------------------------

    @property
    def choices(self) -> dict[str, Choice]:
        """By job: where it is expected to end first."""
        if self._choices is None:
            self._choices = dict(self._predicted())
        return self._choices

    def _chooses(self, record: JobRecord) -> bool:
        """Whether it may have types of several speeds, and has no run that is bound to its devices."""
        if record.placement is not None or record.frozen is not None or not record.is_whole:
            return False
        types = self._view.topology.types
        kinds = self._draft.space.kinds_for(record.demand)
        return len({record.speed_on(types[kind]) for kind in kinds}) > 1

    def _predicted(self) -> Iterator[tuple[str, Choice]]:
        space, types = self._draft.space, self._view.topology.types
        free_at = self._free_at()
        for record in islice(self._line, MOST_LOOKED_AT):
            if record.placement is not None or not record.is_whole or not record.may_start:
                continue
            left, count = self._left_ms(record), record.demand.nominal.count
            best: tuple[int, int, int] | None = None
            for kind in space.kinds_for(record.demand):
                if len(free_at[kind]) < count:
                    continue
                start = free_at[kind][count - 1]
                speed = record.speed_on(types[kind])
                end = start + (0 if left is None else ceil_div(left * NOMINAL, max(1, speed)))
                if best is None or end < best[0]:
                    best = (end, start, kind)
            if best is None:
                continue
            end, start, kind = best
            del free_at[kind][:count]
            if left is None:  # nobody knows when its devices are free again
                continue
            for _ in range(count):
                insort(free_at[kind], end)
            if self._chooses(record):
                yield record.id, Choice(kind, start)

    def _free_at(self) -> list[list[int]]:
        """By type: when each of its devices is free, as far as that is known."""
        space, draft = self._draft.space, self._draft
        found = [[self._now] * count for count in space.free_gpus]
        for record in self._view.running():
            placement = draft.placement_of(record)
            if placement is None or placement.sharing is not Sharing.EXCLUSIVE:
                continue
            end = expected_end(self._left_ms(record), record, self._now)
            if end is None:
                continue
            for node, gpu, *_ in placement.slices:
                if space.is_offered(gpu):
                    found[space.node_type[node]].append(end)
        return [sorted(times) for times in found]


@dataclass(frozen=True, slots=True)
class FirstEnd(Placer):
    """Wraps a placer; a job that would end sooner on a faster device, when one is free, waits for it."""

    locality: LocalityRule = field(init=False)
    inner: Placer
    choice: TypeChoice = field(compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "locality", self.inner.locality)
        object.__setattr__(self, "insists", self.inner.insists)

    def place(
        self, space: Occupancy, record: JobRecord, budget: int | None = None
    ) -> Placement | None:
        found = self.inner.place(space, record, budget)
        return found if found is None or self.choice.accepts(record, found) else None

    def shaped(
        self,
        space: Occupancy,
        demand: Demand,
        shape: Shape,
        role: Role = Role.GUARANTEED,
        budget: int | None = None,
    ) -> Placement | None:
        return self.inner.shaped(space, demand, shape, role, budget)
