"""Elastic training without a gang: which samples a rank sees, and what is scaled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

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


def test_a_batch_is_of_all_or_of_each() -> None:
    with pytest.raises(ValueError, match="either a global_batch or a rank_batch"):
        ElasticBatches(None, SIZE, 60)  # type: ignore[arg-type]


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
