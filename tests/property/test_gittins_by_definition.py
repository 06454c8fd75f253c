"""`gittins` and `tiresias-g` against their definitions, worked out second by second."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import a_scenario, finishes, outcome_of, traced
from trainmaster.config.options import FromFile
from trainmaster.core.policy import Policy
from trainmaster.estimators.service.bins import GPU_SECOND
from trainmaster.policies.gittins import Gittins, GittinsOptions
from trainmaster.policies.tiresias_g import TiresiasG, TiresiasGOptions

Jobs = list[tuple[int, int]]
"""(GPUs, seconds), all there at the beginning."""
Key = Callable[[int], tuple[Fraction | int, ...]]
"""Of a job that has attained so many GPU-seconds: who is smaller goes first."""
NOT_YET = 10**9


def index(samples: list[int], attained: int, quantum: int | None) -> Fraction:
    """P(S - a <= D | S > a) / E[min(S - a, D) | S > a], word by word."""
    later = [each - attained for each in samples if each > attained]
    if not later:
        return Fraction(0)
    reach = max(later) if quantum is None else quantum
    return Fraction(sum(each <= reach for each in later), sum(min(each, reach) for each in later))


def best_index(samples: list[int], attained: int) -> Fraction:
    reaches = {each - attained for each in samples if each > attained}
    return max((index(samples, attained, reach) for reach in reaches), default=Fraction(0))


def by_the_second(jobs: Jobs, gpus: int, key: Key) -> list[int]:
    """When each ends: every second the first in line run, ties by first start, then by number."""
    done, starts, ends = [0] * len(jobs), [NOT_YET] * len(jobs), [0] * len(jobs)
    now = 0
    while not all(ends):
        live = [number for number, end in enumerate(ends) if not end]
        live.sort(key=lambda each: (*key(done[each] * jobs[each][0]), starts[each], each))
        free = gpus
        for number in live:
            size, seconds = jobs[number]
            if size <= free:
                free -= size
                starts[number] = min(starts[number], now)
                done[number] += 1
                ends[number] = now + 1 if done[number] == seconds else 0
        now += 1
    return ends


def simulated(jobs: Jobs, gpus: int, policy: Policy) -> list[float | None]:
    trace = [traced(f"j{number}", size, seconds) for number, (size, seconds) in enumerate(jobs)]
    ends = finishes(outcome_of(a_scenario(trace, f"1x{gpus}"), policy))
    return [ends[f"j{number}"] for number in range(len(jobs))]


def samples_of(gpu_s: list[int]) -> FromFile[tuple[int, ...]]:
    return FromFile("samples.csv", tuple(sorted(each * GPU_SECOND for each in gpu_s)))


JOBS = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 9)), min_size=2, max_size=5)
SAMPLES = st.lists(st.integers(1, 30), min_size=1, max_size=6)


@settings(max_examples=60)
@given(JOBS, SAMPLES)
def test_gittins_runs_the_highest_index(jobs: Jobs, samples: list[int]) -> None:
    policy = Gittins(GittinsOptions(quantum_s=1, service_samples=samples_of(samples)))
    expected = by_the_second(jobs, 4, lambda attained: (-best_index(samples, attained),))
    assert simulated(jobs, 4, policy) == expected


@settings(max_examples=60)
@given(JOBS, SAMPLES, st.sets(st.integers(1, 20), min_size=1, max_size=3).map(sorted))
def test_tiresias_g_runs_the_highest_index_of_the_highest_queue(
    jobs: Jobs, samples: list[int], limits: list[int]
) -> None:
    def key(attained: int) -> tuple[Fraction | int, ...]:
        queue = bisect_right(limits, attained)
        quantum = limits[queue] if queue < len(limits) else None
        return queue, -index(samples, attained, quantum)

    options = TiresiasGOptions(
        thresholds_gpu_s=tuple(map(float, limits)), service_samples=samples_of(samples)
    )
    assert simulated(jobs, 4, TiresiasG(options)) == by_the_second(jobs, 4, key)
