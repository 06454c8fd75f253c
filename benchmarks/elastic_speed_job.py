"""The programs that benchmarks/elastic_speed.py resizes: the models of gloo_speed.py, learning by DDP.

python elastic_speed_job.py FOLDER MODEL BATCH EPOCH

Each rank writes a line for each step into FOLDER: step, rank, ranks, when it ended, the loss (of the first
rank), and which samples it saw.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from gloo_speed import MODELS
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import trainmaster_sdk
from trainmaster_sdk.elastic import ElasticBatches, elastic
from trainmaster_sdk.torch import gang, global_mean

STEPS = 1_000_000
"""More than there is time for."""


def main() -> None:
    folder, model = Path(sys.argv[1]), sys.argv[2]
    batch, epoch = int(sys.argv[3]), int(sys.argv[4])
    torch.manual_seed(0)
    net, example = MODELS[model](torch)
    inputs = torch.randn(epoch * batch, *example.shape[1:])
    with torch.no_grad():
        outputs = net(inputs[:1]).shape[1:]
    data = TensorDataset(inputs, torch.randn(epoch * batch, *outputs), torch.arange(len(inputs)))
    with trainmaster_sdk.run() as tm, gang(tm):
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
        batches = ElasticBatches(tm, len(data), STEPS * batch, global_batch=batch)
        loader = DataLoader(data, batch_sampler=batches)
        training = elastic(tm, net, optimizer, batches=batches, wrap=DistributedDataParallel)
        if found := tm.load():
            training.load(found.state)
        with (folder / f"rank-{os.getpid()}").open("a", buffering=1) as rows:
            for step, (given, wanted, numbers) in training.batches(loader):
                errors = (training.model(given) - wanted).square().flatten(1).mean(1)
                loss = global_mean(tm, errors, batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total = loss.detach() / tm.world_size
                dist.all_reduce(total)
                tm.progress(step=step, loss=total)
                seen = ",".join(map(str, numbers.tolist()))
                print(step, tm.rank, tm.world_size, time.time(), total.item(), seen, file=rows)
                if tm.should_stop():
                    tm.save(training.state(), step)
                    break


if __name__ == "__main__":
    main()
