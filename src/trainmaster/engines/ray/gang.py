"""What the reports of a gang's parts say of the run as a whole: a pure fold.

A gang has one part on each of its nodes. A report of a part changes the gang, and may complete one of the
run's own reports. What the parts have to be told because of it follows from the gang's state (`due`), so that
it can be told again whenever somebody may not have heard it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from trainmaster.model.engine_reports import (
    Ended,
    Frozen,
    HeedsStops,
    Hung,
    Lost,
    NotFrozen,
    Report,
    Reshaped,
    Started,
    StopOrder,
    Thawed,
    WentOn,
)
from trainmaster.model.job import Run

LAST = (Ended, Lost)
ORDER_WEIGHT = {
    StopOrder.NOTHING: 0,
    StopOrder.PRERUN: 1,
    StopOrder.HALT: 2,
    StopOrder.KILL: 3,
}
"""Which order counts where parts had ended by different ones."""


class Due(Enum):
    """What a part has to be told because of what others have reported."""

    KILL = "kill"
    """Another part has failed, or is lost."""
    THAW = "thaw"
    """Another part could not be frozen, so this one goes on as well."""
    HALT = "halt"
    """The gang goes on with other parts."""


@dataclass(frozen=True, slots=True)
class Part:
    """The ranks of a gang that are on one node."""

    node: str
    first_rank: int
    ranks: int
    seen: int = 0
    """The number of its last report."""
    started: Started | None = None
    frozen: Frozen | None = None
    thawed: Thawed | None = None
    refused: NotFrozen | None = None
    """It could not be frozen when that was ordered last."""
    is_hung: bool = False
    over: Ended | Lost | None = None


@dataclass(frozen=True, slots=True)
class Gang:
    """All parts of one attempt, as they are now."""

    run: Run
    parts: tuple[Part, ...]
    generation: int = 0
    """How often it went on with other parts."""
    is_up: bool = False
    is_frozen: bool = False
    heeds_stops: bool = False
    first: int | None = None
    """The first part that failed, or was lost."""
    is_resizing: bool = False
    """Whether it is to go on with other parts once these have ended."""
    has_ended: bool = False

    @property
    def is_between(self) -> bool:
        """Whether all its parts have saved and left for others to go on."""
        return (
            self.is_resizing
            and self.first is None
            and not self.has_ended
            and all(part.over is not None for part in self.parts)
        )


Folded = tuple[Gang, Report | None]


def fold(gang: Gang, index: int, number: int, report: Report) -> Folded:
    """The gang after the report of a part, and what that completes of the run's own reports.

    What was seen already, and what comes after the end of a part, changes nothing.
    """
    part = gang.parts[index]
    if gang.has_ended or part.over is not None or number <= part.seen:
        return gang, None
    part = replace(part, seen=number)
    step = STEPS.get(type(report))
    if step is None:
        return _with(gang, index, part), report
    return step(gang, index, part, report)


def resizing(gang: Gang) -> Gang:
    """It is to go on with other parts: the present ones have to save and leave."""
    return replace(gang, is_resizing=True)


def ending(gang: Gang) -> Gang:
    """It is told to end: it does not go on with other parts."""
    return replace(gang, is_resizing=False)


def next_generation(gang: Gang, parts: Sequence[Part]) -> Gang:
    """The gang with the parts with which it goes on."""
    return Gang(gang.run, tuple(parts), gang.generation + 1, heeds_stops=gang.heeds_stops)


def due(gang: Gang) -> Mapping[int, Due]:
    """What parts have to be told, by their index."""
    live = {index: part for index, part in enumerate(gang.parts) if part.over is None}
    if gang.has_ended:
        return {}
    if gang.first is not None:
        return dict.fromkeys(live, Due.KILL)
    if gang.is_resizing:
        return dict.fromkeys(live, Due.HALT)
    if _is_refused(gang):
        return {index: Due.THAW for index, part in live.items() if part.frozen is not None}
    return {}


# -- steps -------------------------------------------------------------------------------------------------


def _reshaped(gang: Gang, index: int, part: Part, report: Report) -> Folded:
    """A gang that is all on one node is resized there."""
    assert isinstance(report, Reshaped)
    part = replace(part, ranks=len(report.pids))
    return _with(gang, index, part), report


def _started(gang: Gang, index: int, part: Part, report: Report) -> Folded:
    assert isinstance(report, Started)
    gang = _with(gang, index, replace(part, started=report))
    if gang.is_up or any(each.started is None for each in gang.parts):
        return gang, None
    return replace(gang, is_up=True), _all_up(gang, report.at_ms)


def _frozen(gang: Gang, index: int, part: Part, report: Report) -> Folded:
    assert isinstance(report, Frozen)
    part = replace(part, frozen=report, thawed=None, refused=None)
    return _settled(_with(gang, index, part), report.at_ms)


def _not_frozen(gang: Gang, index: int, part: Part, report: Report) -> Folded:
    assert isinstance(report, NotFrozen)
    part = replace(part, frozen=None, refused=report)
    return _settled(_with(gang, index, part), report.at_ms)


def _thawed(gang: Gang, index: int, part: Part, report: Report) -> Folded:
    assert isinstance(report, Thawed)
    part = replace(part, frozen=None, thawed=report, refused=None)
    return _settled(_with(gang, index, part), report.at_ms)


def _settled(gang: Gang, at_ms: int) -> Folded:
    """Whether all parts have answered a freeze, or a thaw, the same way."""
    live = [part for part in gang.parts if part.over is None]
    frozen = [part.frozen for part in live if part.frozen is not None]
    refused = [part.refused for part in live if part.refused is not None]
    if not live:
        return gang, None
    if refused and not frozen and all(part.refused or part.thawed for part in live):
        return _as_running(gang), replace(refused[0], at_ms=at_ms, is_final=_is_final(refused))
    if len(frozen) == len(live) and not gang.is_frozen:
        return replace(gang, is_frozen=True), _all_frozen(frozen, at_ms)
    if gang.is_frozen and not frozen:
        took = [part.thawed.took_ms for part in live if part.thawed is not None]
        return _as_running(gang), Thawed(gang.run, at_ms, _most(took))
    return gang, None


def _as_running(gang: Gang) -> Gang:
    parts = tuple(replace(part, refused=None, thawed=None) for part in gang.parts)
    return replace(gang, parts=parts, is_frozen=False)


def _hung(gang: Gang, index: int, part: Part, report: Report) -> Folded:
    is_news = not any(each.is_hung for each in gang.parts)
    return _with(gang, index, replace(part, is_hung=True)), report if is_news else None


def _went_on(gang: Gang, index: int, part: Part, report: Report) -> Folded:
    gang = _with(gang, index, replace(part, is_hung=False))
    return gang, None if any(each.is_hung for each in gang.parts) else report


def _heeds_stops(gang: Gang, index: int, part: Part, report: Report) -> Folded:
    is_news = not gang.heeds_stops
    return replace(_with(gang, index, part), heeds_stops=True), report if is_news else None


def _over(gang: Gang, index: int, part: Part, report: Report) -> Folded:
    assert isinstance(report, Ended | Lost)
    gang = _with(gang, index, replace(part, over=report, frozen=None, refused=None))
    if gang.first is None and _is_failure(report):
        gang = replace(gang, first=index)
    if any(each.over is None for each in gang.parts):
        return (gang, None) if gang.first is not None else _settled(gang, report.at_ms)
    if gang.is_between and any(_was_halted(each.over) for each in gang.parts):
        return gang, None
    return replace(gang, has_ended=True), _end(gang, report.at_ms)


Step = Callable[[Gang, int, Part, Report], Folded]
STEPS: Mapping[type, Step] = {
    Started: _started,
    Reshaped: _reshaped,
    Frozen: _frozen,
    NotFrozen: _not_frozen,
    Thawed: _thawed,
    Hung: _hung,
    WentOn: _went_on,
    HeedsStops: _heeds_stops,
    Ended: _over,
    Lost: _over,
}
"""All others, such as progress, are the run's own at once."""


# -- the run's own reports ---------------------------------------------------------------------------------


def _all_up(gang: Gang, at_ms: int) -> Report:
    said = [part.started for part in gang.parts if part.started is not None]
    pids = tuple(pid for each in said for pid in each.pids)
    if gang.generation > 0:
        return Reshaped(gang.run, at_ms, pids)
    changed = next((each.changed for each in said if each.changed is not None), None)
    return Started(gang.run, at_ms, pids, changed, any(each.by_mps for each in said))


def _all_frozen(said: Sequence[Frozen], at_ms: int) -> Frozen:
    first = said[0]
    on_gpus = [each.is_all_on_gpus for each in said]
    return Frozen(
        *(first.run, at_ms, first.how, first.why),
        host_bytes=_sum([each.host_bytes for each in said]),
        gpu_bytes=_sum([each.gpu_bytes for each in said]),
        is_all_on_gpus=None if None in on_gpus else all(on_gpus),
        took_ms=_most([each.took_ms for each in said]),
    )


def _end(gang: Gang, at_ms: int) -> Ended | Lost:
    """Lost where any part is: that is why others fail. Else as the first that failed, or as all ended."""
    over = [part.over for part in gang.parts if part.over is not None]
    lost = next((each for each in over if isinstance(each, Lost)), None)
    if lost is not None:
        return replace(lost, at_ms=at_ms)
    ended = [each for each in over if isinstance(each, Ended)]
    deciding = _deciding(gang, ended)
    return replace(
        deciding,
        at_ms=at_ms,
        ran_ms=_most([each.ran_ms for each in ended]),
        peak_memory=_most([each.peak_memory for each in ended]),
        rank_memory=_most([each.rank_memory for each in ended]),
        longest_silence_ms=_most([each.longest_silence_ms for each in ended]),
    )


def _deciding(gang: Gang, ended: Sequence[Ended]) -> Ended:
    failed = None if gang.first is None else gang.parts[gang.first].over
    if isinstance(failed, Ended):
        return failed
    asked = max((each.asked for each in ended), key=lambda each: ORDER_WEIGHT[each])
    ordered = [each for each in ended if each.asked is asked]
    has_left = asked is StopOrder.HALT and any(each.has_left for each in ordered)
    deciding = next((each for each in ordered if each.code), ordered[0])
    saved = next((each for each in ordered if each.has_left), deciding)
    return replace(
        saved if has_left else deciding,
        asked=asked,
        has_left=has_left,
        was_killed=any(each.was_killed for each in ordered),
    )


def _is_failure(report: Ended | Lost) -> bool:
    if isinstance(report, Lost):
        return True
    return report.code != 0 and report.asked is StopOrder.NOTHING


def _was_halted(over: Ended | Lost | None) -> bool:
    return isinstance(over, Ended) and over.asked is StopOrder.HALT


def _is_refused(gang: Gang) -> bool:
    """Whether all parts have answered a freeze, and one could not be frozen."""
    live = [part for part in gang.parts if part.over is None]
    has_answered = all(part.frozen or part.refused or part.thawed for part in live)
    return has_answered and any(part.refused for part in live)


def _is_final(refused: Sequence[NotFrozen]) -> bool:
    return any(each.is_final for each in refused)


def _with(gang: Gang, index: int, part: Part) -> Gang:
    return replace(gang, parts=(*gang.parts[:index], part, *gang.parts[index + 1 :]))


def _sum(values: Sequence[int | None]) -> int | None:
    known = [each for each in values if each is not None]
    return sum(known) if len(known) == len(values) else None


def _most(values: Sequence[int | None]) -> int | None:
    return max((each for each in values if each is not None), default=None)
