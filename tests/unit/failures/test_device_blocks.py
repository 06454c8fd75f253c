"""Which failures count against a device, and when it is set aside for them."""

from __future__ import annotations

import pytest

from trainmaster.config.failure_reasons import table_from
from trainmaster.daemon.failure_table import built_in_table
from trainmaster.failures.classification import Evidence, classify
from trainmaster.failures.device_blocks import counts, may_set_aside
from trainmaster.failures.reason_table import UNKNOWN, ReasonTable
from trainmaster.failures.retry_rules import EARLY_MS
from trainmaster.model.device_failures import DeviceFailure, DeviceFailures
from trainmaster.model.failure import Failure

TABLE = built_in_table()


def told(*facts: str) -> DeviceFailures:
    """`7 train n0:1`: job 7 of train failed there; `+train n0:1`: a run of train worked there.

    `7 train n0:1 ecc`: for a reason of the platform.
    """
    found = DeviceFailures()
    for fact in facts:
        first, *rest = fact.split()
        if first.startswith("+"):
            found = found.worked(first[1:], rest)
        else:
            program, device, *platform = rest
            said = DeviceFailure(device, first, program, bool(platform), "".join(platform))
            found = found.failed(said)
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
    named = ("1 a n0:0 ecc", "2 a n0:0 ecc", "3 a n0:0 ecc")
    assert told(*named).is_bad("n0:0", 3)


def test_programs_that_fail_everywhere_take_no_device_down() -> None:
    """Two broken programs, submitted again and again, meet every device."""
    runs = [f"{job} {'ab'[job % 2]} n0:{job // 2 % 4}" for job in range(64)]
    found = told(*runs)
    assert not any(found.is_bad(f"n0:{slot}", 3) for slot in range(4))


def test_so_do_not_programs_that_fail_everywhere_for_one_reason_of_the_platform() -> None:
    there = ("1 a n0:0 ecc", "2 b n0:0 ecc", "3 c n0:0 ecc")
    assert told(*there).is_bad("n0:0", 3)
    assert told(*there, "1 a n0:1 init").is_bad("n0:0", 3), "another reason, another cause"
    found = told(*there, "1 a n0:1 ecc")
    assert not any(found.is_bad(each, 3) for each in ("n0:0", "n0:1"))
    assert told(*there, "1 a n0:1 ecc", "+a n0:2").is_bad("n0:0", 3), "two devices are broken"


def test_a_program_that_works_elsewhere_accuses_the_device_again() -> None:
    runs = ("1 a n0:0", "2 b n0:0", "3 c n0:0", "3 c n0:1")
    assert not told(*runs).is_bad("n0:0", 3), "c fails on both"
    assert told(*runs, "+c n0:2").is_bad("n0:0", 3), "c worked on a third one"


def test_what_was_before_its_return_does_not_count() -> None:
    found = told("1 a n0:0", "2 b n0:0", "3 c n0:0").worked("", ["n0:0"])
    assert not found.failed(DeviceFailure("n0:0", "4", "d", False)).is_bad("n0:0", 3)


def test_a_programs_own_failures_elsewhere_excuse_a_device_whatever_others_do_there() -> None:
    first = ("1 a n0:0", "2 b n0:0", "3 c n0:0")
    again = ("4 a n0:1", "5 b n0:1", "6 c n0:1")
    found = told(*first, "+d n0:0", *again)
    assert not any(found.is_bad(each, 3) for each in ("n0:0", "n0:1"))
    assert told(*first, "+d n0:0", "+a n0:0", "+b n0:0", "+c n0:0", *again).is_bad("n0:1", 3)


def of_end(code: int, *lines: str, signal: str = "", table: ReasonTable = TABLE) -> bool:
    """Whether a run that ends so, early, accuses its device."""
    failure = classify(Evidence(exit_code=code, signal=signal, rank=0, lines=lines), table)
    return counts(failure, table.of(failure.reason), 1)


def raised(last: str) -> tuple[str, ...]:
    opening = "Traceback (most recent call last):"
    return (opening, '  File "train.py", line 3, in <module>', "    main()", last)


@pytest.mark.parametrize(
    "lines",
    [
        raised("ValueError: bad label"),
        raised("RuntimeError: my tokenizer is broken"),
        raised("trainer.errors.Stopped: at step 3"),
        raised("ModuleNotFoundError: No module named 'einops'"),
        raised("OSError: [Errno 28] No space left on device"),
        raised("ConnectionRefusedError: [Errno 111] Connection refused"),
        ("no key model in config",),
    ],
)
def test_what_a_program_says_of_itself_accuses_no_device(lines: tuple[str, ...]) -> None:
    assert not of_end(1, *lines)


@pytest.mark.parametrize(
    ("code", "lines", "signal"),
    [
        (11, (), ""),
        (1, (), ""),
        (3, ("step 4 loss 0.25",), ""),
        (-11, ("step 4 loss 0.25",), "SIGSEGV"),
        (-9, (), "SIGKILL"),
        (1, raised("RuntimeError: CUDA error: uncorrectable ECC error encountered"), ""),
        (1, raised("RuntimeError: No CUDA GPUs are available"), ""),
        (1, raised("torch.AcceleratorError: CUDA error: unspecified launch failure"), ""),
    ],
)
def test_errors_of_devices_and_a_death_without_a_word_do(
    code: int, lines: tuple[str, ...], signal: str
) -> None:
    assert of_end(code, *lines, signal=signal)


@pytest.mark.parametrize("code", [126, 127, 130, 137, 139])
def test_an_exit_code_that_only_looks_like_a_signal_does_not(code: int) -> None:
    assert not of_end(code)
    assert not of_end(code, "step 4 loss 0.25")
    assert of_end(137, signal="SIGKILL")


def test_a_row_of_a_users_own_accuses_a_device_only_if_it_says_so() -> None:
    row = {"key": "licence", "title": "no licence", "blame": "platform", "retry": "always"}
    row |= {"advice": "Ask.", "exceptions": ["LicenceError"]}
    for more, is_accused in (({}, False), ({"accuses": "device"}, True)):
        table = table_from({"reasons": [row | more]}, TABLE)
        assert of_end(1, *raised("LicenceError: none left"), table=table) is is_accused


def test_late_failures_and_those_that_nothing_is_known_of_do_not_count() -> None:
    silent = Failure("unknown")
    assert counts(silent, UNKNOWN, 1)
    assert not counts(silent, UNKNOWN, EARLY_MS + 1)
    assert not counts(None, UNKNOWN, 1)


def test_never_the_last_device_nor_more_than_a_quarter() -> None:
    assert not may_set_aside(devices=1, usable=1, aside=0)
    assert may_set_aside(devices=2, usable=2, aside=0)
    assert not may_set_aside(devices=2, usable=1, aside=1)
    assert may_set_aside(devices=16, usable=13, aside=3)
    assert not may_set_aside(devices=16, usable=12, aside=4)
