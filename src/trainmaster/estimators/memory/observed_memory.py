"""How much memory a job needs, from what was read of its own run and of earlier runs of its program.

PyTorch's allocator keeps what it once had, so memory grows in the first steps and then hardly: the interval
of a run's own peak narrows with the steps that it has made. Of a program with other arguments, memory is
linear in the batch where two batches are known and all else is the same: weights, gradients and optimizer
state do not depend on it, activations do in proportion. Else the largest of several runs counts, with a
margin.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from trainmaster.core.job_record import MEMORY_MARGIN_PERCENT
from trainmaster.model.memory_estimate import MemoryEstimate, MemorySource
from trainmaster.model.units import MIB, ceil_div

EARLY_PERCENT = 90
"""What is added to the margin for a run of one step; for n steps, the n-th part."""
LEAST_GROWTH = 2 * MIB
"""PyTorch takes memory of a GPU in pieces of this size: what grows by less does not grow."""
BATCH_PERCENT = 15
"""The margin on what follows from two batches."""
OTHERS_PERCENT = 50
"""The margin on the largest of runs with other arguments."""
LEAST_OTHERS = 3
"""Fewer runs with other arguments say nothing."""
MOST_PERCENT = EARLY_PERCENT + MEMORY_MARGIN_PERCENT
"""The largest margin: runs that have ended say no less than the first step of a run."""
TAIL = 10
"""Percent of past estimates whose truth may be above the top (split conformal prediction)."""
ENOUGH = 100 // TAIL - 1
"""Past estimates from which that quantile exists."""
BATCH_OPTIONS = frozenset(
    {
        *("-b", "--b", "--bs", "--batch", "--batchsize", "--batch-size", "--train-batch-size"),
        *("--per-device-train-batch-size", "--per-gpu-train-batch-size", "--micro-batch-size"),
    }
)
NEAR_PERCENT = 95
"""Of what is reserved: where so much of it is used, more will be needed."""
Arguments = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PastRun:
    """A run of the program that has ended: its arguments, and its peak on one device."""

    arguments: Arguments
    peak: int


def of_own_run(peak: int, steps: int | None) -> MemoryEstimate:
    """From its peak so far, after so many steps; None: nobody counts them."""
    margin = MEMORY_MARGIN_PERCENT + (EARLY_PERCENT // max(1, steps) if steps is not None else 0)
    expected = peak + peak * (margin - MEMORY_MARGIN_PERCENT) // 200
    return MemoryEstimate(peak, expected, with_percent(peak, margin), MemorySource.MEASURED)


def passed_on(peak: int) -> MemoryEstimate:
    """What a run that goes on, or has failed, says to others with its arguments: as after its first step.

    It has not shown what comes later, so it does not count as an earlier run.
    """
    return replace(of_own_run(peak, 1), runs=1)


def of_run_beside(estimate: MemoryEstimate | None, peak: int) -> MemoryEstimate:
    """What a run that has used so much says to others with its arguments that go on as it does.

    `estimate`: what it is expected to need itself, which counts where it is made from what it used.
    """
    is_own = estimate is not None and estimate.is_own and estimate.high > peak
    own = estimate if estimate is not None and is_own else of_own_run(peak, None)
    return replace(own, runs=1)


def is_near(peak: int, reserved: int) -> bool:
    """Whether what it has used is nearly all that is reserved for it."""
    return peak * 100 >= reserved * NEAR_PERCENT


def least_top(peak: int) -> int:
    """The lowest top of an estimate that such a peak does not contradict."""
    return ceil_div(peak * 100, NEAR_PERCENT)


def of_earlier_runs(
    runs: Sequence[PastRun], arguments: Arguments, ratios: Mapping[bool, Sequence[int]]
) -> MemoryEstimate | None:
    """From runs of the same program, the newest last; None where they say too little.

    `ratios`: true over expected peak in percent of past estimates, of those from the same arguments (True)
    and from others (False).
    """
    same = [run.peak for run in runs if run.arguments == arguments]
    if same:
        margin = _margin(MEMORY_MARGIN_PERCENT, ratios.get(True, ()))
        return _learned(min(same), max(same), margin, len(same), is_same=True)
    scaled = _by_batch(runs, arguments)
    if scaled is not None:
        return _learned(scaled, scaled, _margin(BATCH_PERCENT, ratios.get(False, ())), len(runs))
    if len(runs) < LEAST_OTHERS:
        return None
    peaks = [_at_most(run, arguments) for run in runs]
    margin = _margin(OTHERS_PERCENT, ratios.get(False, ()))
    return _learned(min(run.peak for run in runs), max(peaks), margin, len(runs))


def best(estimates: Iterable[MemoryEstimate | None], peak: int) -> MemoryEstimate | None:
    """The narrowest of those that the peak so far does not contradict.

    Runs with the same arguments, or else its model, go before all else: they have shown what comes later.
    What another run passes on that has not succeeded goes after all else: it may have shown its beginning
    alone.
    """
    possible = [each for each in estimates if each is not None and each.high >= peak]
    return min(possible, key=lambda each: (_rank(each), each.width_ppm, each.high), default=None)


def _rank(estimate: MemoryEstimate) -> int:
    """The lowest counts: how much of this training it has seen."""
    if estimate.is_same:
        return 0
    if estimate.source is MemorySource.STATIC:
        return 1
    return 3 if estimate.is_passed_on else 2


def with_percent(size: int, percent: int) -> int:
    """So much more, in whole MiB."""
    return ceil_div(size * (100 + percent), 100 * MIB) * MIB


def batch_of(arguments: Arguments) -> tuple[int, Arguments] | None:
    """The batch that the arguments name, and the rest of them; None: they name none, or several."""
    found: list[tuple[int, Arguments]] = []
    for at, word in enumerate(arguments):
        option, is_joined, value = word.partition("=")
        if option.replace("_", "-").lower() not in BATCH_OPTIONS:
            continue
        end = at + 1 if is_joined else at + 2
        value = value if is_joined else "".join(arguments[at + 1 : end])
        if value.isdecimal() and int(value):
            found.append((int(value), (*arguments[:at], *arguments[end:])))
    return found[0] if len(found) == 1 else None


def _learned(
    low: int, expected: int, margin: int, runs: int, *, is_same: bool = False
) -> MemoryEstimate:
    high = with_percent(expected, margin)
    return MemoryEstimate(low, expected, high, MemorySource.LEARNED, runs, is_same)


def _margin(assumed: int, ratios: Sequence[int]) -> int:
    """What past estimates missed at most, the worst tenth left out; an assumed one while they are few."""
    if len(ratios) < ENOUGH:
        return assumed
    known = sorted(ratios)
    worst = known[-((len(known) + 1) * TAIL // 100)]
    return min(max(MEMORY_MARGIN_PERCENT, worst - 100), MOST_PERCENT)


def _by_batch(runs: Sequence[PastRun], arguments: Arguments) -> int | None:
    """From runs that differ only in the batch; None where they have one batch, or fall with it.

    Runs that do not grow with it say nothing of a larger batch: their peak was not that of the training step.
    """
    asked = batch_of(arguments)
    if asked is None:
        return None
    batch, rest = asked
    peaks: dict[int, int] = {}
    for run in runs:
        theirs = batch_of(run.arguments)
        if theirs is not None and theirs[1] == rest:
            peaks[theirs[0]] = max(run.peak, peaks.get(theirs[0], 0))
    if len(peaks) < 2:
        return None
    less, more = min(peaks), max(peaks)
    growth = peaks[more] - peaks[less]
    if growth < (LEAST_GROWTH if batch > more else 0):
        return None
    slope = growth // (more - less)
    found = peaks[less] + slope * (batch - less)
    return found if found > 0 else None


def _at_most(run: PastRun, arguments: Arguments) -> int:
    """Its peak, in proportion where this batch is larger: the rest of the memory does not grow with it."""
    mine, theirs = batch_of(arguments), batch_of(run.arguments)
    if mine is None or theirs is None or mine[0] <= theirs[0]:
        return run.peak
    return run.peak * mine[0] // theirs[0]
