"""Speeds by placement and size, neighbours on shared GPUs, and tables that are wrong in a fixed way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import a_job, cluster, fraction, on
from trainmaster.model.job import Demand, Job, Part, Shape, gpus
from trainmaster.model.placement import Placement, Sharing
from trainmaster.model.units import NOMINAL
from trainmaster.perf.models import MODELS, skew_ppm
from trainmaster.perf.world import DEFAULT, IDEAL, Speeds, World

RACKS = "rack a: n1[4] n2[4]  rack b: n3[4] n4[4]"


def speed(world: World, job: Job, *devices: int, text: str = RACKS, seed: int = 0) -> int:
    topology = cluster(text)
    return Speeds(world, topology, seed).alone(job, on(topology, *devices))


def test_the_best_placement_runs_at_nominal_speed() -> None:
    for model in ("", "vgg16", "resnet50"):
        assert speed(DEFAULT, a_job("a", 4, model=model), 0, 1, 2, 3) == NOMINAL
        assert speed(DEFAULT, a_job("a", 1, model=model), 9) == NOMINAL
        assert speed(DEFAULT, a_job("a", 8, model=model), *range(8)) == NOMINAL, (
            "no node holds eight"
        )
        assert speed(DEFAULT, a_job("a", 16, model=model), *range(16)) == NOMINAL, (
            "no rack holds 16"
        )


def test_a_wider_span_is_slower_by_the_models_own_factor() -> None:
    assert speed(DEFAULT, a_job("a", 2), 0, 4) == 853_700
    assert speed(DEFAULT, a_job("a", 2), 0, 8) == 728_800
    assert speed(DEFAULT, a_job("a", 2, model="vgg16"), 0, 4) == 730_000
    assert speed(DEFAULT, a_job("a", 2, model="vgg16"), 0, 8) == 623_200
    assert speed(DEFAULT, a_job("a", 2, model="resnet50"), 0, 8) == NOMINAL
    assert speed(DEFAULT, a_job("a", 8), *range(4), *range(8, 12)) == 728_800 * NOMINAL // 853_700


def test_ideal_knows_no_distance() -> None:
    assert speed(IDEAL, a_job("a", 2, model="vgg16"), 0, 8) == NOMINAL


def test_the_slowest_gpu_sets_the_pace() -> None:
    mixed = "n1[2fast] n2[2slow]"
    assert speed(IDEAL, a_job("a", 2), 0, 1, text=mixed) == NOMINAL
    assert speed(IDEAL, a_job("a", 2), 2, 3, text=mixed) == NOMINAL // 2
    assert speed(IDEAL, a_job("a", 2), 1, 2, text=mixed) == NOMINAL // 2


def test_more_gpus_are_faster_but_lose_at_every_doubling() -> None:
    soft = a_job("a", gpus(2, minimum=1, maximum=4))
    assert speed(IDEAL, soft, 0, 1, 2, 3) == 2 * NOMINAL
    assert speed(IDEAL, soft, 0) == NOMINAL // 2
    assert speed(DEFAULT, soft, 0, 1, 2, 3) == 2 * 868_000
    assert speed(DEFAULT, soft, 0) == 500_000 * NOMINAL // 868_000
    assert DEFAULT.scaling(3, 2) == 1_500_000, "not doubled yet"
    assert DEFAULT.scaling(2, 2) == NOMINAL


def test_a_split_runs_at_its_measured_speed() -> None:
    split = Shape(2, parts=(Part(500, 0), Part(500, 0)), speed_ppm=700_000)
    job = a_job("a", Demand(Shape(1), 1, 1, splits=(split,)))
    assert speed(IDEAL, job, 0, 1) == 700_000


def test_table_error_is_fixed_by_seed_model_and_span() -> None:
    wrong = replace(DEFAULT, table_error_ppm=100_000)
    job = a_job("a", 2, model="vgg16")
    first = speed(wrong, job, 0, 4, seed=1)
    assert first == speed(wrong, job, 0, 4, seed=1)
    found = {speed(wrong, job, 0, 4, seed=seed) for seed in range(20)}
    assert len(found) > 10
    assert all(abs(value - 730_000) <= 73_000 for value in found)
    assert speed(wrong, job, 0, 1, seed=1) == NOMINAL, "inside a node the table is not asked"


# -- neighbours ------------------------------------------------------------------------------------


def slowed(mine: Job, sharing: Sharing, others: list[Job], world: World = DEFAULT) -> int:
    topology = cluster("1x1")

    def seat(job: Job) -> Placement:
        return on(topology, 0, share=job.demand.nominal.share, sharing=sharing)

    return Speeds(world, topology).slowdown(mine, seat(mine), [(job, seat(job)) for job in others])


def test_mps_neighbours_that_fill_a_quarter_each_do_not_hurt() -> None:
    quarter = a_job("q", fraction(0.25), gpu_util_ppm=250_000)
    assert slowed(quarter, Sharing.MPS, [quarter] * 3) == NOMINAL
    assert slowed(quarter, Sharing.MPS, [quarter] * 7) == NOMINAL // 2


def test_mps_neighbours_that_want_more_than_there_is_share_it() -> None:
    busy = a_job("b", fraction(0.5), gpu_util_ppm=900_000)
    assert slowed(busy, Sharing.MPS, [busy]) == NOMINAL * NOMINAL // 1_800_000


def test_without_a_measurement_the_share_counts() -> None:
    assert slowed(a_job("b", fraction(0.5)), Sharing.MPS, [a_job("c", fraction(0.5))]) == NOMINAL


@pytest.mark.parametrize("others", [1, 2, 3])
def test_time_slicing_runs_one_at_a_time(others: int) -> None:
    timed = a_job("t", fraction(0.2, sharing=Sharing.TIME), gpu_util_ppm=100_000)
    assert slowed(timed, Sharing.TIME, [timed] * others) == NOMINAL // (1 + others)


def test_alone_or_in_an_ideal_world_nobody_is_slowed() -> None:
    busy = a_job("b", fraction(0.5), gpu_util_ppm=NOMINAL)
    assert slowed(busy, Sharing.MPS, []) == NOMINAL
    assert slowed(busy, Sharing.TIME, [busy], IDEAL) == NOMINAL


# -- models ----------------------------------------------------------------------------------------


def test_skew_separates_the_papers_two_groups() -> None:
    skewed = {name for name in MODELS if skew_ppm(name) > 400_000}
    assert skewed == {"vgg19", "vgg16", "vgg11", "alexnet"}
    assert skew_ppm("VGG16") == skew_ppm("vgg16") == pytest.approx(743_000, abs=1_000)
    assert skew_ppm("my-own-model") == 0
