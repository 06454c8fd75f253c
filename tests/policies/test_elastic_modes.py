"""Elastic jobs under fifo's option `elastic`: rigid, moldable, malleable."""

from __future__ import annotations

from tests.builders import a_policy, a_scenario, costly, finishes, one, outcome_of, traced
from tests.property.drive import Drive
from trainmaster.model.job import Demand, Shape, gpus
from trainmaster.model.result import Status
from trainmaster.model.units import GIB


def test_a_moldable_job_may_be_larger_than_the_cluster() -> None:
    soft = traced("soft", gpus(8, minimum=2, maximum=8), 10)
    molded = outcome_of(a_scenario([soft], "1x4"), a_policy("fifo", elastic="moldable"))
    assert finishes(molded) == {"soft": 20}
    assert (
        one(outcome_of(a_scenario([soft], "1x4"), a_policy("fifo")), "soft").status
        is Status.REJECTED
    )


def test_a_run_does_not_grow_onto_gpus_that_another_is_only_leaving() -> None:
    """Shrinking one and growing another in the same plan was refused at admission."""
    jobs = [
        traced("grown", gpus(1, minimum=1, maximum=3), 60),
        traced("ready", gpus(1, minimum=1, maximum=4), 60),
        traced("late", 1, 10, at_s=20),
    ]
    scenario = a_scenario(jobs, "1x4", costly(resize_ms=1000))
    Drive(scenario, a_policy("fifo", elastic="malleable")).run().everything_ended()


def test_a_malleable_job_does_not_grow_onto_gpus_that_another_is_still_giving_back() -> None:
    """At 11 `a` begins to give GPU 2 back and `b` starts on GPU 0, the filler's: 2 is not idle yet."""
    soft = gpus(1, minimum=1, maximum=2)
    jobs = [traced("filler", 1, 11), traced("a", soft, 100), traced("b", soft, 30, at_s=11)]
    scenario = a_scenario(jobs, "1x3", costly(resize_ms=10_000))
    drive = Drive(scenario, a_policy("fifo", elastic="malleable")).run()
    drive.everything_ended()


def test_a_malleable_job_grows_no_further_than_its_nodes_host_memory() -> None:
    """`fat` takes 190 of 256 GiB with one GPU: there is host memory for one more GPU, not for two."""
    fat = Demand(Shape(1), 1, 1, host_memory=190 * GIB)
    soft = gpus(1, minimum=1, maximum=3)
    scenario = a_scenario([traced("fat", fat, 50), traced("soft", soft, 30)], "1x4")
    drive = Drive(scenario, a_policy("fifo", elastic="malleable")).run()
    drive.everything_ended()
