"""A synthetic log with the counts of Microsoft's Philly study: 96,260 jobs and their 39,776 failed trials.

The study (ATC'19) publishes, of each reason, how many trials, jobs and users failed by it, three percentiles
of the run time to failure, the trials by size class, and two shares. This log has exactly those counts and
percentiles, and the shares to the digits that are printed. What the study does not say is chosen:

- run times between the published percentiles follow the generator's curve (docs/traces.md), pressed down
  where the sum would be too large; all trials above the 95th percentile are equally long, as long as the
  published share asks for;
- all failed trials together ran 8.2 million minutes, on 3.2 GPUs on average: about the least with which
  every row is possible;
- within a reason the longest trials ran on one GPU, as far as the share of GPU time allows it; trials of a
  size class take as few GPUs as there are in it, and the longest ones more, up to 128;
- trials of one size are dealt out to jobs in equal parts, jobs to users in turn; the first 16,568
  occurrences of a job belong to unsuccessful jobs, the other 1,013 to jobs that passed in the end;
- jobs of one status have the same GPU time, so much that the published parts of it come out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

import numpy as np

from trainmaster.model.failure_report import FailedRun, JobEnd
from trainmaster.model.units import MINUTE, WHOLE
from trainmaster.traces.philly_like import quantile
from trainmaster.traces.philly_tables import FAILURES, FailureReason

RUN_MS = 8_200_000 * MINUTE
MEAN_GPUS = 3.2
SIZE_RANGES = ((1, 1), (2, 4), (5, 128))
"""Fewest and most GPUs of the size classes."""
STATUSES = (
    ("passed", 66_696, 0.4453),
    ("killed", 12_996, 0.3769),
    ("unsuccessful", 16_568, 0.1776),
)
"""Jobs, and their part of the GPU time."""
UNSUCCESSFUL = STATUSES[-1][1]


def study_log() -> tuple[list[FailedRun], list[JobEnd]]:
    """The failed trials, and the end of each job."""
    attempts: list[FailedRun] = []
    jobs = 0
    for reason in FAILURES:
        attempts += _attempts(reason, jobs)
        jobs += reason.jobs
    return attempts, list(_ends(attempts))


def _ends(attempts: Sequence[FailedRun]) -> Iterator[JobEnd]:
    lost = sum(each.gpu_ms for each in attempts if each.job.startswith("unsuccessful"))
    for status, jobs, part in STATUSES:
        held = round(lost / STATUSES[-1][2] * part)
        for _ in range(jobs):
            yield JobEnd(status, held // jobs)


def _attempts(reason: FailureReason, jobs_before: int) -> Iterator[FailedRun]:
    times = run_times(reason)
    sizes = gpus_of(reason, times)
    categories = reason.category.split(",")
    trials = sorted(zip(sizes, times, strict=True))
    for index, (gpus, run_ms) in enumerate(trials):
        nth = index * reason.jobs // len(trials)
        job = jobs_before + nth
        yield FailedRun(
            job=f"unsuccessful-{job}" if job < UNSUCCESSFUL else f"passed-{job - UNSUCCESSFUL}",
            reason=reason.reason,
            run_ms=run_ms,
            gpus=gpus * WHOLE,
            blame=categories[index % len(categories)],
            user=f"u{nth % reason.users}",
        )


def run_times(reason: FailureReason) -> list[int]:
    """In ms, ascending: the published percentiles by nearest rank, and the published share of all."""
    trials = reason.in_all
    ranks = [-(-percent * trials // 100) for percent in (50, 90, 95)]
    marks = [round(minutes * MINUTE) for minutes in (reason.p50, reason.p90, reason.p95)]
    curve = quantile(reason.curve(), (np.arange(ranks[2]) + 0.5) / trials) * MINUTE
    least = np.zeros(ranks[2])
    most = np.zeros(ranks[2])
    begin, low = 0, min(marks[0], MINUTE // 20)
    for rank, mark in zip(ranks, marks, strict=True):
        least[begin:rank], most[begin:rank] = low, mark
        begin, low = rank, mark
    body = np.clip(curve, least, most)
    tail = trials - ranks[2]
    target = reason.run_percent / 100 * RUN_MS
    for pressed in np.linspace(1, 0, 101):
        times = least + pressed * (body - least)
        times[[rank - 1 for rank in ranks]] = marks
        left = target - times.sum()
        if left >= tail * marks[2]:
            break
    longest = max(marks[2], round(left / tail)) if tail else 0
    return sorted([*(round(ms) for ms in times), *([longest] * tail)])


def gpus_of(reason: FailureReason, times: Sequence[int]) -> list[int]:
    """GPUs of each trial: the published number in each size class, and the published share of GPU time."""
    target = reason.gpu_percent / 100 * RUN_MS * MEAN_GPUS
    classes = [0] * reason.trials_1 + [1] * reason.trials_2_to_4 + [2] * reason.trials_more
    longest_first = times[::-1]

    def labels(moved: int) -> list[int]:
        """With so many of the largest trials among the longest."""
        return classes[len(classes) - moved :] + classes[: len(classes) - moved]

    def gpu_time(moved: int, bound: int) -> int:
        """With the fewest (0) or the most (1) GPUs of each class."""
        pairs = zip(labels(moved), longest_first, strict=True)
        return sum(SIZE_RANGES[size][bound] * ms for size, ms in pairs)

    every = range(reason.trials_more + 1)
    moved = min(bisect_left(every, target, key=lambda n: gpu_time(n, 1)), reason.trials_more)
    if moved and gpu_time(moved, 0) > target:
        moved -= 1
    chosen = labels(moved)
    sizes = [SIZE_RANGES[size][0] for size in chosen]
    left = target - sum(gpus * ms for gpus, ms in zip(sizes, longest_first, strict=True))
    for at, size in enumerate(chosen):
        low, high = SIZE_RANGES[size]
        more = max(0, min(high - low, int(left // max(1, longest_first[at]))))
        sizes[at] += more
        left -= more * longest_first[at]
    return sizes[::-1]
