"""A device that fails job after job is set aside: counted from the ends of runs, by device.

A failure counts against its device where the user is not to blame, the run was in its first minutes, and the
program does not fail elsewhere too. What ends otherwise on the device, or lasts, shows that it works.
"""

from __future__ import annotations

from trainmaster.failures.retry_rules import EARLY_MS
from trainmaster.model.failure import Blame, Failure

NOT_OF_A_DEVICE = frozenset(
    {
        *("disk-full", "storage-error", "checkpoint-error", "quota-exceeded"),
        *("network-error", "address-in-use", "rendezvous-timeout", "peer-connection-lost"),
        *("lost-heartbeat", "job-preempted", "interrupted", "neighbour-fault", "time-limit"),
        *("nccl-timeout", "mpi-error", "mpi-runtime-failure", "driver-library-mismatch"),
    }
)
"""Reasons that are the machine's, the network's or another job's: setting one device aside mends nothing."""
PARTS = 4
"""No device is set aside for repeated failures while a quarter of all is aside, for whatever reason."""


def counts(failure: Failure | None, ran_ms: int) -> bool:
    """Whether such a failure may count against the device that it happened on."""
    if is_lasting(ran_ms):
        return False
    if failure is None:
        return True
    return failure.blame is not Blame.USER and failure.reason not in NOT_OF_A_DEVICE


def is_lasting(ran_ms: int) -> bool:
    """Whether a run that lasted so long shows that its devices work, however it ended."""
    return ran_ms > EARLY_MS


def may_set_aside(devices: int, usable: int, aside: int) -> bool:
    """Whether one more may be set aside for repeated failures: not the last, and at most a quarter of all."""
    return usable > 1 and aside < max(1, devices // PARTS)
