"""Small situations that once went wrong, found by the property tests."""

from __future__ import annotations

from random import Random

from tests.builders import a_policy, a_scenario, at, costly, finishes, outcome_of, traced
from tests.property.drive import Drive
from trainmaster.model import events as e
from trainmaster.model.job import Demand, Shape, gpus
from trainmaster.model.units import GIB
from trainmaster.perf.perf_model import IDEAL
from trainmaster.sim.driver import Estimates, Scenario


def test_a_reservation_ends_when_a_more_urgent_job_becomes_the_head() -> None:
    """Without estimates the reservation of `low` has no end: it must not lock `high` out for ever."""
    jobs = [
        traced("busy", 1, 10),
        traced("low", 2, 5, at_s=1),
        traced("high", 2, 5, at_s=2, priority=1),
    ]
    plain = a_scenario(jobs, "1x2")
    scenario = Scenario(plain.trace, plain.topology, "1x2", IDEAL, Estimates(known=False))
    result = outcome_of(scenario, a_policy("fifo", backfill="easy"))
    assert finishes(result) == {"busy": 10, "high": 15, "low": 20}


def test_who_is_moved_off_a_draining_node_is_not_also_evicted_from_where_it_goes() -> None:
    """At 10 n0 drains, `long` moves from n0 and n1 to n1 and n2, and the shorter `new` wants n1."""
    jobs = [traced("long", 2, 100), traced("new", 1, 5, at_s=10)]
    scenario = a_scenario(jobs, "n0[1] n1[1] n2[1]", node_changes=(at(10, e.NodeDraining(0)),))
    drive = Drive(scenario, a_policy("srtf")).run()
    drive.everything_ended()
    drive.work_is_conserved()


def test_demotion_is_noticed_at_whole_seconds_whether_remembered_or_not() -> None:
    """`a` passes its threshold at 1.25 s while `b` waits; `c` arrives at 1.5; the demotion is due at 2."""
    jobs = [traced("a", 4, 10), traced("b", 4, 10, at_s=0.5), traced("c", 4, 10, at_s=1.5)]

    def orders(forgetful: Random | None) -> object:
        policy = a_policy("tiresias-l", thresholds_gpu_s=5)
        return Drive(a_scenario(jobs, "1x4"), policy, forgetful=forgetful).run().orders()

    assert all(orders(Random(seed)) == orders(None) for seed in range(8))


def test_demotion_is_noticed_at_whole_seconds_whoever_arrives_before() -> None:
    """`a` passes its threshold at 1.25 s; `b`, the first to wait, arrives at 1.5."""
    jobs = [traced("a", 4, 10), traced("b", 4, 1, at_s=1.5)]
    result = outcome_of(a_scenario(jobs, "1x4"), a_policy("tiresias-l", thresholds_gpu_s=5))
    assert finishes(result) == {"a": 11, "b": 3}


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


def test_a_gang_that_needs_much_host_memory_is_consolidated_as_far_as_that_goes() -> None:
    """256 GiB carry two GPUs of 90 GiB each: three need two nodes, and yarn-cs must know."""
    hungry = Demand(Shape(3), 3, 3, host_memory=90 * GIB)
    result = outcome_of(a_scenario([traced("hungry", hungry, 10)], "2x4"), a_policy("yarn-cs"))
    assert finishes(result) == {"hungry": 10}
