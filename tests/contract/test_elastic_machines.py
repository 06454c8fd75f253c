"""A real DDP program on two nodes, resized while it trains: ranks that stay keep their process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.test_engine_of_machines import RUN, Cluster, perform
from tests.live.test_elastic_engine import (
    check_every_sample_once_in_each_epoch,
    hurry,
    losses,
    recipe_of,
    stepped,
    undisturbed,
)
from trainmaster.model.actions import Launch, Reshape
from trainmaster.model.engine_reports import Reshaped, Started, StopOrder
from trainmaster.model.placement import Placement, Slice

pytestmark = pytest.mark.live


def slots(*numbers: int) -> Placement:
    """Four on each node."""
    return Placement(tuple(Slice(slot // 4, slot) for slot in numbers), span=0)


async def reshaped(stage: Cluster, spec: object, where: Placement, which: int) -> Reshaped:
    await stage.order(Reshape(RUN, where), spec)
    told = await stage.heard(RUN, Reshaped, which=which)
    assert told.in_place, told.why
    await stepped(stage, len(where.slices))
    return told


def test_a_gang_grows_over_nodes_and_shrinks_in_place(tmp_path: Path) -> None:
    async def act(stage: Cluster) -> None:
        spec = recipe_of(stage)
        await stage.order(Launch(RUN, slots(3), 0), spec)
        (first,) = (await stage.heard(RUN, Started)).pids
        await stepped(stage, 1)
        two = await reshaped(stage, spec, slots(3, 4), 0)
        assert two.pids[0] == first
        assert stage.link.held == {RUN: {"n0": 1000, "n1": 1000}}
        four = await reshaped(stage, spec, slots(2, 3, 4, 5), 1)
        assert set(four.pids) > set(two.pids)
        again = await reshaped(stage, spec, slots(4, 5), 2)
        assert set(again.pids) < set(four.pids)
        hurry(stage)
        over = await stage.ended(RUN)
        assert (over.code, over.asked) == (0, StopOrder.NOTHING), over
        check_every_sample_once_in_each_epoch(stage)
        assert losses(stage) == pytest.approx(await undisturbed(stage), rel=1e-3)

    perform(tmp_path, act)
