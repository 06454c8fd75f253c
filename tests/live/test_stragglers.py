"""Of ranks of PyTorch that wait for each other, the one with a slow data loader is named."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.live.daemons import live, until

pytestmark = pytest.mark.live

TRAIN = """
import time, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
class Samples(torch.utils.data.Dataset):
    def __len__(self): return 100_000
    def __getitem__(self, number):
        if dist.get_rank() == 1: time.sleep(0.02)
        return torch.randn(4)
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in torch.utils.data.DataLoader(Samples(), batch_size=10):
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
"""


def test_a_rank_that_its_peers_wait_for_in_each_step_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    with live(tmp_path, "--slots", "2", "--policy", "fifo") as daemon:
        job = daemon.submit(
            command=[sys.executable, "train.py"],
            workdir=str(tmp_path),
            gpus=2,
            ranks="gpu",
            preflight=False,
        )

        def named() -> str:
            assert daemon.job(job)["state"] not in {"failed", "succeeded"}, daemon.log(job)
            said = (each for each in daemon.job(job)["remarks"] if "wait for rank" in each)
            return next(said, "")

        sentence = until(named, "a rank to be named", 120)
        device = daemon.job(job)["devices"][1]
        assert f"Its other ranks wait for rank 1 on {device}, which takes " in sentence
        story = daemon.call("GET", f"/api/v1/jobs/{job}/story")["story"]
        assert any(each["what"] == "straggler" and each["detail"]["rank"] == 1 for each in story)
