"""The timeline of booked GPUs: latest and earliest stretches, switching, types; and its own arithmetic."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from trainmaster.policies.trainmaster.deadlines.capacity_calendar import (
    CapacityCalendar,
    CapacityRequest,
    Stretches,
    keep_needed,
    latest_start,
    room_after,
    trim,
)

ALL = (0,)


def request(
    count: int, need: int, by: int, switch: int = 0, *, is_there: bool = False
) -> CapacityRequest:
    return CapacityRequest(ALL, count, need, switch, by, is_there)


def free(gpus: int = 1, *booked: tuple[int, int, int]) -> CapacityCalendar:
    """From 0 on, with (from, to, count) taken."""
    calendar = CapacityCalendar(0, {ALL: gpus})
    for start, end, count in booked:
        calendar.book(request(count, end - start, end), [(start, end)])
    return calendar


def test_it_is_booked_as_late_as_it_may_be() -> None:
    assert free().latest(request(1, 30, 100)) == ((70, 100),)


def test_around_what_is_taken_in_stretches() -> None:
    calendar = free(1, (80, 90, 1))
    assert calendar.latest(request(1, 30, 100)) == ((60, 80), (90, 100))
    assert calendar.earliest(request(1, 85, 0)) == ((0, 80), (90, 95))


def test_each_stretch_begins_with_a_switch_that_is_worth_it() -> None:
    calendar = free(1, (80, 95, 1))
    assert calendar.latest(request(1, 30, 100, switch=5)) == ((45, 80),)
    assert calendar.latest(request(1, 30, 101, switch=5)) == ((46, 80), (95, 101))


def test_who_is_there_already_goes_on_without_one() -> None:
    assert free().latest(request(1, 98, 100, switch=5)) is None
    assert free().latest(request(1, 98, 100, switch=5, is_there=True)) == ((0, 98),)
    assert free().latest(request(1, 95, 100, switch=5, is_there=True)) == ((0, 100),)


def test_gangs_need_their_gpus_at_once() -> None:
    calendar = free(4, (0, 50, 2), (50, 60, 3))
    assert calendar.earliest(request(2, 60, 0)) == ((0, 50), (60, 70))
    assert calendar.earliest(request(3, 10, 0)) == ((60, 70),)
    assert calendar.earliest(request(5, 10, 0)) is None


def test_a_job_counts_in_every_row_whose_gpus_it_could_take() -> None:
    fast, either = (0,), (0, 1)
    calendar = CapacityCalendar(0, {fast: 1, either: 2})
    calendar.book(CapacityRequest(either, 1, 100, 0, 100), [(0, 100)])
    assert calendar.earliest(CapacityRequest(fast, 1, 10, 0, 0)) == ((100, 110),)
    assert calendar.earliest(CapacityRequest(either, 1, 10, 0, 0)) == ((0, 10),)


def test_what_is_not_needed_any_more_is_given_back_from_the_front() -> None:
    assert trim(((0, 10), (20, 30)), 12, 0) == ((8, 10), (20, 30))
    assert trim(((0, 10), (20, 30)), 10, 0) == ((20, 30),)
    assert trim(((0, 10), (20, 30)), 10, 2) == ((6, 10), (20, 30))
    assert trim(((0, 10), (20, 30)), 21, 0) is None
    assert keep_needed(((0, 10), (20, 30)), request(1, 10, 30, switch=2, is_there=True), 5) == (
        (6, 10),
        (20, 30),
    )
    assert keep_needed(((0, 10), (20, 30)), request(1, 13, 30, switch=2, is_there=True), 5) == (
        (5, 10),
        (20, 30),
    )


def test_the_latest_start_is_in_the_stretch_that_is_needed_first() -> None:
    stretches: Stretches = ((0, 10), (20, 30))
    assert latest_start(stretches, 4, 1) == 25
    assert latest_start(stretches, 12, 0) == 8
    assert latest_start(stretches, 21, 0) is None
    assert room_after(stretches, 5, 0, is_there=False) == 15
    assert room_after(stretches, 5, 2, is_there=True) == 5 + 8


@st.composite
def crowded(draw: st.DrawFn) -> CapacityCalendar:
    gpus = draw(st.integers(1, 4))
    calendar = CapacityCalendar(0, {ALL: gpus})
    for _ in range(draw(st.integers(0, 6))):
        each = request(
            draw(st.integers(1, gpus)),
            draw(st.integers(1, 40)),
            draw(st.integers(1, 120)),
            draw(st.integers(0, 3)),
        )
        stretches = calendar.latest(each)
        if stretches is not None:
            calendar.book(each, stretches)
    return calendar


@settings(max_examples=300, deadline=None)
@given(crowded(), st.integers(1, 4), st.integers(1, 40), st.integers(0, 4))
def test_the_earliest_end_is_the_first_deadline_that_can_be_booked(
    calendar: CapacityCalendar, count: int, need: int, switch: int
) -> None:
    found = calendar.earliest(request(count, need, 0, switch))
    if found is None:
        assert calendar.latest(request(count, need, 10_000, switch)) is None
        return
    end = found[-1][1]
    latest = calendar.latest(request(count, need, end, switch))
    assert latest is not None
    assert calendar.has_room(request(count, need, end, switch), latest)
    assert room_after(latest, 0, switch, is_there=False) == need
    assert calendar.latest(request(count, need, end - 1, switch)) is None
