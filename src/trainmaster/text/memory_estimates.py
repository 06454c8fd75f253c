"""Estimates of GPU memory, in words."""

from __future__ import annotations

from trainmaster.model.memory_estimate import MemoryCalibration, MemoryEstimate, MemorySource
from trainmaster.text.formatting import plural, size


def memory_sentence(estimate: MemoryEstimate, reserved: int) -> str:
    """`It is expected to need 12.1 to 14.0 GiB on each GPU, judging by 3 earlier runs; 14.0 GiB is reserved.`

    `reserved`: bytes on each of its GPUs; 0: it has them for itself, or waits.
    """
    booked = f"; {size(reserved)} is reserved" if reserved else ""
    return f"It is expected to need {_span(estimate)} on each GPU, judging by {judged_by(estimate)}{booked}."


def host_memory_sentence(estimate: MemoryEstimate, reserved: int) -> str:
    """The same of host memory on CPU slots, where what is reserved limits nothing."""
    return (
        f"It is expected to need {_span(estimate)} of host memory for each slot, judging by"
        f" {judged_by(estimate)}; {size(reserved)} is reserved, and it may use more."
    )


def _span(estimate: MemoryEstimate) -> str:
    low, high = size(estimate.low), size(estimate.high)
    has_one_unit = low.rpartition(" ")[2] == high.rpartition(" ")[2]
    return f"{low.rpartition(' ')[0] if has_one_unit else low} to {high}"


def judged_by(estimate: MemoryEstimate) -> str:
    """What it is made from."""
    if estimate.source is MemorySource.MEASURED:
        return (
            "what another run with the same arguments has used so far"
            if estimate.runs
            else "what it has used so far"
        )
    if estimate.source is MemorySource.STATIC:
        return "its model, without a GPU"
    return f"{plural(estimate.runs, 'earlier run')} {_with_arguments(estimate.is_same)}"


def calibration_words(found: MemoryCalibration) -> str:
    """What estimates of the same origin are made from."""
    if found.source is MemorySource.STATIC:
        return "its model"
    return f"earlier runs {_with_arguments(found.is_same)}"


def _with_arguments(is_same: bool) -> str:
    return f"with {'the same' if is_same else 'other'} arguments"
