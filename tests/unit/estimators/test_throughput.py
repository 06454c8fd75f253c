"""Timelines of steps, batches balanced between unequal GPUs, and speeds on other allocations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import cluster, on
from trainmaster.estimators.allocation import Allocation, EmptyCluster, GpuCount
from trainmaster.estimators.interconnect import DEFAULT_LINKS, GB, Links
from trainmaster.estimators.profiles import PROFILES, known_profile
from trainmaster.estimators.step_time import shares, timeline
from trainmaster.model.profile import Profile
from trainmaster.model.topology import parse_shorthand
from trainmaster.model.units import NOMINAL

BARE = replace(Links(), bucket_bytes=1 << 40, overlap_ppm=0, update_bytes_per_s=10**18)
"""One bucket, nothing hidden, updates for nothing: what is left is arithmetic."""
PLAIN = BARE.with_level("node", 10, 0).with_level("rack", 1, 0)

CHATTY = Profile(step_us=400_000, batch=64, sync_bytes=GB // 2, fixed_us=0)
"""400 ms of computing, 0.5 GB of gradients."""
QUIET = replace(CHATTY, sync_bytes=GB // 100)


def predict(profile: Profile, allocation: Allocation, links: Links = DEFAULT_LINKS) -> int:
    """Speed in parts per million of the speed on one GPU of nominal speed."""
    return round(profile.step_us * 1e3 * NOMINAL / timeline(profile, allocation, links).step_ns())


def step_ms(profile: Profile, *per_node: int, links: Links = PLAIN) -> float:
    return timeline(profile, Allocation.plain(*per_node), links).step_ns() / 1e6


def mixed(fast: int, slow: int) -> Allocation:
    kinds = (GpuCount("fast", NOMINAL, fast), GpuCount("slow", NOMINAL // 2, slow))
    return Allocation((fast + slow,), "node", kinds)


def test_one_gpu_takes_what_the_profile_says() -> None:
    assert step_ms(CHATTY, 1) == 400
    assert predict(CHATTY, Allocation.plain(1), PLAIN) == NOMINAL


def test_a_ring_inside_a_node_moves_twice_the_bytes_of_all_but_one() -> None:
    assert step_ms(CHATTY, 2) == 200 + 2 * (1 / 2) * 50
    assert step_ms(CHATTY, 4) == 100 + 2 * (3 / 4) * 50


def test_nodes_make_a_ring_of_their_own_over_the_narrower_wire() -> None:
    assert step_ms(CHATTY, 2, 2) == 100 + 2 * (1 / 2) * 50 + 2 * (1 / 2) * 500
    assert step_ms(CHATTY, 1, 1) == 200 + 500


def test_every_hop_of_every_bucket_costs_its_latency() -> None:
    slow = replace(PLAIN.with_level("node", 10, 1_000), bucket_bytes=GB // 10)
    assert step_ms(CHATTY, 4, links=slow) == 100 + 75 + 5 * 6 * 1


def test_an_exchange_hides_behind_the_backward_pass_except_for_its_last_bucket() -> None:
    hiding = replace(PLAIN, overlap_ppm=NOMINAL, bucket_bytes=GB // 20)
    assert step_ms(CHATTY, 2, links=hiding) == pytest.approx(200 + 50 / 10)
    assert step_ms(CHATTY, 1, 1, links=hiding) == pytest.approx(200 + 500 - 200 * 2 / 3)
    assert step_ms(CHATTY, 2, links=PLAIN) == 250, "one bucket for all hides behind nothing"


def test_what_does_not_shrink_with_the_batch_limits_the_speed_up() -> None:
    stiff = replace(QUIET, fixed_us=100_000)
    assert step_ms(stiff, 4) == pytest.approx(100 + 300 / 4 + 1.5)
    assert step_ms(replace(QUIET, fixed_us=0), 4) == pytest.approx(400 / 4 + 1.5)


def test_two_gpus_of_a_node_beat_three_over_two_for_a_model_that_talks_much() -> None:
    near, far = Allocation.plain(2), Allocation.plain(2, 1)
    assert predict(CHATTY, near, PLAIN) > NOMINAL > predict(CHATTY, far, PLAIN)
    assert predict(QUIET, near, PLAIN) < predict(QUIET, far, PLAIN), "not if it talks little"
    wide = PLAIN.with_level("rack", 100, 0)
    assert predict(CHATTY, near, wide) < predict(CHATTY, far, wide), "nor over better wires"


def test_a_published_model_of_each_sort_gives_the_posters_two_answers() -> None:
    vgg, inception = known_profile("VGG16"), known_profile("inception-v3")
    assert vgg is not None
    assert inception is not None
    near, far = Allocation.plain(2), Allocation.plain(2, 1, span="cluster")
    assert predict(vgg, near) > predict(vgg, far)
    assert predict(inception, near) < predict(inception, far)


@pytest.mark.parametrize(
    ("batch", "fast", "slow", "most"),
    [
        (60, 1, 1, (40, 20)),
        (60, 2, 2, (20, 10)),
        (61, 1, 1, (41, 20)),
        (3, 1, 1, (2, 1)),
        (1, 1, 3, (1, 0)),
        (100, 4, 0, (25,)),
    ],
)
def test_a_batch_is_divided_so_that_unequal_gpus_end_together(
    batch: int, fast: int, slow: int, most: tuple[int, ...]
) -> None:
    kinds = tuple(kind for kind in mixed(fast, slow).kinds if kind.count)
    assert shares(batch, kinds) == most


def equal_parts_ns(profile: Profile, allocation: Allocation) -> int:
    """Computing time of a step in which every GPU gets as many samples, however fast it is."""
    alone = timeline(profile, Allocation.plain(1), PLAIN).compute_ns
    batch = profile.batch or allocation.count
    most, slowest = -(-batch // allocation.count), min(each.speed_ppm for each in allocation.kinds)
    return round(alone * most * NOMINAL / (batch * slowest))


@pytest.mark.parametrize("batch", [7, 64, 1000])
@pytest.mark.parametrize("counts", [(1, 2), (3, 1), (5, 7)])
def test_balancing_never_loses_and_serves_every_sample(batch: int, counts: tuple[int, int]) -> None:
    allocation = mixed(*counts)
    most = shares(batch, allocation.kinds)
    assert (
        sum(each * kind.count for each, kind in zip(most, allocation.kinds, strict=True)) >= batch
    )
    profile = replace(QUIET, batch=batch)
    assert timeline(profile, allocation, PLAIN).compute_ns <= equal_parts_ns(profile, allocation)


def test_balancing_gains_what_the_slow_gpu_would_have_held_up() -> None:
    profile = replace(QUIET, batch=60)
    balanced = timeline(profile, mixed(1, 1), PLAIN)
    assert balanced.compute_ns == pytest.approx(400e6 * 40 / 60, abs=1)
    slow_half = pytest.approx(400e6 * 30 / 60 * 2, abs=1)
    assert equal_parts_ns(profile, mixed(1, 1)) == slow_half, "the slow half takes 400 ms"


def test_an_unknown_batch_is_divided_without_rest() -> None:
    unknown = replace(QUIET, batch=0)
    assert timeline(unknown, mixed(1, 1), PLAIN).compute_ns == pytest.approx(400e6 / 1.5, abs=1)
    assert equal_parts_ns(unknown, mixed(1, 1)) == 400_000_000


def test_allocations_are_what_an_exchange_can_tell_apart() -> None:
    topology = cluster("rack a: n1[4] n2[4]  rack b: n3[4] n4[4]")
    assert Allocation.of(on(topology, 0, 1, 4), topology) == Allocation.plain(2, 1)
    assert Allocation.of(on(topology, 0, 4, 5), topology) == Allocation.plain(2, 1)
    assert Allocation.of(on(topology, 0, 8, 9), topology) == Allocation.plain(2, 1, span="cluster")
    assert Allocation.of(on(topology, 9), topology) == Allocation.plain(1)


def test_the_best_allocation_is_the_most_consolidated() -> None:
    topology = parse_shorthand("2x2x4")
    assert EmptyCluster(topology).best(3) == Allocation.plain(3)
    assert EmptyCluster(topology).best(6) == Allocation.plain(4, 2)
    assert EmptyCluster(topology).best(16) == Allocation.plain(4, 4, 4, 4, span="cluster")
    with pytest.raises(ValueError, match="17 GPUs"):
        EmptyCluster(topology).best(17)


def test_among_equally_near_gpus_the_fastest_are_best() -> None:
    topology = cluster("n1[2slow] n2[2fast] n3[4slow]")
    assert EmptyCluster(topology).best(2).kinds[0].name == "fast"
    assert EmptyCluster(topology).best(3).kinds == (GpuCount("slow", NOMINAL // 2, 3),)
    assert EmptyCluster(topology, "slow").best(2).kinds[0].name == "slow"


def test_published_profiles_reach_their_published_speed() -> None:
    assert set(PROFILES) >= {"vgg16", "resnet50", "inception4", "alexnet", "googlenet"}
    resnet = PROFILES["resnet50"]
    assert resnet.batch * 1e6 / resnet.step_us == pytest.approx(219, rel=1e-3)
    halved = resnet.with_batch(32)
    assert halved.batch * 1e6 / halved.step_us == pytest.approx(195, rel=1e-3)
    assert PROFILES["vgg16"].sync_bytes == pytest.approx(4 * 138.4e6, rel=1e-3)
    assert known_profile("nobody-knows-it") is None


def test_links_are_set_level_by_level() -> None:
    links = Links().with_level("rack", 12, 30)
    assert links.at("rack").bytes_per_s == 12 * GB
    assert links.at("rack").latency_us == Links().at("rack").latency_us
    assert links.at("pod") == Links().at("cluster")
