"""What distance costs a gang: as published, or as its profile predicts over measured links."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import cluster
from tests.unit.core.stage import Strings
from trainmaster.model.actions import Start
from trainmaster.model.events import JobProfiled, RunSpeedChanged, RunStarted
from trainmaster.model.profile import Profile
from trainmaster.model.topology import Link
from trainmaster.model.units import NOMINAL
from trainmaster.policies.trainmaster.locality_estimator import (
    ANY,
    LEAST_LOSS,
    MOST_LOSS,
    NOTHING_SEEN,
    LocalityEstimator,
    PublishedLosses,
)

PROFILE = Profile(step_us=100_000, batch=32, sync_bytes=100_000_000, per_gpu=True)
RACK = 1
"""The level between the nodes of this cluster."""


def a_gang(link: Link | None, profile: Profile | None) -> tuple[Strings, LocalityEstimator]:
    """A gang of two that waits in a cluster of 2x2."""
    links = () if link is None else (("rack", link),)
    world = Strings(replace(cluster("2x2"), links=links)).submit("a", 2)
    if profile is not None:
        world.tell(JobProfiled("a", profile=profile))
    return world, LocalityEstimator(
        world.controller.view, PublishedLosses(world.topology), NOTHING_SEEN
    )


@pytest.mark.parametrize(
    ("gb_s", "least", "most"),
    [(0.01, MOST_LOSS, MOST_LOSS), (1, 250_000, 500_000), (1000, 0, LEAST_LOSS)],
)
def test_a_measured_link_and_a_profile_say_what_distance_costs(
    gb_s: float, least: int, most: int
) -> None:
    world, losses = a_gang(Link(round(gb_s * 1e9), 10), PROFILE)
    assert world.topology.levels[RACK] == "rack"
    assert least <= losses.loss_at(world.job("a"), RACK, 2) <= most


@pytest.mark.parametrize(
    ("link", "profile"),
    [(None, PROFILE), (Link(10**7, 10), None), (Link(10**7, 10), Profile(step_us=5))],
)
def test_without_either_it_is_as_published(link: Link | None, profile: Profile | None) -> None:
    world, losses = a_gang(link, profile)
    assert losses.loss_at(world.job("a"), RACK, 2) == NOMINAL - 853_700
    assert losses.profile_key(world.job("a")) is None


def test_an_assumed_speed_is_not_observed_and_a_measured_one_is() -> None:
    world, losses = a_gang(None, None)
    world.plan(Start("a", world.on(0, 2)))
    run = world.job("a").run
    world.tell(RunStarted(run, NOMINAL, is_assumed=True))
    assert losses.observed(NOTHING_SEEN, 1).felt == NOTHING_SEEN.felt
    world.tell(RunSpeedChanged(run, 0, NOMINAL // 2))
    seen = LocalityEstimator(world.controller.view, losses.published, NOTHING_SEEN).observed(
        NOTHING_SEEN, 1
    )
    assert seen.felt[ANY].lost == NOMINAL // 2
