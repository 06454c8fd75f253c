"""A job goes on where its files are already, if nothing speaks for another place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import a_policy, a_scenario, outcome_of, traced
from tests.policies.test_avoided_devices import Play
from trainmaster.catalog import policy_names
from trainmaster.model import events as e
from trainmaster.model.job import gpus

OF_THEIR_OWN = {"gandiva", "optimus"}
"""They have a search of their own for a place: by affinity, and by even spreading."""
NAMES = sorted(policy_names())


def node_of_its_second_run(policy: str, warm: tuple[int, ...] | None) -> int:
    """Where a job starts again that was lost when all three nodes were free."""
    play = Play("3x2", policy)
    play.submit("a", 2)
    run = play.controller.state.jobs["a"].run
    play.tell(e.JobProfiled("a", warm=warm), e.RunLost(run), after_s=100)
    gpu, _ = play.at("a")
    return gpu // 2


@pytest.mark.parametrize("policy", sorted({*NAMES} - OF_THEIR_OWN - {"srtf", "srsf"}))
def test_a_job_starts_again_on_the_node_that_has_its_files(policy: str) -> None:
    assert node_of_its_second_run(policy, None) == 0
    assert node_of_its_second_run(policy, (2,)) == 2


@pytest.mark.parametrize("policy", NAMES)
def test_plans_are_the_same_where_all_nodes_have_the_files_as_where_none_has(policy: str) -> None:
    sizes = (1, 2, 4, 8, 3, 1, 2, 6, 4, 2, 1, 8)

    def outcome(warm: tuple[int, ...]) -> object:
        jobs = (
            traced(f"{n}", replace(gpus(size), warm=warm), 300 + 70 * n, at_s=40 * n)
            for n, size in enumerate(sizes)
        )
        return outcome_of(a_scenario(jobs, "2x3x4"), a_policy(policy)).jobs

    assert outcome(()) == outcome(tuple(range(6)))
