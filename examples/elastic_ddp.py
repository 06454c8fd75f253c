"""DistributedDataParallel that is resized while it trains: the ranks that stay keep their processes.

    python examples/elastic_ddp.py --steps 200
    trainmaster submit examples/elastic_ddp.yaml

The global batches are the same for any number of ranks, each split anew; losses differ by rounding.
"""

from __future__ import annotations

import time

import flags
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import trainmaster_sdk
from trainmaster_sdk.elastic import ElasticBatches, elastic
from trainmaster_sdk.torch import gang, global_mean

SAMPLES, GLOBAL_BATCH = 2048, 48


def main() -> None:
    asked = flags.parsed(__doc__, steps=200)

    torch.manual_seed(asked.seed)
    x = torch.randn(SAMPLES, 16)
    data = TensorDataset(x, torch.sin(3 * x[:, :1]) + x[:, 1:2])

    with trainmaster_sdk.run() as tm, gang(tm) as device:
        net = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1)).to(device)
        optimiser = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        batches = ElasticBatches(
            tm, SAMPLES, asked.steps * GLOBAL_BATCH, global_batch=GLOBAL_BATCH, seed=asked.seed
        )
        loader = DataLoader(data, batch_sampler=batches)
        # A rank that joins others waits in here, and gets their state.
        training = elastic(
            tm, net, optimiser, batches=batches, wrap=DistributedDataParallel, may_lose=1
        )
        if found := tm.load():
            training.load(found.state)
            print(f"going on from step {found.step}", flush=True)

        for step, (inputs, wanted) in training.batches(loader):
            with training.step():  # where a rank is lost, the others go on
                errors = (training.model(inputs.to(device)) - wanted.to(device)) ** 2
                loss = global_mean(tm, errors, GLOBAL_BATCH)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                time.sleep(asked.sleep)

                total = loss.detach() / tm.world_size
                dist.all_reduce(total)  # the loss of the global batch
                if tm.is_rank_zero:
                    print(f"step {step} loss {total.item()!r}", flush=True)
                tm.progress(step=step, loss=total, total_steps=batches.steps)
                must_stop = tm.should_stop()  # ranks agree; it is resized before the next step
                is_due = step % asked.save_every == 0 or step == batches.steps
                if must_stop or tm.should_save() or is_due:
                    tm.save(training.state(), step)
                if must_stop:
                    print(f"rank {tm.rank} leaves after step {step}", flush=True)
                    break


if __name__ == "__main__":
    main()
