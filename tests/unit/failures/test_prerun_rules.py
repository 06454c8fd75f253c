"""Which failures of a pre-run count against the program: no good job fails because of one device."""

from __future__ import annotations

import pytest

from trainmaster.daemon.failure_table import built_in_table
from trainmaster.failures.classification import Evidence, classify
from trainmaster.failures.prerun_rules import (
    MAY_WANT_DEVICES,
    SAME_ELSEWHERE,
    SAME_ON_ALL_DEVICES,
    counts_against_program,
    may_need_several,
    may_want,
)
from trainmaster.model.failure import Failure

TRACE = 'Traceback (most recent call last):\n  File "/parallel/train.py", line 3, in <module>\n'

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
    "a missing shard": "FileNotFoundError: [Errno 2] No such file or directory: '/data/shard-0001.tar'",
    "a missing corpus": "FileNotFoundError: [Errno 2] No such file or directory: '/data/parallel/a.txt'",
    "a shard of others": "PermissionError: [Errno 13] Permission denied: '/data/shard-0001.tar'",
    "a name of many": "NameError: name 'DistributedSampler' is not defined",
    "an argument of its own": "TypeError: f() got an unexpected keyword argument 'device'",
    "tensors here and there": (
        "RuntimeError: Expected all tensors to be on the same device, but found at least two devices,"
        " cuda:0 and cpu!"
    ),
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
    "too few GPUs of Lightning": (
        "lightning.fabric.utilities.exceptions.MisconfigurationException: You requested gpu: [0, 1]"
        " But your machine only has: [0]"
    ),
    "no group": "ValueError: Default process group has not been initialized",
}


def classified(last: str, code: str = "main()") -> Failure:
    lines = tuple(f"{TRACE}    {code}\n{last}".splitlines())
    return classify(Evidence(exit_code=1, rank=0, lines=lines), built_in_table())


def failure_of(last: str, code: str = "main()") -> bool:
    return counts_against_program(classified(last, code), "/tm/runs/7/1/prerun")


@pytest.mark.parametrize("last", OWN.values(), ids=OWN)
def test_the_programs_own(last: str) -> None:
    assert failure_of(last)


@pytest.mark.parametrize("last", UNSURE.values(), ids=UNSURE)
def test_perhaps_for_want_of_devices(last: str) -> None:
    assert not failure_of(last)


def test_what_it_may_have_failed_for_want_of() -> None:
    folder = "/tm/runs/7/1/prerun"
    own_folder = classified(UNSURE["its own empty checkpoint folder"])
    assert may_want(own_folder, folder) == "checkpoints"
    assert may_want(classified(UNSURE["no group"]), folder) == "devices"
    assert may_want(classified(OWN["a value"]), folder) == ""


def test_that_it_may_need_several_devices_is_said_only_where_nothing_else_is_known() -> None:
    assert may_need_several(classified(OWN["an exception of its own"]))
    for name in ("a missing module", "a misspelt name", "a missing file", "a full disk"):
        assert not may_need_several(classified(OWN[name])), name


def test_the_words_of_its_code_say_nothing_unless_they_are_all_that_an_assertion_says() -> None:
    misspelt = "AttributeError: module 'torch.nn' has no attribute 'DataParalel'"
    assert failure_of(misspelt, "model = nn.DataParallel(model)")
    assert failure_of("ValueError: bad label", "model = nn.DataParallel(model)")
    assert failure_of("AssertionError: bad label", "assert world_size > 1, text")
    assert not failure_of("AssertionError", "assert world_size > 1")
    assert failure_of("AssertionError", "assert labels")


@pytest.mark.parametrize(
    ("code", "signal", "line", "is_own"),
    [
        (1, "", "no key model in config", True),
        (1, "", "it needs 8 GPUs", False),
        (2, "", "a.py: error: the following arguments are required: --num_nodes", True),
        (2, "", "a.py: error: argument --gpus: expected one argument", True),
        (2, "", "a.py: error: it needs 8 GPUs", False),
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
    known = SAME_ON_ALL_DEVICES | SAME_ELSEWHERE | MAY_WANT_DEVICES
    assert {*built_in_table().by_key} >= known
