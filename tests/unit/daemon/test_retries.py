"""Retries: how long until the next one, how many, and what is said meanwhile."""

from __future__ import annotations

from itertools import pairwise

from tests.unit.core.stage import Strings
from trainmaster.config.limits import Limits, limits_of
from trainmaster.daemon.retries import (
    AFTER_FAILURE,
    AFTER_LOSS,
    delay_ms,
    failed_run,
    lost_run,
    lost_too_often,
    retry_reason,
)
from trainmaster.model.units import MINUTE, SECOND
from trainmaster.text.reasons import reason_sentence
from trainmaster.text.stop_messages import end_sentence

LIMITS = Limits()


def test_delays_grow_up_to_the_longest() -> None:
    for factor in (AFTER_FAILURE, AFTER_LOSS):
        delays = [delay_ms(times, factor, LIMITS) for times in range(1, 60)]
        assert delays[0] == LIMITS.retry_delay
        assert all(shorter <= longer for shorter, longer in pairwise(delays))
        assert delays[-1] == LIMITS.max_retry_delay == 5 * MINUTE
        assert (
            sum(delays[:5]) >= 30 * SECOND
        )  # a handful of attempts in half a minute, not hundreds


def test_a_job_may_be_lost_as_often_as_the_limit_says() -> None:
    world, limits = Strings().submit("a", retries=0), limits_of(["losses=2"])
    found = []
    for attempt in (1, 2, 3):
        world.start("a", 0)
        event = lost_run(world.job("a"), world.now, limits)
        found.append((event.retryable, event.retry_in_ms))
        if event.retryable:
            world.tell(event)
            world.later(event.retry_in_ms / SECOND).tell()
        assert event.run.attempt == attempt
    assert found == [(True, SECOND), (True, 4 * SECOND), (False, 16 * SECOND)]
    end = lost_too_often(world.job("a"), world.now, "Its supervisor is gone.")
    said = "It was lost 3 times, the last time because its supervisor is gone."
    assert end_sentence(end) == said


def test_what_is_said_of_a_delayed_retry() -> None:
    world = Strings().running("a", 0, retries=5)
    record = world.job("a")
    assert retry_reason(record, LIMITS) is None
    record.losses = 2
    world.tell(lost_run(record, world.now, limits_of(["losses=5", "retry_delay=2.5s"])))
    reason = retry_reason(record, LIMITS)
    assert reason is not None
    said = reason_sentence(reason, world.now)
    assert said == "Retry in 40 s (attempt 4 of 6, lost 3 times)."
    world.later(40).tell()
    world.start("a", 0)
    world.tell(failed_run(record, LIMITS, can_help=True))
    reason = retry_reason(record, LIMITS)
    assert reason is not None
    assert reason_sentence(reason, world.now) == "Retry in 1 s (attempt 2 of 6, failed 1 time)."
