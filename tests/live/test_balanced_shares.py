"""DDP on ranks of unequal speed, as real gangs of gloo: the same losses with shares that fit the speeds."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.unit.sdk.warm import Bench, Started, program

pytestmark = pytest.mark.live

GANG = """
import json, os, torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from trainmaster_sdk import balanced
from trainmaster_sdk.torch import StepBatches, gang, global_mean

SIZE, BATCH, STEPS = 960, 48, 40
PER_SAMPLE_S = json.loads(os.environ["PER_SAMPLE_S"])

class Clock:
    now_s = 0.0
    def perf_counter(self):
        return self.now_s

balanced.time = clock = Clock()

class Numbered(Dataset):
    def __len__(self):
        return SIZE
    def __getitem__(self, index):
        x = torch.randn(16, generator=torch.Generator().manual_seed(index))
        return index, x, torch.sin(3 * x[:1])

class Slow(nn.Module):
    def __init__(self, inner, per_sample_s):
        super().__init__()
        self.inner, self.per_sample_s = inner, per_sample_s
    def forward(self, x):
        clock.now_s += len(x) * self.per_sample_s
        return self.inner(x)

torch.manual_seed(0)
with trainmaster_sdk.run() as tm, gang(tm):
    if os.environ.get("STATED"):
        os.environ["TRAINMASTER_SPEED"] = json.loads(os.environ["STATED"])[tm.rank]
    inner = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
    net = Slow(inner, PER_SAMPLE_S[tm.rank])
    optimiser = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    model = DistributedDataParallel(net)
    shares = balanced.BalancedShares(tm, net) if os.environ.get("BALANCED") else None
    batches = StepBatches(tm, SIZE, BATCH, 0, STEPS, shares=shares)
    loader = DataLoader(Numbered(), batch_sampler=batches, num_workers=int(os.environ["WORKERS"]),
                        multiprocessing_context="fork" if int(os.environ["WORKERS"]) else None)
    for step, (indices, x, wanted) in enumerate(loader, 1):
        loss = global_mean(tm, (model(x) - wanted) ** 2, BATCH)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        clock.now_s += 1.0  # waits for others, and the like: not its own
        if shares is not None:
            shares.update()
        total = loss.detach() / tm.world_size
        dist.all_reduce(total)
        print(f"step {step} loss {total.item()!r}", flush=True)
        print("samples", json.dumps(indices.tolist()), flush=True)
"""
SAMPLES = re.compile(r"^samples (.*)$", re.MULTILINE)


def trained(
    runs: Bench, folder: Path, speeds: list[float], *, balanced: bool, workers: int = 0, **env: str
) -> list[Started]:
    """The ranks of a gang, each with so many seconds for a sample, that have ended well."""
    ranks = runs.start_gang(
        len(speeds),
        program(folder, GANG),
        PER_SAMPLE_S=json.dumps(speeds),
        BALANCED="1" if balanced else "",
        WORKERS=str(workers),
        TRAINMASTER_CHECKPOINT_DIR=str(folder / "kept"),
        **env,
    )
    for rank in ranks:
        assert rank.end() == 0, rank.said
    return ranks


def samples(rank: Started) -> list[list[int]]:
    """Of each step."""
    return [json.loads(each) for each in SAMPLES.findall(rank.said)]


def losses(rank: Started) -> list[float]:
    return [float(loss) for loss in rank.curve.values()]


def shares(ranks: list[Started], step: int) -> list[int]:
    """Of each rank."""
    return [len(samples(rank)[step]) for rank in ranks]


@pytest.mark.parametrize("workers", [0, 2])
def test_slow_ranks_get_fewer_samples_and_the_losses_stay(
    runs: Bench, tmp_path: Path, workers: int
) -> None:
    """Loaders with workers draw batches ahead, and each rank as far as it likes."""
    speeds = [0.001, 0.001, 0.004]
    equal = trained(runs, tmp_path, speeds, balanced=False)
    balanced = trained(runs, tmp_path, speeds, balanced=True, workers=workers)
    assert losses(balanced[0]) == pytest.approx(losses(equal[0]), rel=1e-4)
    assert (shares(balanced, 0), shares(balanced, 39)) == ([16, 16, 16], [22, 21, 5])
    for step in range(40):
        wanted, found = (
            sorted(one for rank in gang for one in samples(rank)[step])
            for gang in (equal, balanced)
        )
        assert found == wanted
        assert len(set(found)) == 48


def test_the_speed_of_the_devices_counts_until_it_is_measured(runs: Bench, tmp_path: Path) -> None:
    ranks = trained(
        *(runs, tmp_path, [0.001, 0.001]),
        balanced=True,
        STATED='["1000000", "500000"]',
    )
    assert [shares(ranks, step) for step in (0, 1, 10, 11)] == [
        *([24, 24], [32, 16]),
        *([32, 16], [24, 24]),
    ]


DRAWN = """
from trainmaster_sdk import Session
from trainmaster_sdk.elastic import ElasticBatches
from trainmaster_sdk.environment import JobEnvironment
from trainmaster_sdk.torch import StepBatches, batch_of

class Uneven:
    def __init__(self, rank):
        self.rank, self.drawn = rank, []
    def restart(self):
        self.drawn = []
    def part_at(self, begin, total):
        self.drawn.append(begin)
        return slice(0, total - 1) if self.rank == 0 else slice(total - 1, total)

def session(rank):
    return Session(JobEnvironment.of({"RANK": str(rank), "WORLD_SIZE": "2"}), f"kept-{rank}", 1)

whole = [batch_of(step, 100, 8) for step in range(3)]
for make in (lambda tm, shares: StepBatches(tm, 100, 8, 0, 3, shares=shares),
             lambda tm, shares: ElasticBatches(tm, 100, 24, global_batch=8, shares=shares)):
    shares = [Uneven(0), Uneven(1)]
    parts = [list(make(session(rank), shares[rank])) for rank in (0, 1)]
    assert [first + last for first, last in zip(*parts)] == whole
    assert [len(each) for each in parts[0]] == [7, 7, 7]
    assert shares[0].drawn == [0, 8, 16]
print("all held")
"""


def test_samplers_with_and_without_a_fixed_gang_take_unequal_shares(
    runs: Bench, tmp_path: Path
) -> None:
    one = runs.start(program(tmp_path, DRAWN))
    assert one.end() == 0, one.said
    assert "all held" in one.said
