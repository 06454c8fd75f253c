"""Several jobs on one GPU: the laws of section 16 with their numbers, measured pairs, and guests."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.builders import a_job, cluster, fraction, on
from trainmaster.config.performance import perf_model_from
from trainmaster.model.job import Demand, Job, Shape
from trainmaster.model.placement import Placement, Role, Sharing, Slice
from trainmaster.model.units import NOMINAL, WHOLE
from trainmaster.perf.perf_model import DEFAULT, IDEAL, PerfModel, Speeds

LINEAR = perf_model_from({"sharing": {"law": "linear", "a": 0, "b": 1}}, "linear")
M2 = perf_model_from({"sharing": {"law": "utilisation"}}, "m2")


def small(name: str = "s", model: str = "") -> Job:
    return a_job(name, fraction(0.125), gpu_util_ppm=250_000, model=model)


def filling(name: str = "f") -> Job:
    return a_job(name, fraction(0.125), gpu_util_ppm=NOMINAL)


def left(
    mine: Job, others: list[Job], world: PerfModel = DEFAULT, sharing: Sharing = Sharing.TIME
) -> int:
    """What a job on GPU 0 keeps of its speed beside these."""
    topology = cluster("1x1")

    def seat(job: Job) -> Placement:
        return on(topology, 0, share=job.demand.nominal.share, sharing=sharing, role=job.role)

    return Speeds(world, topology).slowdown(mine, seat(mine), [(job, seat(job)) for job in others])


def times_longer(
    job: Job, count: int, world: PerfModel = DEFAULT, sharing: Sharing = Sharing.TIME
) -> float:
    return NOMINAL / left(job, [job] * (count - 1), world, sharing)


# -- the laws ----------------------------------------------------------------------------------------


def test_four_quarters_under_m2_and_under_the_linear_law() -> None:
    assert times_longer(small(), 4, M2, Sharing.MPS) == 1
    assert times_longer(small(), 4, LINEAR) == 4


def test_m2_shares_what_there_is_once_more_is_wanted() -> None:
    assert times_longer(small(), 8, M2, Sharing.MPS) == 2
    busy = a_job("b", fraction(0.5), gpu_util_ppm=900_000)
    assert left(busy, [busy], M2, Sharing.MPS) == NOMINAL * NOMINAL // 1_800_000


def test_m2_takes_the_memorys_bandwidth_where_that_is_scarcer() -> None:
    world = perf_model_from({"sharing": {"law": "utilisation", "bandwidth": {"LM": 0.75}}}, "m2")
    assert left(small(model="lm"), [small(model="lm")], world) == NOMINAL * 2 // 3
    assert left(small(model="lm"), [small()], world) == NOMINAL


def test_without_a_measurement_the_share_counts() -> None:
    half = a_job("b", fraction(0.5))
    assert left(half, [half], M2, Sharing.MPS) == NOMINAL
    assert left(half, [half, half], M2, Sharing.MPS) == NOMINAL * 2 // 3


def test_of_unequal_parts_each_counts_on_its_own_gpu() -> None:
    """A split with 0.8 on one GPU and 0.2 on another, beside a half on the second: 0.7 in all."""
    topology = cluster("1x2")
    half = a_job("h", fraction(0.5))
    split = a_job("s", Demand(Shape(1), 1, 1))
    pieces = (Slice(0, 0, 800), Slice(0, 1, 200))
    seat = replace(on(topology, 0, 1, sharing=Sharing.MPS), slices=pieces)
    beside = on(topology, 1, share=WHOLE // 2, sharing=Sharing.MPS)
    assert Speeds(M2, topology).slowdown(half, beside, [(split, seat)]) == NOMINAL


def test_the_linear_law_with_the_figures_of_a_machine() -> None:
    world = perf_model_from({"sharing": {"law": "linear", "a": -0.05, "b": 1.0643}}, "fitted")
    assert times_longer(small(), 2, world) == pytest.approx(2 * 1.0643 - 0.05, rel=1e-3)


def test_no_job_is_faster_on_a_shared_gpu() -> None:
    cheap = perf_model_from({"sharing": {"law": "linear", "a": 0, "b": 0.1}}, "cheap")
    assert left(small(), [small()], cheap) == NOMINAL


RESULTS = Path(__file__).parents[3] / "benchmarks/results/packing_gpu.json"
"""What was measured; docs/perf.md says what the law takes from it."""


def by_hand(mode: str, size: str) -> dict[int, float]:
    """ms a step by the number of processes."""
    rows = json.loads(RESULTS.read_text())["rows"]
    return {
        row["processes"]: row["ms_per_step"]
        for row in rows
        if (row["mode"], row["job"]) == (mode, size)
    }


def of_util(util: float) -> Job:
    return a_job("u", fraction(0.125), gpu_util_ppm=round(util * NOMINAL))


UTIL = by_hand("time", "small")[8] / 8 / by_hand("time", "small")[1]
"""Eight processes keep the GPU busy: what a step takes of its time, over the time of a step alone."""


@pytest.mark.parametrize("sharing", [Sharing.TIME, Sharing.MPS])
@pytest.mark.parametrize(("size", "util"), [("small", UTIL), ("filling", 1.0)])
def test_the_law_fits_what_it_was_derived_from(sharing: Sharing, size: str, util: float) -> None:
    alone, *packed = by_hand(sharing.value, size).items()
    for count, took in packed:
        longer = times_longer(of_util(util), count, sharing=sharing)
        assert longer == pytest.approx(took / alone[1], rel=0.12), count


@pytest.mark.parametrize(
    ("sharing", "longer"),
    [
        (Sharing.TIME, {2: 2.69 / 2.24, 4: 3.96 / 2.24, 8: 7.00 / 2.24}),
        (Sharing.MPS, {2: 1.96 / 1.86, 4: 2.34 / 1.86, 8: 3.78 / 1.86}),
    ],
)
def test_the_law_predicts_a_smaller_batch(sharing: Sharing, longer: dict[int, float]) -> None:
    """The first experiment, by hand: 7.00 ms a step at 8 is 0.39 of the 2.24 alone."""
    found = {count: times_longer(of_util(0.39), count, sharing=sharing) for count in longer}
    assert found == pytest.approx(longer, rel=0.12)


def test_each_job_waits_for_a_fifth_of_what_the_others_need_while_there_is_time_for_all() -> None:
    half = of_util(0.5)
    assert left(small(), [half]) == NOMINAL * NOMINAL // 1_100_000
    assert left(half, [small()]) == NOMINAL * NOMINAL // 1_050_000
    assert left(filling(), [of_util(0.01)]) == NOMINAL * NOMINAL // 1_110_000, "it is full"
    assert left(half, [half], M2) == NOMINAL, "only where it was measured"


@pytest.mark.parametrize("sharing", [Sharing.TIME, Sharing.MPS])
def test_on_a_full_gpu_twice_as_many_jobs_take_twice_as_long(sharing: Sharing) -> None:
    some, twice = (times_longer(small(), count, sharing=sharing) for count in (12, 24))
    assert twice == pytest.approx(2 * some, rel=1e-3)


def test_what_company_costs_goes_up_between_half_a_gpu_and_all_of_it() -> None:
    """Under MPS 0.60 of its GPU time up to a half, 0.91 for jobs that fill the GPU, 0.755 in the middle."""
    for util, cost in ((0.25, 0.6), (0.5, 0.6), (0.75, 0.755), (1.0, 0.91)):
        longer = times_longer(of_util(util), 16, sharing=Sharing.MPS)
        assert longer == pytest.approx(16 * util * cost, rel=1e-3)


def test_section_12_four_unit_jobs() -> None:
    """Mean JCT at concurrency 1, 2 and 4, as batches: the H200 wants 2 or more, the linear law 1."""

    def mean_jct(job: Job, at_once: int, world: PerfModel) -> float:
        longer = times_longer(job, at_once, world)
        batches = 4 // at_once
        return sum(longer * (batch + 1) for batch in range(batches)) / batches

    on_h200 = [mean_jct(small(), at_once, DEFAULT) for at_once in (1, 2, 4)]
    assert on_h200 == pytest.approx([2.5, 1.575, 1.15], abs=0.01)
    linear = [mean_jct(small(), at_once, LINEAR) for at_once in (1, 2, 4)]
    assert linear == [2.5, 3.0, 4.0]
    full = [mean_jct(filling(), at_once, DEFAULT) for at_once in (1, 2, 4)]
    assert min(full) == full[0]


# -- pairs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mine", "other", "kept"),
    [
        ("LM", "LM", 0.81),
        ("GNMT", "LM", 0.955),
        ("LM", "GNMT", 0.90),
        ("ResNet-50", "LM", 0.99),
        ("LM (batch size 20)", "ResNet-50 (batch size 64)", 1),
        ("ResNet-50", "ResNet-18", 0.73),
        ("ResNet-18", "ResNet-50", 0.64),
        ("Transformer", "ResNet-50", 0.21),
        ("Recommendation", "ResNet-50", 0.20),
    ],
)
def test_a_measured_pair_beats_the_law(mine: str, other: str, kept: float) -> None:
    assert left(small(model=mine), [small(model=other)]) == kept * NOMINAL


def test_three_are_no_pair_and_another_law_has_none() -> None:
    lm = small(model="lm")
    assert left(lm, [lm, lm]) == left(small(), [small(), small()])
    assert left(lm, [lm], LINEAR) == NOMINAL // 2
    paired = perf_model_from({"sharing": {"law": "linear", "pairs": {"lm": {"lm": 0.7}}}}, "p")
    assert left(lm, [lm], paired) == 700_000


# -- opportunistic guests ----------------------------------------------------------------------------


def host(util_ppm: int) -> Job:
    return a_job("host", fraction(1.0, sharing=Sharing.MPS), gpu_util_ppm=util_ppm)


def guest() -> Job:
    return a_job("g", fraction(1.0, sharing=Sharing.MPS), role=Role.OPPORTUNISTIC)


def test_a_guest_gets_what_its_host_leaves_idle() -> None:
    assert left(guest(), [host(600_000)], sharing=Sharing.MPS) == 400_000
    assert left(guest(), [host(600_000), guest()], sharing=Sharing.MPS) == 200_000
    assert left(guest(), [host(NOMINAL)], sharing=Sharing.MPS) == 30_000, "the floor"


def test_a_host_loses_at_most_the_tolerance() -> None:
    assert left(host(600_000), [guest()], sharing=Sharing.MPS) == NOMINAL
    assert left(host(980_000), [guest()], sharing=Sharing.MPS) == 990_000
    assert left(host(NOMINAL), [guest(), guest()], sharing=Sharing.MPS) == 970_000
    strict = perf_model_from(
        {"sharing": {"opportunistic": {"tolerance": 0, "floor": 0.5}}}, "strict"
    )
    assert left(host(NOMINAL), [guest()], strict, Sharing.MPS) == NOMINAL
    assert left(guest(), [host(NOMINAL)], strict, Sharing.MPS) == NOMINAL // 2


def test_hosts_feel_each_other_as_ever_and_guests_alone_are_equals() -> None:
    pair = left(small(), [small()], sharing=Sharing.MPS)
    assert left(small(), [small(), guest()], sharing=Sharing.MPS) == pair
    lonely = left(guest(), [guest()], sharing=Sharing.MPS)
    assert lonely == left(host(NOMINAL), [host(NOMINAL)], sharing=Sharing.MPS)


# -- nobody ------------------------------------------------------------------------------------------


def test_alone_or_in_an_ideal_world_no_job_is_slowed() -> None:
    assert left(filling(), []) == NOMINAL
    assert left(filling(), [filling()], IDEAL) == NOMINAL
    assert left(filling(), [filling()], replace(DEFAULT, interferes=False)) == NOMINAL


def test_only_jobs_on_the_same_gpu_count() -> None:
    topology = cluster("1x2")
    job = filling()
    mine = on(topology, 0, share=WHOLE // 8, sharing=Sharing.TIME)
    far = on(topology, 1, share=WHOLE // 8, sharing=Sharing.TIME)
    assert Speeds(DEFAULT, topology).slowdown(job, mine, [(job, far)]) == NOMINAL
