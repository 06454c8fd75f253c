"""What the reports of a gang's parts say of the run as a whole: a pure fold.

A gang has one part on each of its nodes. A report of a part changes the gang, and may complete one of the
run's own reports. What the parts have to be told because of it follows from the gang's state (`due`), so that
it can be told again whenever somebody may not have heard it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum

from trainmaster.model.engine_reports import (
    CanResize,
    Ended,
    Frozen,
    HeedsStops,
    Hung,
    Lost,
    NotFrozen,
    NotResized,
    ReplicaLost,
    Report,
    Reshaped,
    ResizeReady,
    ResizeTimed,
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
    REGROUP = "regroup"
    """All parts are ready: its ranks and those of the others form a new group."""
    LEAVE = "leave"
    """The same, and it is not needed any more."""
    FAIL = "fail"
    """It has lost a rank, and the gang does not go on without it."""


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
    devices: tuple[int, ...] = ()
    """What its ranks have, as its node counts them."""
    numbers: tuple[int, ...] = ()
    """Of its processes; empty: those of its ranks, in a part that was started; for one that is to be resized,
    numbers that new processes get."""
    shape: int = 0
    """In which shape of the gang it was launched."""
    may_lose: int | None = None
    """How many ranks the gang may lose; None: its ranks have not said that they can be resized."""
    joins: bool = False
    """Whether all its ranks wait to join the others."""
    ready: int = 0
    """The shape for which it is ready."""
    late: int = 0
    """The shape for which its ranks have not come in time."""
    formed: Reshaped | None = None
    """Its ranks are in the new group of the resize that is under way."""
    timed: ResizeTimed | None = None
    lost: ReplicaLost | None = None
    """The rank that it has lost, until the others have regrouped."""
    is_out: bool = False
    """Whether the gang goes on without it."""


@dataclass(frozen=True, slots=True)
class Resize:
    """A resize in place that is under way, of all parts together."""

    target: tuple[Part, ...]
    """What the parts are to be, in the order of their ranks, ..."""
    members: tuple[int, ...]
    """... and which they are, by their index."""
    is_asked: bool = False
    """Whether all parts were ready, so that they are told to regroup."""


@dataclass(frozen=True, slots=True)
class Gang:
    """All parts of one attempt, as they are now."""

    run: Run
    parts: tuple[Part, ...]
    generation: int = 0
    """How often all its ranks were started again."""
    shape: int = 0
    """How often it was to go on with other ranks."""
    formed: int = 0
    """The last shape that it took while it trained."""
    order: tuple[int, ...] = ()
    """Its parts by the order of their ranks; empty: all, as they are."""
    resize: Resize | None = None
    lost: int = 0
    """How many ranks were lost while the others went on."""
    loss: int | None = None
    """The part that has lost a rank, until the others have regrouped."""
    why: str = ""
    """Why it was restarted where it could have been resized in place."""
    is_up: bool = False
    is_frozen: bool = False
    heeds_stops: bool = False
    first: int | None = None
    """The first part that failed, or was lost."""
    is_resizing: bool = False
    """Whether it is to go on with other parts once these have ended."""
    is_changing: bool = False
    """Whether the one node that it is on has been told to resize it, and has not."""
    is_superseded: bool = False
    """Whether another resize follows the one that is under way, and answers both."""
    has_ended: bool = False

    @property
    def members(self) -> tuple[int, ...]:
        """The parts that it consists of, by the order of their ranks."""
        return self.order or tuple(range(len(self.parts)))

    @property
    def member_parts(self) -> tuple[Part, ...]:
        return tuple(self.parts[index] for index in self.members)

    @property
    def world(self) -> int:
        return sum(part.ranks for part in self.member_parts)

    @property
    def is_between(self) -> bool:
        """Whether all its parts have saved and left for others to go on."""
        return (
            self.is_resizing
            and self.first is None
            and not self.has_ended
            and all(part.over is not None for part in self.parts)
        )

    @property
    def must_regroup(self) -> bool:
        """Whether those that are left after a loss have to form a group."""
        is_over = self.first is not None or self.has_ended or self.is_resizing
        return self.loss is not None and self.resize is None and not is_over


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


def changing(gang: Gang, devices: Sequence[int]) -> Gang:
    """The one node that it is on resizes it, to these devices."""
    (index,) = gang.members
    part = replace(gang.parts[index], devices=tuple(devices))
    return replace(_with(gang, index, part), is_changing=True)


def ending(gang: Gang) -> Gang:
    """It is told to end: it does not go on with other parts."""
    return replace(gang, is_resizing=False, resize=None, loss=None)


def next_generation(gang: Gang, parts: Sequence[Part], shape: int | None = None) -> Gang:
    """The gang with the parts with which it goes on, all of them started again."""
    shape = gang.shape + 1 if shape is None else shape
    return Gang(
        gang.run,
        tuple(replace(part, shape=shape) for part in parts),
        gang.generation + 1,
        shape,
        heeds_stops=gang.heeds_stops,
        why=gang.why,
    )


def can_resize_in_place(gang: Gang, nodes: Collection[str]) -> bool:
    """Whether its ranks can go on with those on these nodes without being started again."""
    parts = gang.member_parts
    return (
        gang.is_up
        and not gang.is_frozen
        and gang.first is None
        and gang.loss is None
        and all(part.over is None and part.may_lose is not None for part in parts)
        and all(part.frozen is None and part.refused is None for part in parts)
        and any(part.node in nodes for part in parts)
    )


def numbered(gang: Gang, target: Sequence[Part]) -> tuple[Part, ...]:
    """The parts to be, with numbers for new processes: the lowest that none has."""
    present = {part.node: part for part in gang.member_parts}
    taken = {number for part in gang.parts if part.over is None for number in numbers_of(part)}
    found = []
    for part in target:
        former = present.get(part.node)
        had = () if former is None else former.devices
        fewer = part.ranks - (0 if former is None else former.ranks)
        count = max(fewer, len(set(part.devices) - set(had)))
        free: list[int] = []
        while len(free) < count:
            number = next(number for number in itertools.count() if number not in taken)
            taken.add(number)
            free.append(number)
        found.append(replace(part, numbers=tuple(free)))
    return tuple(found)


def numbers_of(part: Part) -> tuple[int, ...]:
    """Of its processes, by rank."""
    return part.numbers or tuple(range(part.first_rank, part.first_rank + part.ranks))


def resizing_in_place(gang: Gang, shape: int, target: Sequence[Part]) -> Gang:
    """It is to have these parts, with the ranks that stay; those on other nodes are launched to join them.

    After a loss there are none to wait for: all are told at once.
    """
    parts, members = [replace(part, timed=None) for part in gang.parts], []
    for wanted in target:
        index = next((n for n in gang.members if gang.parts[n].node == wanted.node), None)
        if index is None:
            index = len(parts)
            parts.append(replace(wanted, joins=True, shape=shape))
        members.append(index)
    is_asked = gang.loss is not None
    resize = Resize(tuple(target), tuple(members), is_asked)
    order = gang.members
    return replace(gang, parts=tuple(parts), shape=shape, order=order, resize=resize)


def superseded(gang: Gang, *, is_again_wanted: bool = False) -> Gang:
    """Another resize was ordered, which follows the one that is under way; or that one itself once more."""
    if is_again_wanted:
        return replace(gang, is_superseded=False)
    return replace(gang, is_superseded=gang.resize is not None or gang.is_changing)


def left_after_loss(gang: Gang) -> tuple[Part, ...]:
    """The parts with which a gang goes on that has lost ranks, without what it waits for."""
    found: list[Part] = []
    first = 0
    for part in gang.member_parts:
        if not part.is_out:
            found.append(Part(part.node, first, part.ranks, devices=part.devices))
            first += part.ranks
    return tuple(found)


def due(gang: Gang) -> Mapping[int, Due]:
    """What parts have to be told, by their index."""
    live = {index: part for index, part in enumerate(gang.parts) if part.over is None}
    if gang.has_ended:
        return {}
    if gang.first is not None:
        failed = gang.first if gang.first in live else None
        return {index: Due.FAIL if index == failed else Due.KILL for index in live}
    if gang.is_resizing:
        return dict.fromkeys(live, Due.HALT)
    if any(part.joins or part.is_out for part in live.values()) or gang.resize is not None:
        return _due_of_resize(gang, live)
    if _is_refused(gang):
        return {index: Due.THAW for index, part in live.items() if part.frozen is not None}
    return {}


def _due_of_resize(gang: Gang, live: Mapping[int, Part]) -> Mapping[int, Due]:
    """Those that are not needed, or have nobody to join, end; the others regroup once all are ready."""
    resize = gang.resize
    wanted = frozenset() if resize is None else frozenset(resize.members)
    is_left_alone = all(part.over is not None for part in gang.member_parts)
    found: dict[int, Due] = {}
    for index, part in live.items():
        if part.is_out or (part.joins and (is_left_alone or index not in wanted)):
            found[index] = Due.HALT
        elif resize is not None and resize.is_asked and not part.joins and part.formed is None:
            found[index] = Due.REGROUP if index in wanted else Due.LEAVE
    return found


# -- steps -------------------------------------------------------------------------------------------------


def _reshaped(gang: Gang, index: int, part: Part, report: Report) -> Folded:
    """A gang that is all on one node is resized there; else by all parts together."""
    assert isinstance(report, Reshaped)
    if gang.resize is not None:
        return _formed(_with(gang, index, replace(part, formed=report)), report.at_ms)
    part = replace(part, ranks=len(report.pids), numbers=report.numbers or ())
    if not report.in_place:
        part = replace(part, may_lose=None)
    own = None if gang.is_superseded else report
    return replace(_with(gang, index, part), is_changing=False, is_superseded=False), own


def _can_resize(gang: Gang, index: int, part: Part, report: Report) -> Folded:
    assert isinstance(report, CanResize)
    return _with(gang, index, replace(part, may_lose=report.may_lose)), None


def _resize_ready(gang: Gang, index: int, part: Part, report: Report) -> Folded:
    """Nobody is asked before all new ranks on all nodes are ready."""
    assert isinstance(report, ResizeReady)
    gang, resize = _with(gang, index, replace(part, ready=report.number)), gang.resize
    if resize is None or any(gang.parts[each].ready != gang.shape for each in resize.members):
        return gang, None
    return replace(gang, resize=replace(resize, is_asked=True)), None


def _not_resized(gang: Gang, index: int, part: Part, report: Report) -> Folded:
    """Where ranks are late, one of another part may be writing a checkpoint: until all are late."""
    assert isinstance(report, NotResized)
    gang = _with(gang, index, replace(part, late=report.number))
    asked = [each for each in gang.member_parts if each.over is None and each.formed is None]
    is_lost = not report.is_late or all(each.late == gang.shape for each in asked)
    if report.number == gang.shape and is_lost:
        gang = _restarting(gang, report.why)
    return gang, None


def _restarting(gang: Gang, why: str) -> Gang:
    """It cannot be resized in place: it goes on from what it saves now; after a loss it has failed."""
    if gang.resize is None:
        return gang
    if gang.loss is not None:
        return replace(gang, resize=None, first=gang.loss)
    return replace(gang, resize=None, is_resizing=True, why=why, is_superseded=False)


def _formed(gang: Gang, at_ms: int) -> Folded:
    """Once all are in the new group, and nothing is left of the parts that are not, it has been resized."""
    resize = gang.resize
    if resize is None:
        return gang, None
    said = [gang.parts[index].formed for index in resize.members]
    leaving = [gang.parts[index] for index in gang.members if index not in resize.members]
    if None in said or any(part.over is None for part in leaving):
        return gang, None
    formed = [each for each in said if each is not None]
    may_lose = max((part.may_lose or 0 for part in gang.member_parts), default=0)
    parts = [*gang.parts]
    for index, wanted, report in zip(resize.members, resize.target, formed, strict=True):
        parts[index] = replace(
            parts[index],
            first_rank=wanted.first_rank,
            ranks=len(report.pids),
            devices=wanted.devices,
            numbers=report.numbers or (),
            may_lose=may_lose,
            joins=False,
            formed=None,
            lost=None,
        )
    for index in set(gang.members) - set(resize.members):
        parts[index] = replace(parts[index], is_out=True)
    own = None if gang.is_superseded else _regrouped(gang, formed, at_ms)
    gang = replace(gang, parts=tuple(parts), order=resize.members, formed=gang.shape)
    return replace(gang, resize=None, loss=None, is_superseded=False), own


def _regrouped(gang: Gang, formed: Sequence[Reshaped], at_ms: int) -> Report:
    pids = tuple(pid for each in formed for pid in each.pids)
    numbers = tuple(number for each in formed for number in each.numbers or ())
    if gang.loss is None:
        pause_ms = _most([each.pause_ms for each in formed])
        return Reshaped(gang.run, at_ms, pids, True, pause_ms=pause_ms, numbers=numbers)
    part = gang.parts[gang.loss]
    over, lost = part.over, part.lost
    if lost is not None:
        return replace(lost, at_ms=at_ms, pids=pids)
    rank = numbers_of(part)[0]
    if isinstance(over, Ended):
        rank = rank if over.rank is None else over.rank
        return ReplicaLost(gang.run, at_ms, rank, pids, over.code, over.signal or "", over.tail)
    why = over.why if isinstance(over, Lost) else ""
    return ReplicaLost(gang.run, at_ms, rank, pids, tail=why)


def _resize_timed(gang: Gang, index: int, part: Part, report: Report) -> Folded:
    """What took longest anywhere, once all parts have made their first step."""
    assert isinstance(report, ResizeTimed)
    gang = _with(gang, index, replace(part, timed=report))
    members = gang.members if gang.resize is None else gang.resize.members
    said = [gang.parts[index].timed for index in members]
    timed = [each for each in said if each is not None]
    if len(timed) < len(said):
        return gang, None
    parts = tuple(replace(each, timed=None) for each in gang.parts)
    longest = {
        each.name: _most([getattr(one, each.name) for one in timed])
        for each in fields(ResizeTimed)
        if each.name not in ("run", "at_ms", "steady_ms")
    }
    return replace(gang, parts=parts), ResizeTimed(gang.run, report.at_ms, **longest)


def _replica_lost(gang: Gang, index: int, part: Part, report: Report) -> Folded:
    """A gang on one node has regrouped already; else all parts have to, if the gang may lose another rank."""
    assert isinstance(report, ReplicaLost)
    own = replace(_without_rank(part, report.rank), ranks=len(report.pids))
    if len(gang.members) == 1:
        return _without(_with(gang, index, own), None, 1), report
    if not _may_lose(gang, 1):
        return replace(_with(gang, index, own), first=index), None
    gang = _with(gang, index, replace(own, lost=report))
    return _without(gang, index, 1), None


def _without_rank(part: Part, lost: int) -> Part:
    """Its device stays booked, and has no process that could stay there in the next resize."""
    numbers, devices = numbers_of(part), part.devices
    if len(devices) == len(numbers):
        devices = tuple(
            device for number, device in zip(numbers, devices, strict=True) if number != lost
        )
    return replace(part, numbers=tuple(n for n in numbers if n != lost), devices=devices)


def _may_lose(gang: Gang, ranks: int) -> bool:
    """Whether the others go on without so many ranks more."""
    others = gang.member_parts
    is_free = gang.first is None and not (gang.is_resizing or gang.has_ended or gang.is_frozen)
    is_early = gang.resize is None or not gang.resize.is_asked
    most = min((part.may_lose or 0 for part in others), default=0)
    return gang.is_up and is_free and is_early and gang.loss is None and gang.lost + ranks <= most


def _without(gang: Gang, index: int | None, ranks: int) -> Gang:
    """The others have to regroup first; ranks that were to join them are launched again after that."""
    parts = tuple(
        replace(part, is_out=True, joins=False) if part.joins else part for part in gang.parts
    )
    return replace(
        gang,
        parts=parts,
        order=gang.members,
        resize=None,
        is_superseded=False,
        loss=index,
        lost=gang.lost + ranks,
    )


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
    live = _live(gang)
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
    gang = _after_end_of(gang, index, report)
    if any(each.over is None for each in gang.parts):
        if gang.first is not None:
            return gang, None
        return _settled(gang, report.at_ms) if gang.resize is None else _formed(gang, report.at_ms)
    if gang.is_between and any(_was_halted(each.over) for each in gang.member_parts):
        return gang, None
    return replace(gang, has_ended=True), _end(gang, report.at_ms)


def _after_end_of(gang: Gang, index: int, report: Ended | Lost) -> Gang:
    """Whether the gang fails with this part, goes on without it, or cannot be resized in place."""
    part, resize = gang.parts[index], gang.resize
    if part.is_out or gang.first is not None:
        return gang
    if part.joins:
        return _restarting(gang, _why_not_joined(report))
    if not _is_failure(report):
        return gang
    if resize is not None and index not in resize.members and _have_formed(gang, resize):
        return gang  # it was about to leave
    if any(each.over is None for each in gang.member_parts) and _may_lose(gang, part.ranks):
        gang = _with(gang, index, replace(part, is_out=True))
        return _without(gang, index, part.ranks)
    return replace(gang, first=index if gang.loss is None else gang.loss)


def _have_formed(gang: Gang, resize: Resize) -> bool:
    return all(gang.parts[index].formed is not None for index in resize.members)


def _why_not_joined(report: Ended | Lost) -> str:
    if isinstance(report, Lost):
        return report.why
    how = f"by {report.signal}" if report.signal else f"with {report.code}"
    return f"a new rank ended {how} before it had joined"


Step = Callable[[Gang, int, Part, Report], Folded]
STEPS: Mapping[type, Step] = {
    Started: _started,
    Reshaped: _reshaped,
    CanResize: _can_resize,
    ResizeReady: _resize_ready,
    NotResized: _not_resized,
    ResizeTimed: _resize_timed,
    ReplicaLost: _replica_lost,
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
        return Reshaped(gang.run, at_ms, pids, why=gang.why)
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
    """Lost where any part is: that is why others fail. Else as the first that failed, or as all ended.

    What had not joined, and what the gang went on without, does not count.
    """
    counted = [part for part in gang.member_parts if not (part.joins or part.is_out)]
    if gang.first is not None and gang.parts[gang.first] not in counted:
        counted.append(gang.parts[gang.first])
    over = [part.over for part in counted if part.over is not None]
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
    live = _live(gang)
    has_answered = all(part.frozen or part.refused or part.thawed for part in live)
    return has_answered and any(part.refused for part in live)


def _is_final(refused: Sequence[NotFrozen]) -> bool:
    return any(each.is_final for each in refused)


def _live(gang: Gang) -> list[Part]:
    """The parts whose ranks train, or are frozen."""
    return [part for part in gang.parts if part.over is None and not (part.joins or part.is_out)]


def _with(gang: Gang, index: int, part: Part) -> Gang:
    return replace(gang, parts=(*gang.parts[:index], part, *gang.parts[index + 1 :]))


def _sum(values: Sequence[int | None]) -> int | None:
    known = [each for each in values if each is not None]
    return sum(known) if len(known) == len(values) else None


def _most(values: Sequence[int | None]) -> int | None:
    return max((each for each in values if each is not None), default=None)
