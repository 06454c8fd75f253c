"""Capacity booked for accepted deadlines, exact, in whole GPUs and milliseconds.

Only accepted jobs are booked, because all others can be preempted for them. A job is booked in stretches of
time, each of which begins with the cost of a preemption. `latest` takes the latest free stretches before the
deadline, so that other jobs may use the GPUs until then; `earliest` takes the earliest ones, which gives the
earliest possible finish. On one GPU, booking the latest deadlines first leaves the most capacity before every
instant, so what is accepted is what earliest-deadline-first could meet.

GPU types are counted separately: there is one step function of free GPUs for each set of types that some job
accepts, and a booking counts in every set that overlaps its own. So capacity that is free in a job's own set
is free on the cluster.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

FOREVER = 1 << 60
"""Later than any booking."""

Stretch = tuple[int, int]
"""From, to: ms."""
Stretches = tuple[Stretch, ...]
"""In order of time, none touching the next."""
Kinds = tuple[int, ...]
"""Types of GPU, as indices into `topology.types`."""


@dataclass(frozen=True, slots=True)
class CapacityRequest:
    """The GPU time that a job needs before its deadline."""

    kinds: Kinds
    count: int
    """GPUs at once."""
    need_ms: int
    """Time on them, without switching."""
    switch_ms: int
    deadline_ms: int
    is_there: bool = False
    """Whether the job holds its GPUs, so that continuing costs no preemption."""


class FreeCapacity:
    """Free GPUs of one set of types, as a step function of time."""

    def __init__(self, now: int, gpus: int) -> None:
        self.times = [now]
        self.free = [gpus]

    def book(self, start: int, end: int, count: int) -> None:
        """Book `count` GPUs from `start` to `end`."""
        first, last = self._cut(start), self._cut(end)
        for place in range(first, last):
            self.free[place] -= count

    def _cut(self, time: int) -> int:
        """Index of the step that begins at this time, inserted if necessary."""
        place = bisect_left(self.times, time)
        if place == len(self.times) or self.times[place] != time:
            self.times.insert(place, time)
            self.free.insert(place, self.free[place - 1])
        return place

    def has_room(self, start: int, end: int, count: int) -> bool:
        first = bisect_right(self.times, start) - 1
        last = bisect_left(self.times, end)
        return all(free >= count for free in self.free[first:last])

    def gaps(self, count: int, until: int) -> list[Stretch]:
        """Maximal stretches before `until` with `count` free GPUs, in order of time."""
        found: list[Stretch] = []
        ends = [*self.times[1:], FOREVER]
        for start, end, free in zip(self.times, ends, self.free, strict=True):
            if start >= until:
                break
            if free < count:
                continue
            if found and found[-1][1] == start:
                found[-1] = (found[-1][0], min(end, until))
            else:
                found.append((start, min(end, until)))
        return found


class CapacityCalendar:
    """Free capacity of all sets of GPU types from now on."""

    def __init__(self, now: int, gpus: Mapping[Kinds, int]) -> None:
        self._now = now
        self._rows = {kinds: FreeCapacity(now, count) for kinds, count in gpus.items()}

    def book(self, request: CapacityRequest, stretches: Iterable[Stretch]) -> None:
        """Book these stretches in every set of types that the job could use."""
        ahead = clip(stretches, self._now)
        for kinds, row in self._rows.items():
            if not set(kinds).isdisjoint(request.kinds):
                for start, end in ahead:
                    row.book(start, end, request.count)

    def has_room(self, request: CapacityRequest, stretches: Iterable[Stretch]) -> bool:
        row = self._rows[request.kinds]
        ahead = clip(stretches, self._now)
        return all(row.has_room(start, end, request.count) for start, end in ahead)

    def latest(self, request: CapacityRequest) -> Stretches | None:
        """The latest free stretches that suffice before the deadline; None if there are not enough."""
        left = request.need_ms
        found: list[Stretch] = []
        for start, end in reversed(self._gaps(request, request.deadline_ms)):
            room = end - start - self._cost(request, start)
            if room <= 0:
                continue
            taken = min(room, left)
            begin = end - taken - request.switch_ms
            found.append((begin, end) if begin >= start else (start, start + taken))
            left -= taken
            if not left:
                return tuple(reversed(found))
        return None

    def earliest(self, request: CapacityRequest) -> Stretches | None:
        """The earliest free stretches that suffice; None if there are never enough GPUs."""
        left = request.need_ms
        found: list[Stretch] = []
        for start, end in self._gaps(request, FOREVER):
            cost = self._cost(request, start)
            room = end - start - cost
            if room <= 0:
                continue
            taken = min(room, left)
            found.append((start, start + cost + taken))
            left -= taken
            if not left:
                return tuple(found)
        return None

    def _gaps(self, request: CapacityRequest, until: int) -> list[Stretch]:
        return self._rows[request.kinds].gaps(request.count, until)

    def _cost(self, request: CapacityRequest, start: int) -> int:
        """Cost of a preemption at this start."""
        return 0 if request.is_there and start == self._now else request.switch_ms


# -- one job's stretches ---------------------------------------------------------------------------


def trim(stretches: Sequence[Stretch], need_ms: int, switch_ms: int) -> Stretches | None:
    """The latest parts of these stretches that suffice; None if even all of them do not."""
    found: list[Stretch] = []
    for start, end in reversed(stretches):
        taken = min(end - start - switch_ms, need_ms)
        if taken > 0:
            found.append((end - taken - switch_ms, end))
            need_ms -= taken
        if not need_ms:
            return tuple(reversed(found))
    return None


def latest_start(stretches: Sequence[Stretch], need_ms: int, switch_ms: int) -> int | None:
    """The latest start that still suffices; None if the job should have started already."""
    least = trim(stretches, need_ms, switch_ms)
    return None if least is None else least[0][0]


def room_after(stretches: Sequence[Stretch], now: int, switch_ms: int, *, is_there: bool) -> int:
    """Training time left in these stretches from now on."""
    room = 0
    for start, end in clip(stretches, now):
        cost = 0 if is_there and start == now else switch_ms
        room += max(0, end - start - cost)
    return room


def clip(stretches: Iterable[Stretch], now: int) -> Stretches:
    """The parts of these stretches after `now`."""
    return tuple((max(start, now), end) for start, end in stretches if end > now)


def keep_needed(
    stretches: Sequence[Stretch], request: CapacityRequest, now: int
) -> Stretches | None:
    """The part of its bookings that the job still needs; None if they do not suffice."""
    ahead = clip(stretches, now)
    enough = trim(ahead, request.need_ms, request.switch_ms)
    if enough is not None:
        return enough
    room = room_after(ahead, now, request.switch_ms, is_there=request.is_there)
    return ahead if room >= request.need_ms else None
