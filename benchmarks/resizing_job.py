"""The program that benchmarks/resizing.py resizes: DDP with Adam, by itself or restarted from its checkpoint.

python resizing_job.py in-place|restart LAYERS WIDTH
"""

from __future__ import annotations

import sys

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import trainmaster_sdk
from trainmaster_sdk.elastic import ElasticBatches, ElasticTraining, elastic
from trainmaster_sdk.torch import gang, global_mean

SAMPLES, BATCH, STEPS = 4096, 32, 1_000_000


def main() -> None:
    way, layers, width = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(SAMPLES, width), torch.randn(SAMPLES, width))
    with trainmaster_sdk.run() as tm, gang(tm):
        net = nn.Sequential(*(nn.Linear(width, width) for _ in range(layers)))
        optimiser = torch.optim.Adam(net.parameters())
        batches = ElasticBatches(tm, SAMPLES, STEPS * BATCH, global_batch=BATCH)
        loader = DataLoader(data, batch_sampler=batches)
        if way == "in-place":
            training = elastic(tm, net, optimiser, batches=batches, wrap=DistributedDataParallel)
        else:  # the same, but nobody is told that it can be resized
            training = ElasticTraining(
                tm, net, (optimiser,), batches, DistributedDataParallel, scale_lr=False
            )
            training.start()
        if found := tm.load():
            training.load(found.state)
        for step, (inputs, wanted) in training.batches(loader):
            loss = global_mean(tm, ((training.model(inputs) - wanted) ** 2).mean(1), BATCH)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            tm.progress(step=step, total_steps=STEPS)
            if tm.should_stop():
                tm.save(training.state(), step)
                break


if __name__ == "__main__":
    main()
