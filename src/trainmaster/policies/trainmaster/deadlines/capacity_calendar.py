"""Which GPUs are booked for accepted deadlines, and when: exact, in whole GPUs and milliseconds.

Only accepted jobs are booked: all others can be preempted for them. A job is booked in stretches, each of
which begins with the time that it takes to switch. Backward from its deadline, it takes the latest
stretches that are free, so that others may use the GPUs before; forward from now, the earliest, which
says when it could be done. On one GPU, deadlines booked latest first leave the most room before every
instant, so what is accepted is what earliest-deadline-first could keep.

Jobs that may use different types of GPU are counted apart: one row for each set of types that some job
accepts, in which every job counts that could take any of those GPUs. Whoever finds room in its own row
finds it on the cluster.
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
    """What a job needs to be done by its deadline."""

    kinds: Kinds
    count: int
    """GPUs at once."""
    need_ms: int
    """Time on them, without switching."""
    switch_ms: int
    deadline_ms: int
    is_there: bool = False
    """Whether it holds its GPUs: going on costs no switch."""


class FreeCapacity:
    """Free GPUs of some types as a step function of time."""

    def __init__(self, now: int, gpus: int) -> None:
        self.times = [now]
        self.free = [gpus]

    def book(self, start: int, end: int, count: int) -> None:
        """Take so many GPUs from then to then."""
        first, last = self._cut(start), self._cut(end)
        for place in range(first, last):
            self.free[place] -= count

    def _cut(self, time: int) -> int:
        """Where a step begins at that time, made if need be."""
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
        """Maximal stretches before `until` in which so many GPUs are free, in order of time."""
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
    """All rows from now on."""

    def __init__(self, now: int, gpus: Mapping[Kinds, int]) -> None:
        self._now = now
        self._rows = {kinds: FreeCapacity(now, count) for kinds, count in gpus.items()}

    def book(self, request: CapacityRequest, stretches: Iterable[Stretch]) -> None:
        """Count these stretches wherever the job could take a GPU."""
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
        """The latest free stretches by its deadline that are enough; None where they are not."""
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
        """The earliest free stretches that are enough; None where there never are so many GPUs."""
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
        """What beginning there costs."""
        return 0 if request.is_there and start == self._now else request.switch_ms


# -- one job's stretches ---------------------------------------------------------------------------


def trim(stretches: Sequence[Stretch], need_ms: int, switch_ms: int) -> Stretches | None:
    """As little of the last of them as is enough; None where all are not."""
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
    """Until when it may be kept from them; None where it should have begun before."""
    least = trim(stretches, need_ms, switch_ms)
    return None if least is None else least[0][0]


def room_after(stretches: Sequence[Stretch], now: int, switch_ms: int, *, is_there: bool) -> int:
    """How long it can train in them from now on."""
    room = 0
    for start, end in clip(stretches, now):
        cost = 0 if is_there and start == now else switch_ms
        room += max(0, end - start - cost)
    return room


def clip(stretches: Iterable[Stretch], now: int) -> Stretches:
    """What is left of them."""
    return tuple((max(start, now), end) for start, end in stretches if end > now)


def keep_needed(
    stretches: Sequence[Stretch], request: CapacityRequest, now: int
) -> Stretches | None:
    """As much of what was booked as the job still needs; None where that is not enough."""
    ahead = clip(stretches, now)
    enough = trim(ahead, request.need_ms, request.switch_ms)
    if enough is not None:
        return enough
    room = room_after(ahead, now, request.switch_ms, is_there=request.is_there)
    return ahead if room >= request.need_ms else None
