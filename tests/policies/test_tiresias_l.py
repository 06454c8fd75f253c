"""When Tiresias-L demotes a job."""

from __future__ import annotations

from random import Random

from tests.builders import a_policy, a_scenario, finishes, outcome_of, traced
from tests.property.drive import Drive


def test_demotion_is_noticed_at_whole_seconds_whether_remembered_or_not() -> None:
    """`a` passes its threshold at 1.25 s while `b` waits; `c` arrives at 1.5; the demotion is due at 2."""
    jobs = [traced("a", 4, 10), traced("b", 4, 10, at_s=0.5), traced("c", 4, 10, at_s=1.5)]

    def orders(forgetful: Random | None) -> object:
        policy = a_policy("tiresias-l", thresholds_gpu_s=5)
        return Drive(a_scenario(jobs, "1x4"), policy, forgetful=forgetful).run().orders()

    assert all(orders(Random(seed)) == orders(None) for seed in range(8))


def test_demotion_is_noticed_at_whole_seconds_even_if_another_job_arrives_before() -> None:
    """`a` passes its threshold at 1.25 s; `b`, the first to wait, arrives at 1.5."""
    jobs = [traced("a", 4, 10), traced("b", 4, 1, at_s=1.5)]
    result = outcome_of(a_scenario(jobs, "1x4"), a_policy("tiresias-l", thresholds_gpu_s=5))
    assert finishes(result) == {"a": 11, "b": 3}
