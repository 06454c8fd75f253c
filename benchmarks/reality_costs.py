"""What starting, suspending and ending really takes, attempt by attempt; its means are the calibration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean

from benchmarks.reality_live import Attempt, LiveJobRecord
from benchmarks.reality_workload import PlannedJob

Spent = Counter[str]
"""Where the time of a job went while it held slots, in ms, and how often:

- launch (launches): from the order to the daemon's knowing that all ranks are up
- warm_up: from there to the first step of the last rank: interpreter, imports, checkpoint
- restart (restarts): the same of later attempts
- steps: training, time frozen left out
- leave (leaves): from the order to save and end to the daemon's knowing that the run is gone
- still: work still done after such an order
- freeze, thaw (freezes): from the order to the daemon's knowing
- exit: from the last step to the supervisor's seeing the end
- detection: from there to the step of the daemon that took it in
"""


def spent_by(story: LiveJobRecord) -> Spent:
    """Sum over the attempts of a job."""
    spent = Spent()
    for attempt in story.attempts.values():
        _add_attempt(spent, attempt)
    return spent


def _add_attempt(spent: Spent, attempt: Attempt) -> None:
    orders, facts, journal = attempt.orders, attempt.facts, attempt.journal
    started = _first(facts, "started")
    if started is None:
        return
    training = max((at for at, _ in attempt.marks.get("training", ())), default=None)
    stopped = max((at for at, _ in attempt.marks.get("stopped", ())), default=None)
    pauses = list(_pauses(journal, _last(orders, "halt")))
    launched = _first(orders, "launch")
    spent.update(launch=started - (launched or started), launches=1)
    if training is not None:
        warm = _awake(started, training, pauses)
        if attempt.number == 1:
            spent.update(warm_up=warm)
        else:
            spent.update(restart=warm, restarts=1)
    if training is not None and stopped is not None:
        spent.update(steps=_awake(training, stopped, pauses))
    for order, fact in (("freeze", "frozen"), ("thaw", "resumed")):
        told = [at for what, at in orders if what == order]
        done = [at for what, at in facts if what == fact]
        for begin, end in zip(told, done, strict=False):
            spent.update({order: end - begin, "freezes": int(order == "freeze")})
    gone, ended = _first(facts, "gone"), _first(facts, "ended")
    told_to_leave = _last(orders, "halt", "freeze")
    if gone is not None and told_to_leave is not None:
        spent.update(leave=gone - told_to_leave, leaves=1)
        if stopped is not None:
            spent.update(still=max(0, stopped - told_to_leave))
    seen = _first(journal, "ended")
    if ended is not None and stopped is not None and seen is not None:
        spent.update(exit=_awake(stopped, seen, pauses), detection=ended - seen)


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

    def service_ms(self, planned: PlannedJob) -> int:
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


def calibrated(stories: Iterable[LiveJobRecord], sizes: Iterable[int]) -> Costs:
    """The means of a run; a size that did not occur is taken to be as the largest that did."""
    lived = [(story, spent_by(story)) for story in stories if story.has_succeeded]
    total = Spent()
    for _, each in lived:
        total.update(each)
    plain = [(story, each) for story, each in lived if not each["leaves"]]
    warm_up: dict[int, float] = {}
    exits: dict[int, float] = {}
    of_size: list[Spent] = []
    for size in sorted(sizes):
        of_size = [each for story, each in lived if story.planned.gpus == size] or of_size
        warm_up[size] = fmean(each["warm_up"] for each in of_size)
        exits[size] = fmean(each["exit"] for each in of_size)
    return Costs(
        launch=total["launch"] / total["launches"],
        warm_up=warm_up,
        exit=exits,
        detection=fmean(each["detection"] for _, each in lived),
        step=sum(each["steps"] for _, each in plain) / sum(s.planned.steps for s, _ in plain),
        restart=total["restart"] / max(1, total["restarts"]),
        leave=total["leave"] / max(1, total["leaves"]),
        still=total["still"] / max(1, total["leaves"]),
        freeze=total["freeze"] / max(1, total["freezes"]),
        thaw=total["thaw"] / max(1, total["freezes"]),
        observed={
            "jobs": len(lived),
            **{what: total[what] for what in ("launches", "restarts", "leaves", "freezes")},
        },
    )


# -- attribution ---------------------------------------------------------------------------------------

PARTS = {
    "launch": "from the order to the knowledge that all ranks are up",
    "warm-up": "interpreter, imports, joining",
    "steps": "interference: steps stretched by others on the processors",
    "checkpoint": "to save and end, and to start again from there",
    "freezing": "to freeze and thaw in place",
    "exit": "from the last step to the supervisor's seeing the end",
    "detection": "from there to the step of the daemon that took it in",
    "waiting": "all of the above in others ahead, and decisions that differed",
}


def beyond(story: LiveJobRecord, costs: Costs, difference_ms: float) -> dict[str, float]:
    """Each part's difference from its calibrated cost; the rest of the difference is waiting."""
    spent, planned = spent_by(story), story.planned
    found = {
        "launch": spent["launch"] - spent["launches"] * costs.launch,
        "warm-up": spent["warm_up"] - costs.warm_up[planned.gpus],
        "steps": spent["steps"] - planned.steps * costs.step,
        "checkpoint": (spent["leave"] - spent["leaves"] * costs.leave)
        + (spent["restart"] - spent["restarts"] * costs.restart)
        - (spent["still"] - spent["leaves"] * costs.still),
        "freezing": (spent["freeze"] + spent["thaw"])
        - spent["freezes"] * (costs.freeze + costs.thaw),
        "exit": spent["exit"] - costs.exit[planned.gpus],
        "detection": spent["detection"] - costs.detection,
    }
    found["waiting"] = difference_ms - sum(found.values())
    return found
