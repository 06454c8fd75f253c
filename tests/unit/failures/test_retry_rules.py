"""Retries only where a retry helps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainmaster.failures.reason_table import UNKNOWN, FailureReason, Memory
from trainmaster.failures.retry_rules import (
    EARLY_MS,
    FailedAttempt,
    Resources,
    RetryLimits,
    asked_memory,
    decide,
    devices_to_avoid,
    unchanging,
)
from trainmaster.model.failure import Blame, Failure, RetryRule
from trainmaster.model.retry import RetryDecision, RetryWhy
from trainmaster.model.units import GIB, HOUR, MINUTE, SECOND
from trainmaster.text.retries import SENTENCES, retry_sentence


def reason(
    key: str, rule: RetryRule, blame: Blame = Blame.PLATFORM, memory: Memory | None = None
) -> FailureReason:
    return FailureReason(key, key, blame, rule, "", memory=memory)


ELSEWHERE = reason("gpu-ecc-error", RetryRule.ELSEWHERE)
ALWAYS = reason("lost-heartbeat", RetryRule.ALWAYS)
HUNG = reason("hung", RetryRule.ALWAYS, Blame.UNKNOWN)
CUDA = reason("cuda-error", RetryRule.ELSEWHERE, Blame.UNKNOWN)
NEVER = reason("import-error", RetryRule.NEVER, Blame.USER)
GPU_MEMORY = reason("cache-too-small", RetryRule.MORE_MEMORY, Blame.USER, Memory.GPU)
MEMORY = reason("loader-too-big", RetryRule.MORE_MEMORY, Blame.USER, Memory.HOST)
LOADER = reason("data-loader", RetryRule.ONCE, Blame.USER)
BUG = ("Traceback (most recent call last):", "ValueError: shapes (64, 10) and (32, 10) at step 1")


def attempt(
    row: FailureReason, *lines: str, ran_ms: int = 3 * SECOND, step: int | None = None
) -> FailedAttempt:
    failure = Failure(row.key, row.blame, lines=lines, exit_code=1)
    return FailedAttempt(failure, ran_ms, step, job_ran_ms=ran_ms)


def decided(
    row: FailureReason,
    failed: FailedAttempt | None = None,
    *earlier: FailedAttempt,
    retries: int = 5,
    had: Resources = Resources(),  # noqa: B008
) -> RetryDecision:
    last = attempt(row) if failed is None else failed
    return decide(last, earlier, row, had, RetryLimits(retries, len(earlier)))


def test_the_table_decides_and_the_users_retries_are_the_most() -> None:
    late = attempt(ALWAYS, ran_ms=HOUR)
    assert decided(NEVER).why is RetryWhy.NEVER_HELPS
    assert decided(ALWAYS).is_retried
    assert decided(ALWAYS, retries=0).why is RetryWhy.NO_RETRIES
    assert decided(ALWAYS, late, late, retries=1).why is RetryWhy.RETRIES_USED_UP
    assert decided(ALWAYS, late, late, late, late, retries=4).is_retried
    elsewhere = decided(ELSEWHERE)
    assert (elsewhere.is_retried, elsewhere.avoids_place) == (True, True)
    late = attempt(UNKNOWN, ran_ms=HOUR)
    assert decided(UNKNOWN, late).is_retried
    assert decided(UNKNOWN, late, late).why is RetryWhy.ONCE_DONE


def test_more_retries_are_not_offered_where_none_helps() -> None:
    no_more = Resources(memory=GIB, most_memory=GIB)
    for found in (
        decided(NEVER, retries=0),
        decided(UNKNOWN, attempt(UNKNOWN, *BUG), retries=0),
        decided(MEMORY, retries=0, had=no_more),
        decided(GPU_MEMORY, retries=0),
    ):
        assert not found.is_retried
        assert "--retries" not in retry_sentence(found)
    assert decided(NEVER, retries=0) == decided(NEVER, retries=2)
    late = attempt(UNKNOWN, ran_ms=HOUR)
    assert "--retries" in retry_sentence(decided(UNKNOWN, late, retries=0))


def test_slots_have_no_gpu_memory_to_give_more_of() -> None:
    had = Resources(gpu_memory=GIB, more_gpu_memory=2 * GIB, has_gpu=False)
    found = decided(GPU_MEMORY, had=had)
    assert (found.is_retried, found.why) == (False, RetryWhy.NO_GPU)
    assert "CPU slots" in retry_sentence(found)


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("can't allocate memory: you tried to allocate 4000000000000000 bytes. Error", 4 * 10**15),
        ("numpy.MemoryError: Unable to allocate 7.5 TiB for an array with shape", 7680 * GIB),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", 2 * GIB),
        ("OSError: [Errno 12] Cannot allocate memory", 0),
    ],
)
def test_how_much_it_asked_for_at_once(line: str, asked: int) -> None:
    assert asked_memory(Failure("host-out-of-memory", lines=("x = f()", line))) == asked


def test_more_than_there_is_anywhere_is_not_tried_again() -> None:
    failed = attempt(MEMORY, "you tried to allocate 4000000000000000 bytes")
    had = Resources(memory=GIB, most_memory=32 * GIB, largest_node=32 * GIB)
    decision = decided(MEMORY, failed, had=had)
    assert retry_sentence(decision) == (
        "Not retried: it asked for 3725290.3 GiB of host memory at once, and the largest node has 32.0 GiB."
    )


def test_delays_grow() -> None:
    late = attempt(ALWAYS, ran_ms=HOUR)
    delays = [decided(ALWAYS, late, *[late] * times, retries=9).delay_ms for times in range(4)]
    assert delays == [10 * SECOND, 20 * SECOND, 40 * SECOND, 80 * SECOND], "only time helps"
    late = attempt(HUNG, ran_ms=HOUR)
    delays = [decided(HUNG, late, *[late] * times, retries=9).delay_ms for times in range(4)]
    assert delays == [SECOND, 2 * SECOND, 4 * SECOND, 8 * SECOND]
    assert RetryLimits(9, 9).delay_after(ALWAYS) == 5 * MINUTE
    assert RetryLimits(9, 0, first_delay_ms=MINUTE).delay_after(ALWAYS) == MINUTE


def test_what_only_time_mends_is_tried_as_often_as_its_retries_allow() -> None:
    refused = attempt(ALWAYS, "ConnectionRefusedError: [Errno 111] Connection refused")
    for times in range(5):
        assert decided(ALWAYS, refused, *[refused] * times, retries=5).is_retried
    assert decided(ALWAYS, refused, *[refused] * 5, retries=5).why is RetryWhy.RETRIES_USED_UP


def test_it_is_not_said_of_the_platform_that_it_would_fail_again() -> None:
    failed = attempt(ELSEWHERE, "uncorrectable ECC error")
    decision = decided(ELSEWHERE, failed, failed)
    assert decision.why is RetryWhy.STILL_THERE
    assert "fail again" not in retry_sentence(decision)


@pytest.mark.parametrize("row", [CUDA, UNKNOWN], ids=lambda row: row.key)
def test_what_fails_twice_in_the_same_way_is_not_retried(
    row: FailureReason,
) -> None:
    first = attempt(row, "12:01:07 failed at 0x7f3c with 512 MiB", step=3)
    again = attempt(row, "12:02:19 failed at 0x91aa with 2 GiB", step=3)
    assert decided(row, first).is_retried
    assert decided(row, again, first).why is RetryWhy.SAME_AGAIN
    for other in (
        attempt(row, "something else", step=3),
        replace(again, step=4),  # it came further
        replace(again, step=None, ran_ms=EARLY_MS + 1),
        replace(again, failure=replace(again.failure, exit_code=2)),
    ):
        assert decided(row, other, first).why is not RetryWhy.SAME_AGAIN


def test_the_same_step_is_the_same_however_late() -> None:
    first = attempt(CUDA, "bad sample", ran_ms=3 * HOUR, step=9000)
    assert decided(CUDA, first, first).why is RetryWhy.SAME_AGAIN


def test_a_program_that_fails_on_its_first_batch_is_not_retried() -> None:
    assert decided(UNKNOWN, attempt(UNKNOWN, *BUG)).why is RetryWhy.FIRST_BATCH
    assert decided(UNKNOWN, attempt(UNKNOWN, *BUG, step=1)).why is RetryWhy.FIRST_BATCH
    assert decided(UNKNOWN, attempt(UNKNOWN, *BUG, step=200)).is_retried
    assert decided(UNKNOWN, attempt(UNKNOWN, *BUG, ran_ms=HOUR)).is_retried
    resumed = replace(attempt(UNKNOWN, *BUG), job_ran_ms=HOUR)
    assert decided(UNKNOWN, resumed).is_retried
    own = ('  File "train.py", line 3, in <module>', "__main__.Diverged: at once")
    assert decided(UNKNOWN, attempt(UNKNOWN, *own)).why is RetryWhy.FIRST_BATCH
    assert decided(UNKNOWN, attempt(UNKNOWN, "no idea")).is_retried
    library = reason("cuda-library-error", RetryRule.ONCE, Blame.UNKNOWN)
    assert decided(library, attempt(library, *BUG)).is_retried
    assert decided(LOADER, attempt(LOADER, *BUG)).is_retried
    assert decided(ELSEWHERE, attempt(ELSEWHERE, *BUG)).is_retried


def test_devices_are_avoided_first_and_nodes_where_two_attempts_failed() -> None:
    def devices_of(node: int) -> range:
        return range(2 * node, 2 * node + 2)

    first, other, same_node = (0, 1), (1, 2), (0, 0)
    assert devices_to_avoid("gpu-ecc-error", [first], (), devices_of) == (first,)
    assert devices_to_avoid("gpu-ecc-error", [other], [first], devices_of) == (first, other)
    found = devices_to_avoid("gpu-ecc-error", [same_node], [first, other], devices_of)
    assert found == (same_node, first, other)
    assert devices_to_avoid("disk-full", [first], (), devices_of) == (same_node, first)


def test_gpu_memory_is_as_much_as_there_is_again_and_again() -> None:
    had = Resources(gpu_memory=8 * GIB, more_gpu_memory=16 * GIB)
    packed = decided(GPU_MEMORY, had=had)
    assert (packed.is_retried, packed.gpu_memory, packed.memory) == (True, 16 * GIB, 0)
    assert retry_sentence(packed) == "Retried with more GPU memory: 16.0 GiB instead of 8.0 GiB."
    alone = Resources(gpu_memory=16 * GIB, more_gpu_memory=80 * GIB)
    first = attempt(GPU_MEMORY, "tried to allocate 2 GiB")
    assert decided(GPU_MEMORY, first, first, had=alone).gpu_memory == 80 * GIB
    largest = decided(GPU_MEMORY, had=replace(alone, more_gpu_memory=0))
    assert (largest.is_retried, largest.why) == (False, RetryWhy.GPU_TOO_SMALL)
    said = "Not retried: it had 16.0 GiB of GPU memory, and there are not enough larger GPUs"
    assert retry_sentence(largest).startswith(said)


def test_host_memory_is_doubled_up_to_what_a_node_has() -> None:
    for had, more in ((8, 16), (40, 64), (64, 0), (0, 0)):
        found = decided(MEMORY, had=Resources(memory=had * GIB, most_memory=64 * GIB))
        assert (found.is_retried, found.memory, found.gpu_memory) == (more > 0, more * GIB, 0)
        assert more or found.why is RetryWhy.HOST_TOO_SMALL
    estimated = Resources(GIB, 0, GIB, 9 * GIB, has_gpu=False, is_memory_stated=False)
    for used, more in ((0, 2), (3, 6), (7, 9)):
        failed = replace(attempt(MEMORY), host_memory=used * GIB)
        found = decided(MEMORY, failed, had=estimated)
        assert (found.memory, found.is_counted) == (more * GIB, False)
    within = replace(attempt(MEMORY), host_memory=GIB)
    taken = decided(MEMORY, within, within, within, had=estimated)
    assert (taken.why, taken.is_counted, taken.memory) == (RetryWhy.MEMORY_TAKEN, False, 0)
    assert taken.delay_ms == 4 * SECOND
    assert decided(MEMORY, within, within, within, within, had=estimated).memory == 2 * GIB
    slots = Resources(memory=GIB, most_memory=4 * GIB, has_gpu=False)
    assert retry_sentence(decided(MEMORY, had=slots)) == (
        "Retried with more host memory for each slot: 2.0 GiB instead of 1.0 GiB."
    )


def test_every_reason_has_a_sentence() -> None:
    assert set(SENTENCES) == set(RetryWhy)
    for why in RetryWhy:
        said = retry_sentence(RetryDecision(True, why, had=GIB, failures=2))
        assert said.endswith(".")
        assert "{" not in said


def test_numbers_addresses_and_times_do_not_count() -> None:
    one = "2026-11-16 21:30:07,113 CUDA error at 0x7f01: 12.50 GiB of 16 GiB, rank 3"
    two = "2026-11-17 08:02:59,001 CUDA error at 0x8a55: 700 MiB of 16 GiB, rank 11"
    assert unchanging(one) == unchanging(two)
    assert unchanging("no such file a.txt") != unchanging("no such file b.txt")
    assert EARLY_MS == 5 * MINUTE
