"""Guaranteed and opportunistic runs on one GPU: shares counted apart, memory together."""

from __future__ import annotations

import pytest

from tests.builders import on
from tests.unit.core.stage import Strings
from trainmaster.core.occupancy import Occupancy
from trainmaster.model import actions as a
from trainmaster.model.actions import OpenTo
from trainmaster.model.job import Demand, Shape
from trainmaster.model.placement import Placement, Role, Sharing
from trainmaster.model.reasons import Refused
from trainmaster.model.topology import parse_shorthand
from trainmaster.model.units import GIB, WHOLE

ONE_NODE = parse_shorthand("1x2")


def a_gpu(memory: int) -> Demand:
    """One whole GPU, of which it uses so much memory."""
    return Demand(Shape(1, memory=memory), 1, 1)


def on_first(memory: int, role: Role = Role.GUARANTEED, share: int = WHOLE) -> Placement:
    return on(ONE_NODE, 0, share=share, memory=memory, sharing=Sharing.TIME, role=role)


def test_an_opportunistic_run_joins_a_guaranteed_one() -> None:
    space, demand = Occupancy(ONE_NODE), a_gpu(6 * GIB)
    space.book(on_first(6 * GIB), demand)
    beside = on_first(6 * GIB, Role.OPPORTUNISTIC)
    assert space.refusal(beside, demand) is None
    space.book(beside, demand)
    assert space.free_share[0] == 0
    assert space.free_spare[0] == 0
    assert space.free_memory[0] == 4 * GIB


def test_two_guaranteed_runs_do_not_both_get_a_whole_gpu() -> None:
    space, demand = Occupancy(ONE_NODE), a_gpu(6 * GIB)
    space.book(on_first(6 * GIB), demand)
    assert space.refusal(on_first(6 * GIB), demand) is Refused.GPU_TAKEN


def test_their_memory_is_one() -> None:
    space, demand = Occupancy(ONE_NODE), a_gpu(9 * GIB)
    space.book(on_first(9 * GIB), demand)
    beside = on_first(9 * GIB, Role.OPPORTUNISTIC)
    assert space.refusal(beside, demand) is Refused.MEMORY_TAKEN


def test_a_gpu_with_only_an_opportunistic_run_is_not_free_but_can_be_had_in_turns() -> None:
    space, demand = Occupancy(ONE_NODE), a_gpu(6 * GIB)
    space.book(on_first(6 * GIB, Role.OPPORTUNISTIC), demand)
    assert space.total_free() == 1
    assert space.refusal(on(ONE_NODE, 0), a_gpu(0)) is Refused.GPU_TAKEN
    assert space.refusal(on_first(6 * GIB), demand) is None


def test_an_opportunistic_run_books_no_host_but_what_it_states() -> None:
    space = Occupancy(ONE_NODE)
    space.book(on(ONE_NODE, 0, 1), Demand(Shape(2), 2, 2))
    assert space.free_cpus[0] == 0
    assert space.has_host_room(0, WHOLE, a_gpu(0), is_spare=True)
    stated = Demand(Shape(1), 1, 1, cpus=1_000)
    assert not space.has_host_room(0, WHOLE, stated, is_spare=True)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_bookings_undo_in_any_order(order: tuple[int, int]) -> None:
    space, demand = Occupancy(ONE_NODE), a_gpu(2 * GIB)
    both = (on_first(2 * GIB), on_first(2 * GIB, Role.OPPORTUNISTIC))
    for placement in both:
        space.book(placement, demand)
    for index in order:
        space.unbook(both[index], demand)
    fresh = Occupancy(ONE_NODE)
    for name in ("free_share", "free_spare", "free_memory", "mode", "whole", "by_free", "partial"):
        assert getattr(space, name) == getattr(fresh, name), name
    assert space.shared_gpus == 0


# -- reservations --------------------------------------------------------------------------------


def test_reserved_gpus_can_be_open_to_opportunists_only() -> None:
    strings = Strings("1x2")
    for name in ("gang", "guest", "other"):
        strings.submit(name, a_gpu(2 * GIB))
    held = strings.on(0).slices
    strings.plan(a.Reserve("gang", held, None, OpenTo.OPPORTUNISTIC))
    guest = strings.on(0, memory=2 * GIB, sharing=Sharing.TIME, role=Role.OPPORTUNISTIC)
    assert strings.state.occupancy.refusal(strings.on(0), a_gpu(0)) is not None
    strings.plan(a.Start("guest", guest))
    strings.plan(a.Release("gang"))
    assert strings.state.occupancy.free_share[0] == WHOLE
    assert strings.state.occupancy.total_free() == 1


def test_closed_reservations_keep_opportunists_out() -> None:
    strings = Strings("1x2")
    strings.submit("gang", a_gpu(2 * GIB))
    strings.plan(a.Reserve("gang", strings.on(0).slices))
    guest = strings.on(0, memory=2 * GIB, sharing=Sharing.TIME, role=Role.OPPORTUNISTIC)
    assert strings.state.occupancy.refusal(guest, a_gpu(2 * GIB)) is Refused.RESERVED


# -- packing -------------------------------------------------------------------------------------


def test_a_whole_gpu_job_may_be_packed_where_its_memory_is_booked() -> None:
    strings = Strings("1x2")
    strings.submit("a", a_gpu(6 * GIB))
    strings.plan(a.Start("a", strings.on(0, share=500, memory=6 * GIB, sharing=Sharing.TIME)))
    assert strings.state.occupancy.free_share[0] == 500


@pytest.mark.parametrize("memory", [0, 5 * GIB])
def test_packing_with_less_memory_than_it_needs_is_refused(memory: int) -> None:
    strings = Strings("1x2")
    strings.submit("a", a_gpu(6 * GIB))
    packed = strings.on(0, share=500, memory=memory, sharing=Sharing.TIME)
    assert strings.refused(a.Start("a", packed)) == [("a", Refused.NOT_ADMISSIBLE)]


def test_a_job_of_unknown_memory_is_packed_only_with_all_of_it() -> None:
    strings = Strings("1x2")
    strings.submit("a", a_gpu(0))
    packed = strings.on(0, share=500, memory=6 * GIB, sharing=Sharing.TIME)
    assert strings.refused(a.Start("a", packed)) == [("a", Refused.NOT_ADMISSIBLE)]


@pytest.mark.parametrize(("memory", "is_refused"), [(6 * GIB, False), (5 * GIB, True)])
def test_a_time_sharing_job_may_be_given_a_part(memory: int, is_refused: bool) -> None:
    """As anybody else may whose memory is known: asking for it must not make it harder."""
    asking = Demand(Shape(1, memory=6 * GIB), 1, 1, sharing=Sharing.TIME)
    strings = Strings("1x2").submit("j", asking)
    start = a.Start("j", strings.on(0, share=300, memory=memory, sharing=Sharing.TIME))
    assert strings.refused(start) == ([("j", Refused.NOT_ADMISSIBLE)] if is_refused else [])
