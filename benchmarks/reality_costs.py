"""What starting, suspending and ending really takes, attempt by attempt; its means are the calibration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from statistics import fmean

from benchmarks.reality_live import Attempt, LiveStory
from benchmarks.reality_workload import Planned


@dataclass(frozen=True, slots=True)
class Spent:
    """Where the time of one job went while it held slots, in ms, and how often."""

    launch: float = 0.0
    """From the order to the daemon's knowing that all ranks are up."""
    launches: int = 0
    warm_up: float = 0.0
    """From there to the first step of the last rank: interpreter, imports, checkpoint."""
    restart: float = 0.0
    """The same of later attempts."""
    restarts: int = 0
    steps: float = 0.0
    """Training, time frozen left out."""
    leave: float = 0.0
    """From the order to save and end to the daemon's knowing that the run is gone."""
    leaves: int = 0
    still: float = 0.0
    """Work still done after such an order."""
    freeze: float = 0.0
    """From the order to the daemon's knowing, there and back."""
    thaw: float = 0.0
    freezes: int = 0
    exit: float = 0.0
    """From the last step to the supervisor's seeing the end."""
    detection: float = 0.0
    """From there to the step of the daemon that took it in."""

    def __add__(self, other: Spent) -> Spent:
        return Spent(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


def spent_by(story: LiveStory) -> Spent:
    """Sum over the attempts of a job."""
    total = Spent()
    for attempt in story.attempts.values():
        total += _spent_in(attempt)
    return total


def _spent_in(attempt: Attempt) -> Spent:
    orders, facts, journal = attempt.orders, attempt.facts, attempt.journal
    started = _first(facts, "started")
    if started is None:
        return Spent()
    launched = _first(orders, "launch")
    training = max((at for at, _ in attempt.marks.get("training", ())), default=None)
    stopped = max((at for at, _ in attempt.marks.get("stopped", ())), default=None)
    pauses = list(_pauses(journal, _last(orders, "halt")))
    found = Spent(launch=started - (launched or started), launches=1)
    if training is not None:
        warm = _awake(started, training, pauses)
        is_first = attempt.number == 1
        found += Spent(warm_up=warm) if is_first else Spent(restart=warm, restarts=1)
    if training is not None and stopped is not None:
        found += Spent(steps=_awake(training, stopped, pauses))
    found += _freezing(orders, facts)
    gone, ended = _first(facts, "gone"), _first(facts, "ended")
    told = _last(orders, "halt", "freeze")
    if gone is not None and told is not None:
        found += Spent(leave=gone - told, leaves=1)
        if stopped is not None:
            found += Spent(still=max(0, stopped - told))
    seen = _first(journal, "ended")
    if ended is not None and stopped is not None and seen is not None:
        found += Spent(exit=_awake(stopped, seen, pauses), detection=ended - seen)
    return found


def _freezing(orders: list[tuple[str, int]], facts: list[tuple[str, int]]) -> Spent:
    """Orders to freeze and to thaw, each with the fact that answered it."""
    total = Spent()
    for order, fact in (("freeze", "frozen"), ("thaw", "resumed")):
        told = [at for what, at in orders if what == order]
        done = [at for what, at in facts if what == fact]
        for begin, end in zip(told, done, strict=False):
            if order == "freeze":
                total += Spent(freeze=end - begin, freezes=1)
            else:
                total += Spent(thaw=end - begin)
    return total


def _pauses(journal: list[tuple[str, int]], halted: int | None) -> Iterator[tuple[int, int]]:
    """From frozen to thawed, by the supervisor that did it, or until it was told to save and end."""
    begin = None
    for what, at in journal:
        if what == "frozen":
            begin = at
        elif what == "thawed" and begin is not None:
            yield begin, at
            begin = None
    if begin is not None and halted is not None:
        yield begin, halted


def _awake(begin: int, end: int, pauses: list[tuple[int, int]]) -> int:
    """How long it was not frozen in between."""
    frozen = sum(max(0, min(end, until) - max(begin, since)) for since, until in pauses)
    return end - begin - frozen


def _first(said: list[tuple[str, int]], what: str) -> int | None:
    return next((at for word, at in said if word == what), None)


def _last(said: list[tuple[str, int]], *what: str) -> int | None:
    return next((at for word, at in reversed(said) if word in what), None)


# -- calibration ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Costs:
    """Means, in ms."""

    launch: float
    warm_up: Mapping[int, float]
    """By gang size."""
    exit: Mapping[int, float]
    """By gang size."""
    detection: float
    step: float
    restart: float
    leave: float
    still: float
    freeze: float
    thaw: float
    observed: Mapping[str, int]
    """How many of each the means are of."""

    @property
    def resume(self) -> float:
        """A restart, less the work that was done after the order to leave."""
        return max(0.0, self.launch + self.restart - self.still)

    def service_ms(self, planned: Planned) -> int:
        """How long this job runs by itself: as designed, never as measured in the run compared."""
        fixed = self.warm_up[planned.gpus] + self.exit[planned.gpus] + self.detection
        return round(fixed + planned.steps * self.step)

    def perf(self) -> dict[str, object]:
        """The perf file of the simulation."""
        return {
            "base": "ideal",
            "switch": {
                "by": "freeze",
                "start_s": _s(self.launch),
                "suspend_s": _s(self.leave),
                "resume_s": _s(self.resume),
                "freeze_s": _s(self.freeze),
                "thaw_s": _s(self.thaw),
            },
        }


def _s(ms: float) -> float:
    return round(ms / 1000, 3)


def calibrated(stories: Iterable[LiveStory], sizes: Iterable[int]) -> Costs:
    """The means of a run; a size that did not occur is taken to be as the largest that did."""
    lived = [(story, spent_by(story)) for story in stories if story.has_succeeded]
    total = Spent()
    for _, each in lived:
        total += each
    plain = [(story, each) for story, each in lived if not each.leaves]
    warm_up: dict[int, float] = {}
    exits: dict[int, float] = {}
    for size in sorted(sizes):
        of_size = [each for story, each in lived if story.planned.gpus == size]
        if of_size:
            warm_up[size] = fmean(each.warm_up for each in of_size)
            exits[size] = fmean(each.exit for each in of_size)
        else:
            warm_up[size], exits[size] = list(warm_up.values())[-1], list(exits.values())[-1]
    return Costs(
        launch=total.launch / total.launches,
        warm_up=warm_up,
        exit=exits,
        detection=fmean(each.detection for _, each in lived),
        step=sum(each.steps for _, each in plain) / sum(story.planned.steps for story, _ in plain),
        restart=total.restart / max(1, total.restarts),
        leave=total.leave / max(1, total.leaves),
        still=total.still / max(1, total.leaves),
        freeze=total.freeze / max(1, total.freezes),
        thaw=total.thaw / max(1, total.freezes),
        observed={
            "jobs": len(lived),
            "launches": total.launches,
            "restarts": total.restarts,
            "leaves": total.leaves,
            "freezes": total.freezes,
        },
    )


# -- attribution ---------------------------------------------------------------------------------------

PARTS = ("launch", "warm-up", "steps", "checkpoint", "freezing", "exit", "detection", "waiting")
SAYS = {
    "launch": "from the order to the knowledge that all ranks are up",
    "warm-up": "interpreter, imports, joining",
    "steps": "interference: steps stretched by others on the processors",
    "checkpoint": "to save and end, and to start again from there",
    "freezing": "to freeze and thaw in place",
    "exit": "from the last step to the supervisor's seeing the end",
    "detection": "from there to the step of the daemon that took it in",
    "waiting": "all of the above in others ahead, and decisions that differed",
}


def beyond(story: LiveStory, costs: Costs, difference_ms: float) -> dict[str, float]:
    """How far each part was from its calibrated cost; what is left of the difference is waiting."""
    spent, planned = spent_by(story), story.planned
    found = {
        "launch": spent.launch - spent.launches * costs.launch,
        "warm-up": spent.warm_up - costs.warm_up[planned.gpus],
        "steps": spent.steps - planned.steps * costs.step,
        "checkpoint": (spent.leave - spent.leaves * costs.leave)
        + (spent.restart - spent.restarts * costs.restart)
        - (spent.still - spent.leaves * costs.still),
        "freezing": (spent.freeze + spent.thaw) - spent.freezes * (costs.freeze + costs.thaw),
        "exit": spent.exit - costs.exit[planned.gpus],
        "detection": spent.detection - costs.detection,
    }
    found["waiting"] = difference_ms - sum(found.values())
    return found
