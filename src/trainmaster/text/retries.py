"""Why a failed run is tried again, or is not, in one sentence."""

from __future__ import annotations

from trainmaster.model.retry import RetryDecision, RetryWhy
from trainmaster.text.formatting import plural, size

SENTENCES: dict[RetryWhy, str] = {
    RetryWhy.NO_RETRIES: (
        "Not retried: its `retries` are 0 (--retries N, or `retries: N` in its file, gives more)."
    ),
    RetryWhy.RETRIES_USED_UP: "Not retried: it has failed {failures}, as often as its `retries` allow.",
    RetryWhy.NEVER_HELPS: "Not retried: another attempt would end the same way.",
    RetryWhy.SAME_AGAIN: "Not retried: it failed in the same way as before, so it would fail again.",
    RetryWhy.STILL_THERE: (
        "Not retried: it failed in the same way as before; submit it again when that is mended."
    ),
    RetryWhy.FIRST_BATCH: (
        "Not retried: its program raised an error before it had trained, and would do so again."
    ),
    RetryWhy.ONCE_DONE: "Not retried: it had one retry after such a failure, and that did not help.",
    RetryWhy.GPU_TOO_SMALL: (
        "Not retried: it had {had} of GPU memory, and there are not enough larger GPUs that it may use;"
        " drained and set aside ones do not count."
    ),
    RetryWhy.NO_GPU: "Not retried: it ran on CPU slots, so there is no larger GPU to try it on.",
    RetryWhy.HOST_TOO_SMALL: (
        "Not retried: it had {had} of host memory for each {device}, and no node that it may use"
        " can give it more."
    ),
    RetryWhy.NO_SUCH_GPU: (
        "Not retried: it asked for {asked} of GPU memory at once, and the largest GPU has {had}."
    ),
    RetryWhy.NO_SUCH_NODE: (
        "Not retried: it asked for {asked} of host memory at once, and the largest node has {had}."
    ),
    RetryWhy.MAY_HELP: "Retried: another attempt may end otherwise.",
    RetryWhy.ELSEWHERE: "Retried, on other devices if enough others are left.",
    RetryWhy.MEMORY_TAKEN: (
        "Retried without using up one of its `retries`: others used memory that it had booked."
    ),
    RetryWhy.FEWER_DEVICES: (
        "Retried with fewer devices, without using up one of its `retries`: it had more than it can use."
    ),
    RetryWhy.MORE_GPU_MEMORY: "Retried with more GPU memory: {gpu_memory} instead of {had}.",
    RetryWhy.MORE_MEMORY: (
        "Retried with more host memory for each {device}: {memory} instead of {had}."
    ),
}
BY_ESTIMATE = (
    "That uses up none of its `retries`: how much it needs was not stated, and was estimated."
)

SAYING_SO = frozenset({RetryWhy.MEMORY_TAKEN, RetryWhy.FEWER_DEVICES})
"""Sentences that say themselves that it uses up no retry."""


def retry_sentence(decision: RetryDecision) -> str:
    """Whether it is tried again, and why."""
    said = SENTENCES[decision.why].format(
        failures=plural(decision.failures, "time"),
        had=size(decision.had) if decision.had else "the memory",
        asked=size(decision.asked),
        gpu_memory=size(decision.gpu_memory),
        memory=size(decision.memory),
        device="slot" if decision.on_slots else "GPU",
    )
    is_by_estimate = not decision.is_counted and decision.why not in SAYING_SO
    return f"{said} {BY_ESTIMATE}" if is_by_estimate else said
