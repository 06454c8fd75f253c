"""Profiles of one GPU's batch, and of the whole one."""

from __future__ import annotations

from trainmaster.model.profile import Profile


def test_each_gpu_has_the_batch_that_one_had() -> None:
    one = Profile(step_us=1000, batch=8, sync_bytes=4, fixed_us=200, per_gpu=True)
    whole = one.on_each_of(4)
    assert whole == Profile(step_us=3400, batch=32, sync_bytes=4, fixed_us=200)
    assert whole.on_each_of(4) is whole


def test_an_unknown_part_that_stays_is_a_usual_one() -> None:
    assert Profile(step_us=1000, per_gpu=True).on_each_of(2).step_us == 1950
    assert Profile(step_us=1000, fixed_us=5000).fixed_or_usual_us == 1000
