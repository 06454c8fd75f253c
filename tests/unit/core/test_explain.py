"""Why a job waits: one reason, with its numbers in thousandths of a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import a_policy
from tests.unit.core.stage import Strings
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.reasons import Reason, Why


def explained(world: Strings, name: str, policy: str = "fifo") -> Reason:
    asked = a_policy(policy)
    return asked.explain(world.controller.view, asked.first_memo(), world.job(name), world.now)


def test_too_few_are_free() -> None:
    world = Strings("2x4").running("big", 0, 1, 2, 3).running("small", 4).submit("me", 4)
    found = Reason(
        Why.NOT_ENOUGH_FREE, need=4_000, free=3_000, largest_block=3_000, held_by=("big", "small")
    )
    assert explained(world, "me", "las") == found
    for never in ("fifo", "yarn-cs", "qssf"):
        assert explained(world, "me", never) == replace(found, never_preempts=never)


def test_gpus_on_drained_nodes_are_counted() -> None:
    world = Strings("2x4").running("big", 0, 1, 2, 3).submit("me", 4)
    world.tell(e.NodeDraining(1))
    found = Reason(Why.NOT_ENOUGH_FREE, 4_000, held_by=("big",), drained=4_000)
    assert explained(world, "me", "las") == found


def test_enough_are_free_but_not_together() -> None:
    world = Strings("2x4").running("a", 0, 1).running("b", 4, 5).submit("me", 4)
    reason = explained(world, "me", "yarn-cs")
    assert reason == Reason(Why.FRAGMENTED, 4_000, 4_000, 2_000, ("a", "b"))
    assert explained(world, "me", "fifo").why is Why.BEHIND_OTHERS, "fifo may spread it"


def test_it_would_fit_but_others_go_first() -> None:
    world = Strings("1x4").running("a", 0).submit("head", 4).submit("me")
    assert explained(world, "me") == Reason(Why.BEHIND_OTHERS, 1_000, 3_000, 3_000)


def test_what_it_could_use_is_held_for_another() -> None:
    world = Strings("1x2").submit("head", 2).submit("me", 2)
    world.plan(a.Reserve("head", world.on(0).slices))
    assert explained(world, "me") == Reason(Why.RESERVED, 2_000, 1_000, 1_000, ("head",))


def test_its_gpus_are_still_being_released() -> None:
    world = Strings("1x1").running("old", 0).submit("me")
    world.plan(a.Suspend("old"), a.Start("me", world.on(0)))
    assert explained(world, "me").why is Why.WAITING_FOR_RELEASE


def test_the_controller_passes_the_question_on() -> None:
    world = Strings("1x1").running("old", 0).submit("me")
    world.controller.policy = a_policy("fifo")
    assert world.controller.explain("me").why is Why.NOT_ENOUGH_FREE
    with pytest.raises(KeyError):
        world.controller.explain("nobody")
