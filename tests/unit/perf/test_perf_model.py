"""Speeds alone: by distance and number of nodes, by GPU type, by size; and tables that are wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.builders import a_job, cluster, on
from trainmaster.config.cluster import cluster_from
from trainmaster.config.performance import perf_model_from
from trainmaster.model.job import Demand, Job, Part, Shape, gpus
from trainmaster.model.topology import Topology
from trainmaster.model.units import NOMINAL
from trainmaster.perf.model_zoo import MODELS, skew_ppm, table_name
from trainmaster.perf.perf_model import DEFAULT, IDEAL, PerfModel, Speeds

RACKS = "rack a: n1[4] n2[4]  rack b: n3[4] n4[4]"
SINGLES = "n1[4] n2[4] n3[4] n4[4]"


def speed(
    world: PerfModel, job: Job, *devices: int, text: str | Topology = RACKS, seed: int = 0
) -> int:
    topology = cluster(text) if isinstance(text, str) else text
    return Speeds(world, topology, seed).alone(job, on(topology, *devices))


def test_the_best_placement_runs_at_nominal_speed() -> None:
    for model in ("", *MODELS):
        assert speed(DEFAULT, a_job("a", 4, model=model), 0, 1, 2, 3) == NOMINAL
        assert speed(DEFAULT, a_job("a", 1, model=model), 9) == NOMINAL
        assert speed(DEFAULT, a_job("a", 8, model=model), *range(8)) == NOMINAL, (
            "no node holds eight"
        )
        assert speed(DEFAULT, a_job("a", 16, model=model), *range(16)) == NOMINAL, (
            "no rack holds 16"
        )


def test_no_placement_is_faster_than_the_best() -> None:
    odd = perf_model_from({"speed": {"default": {"rack": 0.5, "cluster": 0.9}}}, "odd")
    assert speed(odd, a_job("a", 8), *range(8)) == NOMINAL
    assert speed(odd, a_job("a", 8), *range(4), *range(8, 12)) == NOMINAL


def test_a_wider_span_is_slower_by_the_models_own_factor() -> None:
    assert speed(DEFAULT, a_job("a", 2), 0, 4) == 853_700
    assert speed(DEFAULT, a_job("a", 2), 0, 8) == 728_800
    assert speed(DEFAULT, a_job("a", 2, model="vgg16"), 0, 4) == 730_000
    assert speed(DEFAULT, a_job("a", 2, model="vgg16"), 0, 8) == 623_200
    assert speed(DEFAULT, a_job("a", 2, model="resnet101"), 0, 8) == NOMINAL
    assert speed(DEFAULT, a_job("a", 8), *range(4), *range(8, 12)) == 728_800 * NOMINAL // 853_700


def test_ideal_knows_no_distance() -> None:
    assert speed(IDEAL, a_job("a", 2, model="vgg16"), 0, 8) == NOMINAL


# -- Gandiva, Figures 1-4 ----------------------------------------------------------------------------

INSIDE = cluster_from({"nodes": {"count": 2, "gpus": 8, "sockets": 2, "pcie_switches": 4}}).topology
"""GPUs 0 and 1 share a PCIe switch, 0 and 2 a socket, 0 and 4 a node."""


@pytest.mark.parametrize(
    ("model", "switch", "socket", "node"),
    [("vgg16", 1, 0.81, 0.60), ("resnet50", 1, 1, 1), ("my-own", 1, 1, 1)],
)
def test_two_gpus_inside_a_node(model: str, switch: float, socket: float, node: float) -> None:
    assert INSIDE.levels == ("cluster", "rack", "node", "socket", "pcie", "gpu")
    job = a_job("a", 2, model=model)
    found = [speed(DEFAULT, job, 0, other, text=INSIDE) for other in (1, 2, 4)]
    assert found == [switch * NOMINAL, socket * NOMINAL, node * NOMINAL]


def test_a_gang_that_fills_the_node_has_no_nearer_place() -> None:
    assert speed(DEFAULT, a_job("a", 8, model="vgg16"), *range(8), text=INSIDE) == NOMINAL
    four = a_job("a", 4, model="vgg16")
    assert speed(DEFAULT, four, 0, 1, 2, 3, text=INSIDE) == NOMINAL, "no switch has four"
    assert speed(DEFAULT, four, 2, 3, 4, 5, text=INSIDE) == 600_000 * NOMINAL // 810_000


def test_other_nodes_are_further_than_the_other_socket() -> None:
    job = a_job("a", 2, model="vgg16")
    assert speed(DEFAULT, job, 0, 8, text=INSIDE) == 600_000 * 730_000 // NOMINAL


def test_nameless_islands_count_as_sockets() -> None:
    islands = "n1[4/2] n2[4/2]"
    job = a_job("a", 2, model="vgg16")
    assert speed(DEFAULT, job, 0, 1, text=islands) == NOMINAL
    assert speed(DEFAULT, job, 1, 2, text=islands) == 600_000 * NOMINAL // 810_000


@pytest.mark.parametrize(
    ("model", "images"), [("resnet50", (780, 560, 325)), ("Inception_v3", (510, 497, 285))]
)
def test_four_gpus_as_1x4_2x2_and_4x1(model: str, images: tuple[int, int, int]) -> None:
    job = a_job("a", 4, model=model)
    shapes = ((0, 1, 2, 3), (0, 1, 4, 5), (0, 4, 8, 12))
    found = [speed(DEFAULT, job, *devices, text=SINGLES) for devices in shapes]
    assert found == pytest.approx([NOMINAL * each / images[0] for each in images], rel=1e-3)


def test_between_two_known_numbers_of_nodes_the_speed_lies_between() -> None:
    job = a_job("a", 4, model="resnet50")
    three = speed(DEFAULT, job, 0, 1, 4, 8, text=SINGLES)
    assert three == (717_900 + 416_700) // 2


def test_phillys_resnet50_on_two_gpus() -> None:
    job = a_job("a", 2, model="resnet50")
    apart = speed(DEFAULT, job, 0, 4, text=SINGLES)
    assert apart == pytest.approx(NOMINAL * 98.0 / 114.8, rel=1e-3)


# -- gangs that need several nodes -------------------------------------------------------------------

MANY = "8x2"


@pytest.mark.parametrize(("model", "left"), [("vgg19", 0.72), ("alexnet", 0.80), ("resnet152", 1)])
def test_tiresias_figure_3_random_against_consolidated(model: str, left: float) -> None:
    """Eight workers on twice the nodes that they need."""
    job = a_job("a", 8, model=model)
    assert speed(DEFAULT, job, *range(8), text=MANY) == NOMINAL
    assert speed(DEFAULT, job, *range(0, 16, 2), text=MANY) == left * NOMINAL


def test_phillys_sixteen_gpus_on_2_4_and_8_servers() -> None:
    eights = "8x8"
    job = a_job("a", 16)
    spread = {2: range(16), 4: [8 * n + k for n in range(4) for k in range(4)]}
    spread[8] = [8 * n + k for n in range(8) for k in range(2)]
    found = {nodes: speed(DEFAULT, job, *on_them, text=eights) for nodes, on_them in spread.items()}
    assert found == pytest.approx(
        {2: NOMINAL, 4: NOMINAL * 40.94 / 43.66, 8: NOMINAL * 28.56 / 43.66}, rel=1e-3
    )


def test_the_best_place_is_among_those_that_the_job_may_use() -> None:
    mixed = "n1[8fast] n2[2slow] n3[2slow]"
    world = replace(DEFAULT, gpu_speeds={})
    slow = a_job("a", Demand(Shape(4), 4, 4, gpu_type="slow"))
    assert speed(world, slow, 8, 9, 10, 11, text=mixed) == NOMINAL // 2, "only its type's pace"
    anywhere = a_job("a", 4)
    assert speed(world, anywhere, 8, 9, 10, 11, text=mixed) == 853_700 // 2


CHRONUS = Path(__file__).parents[4] / "shared" / "data" / "chronus" / "model_info.json"


@pytest.mark.skipif(not CHRONUS.exists(), reason="needs ../shared/data/chronus")
def test_chronus_agrees_on_which_model_suffers_more_from_two_nodes() -> None:
    """Four GPUs over two and four nodes: VGG16 loses most; VGG16's own figures are the table's."""
    table = json.loads(CHRONUS.read_text())
    shapes = {"2": (0, 1, 4, 5), "4": (0, 4, 8, 12)}
    for nodes, devices in shapes.items():
        ours = {
            model: speed(DEFAULT, a_job("a", 4, model=model), *devices, text=SINGLES)
            for model in ("vgg16", "resnet101", "inception_v3")
        }
        theirs = {model: table[model]["4"][nodes] * NOMINAL for model in ours}
        assert ours["vgg16"] == pytest.approx(theirs["vgg16"], rel=0.01)
        assert min(ours, key=ours.__getitem__) == min(theirs, key=theirs.__getitem__) == "vgg16"


# -- types and sizes ---------------------------------------------------------------------------------


def test_the_slowest_gpu_sets_the_pace() -> None:
    mixed = "n1[2fast] n2[2slow]"
    assert speed(IDEAL, a_job("a", 2), 0, 1, text=mixed) == NOMINAL
    assert speed(IDEAL, a_job("a", 2), 2, 3, text=mixed) == NOMINAL // 2
    assert speed(IDEAL, a_job("a", 2), 1, 2, text=mixed) == NOMINAL // 2


def test_a_models_own_speed_on_a_type_beats_the_types() -> None:
    mixed = "n1[2fast] n2[2slow]"
    world = perf_model_from({"base": "ideal", "gpu_speed": {"ResNet-50": {"Slow": 0.141}}}, "gavel")
    assert speed(world, a_job("a", 1, model="resnet50"), 2, text=mixed) == 141_000
    assert speed(world, a_job("a", 1, model="resnet50"), 0, text=mixed) == NOMINAL
    assert speed(world, a_job("a", 1, model="lm"), 2, text=mixed) == NOMINAL // 2
    assert speed(world, a_job("a", 2, model="resnet50"), 1, 2, text=mixed) == 141_000


def test_more_gpus_are_faster_but_lose_at_every_doubling() -> None:
    soft = a_job("a", gpus(2, minimum=1, maximum=4))
    assert speed(IDEAL, soft, 0, 1, 2, 3) == 2 * NOMINAL
    assert speed(IDEAL, soft, 0) == NOMINAL // 2
    assert speed(DEFAULT, soft, 0, 1, 2, 3) == 2 * 868_000
    assert speed(DEFAULT, soft, 0) == 500_000 * NOMINAL // 868_000
    assert DEFAULT.scaling(2, 2) == NOMINAL
    assert IDEAL.scaling(3, 2) == 1_500_000


def test_between_doublings_the_speed_grows_evenly_and_never_falls() -> None:
    found = [DEFAULT.scaling(count, 1) for count in range(1, 65)]
    assert found == sorted(found)
    assert found[2] == (found[1] + found[3]) // 2


MEASURED = perf_model_from({"elastic": {"models": {"resnet50": {1: 100, 2: 190, 4: 340}}}}, "m")


def test_a_measured_table_is_read_between_its_rows_and_is_flat_beyond() -> None:
    assert [MEASURED.scaling(count, 1, "ResNet-50") for count in (1, 2, 3, 4, 9)] == [
        NOMINAL, 1_900_000, 2_650_000, 3_400_000, 3_400_000,
    ]  # fmt: skip
    assert MEASURED.scaling(2, 4, "resnet50") == 1_900_000 * NOMINAL // 3_400_000
    assert MEASURED.scaling(2, 1, "other") == 1_736_000
    soft = a_job("a", gpus(2, minimum=1, maximum=4), model="resnet50")
    assert speed(MEASURED, soft, 0, 1, 2) == 2_650_000 * NOMINAL // 1_900_000


def test_the_true_speedups_of_a_job() -> None:
    soft = a_job("a", gpus(2, minimum=1, maximum=4), model="resnet50")
    expected = ((1, NOMINAL), (2, 1_900_000), (3, 2_650_000), (4, 3_400_000))
    assert MEASURED.speedups_of(soft) == expected
    assert IDEAL.speedups_of(a_job("b", 3)) == ((3, 3 * NOMINAL),)


def test_a_split_runs_at_its_measured_speed() -> None:
    split = Shape(2, parts=(Part(500, 0), Part(500, 0)), speed_ppm=700_000)
    job = a_job("a", Demand(Shape(1), 1, 1, splits=(split,)))
    assert speed(IDEAL, job, 0, 1) == 700_000


def test_table_error_is_fixed_by_seed_model_and_span() -> None:
    wrong = replace(DEFAULT, locality=replace(DEFAULT.locality, error_ppm=100_000))
    job = a_job("a", 2, model="vgg16")
    first = speed(wrong, job, 0, 4, seed=1)
    assert first == speed(wrong, job, 0, 4, seed=1)
    found = {speed(wrong, job, 0, 4, seed=seed) for seed in range(20)}
    assert len(found) > 10
    assert all(abs(value - 730_000) <= 73_000 for value in found)
    assert speed(wrong, job, 0, 1, seed=1) == NOMINAL, "inside a node the table is not asked"


# -- models ----------------------------------------------------------------------------------------


def test_skew_separates_the_papers_two_groups() -> None:
    skewed = {name for name in MODELS if skew_ppm(name) > 400_000}
    assert skewed == {"vgg19", "vgg16", "vgg11", "alexnet"}
    assert skew_ppm("VGG16") == skew_ppm("vgg16") == pytest.approx(743_000, abs=1_000)
    assert skew_ppm("my-own-model") == 0


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("ResNet-50 (batch size 64)", "resnet50"),
        ("VGG16", "vgg16"),
        ("inception_v3", "inception3"),
        ("LM (batch size 20)", "lm"),
        ("", ""),
    ],
)
def test_models_are_known_however_they_are_written(written: str, name: str) -> None:
    assert table_name(written) == name
