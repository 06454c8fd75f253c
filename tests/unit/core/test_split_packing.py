"""Halves of a whole-GPU job on shared GPUs, and reservations that a draft takes back."""

from __future__ import annotations

import pytest

from tests.unit.core.stage import Strings
from trainmaster.core.draft import Draft
from trainmaster.core.invariants import check
from trainmaster.model import actions as a
from trainmaster.model.actions import OpenTo
from trainmaster.model.job import Demand, Part, Shape, gpus
from trainmaster.model.placement import Sharing
from trainmaster.model.reasons import Refused
from trainmaster.model.units import GIB

HALVES = Shape(2, parts=(Part(500, 3 * GIB), Part(500, 2 * GIB)))
SPLIT = Demand(Shape(1, memory=5 * GIB), 1, 1, splits=(HALVES,))


def halves(strings: Strings, first: int, second: int) -> a.Start:
    """A small share of two GPUs, with so much memory on each."""
    one, other = (
        strings.on(gpu, share=100, memory=gib * GIB, sharing=Sharing.TIME).slices[0]
        for gpu, gib in ((0, first), (1, second))
    )
    whole = strings.on(0, 1, sharing=Sharing.TIME)
    return a.Start("j", type(whole)((one, other), whole.span, Sharing.TIME))


def test_halves_may_share_gpus_in_any_part_where_their_memory_is_booked() -> None:
    strings = Strings("1x2").submit("j", SPLIT)
    (launch,) = strings.plan(halves(strings, 3, 2))
    assert isinstance(launch, a.Launch)
    assert strings.state.occupancy.free_memory == [13 * GIB, 14 * GIB]


@pytest.mark.parametrize("gib", [(2, 2), (3, 1), (0, 0)])
def test_halves_with_less_memory_than_they_need_are_refused(gib: tuple[int, int]) -> None:
    strings = Strings("1x2").submit("j", SPLIT)
    assert strings.refused(halves(strings, *gib)) == [("j", Refused.NOT_ADMISSIBLE)]


def test_halves_of_unknown_memory_do_not_share() -> None:
    unknown = Shape(2, parts=(Part(500, 0),) * 2)
    strings = Strings("1x2").submit("j", Demand(Shape(1), 1, 1, splits=(unknown,)))
    assert strings.refused(halves(strings, 0, 0)) == [("j", Refused.NOT_ADMISSIBLE)]


def test_a_draft_can_take_back_what_it_reserved() -> None:
    strings = Strings("1x2").submit("gang", 2)
    draft = Draft(strings.controller.view)
    record, space = strings.job("gang"), strings.state.occupancy
    draft.reserve(record, (space.whole_slices[0],), None, OpenTo.OPPORTUNISTIC)
    mark = draft.checkpoint()
    assert draft.unreserve(record)
    assert not draft.unreserve(record)
    assert space.total_free() == 2
    draft.roll_back(mark)
    assert space.reserved_gpus == {0: True}
    assert [type(action) for action in draft.plan().actions] == [a.Reserve]
    check(strings.state)


def test_a_draft_shrinks_a_run_before_another_moves_onto_what_it_leaves() -> None:
    strings = Strings("1x4").submit("wide", gpus(2, minimum=1, maximum=2)).running("mover", 2)
    strings.start("wide", 0, 1)
    wide, mover = strings.job("wide"), strings.job("mover")
    draft = Draft(strings.controller.view)
    draft.suspend(mover)
    draft.resize(wide, strings.on(0))
    draft.start(mover, strings.on(1))
    actions = draft.plan().actions
    assert [type(action) for action in actions] == [a.Resize, a.Migrate]
    assert strings.refused(*actions) == []
