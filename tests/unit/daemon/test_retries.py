"""Retries: how long until the next one, how many, and what is said meanwhile."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.builders import cluster, fraction
from tests.unit.core.stage import Strings
from tests.unit.core.test_gpu_uuids import gpus as gpus_of
from trainmaster.config.limits import Limits, limits_of
from trainmaster.core.lifecycle import Phase
from trainmaster.daemon.device_names import device_key
from trainmaster.daemon.failure_table import built_in_table
from trainmaster.daemon.retries import (
    JudgedFailure,
    RetryTerms,
    avoidance_reason,
    delay_ms,
    devices_of_failure,
    devices_of_nodes,
    devices_of_rank,
    failed_run,
    judged,
    lost_run,
    lost_too_often,
    resources_of,
    retry_reason,
)
from trainmaster.failures.retry_rules import AFTER_FAILURE, AFTER_LOSS, FailedAttempt, Resources
from trainmaster.gpu.devices import slot_topology
from trainmaster.model import codec
from trainmaster.model import events as e
from trainmaster.model.actions import Start
from trainmaster.model.events import Event
from trainmaster.model.failure import Blame, Failure
from trainmaster.model.job import Shape, gpus
from trainmaster.model.launch_spec import LaunchSpec, Ranks
from trainmaster.model.placement import Sharing
from trainmaster.model.retry import RetryWhy
from trainmaster.model.topology import GpuType, NodeSpec, Topology, build
from trainmaster.model.units import GIB, MINUTE, SECOND
from trainmaster.text.reasons import reason_sentence
from trainmaster.text.retries import retry_sentence
from trainmaster.text.stop_messages import end_sentence

LIMITS = Limits()


def test_delays_grow_up_to_the_longest() -> None:
    for factor in (AFTER_FAILURE, AFTER_LOSS):
        delays = [delay_ms(times, factor, LIMITS) for times in range(1, 60)]
        assert delays[0] == LIMITS.retry_delay
        assert all(shorter <= longer for shorter, longer in pairwise(delays))
        assert delays[-1] == LIMITS.max_retry_delay == 5 * MINUTE
        assert (
            sum(delays[:5]) >= 30 * SECOND
        )  # a handful of attempts in half a minute, not hundreds


def test_a_job_may_be_lost_as_often_as_the_limit_says() -> None:
    world, limits = Strings().submit("a", retries=0), limits_of(["losses=2"])
    found = []
    for attempt in (1, 2, 3):
        world.start("a", attempt)
        event = lost_run(world.job("a"), world.now, limits)
        found.append((event.retryable, event.retry_in_ms))
        if event.retryable:
            world.tell(event)
            world.later(event.retry_in_ms / SECOND).tell()
        assert event.run.attempt == attempt
    assert found == [(True, SECOND), (True, 4 * SECOND), (False, 16 * SECOND)]
    end = lost_too_often(world.job("a"), world.now, "Its supervisor is gone.")
    said = "It was lost 3 times, the last time because its supervisor is gone."
    assert end_sentence(end) == said


def test_what_is_said_of_a_delayed_retry() -> None:
    world = Strings().running("a", 0, retries=5)
    record = world.job("a")
    assert retry_reason(record, LIMITS) is None
    record.losses = 2
    world.tell(lost_run(record, world.now, limits_of(["losses=5", "retry_delay=2.5s"])))
    reason = retry_reason(record, LIMITS)
    assert reason is not None
    said = reason_sentence(reason, world.now)
    assert said == "Retry in 40 s (attempt 4 of 6, lost 3 times)."
    world.later(40).tell()
    world.start("a", 1)
    world.tell(failed_run(record, LIMITS, can_help=True))
    reason = retry_reason(record, LIMITS)
    assert reason is not None
    assert reason_sentence(reason, world.now) == "Retry in 1 s (attempt 2 of 6, failed 1 time)."


def test_nodes_that_do_not_see_a_jobs_files_are_left_alone_at_once() -> None:
    world = Strings().running("a", 0)
    topology = world.controller.state.topology
    node = topology.nodes[-1]
    unfit = devices_of_nodes(topology, (node.name,))
    assert unfit == tuple((node.index, node.first_gpu + local) for local in range(node.gpus))
    assert lost_run(world.job("a"), world.now, LIMITS, unfit).avoid == unfit


def test_a_device_that_lost_two_runs_is_left_alone() -> None:
    world = Strings().running("a", 2, 3)
    assert lost_run(world.job("a"), world.now, LIMITS).avoid == ()
    world.job("a").losses = 1
    assert lost_run(world.job("a"), world.now, LIMITS).avoid == ((0, 2), (0, 3))


OUT = Failure("cuda-out-of-memory", Blame.USER, lines=("torch.OutOfMemoryError: tried 2 GiB",))
HOST_OUT = Failure("host-out-of-memory", Blame.USER, lines=("MemoryError",))
ECC = Failure("gpu-ecc-error", Blame.PLATFORM, rank=1, lines=("uncorrectable ECC error",))


RECIPE = LaunchSpec(("python", "train.py"), "/", "/")


def judge(world: Strings, failure: Failure, *earlier: FailedAttempt) -> JudgedFailure:
    terms = RetryTerms(built_in_table(), world.state.occupancy)
    failed = FailedAttempt(failure, 3 * SECOND)
    return judged(world.job("a"), failed, earlier, RECIPE, LIMITS, terms)


def test_the_device_of_the_rank_that_failed_is_avoided_and_then_its_node() -> None:
    world = Strings().running("a", 2, 3)
    first = judge(world, ECC)
    assert (first.event.retryable, first.event.avoid, first.event.failure) == (True, ((0, 3),), ECC)
    beside = (device_key(world.topology, 1),)
    later = replace(
        first.attempt, failure=replace(ECC, lines=("another line",)), device_keys=beside
    )
    second = judge(world, ECC, later)
    assert second.event.avoid == ((0, 0), (0, 1), (0, 2), (0, 3))
    last = judge(world, ECC, first.attempt)
    assert (last.event.retryable, last.event.avoid) == (False, ())
    assert last.decision.why is RetryWhy.STILL_THERE


def test_a_device_is_avoided_by_its_uuid_when_the_order_of_the_gpus_has_changed() -> None:
    one, two = ("n0", "H100", "ab"), ("n1", "H100", "cd")
    world = Strings(gpus_of(one, two), can_freeze=False).running("a", 1)
    first = judge(world, replace(ECC, rank=None)).attempt
    assert first.device_keys == ("b",)
    stored = codec.decode(codec.encode(first))
    assert stored == first
    former = codec.encode(replace(first, device_keys=())) | {"devices": [[0, 1]]}
    assert codec.decode(former).device_keys == (), "an earlier version's indices are forgotten"
    again = Strings(gpus_of(two, one), can_freeze=False).running("a", 0)
    found = judge(again, replace(ECC, lines=("another line",)), stored)
    assert found.event.avoid == ((0, 0), (1, 3)), "c, where it failed now, and b"
    gone = Strings(gpus_of(("n0", "H100", "ac")), can_freeze=False).running("a", 0)
    assert judge(gone, replace(ECC, lines=("more",)), stored).event.avoid == ((0, 0),)


def test_a_node_of_a_launcher_is_known_by_its_process_and_not_by_a_rank_of_the_launcher() -> None:
    world = Strings()
    at, failed = world.on(0, 1, 4, 5), Failure("gpu-ecc-error", rank=1, process=0)
    topology = world.topology
    assert devices_of_failure(topology, at, failed, Ranks.PER_NODE) == ((0, 0), (0, 1))
    last = replace(failed, rank=3, process=1)
    assert devices_of_failure(topology, at, last, Ranks.PER_NODE) == ((1, 4), (1, 5))


def test_the_devices_of_a_rank() -> None:
    at = Strings().on(2, 3, 4)
    assert devices_of_rank(at, 1, Ranks.PER_GPU) == ((0, 3),)
    assert devices_of_rank(at, 0, Ranks.PER_NODE) == ((0, 2), (0, 3))
    for unknown in (None, 9):
        assert devices_of_rank(at, unknown, Ranks.PER_NODE) == ((0, 2), (0, 3), (1, 4))


def test_a_packed_run_gets_a_whole_gpu_and_a_whole_one_a_larger_one() -> None:
    topology = cluster("n1[2slow] n2[1fast]")
    demand = fraction(0.5, 3 * GIB)
    world = Strings(topology).submit("a", demand)
    world.plan(Start("a", world.on(0, share=500, memory=3 * GIB, sharing=Sharing.MPS)))
    world.started("a")
    found = judge(world, OUT).event
    assert (found.retryable, found.gpu_memory, found.avoid) == (True, 8 * GIB, ())
    world.tell(found)
    world.later(1).tell()
    assert world.job("a").demand.nominal.memory == 8 * GIB
    whole = world.on(0, share=500, memory=8 * GIB, sharing=Sharing.MPS)
    had = resources_of(whole, world.job("a").demand, world.state.occupancy)
    assert (had.gpu_memory, had.more_gpu_memory) == (8 * GIB, 32 * GIB)
    had = resources_of(world.on(0, 1), gpus(2), world.state.occupancy)
    assert (had.gpu_memory, had.more_gpu_memory) == (8 * GIB, 0)  # there is only one larger GPU
    had = resources_of(world.on(2), gpus(1), world.state.occupancy)
    assert (had.gpu_memory, had.more_gpu_memory) == (32 * GIB, 0)


def of_memory(*nodes: tuple[str, int, int]) -> Topology:
    """Nodes of one GPU each, by name, GPU memory and host memory in GiB."""
    return build(
        ("cluster", "node", "gpu"),
        [
            NodeSpec(name, 1, (0,), GpuType(f"{memory}g", memory * GIB), memory=host * GIB)
            for name, memory, host in nodes
        ],
    )


UNAVAILABLE: dict[str, Event] = {"drained": e.NodeDraining(1), "set aside": e.GpuSetAside(1, 1)}


@pytest.mark.parametrize("fact", UNAVAILABLE.values(), ids=UNAVAILABLE)
def test_what_is_promised_to_the_next_attempt_is_what_it_asks_for(fact: Event) -> None:
    world = Strings(of_memory(("n0", 40, 64), ("n1", 80, 64))).running("a", 0, retries=9)
    assert judge(world, OUT).event.gpu_memory == 80 * GIB
    world.tell(fact)
    found = judge(world, OUT)
    assert (found.event.retryable, found.event.gpu_memory) == (False, 0)
    assert retry_sentence(found.decision) == (
        "Not retried: it had 40.0 GiB of GPU memory, and there are not enough larger GPUs that it may use;"
        " drained and set aside ones do not count."
    )


def test_a_packed_run_whose_gpu_is_drained_gets_the_most_of_another_one() -> None:
    world = Strings(of_memory(("n0", 40, 64), ("n1", 32, 64), ("n2", 16, 64)))
    world.submit("a", fraction(0.5, 20 * GIB), retries=9)
    world.plan(Start("a", world.on(0, share=500, memory=20 * GIB, sharing=Sharing.MPS)))
    world.started("a")
    assert judge(world, OUT).event.gpu_memory == 40 * GIB
    world.tell(e.NodeDraining(0))
    found = judge(world, OUT).event
    assert found.gpu_memory == 32 * GIB
    world.tell(found)
    assert world.job("a").demand.nominal.memory == 32 * GIB


def test_host_memory_is_promised_where_a_node_can_still_give_it() -> None:
    world = Strings(of_memory(("n0", 40, 64), ("n1", 40, 16)))
    world.submit("a", replace(gpus(1), host_memory=16 * GIB), retries=9).start("a", 0)
    assert judge(world, HOST_OUT).event.memory == 32 * GIB
    world.tell(e.NodeDraining(0))
    found = judge(world, HOST_OUT)
    assert (found.event.retryable, found.decision.why) == (False, RetryWhy.HOST_TOO_SMALL)


def test_no_more_memory_is_promised_where_it_would_change_nothing() -> None:
    world = Strings(of_memory(("n0", 40, 64), ("n1", 80, 16)))
    world.submit("a", replace(gpus(1), host_memory=16 * GIB), retries=9).start("a", 0)
    for failure, amount, why in (
        (HOST_OUT, "63 GiB", RetryWhy.MORE_MEMORY),
        (HOST_OUT, "65 GiB", RetryWhy.NO_SUCH_NODE),
        (HOST_OUT, "931. GiB", RetryWhy.NO_SUCH_NODE),
        (OUT, "79 GiB", RetryWhy.MORE_GPU_MEMORY),
        (OUT, "81 GiB", RetryWhy.NO_SUCH_GPU),
    ):
        said = judge(world, replace(failure, lines=(f"Tried to allocate {amount}. ",)))
        assert said.decision.why is why
        assert said.event.retryable is (said.event.gpu_memory + said.event.memory > 0)


@pytest.mark.parametrize(("had", "gets"), [(40, 80), (80, 128)])
def test_half_a_gpu_is_not_promised_more_host_memory_than_its_node_has(had: int, gets: int) -> None:
    """Both are for a whole GPU, and it books half: twice as much, and at most the 64 GiB of the node."""
    world = Strings(of_memory(("n0", 40, 64)))
    world.submit("a", replace(fraction(0.5, 20 * GIB), host_memory=had * GIB), retries=9)
    world.plan(Start("a", world.on(0, share=500, memory=20 * GIB, sharing=Sharing.MPS)))
    world.started("a")
    found = judge(world, HOST_OUT).event
    world.tell(found)
    assert (found.memory, world.job("a").demand.host_memory) == (gets * GIB, gets * GIB)


def test_host_memory_is_bounded_by_the_node() -> None:
    world = Strings("1x4")
    memory = world.topology.nodes[0].memory
    had = resources_of(world.on(0, 1), gpus(2), world.state.occupancy)
    assert (had.memory, had.most_memory) == (memory // 4, memory // 2)
    prerun = resources_of(world.on(0), gpus(4), world.state.occupancy)
    assert (prerun.memory, prerun.most_memory) == (memory // 4, memory // 4)
    assert resources_of(None, gpus(2), world.state.occupancy) == Resources()


def test_what_is_said_of_a_job_that_waits_for_other_devices() -> None:
    world = Strings("1x2").running("a", 0, retries=9).running("b", 1)
    world.tell(judge(world, replace(ECC, rank=0)).event)
    world.later(1).tell()
    reason = avoidance_reason(world.job("a"), world.state.occupancy)
    assert reason is not None
    assert reason_sentence(reason, world.now) == (
        "It failed on n0:0, which it could have again, and waits for other devices (at most 5 min more)."
    )
    world.running("c", 0)
    assert avoidance_reason(world.job("a"), world.state.occupancy) is None
    assert avoidance_reason(world.job("b"), world.state.occupancy) is None


def test_a_run_for_which_too_little_was_estimated_is_tried_again_without_using_a_retry_up() -> None:
    world = Strings(of_memory(("n0", 40, 64), ("n1", 80, 64))).running("a", 0, retries=0)
    found = judge(world, OUT)
    assert (found.event.retryable, found.event.is_counted) == (True, False)
    assert retry_sentence(found.decision) == (
        "Retried with more GPU memory: 80.0 GiB instead of 40.0 GiB. That uses up none of its `retries`:"
        " how much it needs was not stated, and was estimated."
    )
    world.tell(found.event)
    record = world.job("a")
    assert (record.phase, record.failures) == (Phase.PENDING, 0)
    assert record.demand.nominal.memory == 80 * GIB
    world.start("a", 1, memory=80 * GIB)
    last = judge(world, OUT)  # it had the largest there is
    assert (last.event.retryable, last.event.is_counted) == (False, True)


def test_a_run_on_a_slot_for_which_too_little_was_estimated_uses_no_retry_up() -> None:
    world = Strings(slot_topology(1, 4, "vm", 4_000, 64 * GIB))
    world.submit("a", gpus(1), retries=0).start("a", 0)
    found = judge(world, HOST_OUT)
    assert (found.event.retryable, found.event.is_counted) == (True, False)
    assert retry_sentence(found.decision) == (
        "Retried with more host memory for each slot: 32.0 GiB instead of 16.0 GiB. That uses up none of"
        " its `retries`: how much it needs was not stated, and was estimated."
    )
    terms = RetryTerms(built_in_table(), world.state.occupancy)
    stated = replace(RECIPE, memory=4 * GIB)
    said = judged(world.job("a"), FailedAttempt(HOST_OUT, 3 * SECOND), (), stated, LIMITS, terms)
    assert said.decision.why is RetryWhy.NO_RETRIES


def test_memory_that_a_neighbour_took_is_waited_for_and_uses_no_retry_up() -> None:
    world = Strings("1x1").running("a", 0, retries=0)
    taken = Failure("gpu-memory-taken", Blame.PLATFORM)
    found, before = [], list[FailedAttempt]()
    for _ in range(4):
        terms = RetryTerms(built_in_table(), world.state.occupancy)
        attempt = FailedAttempt(taken, 3 * SECOND)
        event = judged(world.job("a"), attempt, before, RECIPE, LIMITS, terms).event
        found.append((event.retryable, event.is_counted, event.gpu_memory, event.retry_in_ms))
        before.append(attempt)
    assert found == [(True, False, 0, seconds * SECOND) for seconds in (1, 2, 4, 8)]


def test_a_run_on_more_devices_than_it_can_use_gets_fewer_and_uses_no_retry_up() -> None:
    world = Strings("1x4").submit("a", gpus(1, maximum=4), retries=0).start("a", 0, 1, 2, 3)
    wrong = Failure("unknown", Blame.USER, lines=("ValueError: No samples.",))
    world.tell(e.RunSizeLimited(world.job("a").run, 2))
    found = judge(world, wrong)
    assert (found.decision.why, found.decision.is_counted) == (RetryWhy.FEWER_DEVICES, False)
    assert "without using up one of its `retries`" in retry_sentence(found.decision)
    world.tell(found.event)
    world.start("a", 0, 1)
    assert not judge(world, wrong).decision.is_retried, "it had no more than it can use"


def test_a_job_of_at_least_as_many_as_it_cannot_use_fails() -> None:
    world = Strings("1x4").submit("a", gpus(3, maximum=4), retries=9).start("a", 0, 1, 2, 3)
    world.tell(e.RunSizeLimited(world.job("a").run, 2))
    wrong = Failure("unknown", Blame.USER, lines=("ValueError: No samples.",))
    assert judge(world, wrong).decision.why is not RetryWhy.FEWER_DEVICES


def test_what_a_user_states_is_held_against_the_retries() -> None:
    world = Strings(of_memory(("n0", 40, 64), ("n1", 80, 64)))
    stated = replace(gpus(1), nominal=Shape(1, memory=20 * GIB), host_memory=16 * GIB)
    world.submit("a", stated, retries=0).start("a", 0, memory=20 * GIB)
    found = judge(world, OUT)
    assert (found.event.retryable, found.decision.why) == (False, RetryWhy.NO_RETRIES)
    of_host = replace(RECIPE, memory=16 * GIB)
    terms = RetryTerms(built_in_table(), world.state.occupancy)
    failed = FailedAttempt(HOST_OUT, 3 * SECOND)
    said = judged(world.job("a"), failed, (), of_host, LIMITS, terms)
    assert said.decision.why is RetryWhy.NO_RETRIES
    none_stated = judge(world, HOST_OUT)  # a booking of host memory limits nobody
    assert none_stated.decision.why is RetryWhy.NO_RETRIES
