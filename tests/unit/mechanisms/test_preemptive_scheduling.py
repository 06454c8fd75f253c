"""Preemption in rank order."""

from __future__ import annotations

from tests.builders import a_policy, a_scenario, at, traced
from tests.property.drive import Drive
from trainmaster.model import events as e


def test_a_job_moved_off_a_draining_node_is_not_also_evicted_from_where_it_goes() -> None:
    """At 10 n0 drains, `long` moves from n0 and n1 to n1 and n2, and the shorter `new` wants n1."""
    jobs = [traced("long", 2, 100), traced("new", 1, 5, at_s=10)]
    scenario = a_scenario(jobs, "n0[1] n1[1] n2[1]", node_changes=(at(10, e.NodeDraining(0)),))
    drive = Drive(scenario, a_policy("srtf")).run()
    drive.everything_ended()
    drive.work_is_conserved()
