"""What distance costs: published losses, put right by what was seen."""

from __future__ import annotations

from tests.builders import cluster
from trainmaster.model.job import gpus
from trainmaster.model.units import NOMINAL
from trainmaster.policies.trainmaster.locality_estimator import (
    HALVED_AFTER_RUNS,
    LEAST_LOSS,
    Penalty,
    PublishedLosses,
)

RACK, NODE = 1, 2
"""Levels of a cluster of nodes in racks."""


def loss(model: str, count: int, span: int, nodes: int, where: str = "2x2x4") -> int:
    return PublishedLosses(cluster(where)).loss(model, gpus(count), count, span, nodes)


def test_losses_are_those_published() -> None:
    assert loss("vgg16", 4, RACK, 2) == NOMINAL - 580_000
    assert loss("mine", 4, RACK, 2) == NOMINAL - 853_700


def test_at_its_nearest_a_gang_loses_nothing() -> None:
    assert loss("vgg16", 4, NODE, 1) == 0
    assert loss("vgg16", 8, RACK, 2) == 0


def test_who_is_said_to_lose_nothing_is_watched_nevertheless() -> None:
    assert loss("resnet101", 4, RACK, 2) == LEAST_LOSS


def test_nothing_seen_is_what_was_believed() -> None:
    assert Penalty().correction_ppm() == NOMINAL
    assert Penalty().correction_ppm(300_000) == 300_000


def test_what_was_seen_outweighs_what_was_believed_run_by_run() -> None:
    felt, corrections = Penalty(), []
    for _ in range(9):
        felt = felt.with_spread(predicted=400_000, lost=0)
        corrections.append(felt.correction_ppm())
    assert corrections[0] == NOMINAL // 2
    assert corrections[-1] == NOMINAL // 10
    assert corrections == sorted(corrections, reverse=True)


def test_losses_as_predicted_correct_nothing() -> None:
    felt = Penalty()
    for predicted in (100_000, 400_000):
        felt = felt.with_spread(predicted, predicted)
    assert felt.correction_ppm() == NOMINAL


def test_old_runs_are_forgotten() -> None:
    felt = Penalty()
    for lost in [0] * (4 * HALVED_AFTER_RUNS) + [400_000] * (4 * HALVED_AFTER_RUNS):
        felt = felt.with_spread(400_000, lost)
    assert felt.apart <= HALVED_AFTER_RUNS
    assert felt.correction_ppm() > NOMINAL * 9 // 10


def test_normal_speed_is_that_of_runs_that_lie_near() -> None:
    felt = Penalty()
    assert felt.near_ppm() == NOMINAL
    for _ in range(50):
        felt = felt.with_near(NOMINAL // 2)
    assert abs(felt.near_ppm() - NOMINAL // 2) < NOMINAL // 50
