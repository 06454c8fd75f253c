"""A small DDP program that is resized while it trains, and writes down which samples each rank saw.

python elastic_job.py FOLDER STEPS SLEEP_S [--rank-batch N] [--may-lose N] [--scale-lr] [--slow-save S]
    [--zero-last]
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import trainmaster_sdk
from trainmaster_sdk.elastic import ElasticBatches, elastic
from trainmaster_sdk.torch import gang

SAMPLES, BATCH = 120, 12


def main() -> None:
    flags = argparse.ArgumentParser()
    flags.add_argument("folder", type=Path)
    flags.add_argument("steps", type=int)
    flags.add_argument("sleep", type=float)
    flags.add_argument("--rank-batch", type=int)
    flags.add_argument("--may-lose", type=int, default=0)
    flags.add_argument("--scale-lr", action="store_true")
    flags.add_argument("--zero-last", action="store_true")
    flags.add_argument("--slow-save", type=float, default=0.0)
    flags.add_argument("--save-every", type=int, default=0)
    flags.add_argument("--workers", type=int, default=0)
    asked = flags.parse_args()
    torch.manual_seed(0)
    x = torch.randn(SAMPLES, 8)
    data = Rows(x, torch.sin(3 * x[:, :1]), torch.arange(SAMPLES))

    with trainmaster_sdk.run() as tm, gang(tm):
        if tm.joins and (asked.folder / "joiners-die").exists():
            os._exit(9)
        while tm.joins and (asked.folder / "joiners-wait").exists():
            time.sleep(0.05)
        compiled = []

        def backend(graph: torch.fx.GraphModule, inputs: object) -> object:
            compiled.append(graph)
            return graph

        net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
        whole = torch.compile(net, backend=backend, dynamic=True)
        optimiser = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        sizes = {"rank_batch": asked.rank_batch} if asked.rank_batch else {"global_batch": BATCH}
        batches = ElasticBatches(tm, SAMPLES, asked.steps * BATCH, **sizes)
        loader = DataLoader(
            data,
            batch_sampler=batches,
            num_workers=asked.workers,
            persistent_workers=asked.workers > 0,
        )
        training = elastic(
            tm,
            net,
            optimiser,
            batches=batches,
            wrap=lambda module: DistributedDataParallel(whole),
            may_lose=asked.may_lose,
            scale_lr=asked.scale_lr,
        )
        if found := tm.load():
            training.load(found.state)
            print(f"loaded {found.step}", flush=True)
        seen = asked.folder / f"seen-{os.getpid()}"
        for step, (inputs, wanted, numbers, read_by) in training.batches(loader):
            with training.step():
                losses = (training.model(inputs) - wanted) ** 2
                size = torch.tensor([float(len(inputs))])
                dist.all_reduce(size)
                loss = losses.sum() * tm.world_size / size
                if not asked.zero_last:
                    optimiser.zero_grad()
                die_if_asked(asked.folder, "before")
                loss.backward()
                optimiser.step()
                if asked.zero_last:
                    optimiser.zero_grad()
                with seen.open("a") as file:
                    told = ",".join(map(str, numbers.tolist()))
                    rate = optimiser.param_groups[0]["lr"]
                    reader = max(read_by.tolist(), default=0)
                    gang_of_rank = (tm.rank, tm.world_size)
                    print(step, *gang_of_rank, rate, len(compiled), reader, told, file=file)
                die_if_asked(asked.folder, "after")
                total = loss.detach() / tm.world_size
                dist.all_reduce(total)
                if tm.is_rank_zero:
                    print(f"step {step} loss {total.item()!r}", flush=True)
                if not (asked.folder / "hurry").exists():
                    time.sleep(asked.sleep / tm.world_size)  # more ranks are faster
                tm.progress(step=step, loss=total, total_steps=batches.steps)
                must_stop = tm.should_stop()
                is_due = asked.save_every and step % asked.save_every == 0
                if must_stop or tm.should_save() or is_due or step == batches.steps:
                    state = training.state()
                    if asked.slow_save and tm.is_rank_zero:
                        state["slow"] = Slow(asked.slow_save, asked.folder)
                    tm.save(state, step)
                if must_stop:
                    break


class Rows(TensorDataset):
    """Each with the process that has read it."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, ...]:
        return (*super().__getitem__(index), torch.tensor(os.getpid()))


def die_if_asked(folder: Path, when: str) -> None:
    """Before the gradients are summed up, or after."""
    file = folder / f"die-{os.getpid()}"
    if file.exists() and file.read_text() == when:
        os._exit(9)


class Slow:
    """State that takes a while to be written."""

    def __init__(self, seconds: float, folder: Path) -> None:
        self._seconds = seconds
        self._folder = folder

    def __reduce__(self) -> tuple[object, ...]:
        (self._folder / "saving").touch()
        time.sleep(self._seconds)
        (self._folder / "saving").unlink()
        return (str, ("slow",))


if __name__ == "__main__":
    main()
