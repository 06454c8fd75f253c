"""`starve_after_s` between queues: what frees collects for a gang that has waited too long."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import a_policy, a_scenario, finishes, one, outcome_of, traced
from trainmaster.model.job import Demand, gpus
from trainmaster.model.queue import Queue
from trainmaster.model.trace import TracedJob
from trainmaster.model.units import SECOND

INNER = [
    ("fair", {}),
    ("philly", {}),
    ("two-level", {"inner": "fifo", "inner_options": "backfill=skip"}),
]
every_inner = pytest.mark.parametrize(("name", "options"), INNER)


def stream(queue: str = "default", until_s: int = 1_200) -> list[TracedJob]:
    """A job of one GPU and 70 s every 20 s: of four GPUs one is always idle for a while, never all."""
    return [traced(f"{queue}{n:02}", 1, 70, at_s=20 * n, queue=queue) for n in range(until_s // 20)]


def typed(count: int, kind: str) -> Demand:
    return replace(gpus(count), gpu_type=kind)


def start_of_wide(
    jobs: list[TracedJob], name: str, cluster: str = "1x4", **options: object
) -> float:
    start = one(outcome_of(a_scenario(jobs, cluster), a_policy(name, **options)), "wide").start_ms
    assert start is not None
    return start / SECOND


@every_inner
def test_without_the_promise_the_stream_passes_the_gang(name: str, options: dict[str, str]) -> None:
    jobs = [traced("wide", 4, 100, at_s=5), *stream()]
    assert start_of_wide(jobs, name, **options) > 1_200


@every_inner
def test_a_starving_gang_starts_when_enough_have_ended(name: str, options: dict[str, str]) -> None:
    """It starves from 125 s on; the last that started before ends at 190 s."""
    jobs = [traced("wide", 4, 100, at_s=5), *stream()]
    assert start_of_wide(jobs, name, starve_after_s=120, **options) <= 200


@pytest.mark.parametrize("name", ["fair", "philly"])
def test_nobody_borrows_what_collects_for_it(name: str) -> None:
    """B has borrowed all eight; it keeps its four, but borrows no more once A's gang starves."""
    jobs = [traced("wide", 4, 100, at_s=100, queue="A")]
    jobs += [traced(f"B{n:03}", 1, 70, at_s=5 * n, queue="B") for n in range(240)]
    off, on = (
        start_of_wide(jobs, name, "1x8", preemption="off", starve_after_s=s) for s in (0, 120)
    )
    assert off > 1_200
    assert 220 < on <= 220 + 70


@every_inner
def test_a_gang_beyond_its_queues_part_holds_nobody_up(name: str, options: dict[str, str]) -> None:
    """A's part is two of four: its gang of four has no right to B's, and A goes on without it."""
    jobs = [traced("wide", 4, 100, at_s=5, queue="A"), *stream("A", 600), *stream("B", 600)]
    on, off = (
        outcome_of(a_scenario(jobs, "1x4"), a_policy(name, starve_after_s=s, **options))
        for s in (120, 0)
    )
    assert len(finishes(on)) == len(jobs)
    small = [job for job in finishes(on) if job.startswith("A")]
    last = max(finishes(off)[job] for job in small)
    assert max(finishes(on)[job] for job in small) <= last


@every_inner
def test_a_gang_that_its_maximum_forbids_holds_nobody_up(
    name: str, options: dict[str, str]
) -> None:
    jobs = [traced("wide", 4, 100, at_s=5, queue="A"), *stream("A", 600)]
    scenario = replace(a_scenario(jobs, "1x4"), queues={"A": Queue("A", maximum=3_000)})
    result = outcome_of(scenario, a_policy(name, starve_after_s=120, **options))
    assert len([job for job in finishes(result) if job != "wide"]) == len(jobs) - 1


@every_inner
def test_jobs_for_other_gpus_still_pass(name: str, options: dict[str, str]) -> None:
    """What it could not use need not collect for it."""
    jobs = [traced("wide", typed(4, "fast"), 100, at_s=5)]
    jobs += [traced(f"f{n:02}", typed(1, "fast"), 70, at_s=20 * n) for n in range(30)]
    jobs += [traced(f"s{n:02}", typed(1, "slow"), 10, at_s=20 * n) for n in range(30)]
    result = outcome_of(
        a_scenario(jobs, "a[4fast] b[1slow]"), a_policy(name, starve_after_s=120, **options)
    )
    assert one(result, "wide").start_ms <= 200 * SECOND
    assert all(one(result, f"s{n:02}").start_ms == 20 * n * SECOND for n in range(30))
