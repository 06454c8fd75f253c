"""The memory of queues between passes: how it fades, and when it counts."""

from __future__ import annotations

from trainmaster.mechanisms.fair_share.decayed_fair_share import (
    FINE,
    REFRESHED_MS,
    SharesMemo,
    Usage,
    in_thousandths,
    with_decayed_usage,
)
from trainmaster.model.plan import FrozenMap
from trainmaster.model.units import HOUR, MINUTE, WHOLE

HELD = FrozenMap({"a": 8 * WHOLE})
ONLY_A = SharesMemo(usage=Usage(0, FrozenMap(), HELD))
"""Queue a holds eight GPUs from the beginning; nothing has been remembered before."""


def averages(memo: SharesMemo) -> dict[str, int]:
    return in_thousandths(memo.usage.average)


def test_after_one_half_life_it_has_come_half_the_way_to_what_is_held() -> None:
    memo = with_decayed_usage(ONLY_A, HOUR, HOUR)
    assert averages(memo) == {"a": 4 * WHOLE}
    assert averages(with_decayed_usage(memo, 2 * HOUR, HOUR)) == {"a": 6 * WHOLE}


def test_many_short_steps_come_to_the_same() -> None:
    memo = ONLY_A
    for minute in range(1, 61):
        memo = with_decayed_usage(memo, minute * MINUTE, HOUR)
    assert abs(averages(memo)["a"] - 4 * WHOLE) <= 1


def test_what_is_no_longer_held_fades_until_it_is_gone() -> None:
    memo = SharesMemo(usage=Usage(0, FrozenMap({"a": 8 * WHOLE * FINE}), FrozenMap()))
    memo = with_decayed_usage(memo, HOUR, HOUR)
    assert averages(memo) == {"a": 4 * WHOLE}
    assert averages(with_decayed_usage(memo, 40 * HOUR, HOUR)) == {}


def test_what_counts_is_made_anew_every_ten_minutes_only() -> None:
    """Else budgets would creep from pass to pass."""
    memo = with_decayed_usage(ONLY_A, REFRESHED_MS, HOUR)
    first = memo.counted
    assert memo.counted_ms == REFRESHED_MS
    memo = with_decayed_usage(memo, 2 * REFRESHED_MS - 1, HOUR)
    assert memo.counted is first
    assert averages(memo)["a"] > first["a"], "the memory itself goes on"
    memo = with_decayed_usage(memo, 2 * REFRESHED_MS, HOUR)
    assert memo.counted == averages(memo)


def test_without_a_half_life_nothing_is_remembered() -> None:
    assert with_decayed_usage(ONLY_A, 100 * HOUR, 0) is ONLY_A
