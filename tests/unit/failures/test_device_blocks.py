"""Which failures count against a device, and when it is set aside for them."""

from __future__ import annotations

from trainmaster.failures.device_blocks import counts, may_set_aside
from trainmaster.failures.retry_rules import EARLY_MS
from trainmaster.model.device_failures import DeviceFailure, DeviceFailures
from trainmaster.model.failure import Blame, Failure


def told(*facts: str) -> DeviceFailures:
    """`7 train n0:1`: job 7 of train failed there; `+train n0:1`: a run of train worked there."""
    found = DeviceFailures()
    for fact in facts:
        first, *rest = fact.split()
        if first.startswith("+"):
            found = found.worked(first[1:], rest)
        else:
            is_platform = "platform" in rest
            found = found.failed(DeviceFailure(rest[1], first, rest[0], is_platform))
    return found


def test_three_jobs_of_several_programs_in_a_row_are_too_many() -> None:
    assert not told("1 a n0:0", "2 b n0:0").is_bad("n0:0", 3)
    assert told("1 a n0:0", "2 b n0:0", "3 a n0:0").is_bad("n0:0", 3)
    assert told("1 a n0:0", "2 b n0:0").is_bad("n0:0", 2), "it is a limit"


def test_attempts_of_one_job_count_once() -> None:
    assert not told("1 a n0:0", "1 a n0:0", "1 a n0:0", "2 b n0:0").is_bad("n0:0", 3)


def test_a_success_between_clears_the_device() -> None:
    found = told("1 a n0:0", "2 b n0:0", "+c n0:0", "3 c n0:0")
    assert not found.is_bad("n0:0", 3)


def test_one_program_alone_is_its_own_suspect_unless_the_platform_is_to_blame() -> None:
    assert not told("1 a n0:0", "2 a n0:0", "3 a n0:0", "4 a n0:0").is_bad("n0:0", 3)
    named = ("1 a n0:0 platform", "2 a n0:0 platform", "3 a n0:0 platform")
    assert told(*named).is_bad("n0:0", 3)


def test_programs_that_fail_everywhere_take_no_device_down() -> None:
    """Two broken programs, submitted again and again, meet every device."""
    runs = [f"{job} {'ab'[job % 2]} n0:{job // 2 % 4}" for job in range(64)]
    found = told(*runs)
    assert not any(found.is_bad(f"n0:{slot}", 3) for slot in range(4))


def test_a_program_that_works_elsewhere_accuses_the_device_again() -> None:
    runs = ("1 a n0:0", "2 b n0:0", "3 c n0:0", "3 c n0:1")
    assert not told(*runs).is_bad("n0:0", 3), "c fails on both"
    assert told(*runs, "+c n0:2").is_bad("n0:0", 3), "c worked on a third one"


def test_what_was_before_its_return_does_not_count() -> None:
    found = told("1 a n0:0", "2 b n0:0", "3 c n0:0").worked("", ["n0:0"])
    assert not found.failed(DeviceFailure("n0:0", "4", "d", False)).is_bad("n0:0", 3)


def test_a_users_own_failure_never_counts() -> None:
    assert not counts(Failure("import-error", Blame.USER), 1)
    assert counts(Failure("unknown", Blame.UNKNOWN), 1)
    assert counts(Failure("cuda-init-failed", Blame.PLATFORM), 1)
    assert counts(None, 1)


def test_late_failures_and_those_of_the_machine_do_not_count() -> None:
    assert not counts(Failure("unknown"), EARLY_MS + 1)
    assert not counts(Failure("disk-full", Blame.PLATFORM), 1)


def test_never_the_last_device_nor_more_than_a_quarter() -> None:
    assert not may_set_aside(devices=1, usable=1, aside=0)
    assert may_set_aside(devices=2, usable=2, aside=0)
    assert not may_set_aside(devices=2, usable=1, aside=1)
    assert may_set_aside(devices=16, usable=13, aside=3)
    assert not may_set_aside(devices=16, usable=12, aside=4)
