"""When Tiresias-L demotes a job."""

from __future__ import annotations

from random import Random

from tests.builders import a_policy, a_scenario, finishes, outcome_of, traced
from tests.property.drive import Drive
from trainmaster.config.cluster import cluster_from


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


def test_a_gang_is_tried_again_on_every_type_of_gpu() -> None:
    """`gang` has one node of `slow` GPUs to itself, or two of `fast` ones, which become free first."""
    types = {"fast": {"memory_gib": 32}, "slow": {"memory_gib": 8}}
    sizes = ((2, "fast"), (2, "fast"), (3, "slow"))
    nodes = [{"gpus": count, "type": kind} for count, kind in sizes]
    cluster = cluster_from({"types": types, "racks": [{"nodes": nodes}]}).topology
    jobs = [traced(name, 1, 1) for name in "ab"]
    jobs += [traced("c", 3, 2), traced("gang", 3, 1, model="vgg16")]
    result = outcome_of(a_scenario(jobs, cluster), a_policy("tiresias-l"))
    assert finishes(result)["gang"] == 2
