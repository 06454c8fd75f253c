"""Gandiva (OSDI'18): moves when others have left, growing and shrinking."""

from __future__ import annotations

import pytest

from tests.builders import (
    a_policy,
    a_scenario,
    finishes,
    one,
    outcome_of,
    traced,
)
from trainmaster.model.job import gpus
from trainmaster.model.trace import TracedJob
from trainmaster.model.units import SECOND
from trainmaster.sim.driver import Scenario

# -- migration -------------------------------------------------------------------------------------


def ends(scenario: Scenario, migration: str) -> dict[str, float | None]:
    return finishes(outcome_of(scenario, a_policy("gandiva", migration=migration)))


def test_jobs_that_take_turns_move_to_vacated_gpus() -> None:
    """a and b share n0, c has n1 and ends at 90: the job that waits then goes on there."""
    jobs = [traced("a", 1, 300), traced("c", 1, 90), traced("b", 1, 300, at_s=1)]
    scenario = a_scenario(jobs, "2x1")
    assert ends(scenario, "on")["a"] == 300 + 30  # b had its place 60-90
    assert max(time or 0 for time in ends(scenario, "off").values()) == 600


def test_a_gang_on_more_servers_than_it_needs_moves_together_when_there_is_room() -> None:
    """Free are 2, 1 and 3 GPUs when the gang of six comes; at 100 it can be on two servers."""
    jobs = [
        traced("a", 2, 100),
        traced("b", 3, 100),
        traced("c", 1, 1_000),
        traced("gang", 6, 1_000, at_s=1),
    ]
    scenario = a_scenario(jobs, "n0[4] n1[4] n2[4]")
    on, off = (outcome_of(scenario, a_policy("gandiva", migration=m)) for m in ("on", "off"))
    assert one(on, "gang").migrations == 1
    assert one(off, "gang").migrations == 0


def strays() -> list[TracedJob]:
    """x of two GPUs has n0; w and y of one fill n1, so that z strays to n0, until w has ended."""
    return [
        traced("x", 2, 1_000),
        traced("w", 1, 50),
        traced("y", 1, 1_000),
        traced("z", 1, 1_000, at_s=1),
    ]


def test_a_job_on_a_server_of_another_affinity_goes_home_on_a_departure() -> None:
    scenario = a_scenario(strays(), "n0[4] n1[2]")
    on, off = (outcome_of(scenario, a_policy("gandiva", migration=m)) for m in ("on", "off"))
    assert [job.migrations for job in on.jobs] == [0, 0, 0, 1]
    assert [job.migrations for job in off.jobs] == [0, 0, 0, 0]


def test_a_move_that_slows_a_job_down_is_taken_back_for_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """n1 is half as fast: z goes home when w ends at 100, is measured for a minute, and returns."""
    scenario = a_scenario(strays(), "n0[4fast] n1[2slow]")
    z = one(outcome_of(scenario, a_policy("gandiva")), "z")
    assert (z.migrations, z.finish_ms) == (2, 1_031 * SECOND)  # 99 + 30 done by 160, 871 left
    monkeypatch.setattr("trainmaster.policies.gandiva.migration.HARM_PERCENT", 0)
    z = one(outcome_of(scenario, a_policy("gandiva")), "z")
    assert (z.migrations, z.finish_ms) == (1, 1_902 * SECOND)


def test_small_jobs_make_room_for_a_wide_one() -> None:
    """Both servers have two GPUs free: two small jobs move together, and the job of four can start."""
    jobs = [
        *[traced(f"n0-{n}", 1, 100 if n < 2 else 1_000) for n in range(4)],
        *[traced(f"n1-{n}", 1, 1_000) for n in range(2)],
        traced("wide", 4, 100, at_s=200),
    ]
    scenario = a_scenario(jobs, "2x4")
    on, off = (outcome_of(scenario, a_policy("gandiva", migration=m)) for m in ("on", "off"))
    assert one(on, "wide").start_ms == 200 * SECOND
    assert sum(job.migrations for job in on.jobs) == 2
    assert one(off, "wide").start_ms == 1_000 * SECOND


# -- grow and shrink -------------------------------------------------------------------------------


def elastic_and_late() -> Scenario:
    jobs = [traced("big", gpus(2, minimum=2, maximum=4), 100), traced("late", 2, 10, at_s=20)]
    return a_scenario(jobs, "1x4")


def test_an_elastic_job_grows_into_idle_gpus_and_shrinks_at_once_when_somebody_comes() -> None:
    """Twice as fast 0-20 and from 30 on: 40 + 10 + 50 of its 100 seconds by 55."""
    result = outcome_of(elastic_and_late(), a_policy("gandiva"))
    assert one(result, "late").start_ms == 20 * SECOND
    assert finishes(result) == {"big": 55, "late": 30}
    still = outcome_of(elastic_and_late(), a_policy("gandiva", grow="off"))
    assert finishes(still) == {"big": 100, "late": 30}


def test_an_elastic_job_grows_on_its_own_server_only() -> None:
    jobs = [traced("big", gpus(2, minimum=2, maximum=4), 100), traced("other", 1, 200)]
    assert finishes(outcome_of(a_scenario(jobs, "2x2"), a_policy("gandiva")))["big"] == 100
