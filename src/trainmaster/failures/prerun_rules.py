"""What a failure on one device says about a job of several: its own, or perhaps for want of devices.

A failed pre-run is a failed run, so that a bug costs one device. Only what may be due to the single device
(memory, ranks, time-outs), or to the empty folder that a pre-run has for its checkpoints, is left open: such
a job goes on to all its devices.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainmaster.model.failure import UNKNOWN_REASON, Failure

MAY_WANT_DEVICES = frozenset(
    {
        *("cuda-out-of-memory", "host-out-of-memory", "shared-memory-full", "killed-by-signal"),
        *("invalid-device", "nccl-timeout", "nccl-error", "rendezvous-timeout"),
        *("peer-connection-lost", "mpi-error", "mpi-runtime-failure", "time-limit", "hung"),
    }
)
"""Reasons that a program may have on one device, and not on many. SIGKILL often means memory."""
SAME_ON_ALL_DEVICES = frozenset(
    {
        *("syntax-error", "import-error", "library-not-loaded", "command-not-found", "core-dump"),
        *("device-side-assert", "built-without-cuda", "cuda-version-mismatch"),
    }
)
"""Reasons that a program has on one device as on many, whatever words are in its message."""
SAME_ELSEWHERE = frozenset({"missing-file", "permission-error"})
"""The same of files outside of the folder that a pre-run has for itself."""
SAME_SAID = re.compile(
    r"^(\w+\.)*(NameError|UnboundLocalError|AttributeError|TypeError|ImportError|ModuleNotFoundError)\b"
    r"|Expected all tensors to be on the same device"
    r"|error: (the following arguments are required|unrecognized arguments|ambiguous option)"
    r"|error: argument .*: (invalid choice|invalid \w+ value|expected )"
)
"""Messages of errors that a program has on one device as on many."""
SPEAKS_OF_MANY = re.compile(
    r"world.?size|\b(local_?)?ranks?\b|gpus?\b|(?<!left on )devices?\b(?!-side)|n_?proc|nnodes"
    r"|num_(processes|nodes)|\b(processes|peers?)\b|mesh|parallel|shard|pipeline.stage|distributed"
    r"|process.?group|nccl|gloo|all.?reduce|rendezvous|master_(addr|port)|tcpstore"
    r"|divisible|divide[sd]?\b|global.?batch|multiple of|time(d |-)?out",
    re.IGNORECASE,
)
"""Words of a message that may mean that there are too few devices, or that others were waited for."""
DEVICES, CHECKPOINTS = "devices", "checkpoints"
"""What a pre-run may fail for want of."""
PLACE = 'File "'
"""How the place of a frame begins; the line after it is its code."""
EXCEPTION = re.compile(r"^(\w+\.)*\w*(Error|Exception)\b")
UNSAID = re.compile(r"^AssertionError:?$")
"""An assertion without a message: its code is all that it says."""


def counts_against_program(failure: Failure, prerun_folder: str = "") -> bool:
    """Whether the failed pre-run is a failed run; False: it may have been for want of something."""
    return not may_want(failure, prerun_folder)


def may_want(failure: Failure, prerun_folder: str = "") -> str:
    """What a pre-run may have failed for want of: devices, checkpoints; empty: it is the program's own."""
    if failure.reason in MAY_WANT_DEVICES:
        return DEVICES
    said = [*_message(failure)]
    if failure.reason in SAME_ON_ALL_DEVICES or any(SAME_SAID.search(line) for line in said):
        return ""
    if prerun_folder and any(prerun_folder in line for line in (*said, failure.path)):
        return CHECKPOINTS
    if failure.reason in SAME_ELSEWHERE:
        return ""
    return DEVICES if any(map(SPEAKS_OF_MANY.search, said)) else ""


def may_need_several(failure: Failure) -> bool:
    """Whether a failed pre-run may be that of a program that needs several devices: no more is known."""
    return failure.reason == UNKNOWN_REASON and not any(map(SAME_SAID.search, _message(failure)))


def _message(failure: Failure) -> Iterator[str]:
    """What it said of its failure: its exception, else its last line, if no signal ended it."""
    lines = [line.strip() for line in failure.lines]
    places = [at for at, line in enumerate(lines) if line.startswith(PLACE)]
    typed = [at for at, line in enumerate(lines) if EXCEPTION.search(line)]
    if places:
        code = lines[places[-1] + 1 : places[-1] + 2]
        is_cut = bool(code) and places[-1] + 1 in typed
        said = lines[places[-1] + (1 if is_cut else 2) :]
        yield from said
        if any(UNSAID.search(line) for line in said):
            yield from code
    elif typed:
        yield from lines[typed[0] :]
    elif not failure.signal:
        yield from lines[-1:]
