"""The draft: trying things out and taking them back."""

from __future__ import annotations

from tests.unit.core.stage import Strings
from trainmaster.core.draft import Draft
from trainmaster.core.invariants import check


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
