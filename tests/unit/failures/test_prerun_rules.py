"""Which failures of a pre-run count against the program: no good job fails because of one device."""

from __future__ import annotations

import pytest

from trainmaster.daemon.failure_table import built_in_table
from trainmaster.failures.classification import Evidence, classify
from trainmaster.failures.prerun_rules import (
    MAY_WANT_DEVICES,
    SAME_ON_ALL_DEVICES,
    counts_against_program,
)

TRACE = 'Traceback (most recent call last):\n  File "/parallel/train.py", line 3, in <module>\n    main()\n'

OWN = {
    "a missing module": "ModuleNotFoundError: No module named 'einops'",
    "a misspelt name": "NameError: name 'lerning_rate' is not defined",
    "a missing file": "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'",
    "an assertion on the data": "AssertionError: vocabulary is empty",
    "a value": "ValueError: bad label",
    "a message of its own": "RuntimeError: my tokenizer is broken",
    "an exception of its own": "trainer.errors.Stopped: no luck today",
    "a full disk": "OSError: [Errno 28] No space left on device",
    "an assertion in a kernel": "torch.AcceleratorError: CUDA error: device-side assert triggered",
    "a module of many": "ModuleNotFoundError: No module named 'megatron.parallel'",
}
UNSURE = {
    "too little GPU memory": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "an assertion on ranks": "AssertionError: world_size must be at least 2",
    "a batch for many": "AssertionError: global batch 96 is not divisible by 64",
    "a device that is not there": "RuntimeError: CUDA error: invalid device ordinal",
    "its own empty checkpoint folder": (
        "FileNotFoundError: [Errno 2] No such file or directory: '/tm/runs/7/1/prerun/checkpoints/a.pt'"
    ),
    "ranks that do not come": "RuntimeError: rendezvous failed: 1 of 8 came",
    "a time-out": "TimeoutError: timed out after 60 s",
    "too few processes": "ValueError: it needs 8 processes",
}


def failure_of(last: str) -> bool:
    lines = tuple(f"{TRACE}{last}".splitlines())
    failure = classify(Evidence(exit_code=1, rank=0, lines=lines), built_in_table())
    return counts_against_program(failure, "/tm/runs/7/1/prerun")


@pytest.mark.parametrize("last", OWN.values(), ids=OWN)
def test_the_programs_own(last: str) -> None:
    assert failure_of(last)


@pytest.mark.parametrize("last", UNSURE.values(), ids=UNSURE)
def test_perhaps_for_want_of_devices(last: str) -> None:
    assert not failure_of(last)


@pytest.mark.parametrize(
    ("code", "signal", "line", "is_own"),
    [
        (1, "", "no key model in config", True),
        (1, "", "it needs 8 GPUs", False),
        (3, "", "", True),
        (3, "", "loading data", True),
        (139, "SIGSEGV", "running on 1 device", True),
        (137, "SIGKILL", "", False),
    ],
)
def test_ends_without_an_exception(code: int, signal: str, line: str, is_own: bool) -> None:
    lines = ("using device cpu, rank 0", line) if line else ()
    evidence = Evidence(exit_code=code, signal=signal, rank=0, lines=lines)
    assert counts_against_program(classify(evidence, built_in_table())) is is_own


def test_every_reason_is_one_of_the_table() -> None:
    assert {*built_in_table().by_key} >= SAME_ON_ALL_DEVICES | MAY_WANT_DEVICES
