"""Who gets the next task: Optimus' greedy by marginal gain (EuroSys'18, section 4.1).

Every job first gets one task of each kind, in order of arrival. Then, again and again, the task goes to
the job that it saves most time per amount of its dominant resource:

    gain of a worker = (Q / f(p, w) - Q / f(p, w + 1)) / amount,   and the same for a parameter server

until nothing is gained or nothing fits.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from heapq import heapify, heappop, heappush


class Task(IntEnum):
    SERVER = 0
    WORKER = 1


TASKS = tuple(Task)


@dataclass(slots=True)
class TaskClaim:
    """A job that can use more tasks, and what it has been given so far."""

    name: Hashable
    work: float
    """What is left to do, in units of `speed` x time."""
    speed: Callable[[int, int], float]
    """By servers and workers."""
    most: tuple[int, int]
    """Tasks of each kind that it can use."""
    counts: tuple[int, int] = (0, 0)
    amounts: tuple[float, float] = (1.0, 1.0)
    """How much of its dominant resource a server takes, and a worker."""

    def with_one_more(self, task: Task) -> tuple[int, int]:
        servers, workers = self.counts
        return (servers + 1, workers) if task is Task.SERVER else (servers, workers + 1)

    def gain(self, task: Task) -> float:
        """Time that one more task saves per amount of its dominant resource."""
        now, then = self.speed(*self.counts), self.speed(*self.with_one_more(task))
        if now <= 0:
            return float("inf") if then > 0 else 0.0
        if then <= 0:
            return 0.0
        return (self.work / now - self.work / then) / self.amounts[task]


Takes = Callable[[TaskClaim, Task], bool]
"""Books one more such task for the claim if there is room for it; whether there was."""
Step = tuple[Hashable, Task, float]
"""(whose, what, gain)."""


def give_first(claims: Iterable[TaskClaim], takes: Takes) -> list[TaskClaim]:
    """One task of each kind it can use to each, in order of arrival; those who got them all."""
    served = []
    for claim in claims:
        for task in TASKS:
            if not claim.counts[task] and claim.most[task] and takes(claim, task):
                claim.counts = claim.with_one_more(task)
        if all(count or not most for count, most in zip(claim.counts, claim.most, strict=True)):
            served.append(claim)
    return served


def grow(claims: Iterable[TaskClaim], takes: Takes) -> list[Step]:
    """Hand out single tasks by the largest gain, ties in order of arrival; the steps taken."""
    in_order = list(claims)
    heap = [
        (-claim.gain(task), index, int(task), 0)
        for index, claim in enumerate(in_order)
        for task in TASKS
        if claim.counts[task] < claim.most[task]
    ]
    heapify(heap)
    version = [0] * len(in_order)
    full: set[tuple[int, int]] = set()
    steps: list[Step] = []
    while heap and heap[0][0] < 0:
        negated, index, kind, made = heappop(heap)
        claim, task = in_order[index], Task(kind)
        if made != version[index]:
            continue
        if not takes(claim, task):
            full.add((index, kind))
            continue
        claim.counts = claim.with_one_more(task)
        steps.append((claim.name, task, -negated))
        version[index] += 1
        for other in TASKS:
            if claim.counts[other] < claim.most[other] and (index, int(other)) not in full:
                heappush(heap, (-claim.gain(other), index, int(other), version[index]))
    return steps
