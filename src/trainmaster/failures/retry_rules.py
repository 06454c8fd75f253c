"""Whether another attempt may help: from the failure, the ones before it, and what the attempt had.

A third of the failed jobs of Microsoft's Philly study was retried in vain (ATC'19). So a failure of which
the table says that it comes back is not retried, nor one that came back already, unless all that it
needs is time or more memory. Only what may help is counted against the job's retries: a sentence that offers
more of them where none helps would be untrue.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from trainmaster.failures.reason_table import FailureReason, Memory
from trainmaster.model.codec import stored_as
from trainmaster.model.failure import (
    MEMORY_TAKEN_REASON,
    UNKNOWN_REASON,
    Blame,
    Failure,
    RetryRule,
)
from trainmaster.model.retry import RetryDecision, RetryWhy
from trainmaster.model.units import MINUTE, SECOND

EARLY_MS = 5 * MINUTE
"""The first minutes: what fails in them twice in the same way fails each time."""
NODE_REASONS = frozenset({"disk-full", "storage-error", "driver-library-mismatch"})
"""Reasons that speak against a whole node, and not against a device of it."""
MOST_TAKEN = 3
"""How often it may have been out of host memory before one within its booking is taken to be no victim."""
OTHER_CONDITIONS = frozenset({RetryRule.MORE_MEMORY, RetryRule.ALWAYS})
"""Rules by which the next attempt is not under the same conditions: with more memory, or later."""
AFTER_FAILURE = 2
AFTER_LOSS = 4
"""How much longer each delay is than the one before: what loses runs takes longer to mend."""
PYTHON_ERROR = re.compile(
    r"Traceback \(most recent call last\)|^(\w+\.)*\w*(Error|Exception)\b|^File \".+\", line \d+"
)
"""A line of a Python exception that nobody caught."""
ALLOCATION = re.compile(r"\ballocate (\d+(?:\.\d*)?) ?(bytes?\b|[KMGTPE]i?B\b)", re.IGNORECASE)
"""How PyTorch and NumPy say what they could not have."""
IN_USE = re.compile(
    r"\bthis process has (\d+(?:\.\d*)?) ?(bytes?\b|[KMGTPE]i?B\b) memory in use", re.IGNORECASE
)
"""How PyTorch says what it had of the GPU by then."""
SIZES = {"B": 1} | {letter: 1024**at for at, letter in enumerate("KMGTPE", 1)}
CHANGING = (
    (re.compile(r"0x[0-9a-f]+|\b[0-9a-f]{8,}\b", re.IGNORECASE), "#"),
    (re.compile(r"\d+"), "#"),
    (re.compile(r"#(?:[-.,:/TZ+ ]*#)+"), "#"),
    (re.compile(r"# ?[KMGT]i?B\b"), "#"),
)
"""What differs from attempt to attempt: addresses, numbers, timestamps and sizes."""


@stored_as("failures.FailedAttempt")
@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """An attempt that failed: why, how long it ran, how far it came, and where."""

    failure: Failure
    ran_ms: int
    step: int | None = None
    """The last step that its job has reported; None: none."""
    device_keys: tuple[str, ...] = ()
    """What its failure speaks against, by names that stay (earlier versions stored indices, which do not)."""
    job_ran_ms: int = 0
    """How long its job has run, all attempts together."""
    host_memory: int = 0
    """What its processes were seen to have, in bytes for each of its devices; 0: not known."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What an attempt had, and the most that another one could have, in bytes for each GPU."""

    gpu_memory: int = 0
    """What it could use of each GPU."""
    more_gpu_memory: int = 0
    """What the next attempt asks for on each GPU: a whole one, or a larger one; 0: there is no more."""
    memory: int = 0
    """Host memory."""
    most_memory: int = 0
    """Host memory that a node can give."""
    has_gpu: bool = True
    """Whether it ran on GPUs, and not on CPU slots."""
    largest_gpu: int = 0
    """Memory of the largest GPU that there is, drained or not; 0: not known."""
    largest_node: int = 0
    """The same of the host memory of nodes."""
    is_gpu_memory_stated: bool = True
    """Whether its user said how much GPU memory it needs; else what it had was our estimate."""
    is_memory_stated: bool = True
    """The same of host memory."""
    is_too_large: bool = False
    """Whether it had more devices than its program can use, and the next attempt has no more than that."""


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """What a retry is bounded by."""

    retries: int
    """The most retries of the job."""
    failures: int
    """How often it has failed before."""
    first_delay_ms: int = 1 * SECOND
    max_delay_ms: int = 5 * MINUTE
    outage_delay_ms: int = 10 * SECOND
    """The first delay where only time helps: a service or a port that is not there yet."""

    def delay_after(self, reason: FailureReason) -> int:
        """How long to wait before a retry after a failure for this reason."""
        is_outage = reason.retry is RetryRule.ALWAYS and reason.blame is Blame.PLATFORM
        first = max(self.first_delay_ms, self.outage_delay_ms if is_outage else 0)
        return delay_ms(self.failures + 1, AFTER_FAILURE, first, self.max_delay_ms)

    def delay_ms(self, times: int) -> int:
        """The same after so many failures that are not counted."""
        return delay_ms(times, AFTER_FAILURE, self.first_delay_ms, self.max_delay_ms)


def delay_ms(times: int, factor: int, first_ms: int, most_ms: int) -> int:
    """How long to wait before the retry after that many failures or losses."""
    return int(min(most_ms, first_ms * factor ** min(times - 1, 32)))


def decide(
    failed: FailedAttempt,
    earlier: Sequence[FailedAttempt],
    reason: FailureReason,
    had: Resources,
    limits: RetryLimits,
) -> RetryDecision:
    """Whether it is tried again; `reason` is the row of its failure, `earlier` its failures before."""
    failures = limits.failures + 1
    able = _what_helps(failed, earlier, reason, had)
    decision = replace(able, failures=failures, delay_ms=limits.delay_after(reason))
    if not able.is_retried:
        return replace(decision, delay_ms=0)
    if able.why is RetryWhy.FEWER_DEVICES:
        return replace(decision, failures=limits.failures, delay_ms=0, is_counted=False)
    if able.why is RetryWhy.MEMORY_TAKEN or _is_ours(decision, had):
        # others may still need that memory, but for a GPU of its own it need not wait
        wait = 0 if able.gpu_memory else limits.delay_ms(_times_before(failed, earlier) + 1)
        return replace(decision, failures=limits.failures, delay_ms=wait, is_counted=False)
    if limits.failures >= limits.retries:
        why = RetryWhy.RETRIES_USED_UP if limits.retries else RetryWhy.NO_RETRIES
        return RetryDecision(False, why, failures=failures)
    return decision


def _times_before(failed: FailedAttempt, earlier: Sequence[FailedAttempt]) -> int:
    """How often it had failed for the same reason."""
    return sum(each.failure.reason == failed.failure.reason for each in earlier)


def _is_ours(decision: RetryDecision, had: Resources) -> bool:
    """Whether it had too little memory by our estimate, and gets more: not its user's failure.

    Host memory is estimated on CPU slots alone.
    """
    is_gpu = decision.gpu_memory > 0 and not had.is_gpu_memory_stated
    return is_gpu or (decision.memory > 0 and not had.is_memory_stated and not had.has_gpu)


def _what_helps(
    failed: FailedAttempt,
    earlier: Sequence[FailedAttempt],
    reason: FailureReason,
    had: Resources,
) -> RetryDecision:
    """What another attempt would be like, or why none helps; how many there may be comes after it."""
    if had.is_too_large:
        return RetryDecision(True, RetryWhy.FEWER_DEVICES)
    why_not = _why_in_vain(failed, earlier, reason)
    if why_not is not None:
        return RetryDecision(False, why_not)
    if failed.failure.reason == MEMORY_TAKEN_REASON:
        return RetryDecision(True, RetryWhy.MEMORY_TAKEN)
    if reason.retry is RetryRule.MORE_MEMORY:
        used = 0 if had.is_memory_stated or had.has_gpu else failed.host_memory
        is_within = reason.memory is Memory.HOST and 0 < used <= had.memory
        if is_within and _times_before(failed, earlier) < MOST_TAKEN:
            return RetryDecision(True, RetryWhy.MEMORY_TAKEN)
        return _with_more(reason.memory is Memory.GPU, asked_memory(failed.failure), had, used)
    if reason.retry is RetryRule.ELSEWHERE:
        return RetryDecision(True, RetryWhy.ELSEWHERE, avoids_place=True)
    return RetryDecision(True, RetryWhy.MAY_HELP)


def _with_more(is_gpu: bool, asked: int, had: Resources, used: int) -> RetryDecision:
    """More GPU or host memory, unless it has asked at once for more than there is anywhere."""
    largest = had.largest_gpu if is_gpu else had.largest_node
    if (had.has_gpu or not is_gpu) and 0 < largest < asked:
        why = RetryWhy.NO_SUCH_GPU if is_gpu else RetryWhy.NO_SUCH_NODE
        return RetryDecision(False, why, had=largest, asked=asked)
    return _with_more_gpu_memory(had) if is_gpu else _with_more_memory(had, used)


def _with_more_gpu_memory(had: Resources) -> RetryDecision:
    before, more = had.gpu_memory, had.more_gpu_memory
    if not had.has_gpu:
        return RetryDecision(False, RetryWhy.NO_GPU)
    if not more:
        return RetryDecision(False, RetryWhy.GPU_TOO_SMALL, had=before)
    return RetryDecision(True, RetryWhy.MORE_GPU_MEMORY, gpu_memory=more, had=before)


def _with_more_memory(had: Resources, used: int) -> RetryDecision:
    more = more_memory(had, used)
    why = RetryWhy.MORE_MEMORY if more else RetryWhy.HOST_TOO_SMALL
    return RetryDecision(more > 0, why, memory=more, had=had.memory, on_slots=not had.has_gpu)


def _why_in_vain(
    failed: FailedAttempt, earlier: Sequence[FailedAttempt], reason: FailureReason
) -> RetryWhy | None:
    """Why another attempt would be in vain, memory apart; None where it may help."""
    rule = reason.retry
    if rule is RetryRule.NEVER:
        return RetryWhy.NEVER_HELPS
    if rule not in OTHER_CONDITIONS and any(is_same(failed, each) for each in earlier):
        is_platforms = reason.blame is Blame.PLATFORM
        return RetryWhy.STILL_THERE if is_platforms else RetryWhy.SAME_AGAIN
    if rule is RetryRule.ONCE:
        if is_first_batch(failed):
            return RetryWhy.FIRST_BATCH
        if any(each.failure.reason == failed.failure.reason for each in earlier):
            return RetryWhy.ONCE_DONE
    return None


def may_be_retried(reason: FailureReason, earlier: Sequence[FailedAttempt]) -> bool:
    """Whether another failure for this reason may be tried again, as far as that is known before it."""
    if reason.retry is RetryRule.ONCE:
        return all(each.failure.reason != reason.key for each in earlier)
    return reason.retry is not RetryRule.NEVER


def is_same(failed: FailedAttempt, before: FailedAttempt) -> bool:
    """Whether it failed as it did before: same reason and lines, early or at the same step, not later."""
    now, then = failed.failure, before.failure
    if (now.reason, now.exit_code, now.signal) != (then.reason, then.exit_code, then.signal):
        return False
    if [unchanging(line) for line in now.lines] != [unchanging(line) for line in then.lines]:
        return False
    if failed.step is not None and failed.step > (before.step or 0):
        return False
    is_at_step = failed.step is not None and failed.step == before.step
    return is_at_step or max(failed.ran_ms, before.ran_ms) <= EARLY_MS


def is_first_batch(failed: FailedAttempt) -> bool:
    """Whether its own program raised an error within the first minutes, before it had made a second step."""
    failure = failed.failure
    is_late = max(failed.ran_ms, failed.job_ran_ms) > EARLY_MS or (failed.step or 0) > 1
    if is_late or failure.reason != UNKNOWN_REASON:  # else the table says what helps
        return False
    return any(PYTHON_ERROR.search(line.strip()) for line in failure.lines)


Device = tuple[int, int]
"""(node, GPU)."""


def devices_to_avoid(
    reason: str,
    here: Collection[Device],
    before: Collection[Device],
    devices_of: Callable[[int], Iterable[int]],
) -> tuple[Device, ...]:
    """The devices that a failure for this reason speaks against, and those that earlier ones do.

    All devices of a node where the reason is the node's, or where two attempts failed on it.
    """
    known = {node for node, _ in before}
    is_nodes = reason in NODE_REASONS
    nodes = {node for node, _ in here if is_nodes or node in known}
    whole = [(node, gpu) for node in nodes for gpu in devices_of(node)]
    return tuple(sorted({*before, *here, *whole}))


def asked_memory(failure: Failure) -> int:
    """The most bytes that it says it could not have at once; 0: it does not say."""
    return _largest(ALLOCATION, failure)


def used_memory(failure: Failure) -> int:
    """The most GPU memory that a process of it says it had by then; 0: it does not say."""
    return _largest(IN_USE, failure)


def _largest(amounts: re.Pattern[str], failure: Failure) -> int:
    found = (match for line in failure.lines for match in amounts.finditer(line))
    return max((int(float(each[1]) * SIZES[each[2][0].upper()]) for each in found), default=0)


def unchanging(line: str) -> str:
    """The line without what differs from attempt to attempt."""
    for pattern, mark in CHANGING:
        line = pattern.sub(mark, line)
    return " ".join(line.split())


def more_memory(had: Resources, used: int = 0) -> int:
    """Twice the host memory that it had, or used, as far as a node can give it; 0: there is no more."""
    more = min(2 * max(had.memory, used), had.most_memory)
    return more if had.most_memory > had.memory > 0 else 0
