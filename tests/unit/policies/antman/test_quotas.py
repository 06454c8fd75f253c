"""What each queue may hold as its own."""

from __future__ import annotations

from trainmaster.model.queue import Queue
from trainmaster.policies.antman.quotas import Quotas

GPUS = 8_000


def test_stated_guarantees_are_the_quotas() -> None:
    queues = {"a": Queue("a", guaranteed=3_000), "b": Queue("b", weight=9)}
    quotas = Quotas.of(queues, {"a": 1, "b": 1}, GPUS)
    assert (quotas.of_queue("a"), quotas.of_queue("b"), quotas.of_queue("c")) == (3_000, 0, 0)


def test_else_weights_divide_the_cluster_the_options_before_the_files() -> None:
    queues = {"a": Queue("a", weight=1), "b": Queue("b", weight=3)}
    assert Quotas.of(queues, {}, GPUS).by_queue == {"a": 2_000, "b": 6_000}
    assert Quotas.of(queues, {"a": 1, "c": 1}, GPUS).by_queue == {"a": 4_000, "c": 4_000}


def test_without_either_nobody_is_bound() -> None:
    quotas = Quotas.of({}, {}, GPUS)
    assert quotas.of_queue("a") is None
    assert quotas.allow("a", 1 << 40)
    assert quotas.used("a", 5_000) == 5_000


def test_who_holds_the_smallest_part_of_its_quota() -> None:
    quotas = Quotas({"a": 2_000, "b": 6_000})
    assert quotas.used("a", 1_000) > quotas.used("b", 2_000)
    assert quotas.allow("a", 2_000)
    assert not quotas.allow("a", 2_001)
