"""What a failure on one device says about a job of several: its own, or perhaps for want of devices.

A failed pre-run is a failed run, so that a bug costs one device. Only what may be due to the single device
(memory, ranks, time-outs), or to the empty folder that a pre-run has for its checkpoints, is left open: such
a job goes on to all its devices.
"""

from __future__ import annotations

import re

from trainmaster.failures.retry_rules import PYTHON_ERROR
from trainmaster.model.failure import Failure

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
SPEAKS_OF_MANY = re.compile(
    r"world.?size|\b(local_?)?ranks?\b|gpus?\b|(?<!left on )devices?\b(?!-side)|n_?proc|nnodes"
    r"|num_(processes|nodes)|\b(processes|peers?)\b|mesh|parallel|shard|pipeline.stage|distributed"
    r"|process.?group|nccl|gloo|all.?reduce|rendezvous|master_(addr|port)|tcpstore"
    r"|divisible|divide[sd]?\b|global.?batch|multiple of|time(d |-)?out",
    re.IGNORECASE,
)
"""Words of a message that may mean that there are too few devices, or that others were waited for."""
OWN_PLACE = re.compile(r'File "(?![^"]*(?:site|dist)-packages)[^"]*"')
"""The path of a program's own file in a traceback, whose words say nothing."""


def counts_against_program(failure: Failure, prerun_folder: str = "") -> bool:
    """Whether the failed pre-run is a failed run; False: it may have been for want of devices."""
    if failure.reason in MAY_WANT_DEVICES:
        return False
    if failure.reason in SAME_ON_ALL_DEVICES:
        return True
    said = [*_message(failure), failure.path]
    if any(SPEAKS_OF_MANY.search(OWN_PLACE.sub("", line)) for line in said):
        return False
    return not prerun_folder or not any(prerun_folder in line for line in said)


def _message(failure: Failure) -> tuple[str, ...]:
    """What it said of its failure: its exception, else its last line, if no signal ended it."""
    if any(PYTHON_ERROR.search(line.strip()) for line in failure.lines):
        return failure.lines
    return () if failure.signal else failure.lines[-1:]
