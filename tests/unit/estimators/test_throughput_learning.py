"""What an estimator trusts, and in which order; corrections by what was measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import a_job, cluster
from trainmaster.estimators.allocation import Allocation, EmptyCluster
from trainmaster.estimators.interconnect import Links
from trainmaster.estimators.step_time import Scales, timeline
from trainmaster.estimators.throughput import UNKNOWN, Estimator, key_of
from trainmaster.estimators.throughput_calibration import (
    MOST_KEYS,
    MOST_MEASURED,
    NOTHING_MEASURED,
    Corrections,
    fit_scales,
)
from trainmaster.model.job import Demand, Job, Shape, gpus
from trainmaster.model.profile import Profile, speedup_at
from trainmaster.model.topology import parse_shorthand
from trainmaster.model.units import NOMINAL

KNOWN = Profile(step_us=800_000, batch=256, sync_bytes=400_000_000, fixed_us=20_000)
SPREAD = Allocation.plain(1, 1, 1, 1)


def elastic(model: str = "mine") -> Job:
    return a_job("a", gpus(4, minimum=1, maximum=16), model=model)


def estimator() -> Estimator:
    return Estimator(parse_shorthand("2x4x4"))


def test_the_nominal_shape_at_best_placement_is_the_unit() -> None:
    for profile in (UNKNOWN, KNOWN, Profile(speedups=((1, NOMINAL), (4, 3 * NOMINAL)))):
        assert estimator().speed(elastic(), profile, Allocation.plain(4)) == NOMINAL


def test_an_unknown_model_keeps_0868_per_doubling_and_pays_for_width() -> None:
    curve = dict(estimator().curve(elastic("nobody"), UNKNOWN, (1, 2, 4, 6, 8, 64)))
    assert curve[8] == pytest.approx(2 * 868_000, abs=1)
    assert curve[2] == pytest.approx(NOMINAL / 2 / 0.868, abs=1)
    assert curve[6] == pytest.approx((curve[4] + curve[8]) / 2, abs=1)
    assert 64 not in curve, "the cluster has 32"
    assert estimator().speed(elastic("nobody"), UNKNOWN, SPREAD) == 853_700


def test_a_published_model_is_known_by_its_name() -> None:
    named = estimator().speed(elastic("vgg16"), UNKNOWN, SPREAD)
    assert named != estimator().speed(elastic("nobody"), UNKNOWN, SPREAD)
    assert estimator().speed(elastic("resnet50"), UNKNOWN, SPREAD) > named


def test_a_published_model_is_known_however_it_is_written() -> None:
    plain = estimator().speed(elastic("resnet50"), UNKNOWN, SPREAD)
    assert estimator().speed(elastic("ResNet-50 (batch size 64)"), UNKNOWN, SPREAD) == plain


@pytest.mark.parametrize("gpu_type", ["cpu", "gpu|cpu"])
def test_more_cpu_slots_than_there_are_gpus(gpu_type: str) -> None:
    """A place is as wide as need be if the job may use no better one, or only so many of them."""
    mixed = Estimator(cluster("n1[2gpu] n2[8cpu] n3[8cpu]"))
    job = a_job("a", Demand(Shape(4), 1, 16, gpu_type=gpu_type))
    curve = dict(mixed.curve(job, UNKNOWN, (2, 4, 8, 16)))
    assert curve[4] == NOMINAL
    assert curve[8] == pytest.approx(2 * 868_000, abs=1)


def test_a_declared_table_is_believed_before_a_prediction() -> None:
    declared = replace(KNOWN, speedups=((1, NOMINAL), (4, 2 * NOMINAL), (8, 5 * NOMINAL // 2)))
    curve = dict(estimator().curve(elastic(), declared, (1, 2, 4, 6, 8, 16)))
    assert curve == {
        1: 500_000, 2: 666_666, 4: NOMINAL, 6: 1_125_000, 8: 1_250_000, 16: 1_250_000
    }  # fmt: skip
    wide = estimator().speed(elastic(), declared, SPREAD)
    assert wide == estimator().speed(elastic(), KNOWN, SPREAD), "the table is of best placements"


def test_a_measured_speed_is_believed_before_all_else() -> None:
    declared = replace(KNOWN, speedups=((1, NOMINAL), (4, 2 * NOMINAL), (8, 5 * NOMINAL // 2)))
    for profile in (UNKNOWN, KNOWN, declared):
        here = estimator()
        learned = here.learned(elastic(), profile, SPREAD, 612_345, NOTHING_MEASURED)
        assert here.speed(elastic(), profile, SPREAD, learned) == 612_345
        assert estimator().speed(elastic(), profile, SPREAD, learned) == 612_345, "no cache needed"


def test_what_one_wide_run_measured_corrects_others_and_spares_near_ones() -> None:
    here = estimator()
    predicted = here.speed(elastic(), KNOWN, SPREAD)
    learned = here.learned(elastic(), KNOWN, SPREAD, predicted // 2, NOTHING_MEASURED)
    pair, before = Allocation.plain(1, 1), here.speed(elastic(), KNOWN, Allocation.plain(1, 1))
    assert here.speed(elastic(), KNOWN, pair, learned) < 0.75 * before
    near = here.speed(elastic(), KNOWN, Allocation.plain(2))
    assert here.speed(elastic(), KNOWN, Allocation.plain(2), learned) == pytest.approx(
        near, rel=0.05
    )


def test_measurements_of_a_model_serve_its_other_jobs_of_the_same_size() -> None:
    here = estimator()
    learned = here.learned(elastic(), KNOWN, SPREAD, 300_000, NOTHING_MEASURED)
    other = replace(elastic(), id="b")
    assert here.speed(other, KNOWN, SPREAD, learned) == 300_000
    nameless = replace(other, model="")
    assert here.speed(nameless, KNOWN, SPREAD, learned) != 300_000
    smaller = a_job("c", gpus(2, minimum=1, maximum=16), model="mine")
    assert key_of(smaller) != key_of(elastic()), "its speeds have another unit"


def test_the_fit_finds_each_scale_by_itself() -> None:
    """Five allocations of one model, computing 10 % slower and networks 2.5 times as slow as said."""
    truth = Scales(compute=1.1, between=2.5)
    corrections = NOTHING_MEASURED
    for nodes in ((1,), (2,), (4,), (1, 1), (4, 4)):
        allocation = Allocation.plain(*nodes)
        said = timeline(KNOWN, allocation, Links())
        corrections = corrections.updated("m", allocation, said, round(said.step_ns(truth)))
    found = fit_scales(corrections.of("m"))
    assert found.compute == pytest.approx(1.1, rel=0.03)
    assert found.between == pytest.approx(2.5, rel=0.1)
    unseen = timeline(KNOWN, Allocation.plain(4, 4, 4, 4), Links())
    assert unseen.step_ns(found) == pytest.approx(unseen.step_ns(truth), rel=0.03)
    one_scale = sum(known.step_ns / known.predicted.step_ns() for known in corrections.of("m")) / 5
    assert unseen.step_ns() * one_scale != pytest.approx(unseen.step_ns(truth), rel=0.15), (
        "one scalar for all cannot do it"
    )


def test_nothing_measured_changes_nothing() -> None:
    assert fit_scales(()) == Scales()


def test_a_repeated_measurement_is_averaged_and_a_like_one_is_no_news() -> None:
    here = estimator()
    once = here.learned(elastic(), KNOWN, SPREAD, 600_000, NOTHING_MEASURED)
    assert here.learned(elastic(), KNOWN, SPREAD, 601_000, once) is once
    twice = here.learned(elastic(), KNOWN, SPREAD, 300_000, once)
    assert here.speed(elastic(), KNOWN, SPREAD, twice) == pytest.approx(400_000, abs=2)


def test_corrections_are_values_of_bounded_size() -> None:
    said = timeline(KNOWN, SPREAD, Links())
    corrections = Corrections()
    for number in range(MOST_KEYS + 10):
        corrections = corrections.updated(f"job{number}", SPREAD, said, 10**9)
    assert len(corrections.entries) == MOST_KEYS
    assert corrections.of("job0") == ()
    assert corrections.of(f"job{MOST_KEYS + 9}")
    for count in range(1, MOST_MEASURED + 10):
        corrections = corrections.updated("big", Allocation.plain(count), said, 10**9)
    assert len(corrections.of("big")) == MOST_MEASURED
    again = Corrections(corrections.entries)
    assert (again, hash(again)) == (corrections, hash(corrections))


def test_forgetting_changes_no_answer() -> None:
    here = estimator()
    learned = here.learned(elastic(), KNOWN, SPREAD, 700_000, NOTHING_MEASURED)
    before = here.curve(elastic(), KNOWN, range(1, 17), learned)
    assert estimator().curve(elastic(), KNOWN, range(1, 17), learned) == before
    assert here.curve(elastic(), KNOWN, range(1, 17)) != before


def test_slow_gpus_are_slow_relative_to_nominal_ones() -> None:
    topology = cluster("n1[4slow] n2[4]")
    here = Estimator(topology)
    slow = EmptyCluster(topology, "slow").best(4)
    assert here.speed(elastic("nobody"), UNKNOWN, slow) == pytest.approx(NOMINAL // 2, rel=1e-3)


def test_holes_are_filled_linearly_and_the_end_is_flat() -> None:
    table = ((1, NOMINAL), (4, 5 * NOMINAL // 2), (8, 4 * NOMINAL))
    assert [speedup_at(table, count) for count in (1, 2, 4, 6, 8, 100)] == [
        1_000_000, 1_500_000, 2_500_000, 3_250_000, 4_000_000, 4_000_000,
    ]  # fmt: skip
    assert speedup_at(((1, NOMINAL), (2, 800_000)), 2) == 800_000, "more GPUs may be slower"
