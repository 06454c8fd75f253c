"""Elastic training without a gang: which samples a rank sees, and what is scaled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import trainmaster_sdk  # noqa: E402
from trainmaster_sdk.elastic import ElasticBatches, ElasticTraining  # noqa: E402
from trainmaster_sdk.session import Session  # noqa: E402

SIZE = 20


@pytest.fixture(name="tm")
def fixture_tm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "TRAINMASTER_SOCKET"):
        monkeypatch.delenv(name, raising=False)
    with trainmaster_sdk.run(tmp_path) as tm:
        yield tm


def step_of_all(tm: Session, batches: ElasticBatches, world: int) -> list[int]:
    """The samples of one step of a gang of that size, rank by rank."""
    seen: list[int] = []
    for rank in range(world):
        tm.take_place(rank, world, rank)
        seen += next(iter(batches), [])
    batches.position += batches.size_at(batches.position)
    return seen


@pytest.mark.parametrize("batch", [{"global_batch": 6}, {"rank_batch": 2}])
def test_whatever_the_sizes_every_epoch_has_every_sample_once(
    tm: Session, batch: dict[str, int]
) -> None:
    batches = ElasticBatches(tm, SIZE, 3 * SIZE, **batch)
    seen: list[int] = []
    for world in [1, 2, 4, 2, 3, 1, 4] * 9:
        seen += step_of_all(tm, batches, world)
    assert len(seen) == 3 * SIZE
    for epoch in range(3):
        assert sorted(seen[epoch * SIZE : (epoch + 1) * SIZE]) == list(range(SIZE))


def test_the_global_batch_is_kept_or_grows_with_the_ranks(tm: Session) -> None:
    kept = ElasticBatches(tm, SIZE, 60, global_batch=6)
    grown = ElasticBatches(tm, SIZE, 60, rank_batch=6)
    tm.take_place(0, 3, 0)
    assert (kept.global_batch, grown.global_batch) == (6, 18)
    assert (kept.steps, grown.steps) == (10, 10), "steps mean the same at every size"
    assert (len(kept), len(grown)) == (10, 4)
    assert [len(samples) for samples in grown] == [6, 6, 6, 2]


def test_a_global_batch_limits_the_ranks_and_one_of_each_rank_does_not(tm: Session) -> None:
    tm.take_place(1, 4, 1)
    ElasticBatches(tm, SIZE, 60, global_batch=4)
    ElasticBatches(tm, SIZE, 60, rank_batch=1)
    with pytest.raises(ValueError, match="ask for at most 3 ranks"):
        ElasticBatches(tm, SIZE, 60, global_batch=3)


def test_a_batch_is_of_all_or_of_each() -> None:
    with pytest.raises(ValueError, match="either a global_batch or a rank_batch"):
        ElasticBatches(None, SIZE, 60)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("batch", "samples", "world"),
    [({"global_batch": 6}, 14, 4), ({"rank_batch": 2}, 17, 4), ({"global_batch": 6}, 15, 3)],
)
def test_no_rank_has_a_step_without_samples(
    tm: Session, batch: dict[str, int], samples: int, world: int
) -> None:
    batches = ElasticBatches(tm, SIZE, samples, **batch)
    seen: list[int] = []
    for rank in range(world):
        tm.take_place(rank, world, rank)
        parts = [*batches]
        assert len(parts) == len(batches)
        assert all(parts)
        seen += [sample for part in parts for sample in part]
    assert len(seen) == samples


def test_samples_that_are_fewer_than_the_ranks_after_a_resize_are_left_out(tm: Session) -> None:
    training, _ = training_of(tm, scale_lr=False)
    batches = training._batches
    batches.position = 58
    tm.take_place(0, 4, 0)
    assert (batches.size_at(58), len(batches), [*batches]) == (0, 0, [])
    assert [*training.batches(batches)] == []
    assert batches.step_at(training.state()["position"]) == batches.steps
    saved = tm.load()
    assert saved is not None
    assert (saved.step, saved.state["position"]) == (batches.steps, 60)


def training_of(tm: Session, *, scale_lr: bool) -> tuple[ElasticTraining, torch.optim.SGD]:
    net = torch.nn.Linear(2, 1)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    batches = ElasticBatches(tm, SIZE, 60, rank_batch=2)
    training = ElasticTraining(
        tm, net, (optimiser,), batches, lambda module: module, scale_lr=scale_lr
    )
    training.start()
    return training, optimiser


def test_the_learning_rate_follows_the_ranks_only_where_asked_for(tm: Session) -> None:
    training, optimiser = training_of(tm, scale_lr=True)
    saved = training.state()
    tm.take_place(0, 4, 0)
    training.load(saved)
    assert optimiser.param_groups[0]["lr"] == pytest.approx(0.4)
    again = training.state()
    tm.take_place(0, 2, 0)
    training.load(again)
    assert optimiser.param_groups[0]["lr"] == pytest.approx(0.2)
    tm.take_place(0, 1, 0)
    other, fixed = training_of(tm, scale_lr=False)
    tm.take_place(0, 4, 0)
    other.load(other.state())
    assert fixed.param_groups[0]["lr"] == pytest.approx(0.1)


def test_a_failed_step_counts_only_where_the_optimizer_has_stepped(tm: Session) -> None:
    training, optimiser = training_of(tm, scale_lr=False)
    rows = training.batches([0, 1, 2])
    next(rows)
    training.end_failed_step()
    assert training.state()["position"] == 0
    next(rows)
    training.model(torch.ones(1, 2)).sum().backward()
    optimiser.step()
    training.end_failed_step()
    assert training.state()["position"] == 2


def test_gradients_of_a_failed_step_are_not_used_again(tm: Session) -> None:
    training, _ = training_of(tm, scale_lr=False)
    next(training.batches([0, 1]))
    training.model(torch.ones(1, 2)).sum().backward()
    training.end_failed_step()
    assert all(each.grad is None for each in training.model.parameters())


schedules = torch.optim.lr_scheduler
SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "step": lambda optimiser: schedules.StepLR(optimiser, 2),
    "cosine": lambda optimiser: schedules.CosineAnnealingLR(optimiser, 20, eta_min=0.01),
    "one cycle": lambda optimiser: schedules.OneCycleLR(optimiser, 0.5, total_steps=20),
    "cyclic": lambda optimiser: schedules.CyclicLR(optimiser, 0.1, 0.5, step_size_up=4),
    "one after another": lambda optimiser: schedules.SequentialLR(
        optimiser,
        [
            schedules.LinearLR(optimiser, 0.1, total_iters=5),
            schedules.CosineAnnealingLR(optimiser, 15, eta_min=0.01),
        ],
        [5],
    ),
    "all at once": lambda optimiser: schedules.ChainedScheduler(
        [schedules.LinearLR(optimiser, 0.1, total_iters=5), schedules.ExponentialLR(optimiser, 0.9)]
    ),
}


def rates_of(tm: Session, name: str, world: int) -> list[float]:
    """The learning rates of 18 steps, the last 15 in a gang of that size."""
    net = torch.nn.Linear(2, 1)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    scheduler = SCHEDULERS[name](optimiser)
    batches = ElasticBatches(tm, SIZE, 60, rank_batch=2)
    training = ElasticTraining(
        tm, net, (optimiser, scheduler), batches, lambda module: module, scale_lr=True
    )
    tm.take_place(0, 1, 0)
    training.start()
    rates: list[float] = []
    for step in range(18):
        if step == 3:
            saved = training.state()
            tm.take_place(0, world, 0)
            training.load(saved)
        optimiser.step()
        rates.append(float(optimiser.param_groups[0]["lr"]))
        scheduler.step()
    return rates


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_go_on_at_the_rate_of_all_ranks(tm: Session, name: str) -> None:
    of_one, of_four = rates_of(tm, name, 1), rates_of(tm, name, 4)
    assert of_four[:3] == pytest.approx(of_one[:3])
    assert of_four[3:] == pytest.approx([4 * rate for rate in of_one[3:]])
