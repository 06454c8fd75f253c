"""Whether a failed run is tried again, and why: a closed set with its numbers, worded at the edge."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RetryWhy(StrEnum):
    """The one reason why a run is tried again, or is not."""

    NO_RETRIES = "no-retries"
    """Its `retries` are 0."""
    RETRIES_USED_UP = "retries-used-up"
    NEVER_HELPS = "never-helps"
    """Another attempt would end the same way."""
    SAME_AGAIN = "same-again"
    """It failed as it had failed before: it is deterministic."""
    STILL_THERE = "still-there"
    """The platform failed it as before: what is wrong there is not mended."""
    FIRST_BATCH = "first-batch"
    """Its own program raised an error within the first minutes, before it trained."""
    ONCE_DONE = "once-done"
    """One retry may help after this, and it had one."""
    GPU_TOO_SMALL = "gpu-too-small"
    """No GPUs that it may use, or too few, have more memory than it had."""
    NO_GPU = "no-gpu"
    """It ran out of GPU memory, by its own words, on CPU slots."""
    HOST_TOO_SMALL = "host-too-small"
    """It had as much host memory as a node can give."""
    NO_SUCH_GPU = "no-such-gpu"
    """It asked at once for more memory than any GPU has, ..."""
    NO_SUCH_NODE = "no-such-node"
    """... or than any node has."""
    MAY_HELP = "may-help"
    ELSEWHERE = "elsewhere"
    """On other devices, if enough others are left."""
    MEMORY_TAKEN = "memory-taken"
    """Others used memory that it had booked."""
    FEWER_DEVICES = "fewer-devices"
    """It had more than its program can use, as it has said."""
    MORE_GPU_MEMORY = "more-gpu-memory"
    MORE_MEMORY = "more-memory"


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """Whether, when and with what a failed run is tried again."""

    is_retried: bool
    why: RetryWhy
    delay_ms: int = 0
    avoids_place: bool = False
    """Whether the next attempt is to be on other devices."""
    gpu_memory: int = 0
    """Bytes on each GPU that the next attempt asks for; 0: as before."""
    memory: int = 0
    """Bytes of host memory for each GPU that the next attempt asks for; 0: as before."""
    had: int = 0
    """Where memory is the reason: the bytes that the attempt had, or the most that there is."""
    asked: int = 0
    """The bytes that it asked for at once, where that is more than there is."""
    failures: int = 0
    """How often it has failed, this time included."""
    is_counted: bool = True
    """Whether it uses up one of the job's retries."""
    on_slots: bool = False
    """Whether its devices are CPU slots."""
