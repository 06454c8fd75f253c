"""The draft: trying things out and taking them back."""

from __future__ import annotations

from tests.unit.core.stage import Strings
from trainmaster.core.draft import Draft
from trainmaster.core.invariants import check
from trainmaster.model.units import WHOLE


def test_a_draft_rolls_back_as_often_as_it_is_asked() -> None:
    world = Strings("1x4").running("a", 0).submit("b").submit("c")
    draft = Draft(world.controller.view)
    mark = draft.checkpoint()
    for _ in range(2):
        draft.suspend(world.job("a"))
        draft.start(world.job("b"), world.on(1))
        draft.reserve(world.job("c"), world.on(2).slices, None)
        draft.stop(world.job("c"))
        draft.roll_back(mark)
        check(world.state)
    assert draft.plan().actions == ()


def test_a_budget_bounds_what_is_booked() -> None:
    world = Strings("1x4").submit("a", 2).submit("b", 2)
    draft = Draft(world.controller.view)
    assert draft.affords(9 * WHOLE), "no bound"
    with draft.within(3 * WHOLE):
        assert draft.affords(2 * WHOLE)
        mark = draft.checkpoint()
        draft.start(world.job("a"), world.on(0, 1))
        assert not draft.affords(2 * WHOLE)
        draft.roll_back(mark)
        assert draft.affords(2 * WHOLE)
        draft.occupy(world.job("a"), world.on(0, 1))
        assert not draft.affords(2 * WHOLE)
        draft.vacate(world.job("a"), world.on(0, 1))
        assert draft.affords(2 * WHOLE)
    assert draft.budget is None
    assert draft.plan().actions == ()


def test_what_is_tried_leaves_no_trace() -> None:
    world = Strings("2x2").running("a", 0).submit("b")
    draft, space = Draft(world.controller.view), world.state.occupancy
    with draft.trial():
        draft.suspend(world.job("a"))
        draft.start(world.job("b"), world.on(0))
        with draft.closed(1):
            assert space.total_free() == 1
        assert draft.fits_instead(world.job("a"), world.on(2))
        draft.reserve_gpus(world.on(3).slices)
        draft.unreserve_gpus(world.on(3).slices)
    assert not draft.is_touched(world.job("a"))
    assert draft.fits_instead(world.job("a"), world.on(0, 1))
    check(world.state)
    assert draft.plan().actions == ()
