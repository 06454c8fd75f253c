"""DistributedDataParallel: all ranks stop at the same step, and any number of ranks may go on.

    python examples/ddp.py --steps 200
    torchrun --nproc-per-node 2 examples/ddp.py --steps 200

With as many ranks as before the loss curve goes on exactly. With another number the global batches are
the same, and the losses differ by rounding.
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
from trainmaster_sdk.torch import StepBatches, gang, global_mean

GLOBAL_BATCH = 48


def main() -> None:
    asked = flags.parsed(__doc__, steps=200)

    torch.manual_seed(asked.seed)
    x = torch.randn(2048, 16)
    data = TensorDataset(x, torch.sin(3 * x[:, :1]) + x[:, 1:2])

    # `gang` joins torch.distributed from the environment: gloo on CPUs, NCCL on GPUs.
    with trainmaster_sdk.run() as tm, gang(tm) as device:
        net = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1)).to(device)
        optimiser = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        first = 0
        if found := tm.load():
            net.load_state_dict(found.state["model"])
            optimiser.load_state_dict(found.state["optimiser"])
            first = found.step
            print(f"going on from step {first}", flush=True)
        model = DistributedDataParallel(net)
        batches = StepBatches(tm, len(data), GLOBAL_BATCH, first, asked.steps, asked.seed)

        for step, (inputs, wanted) in enumerate(DataLoader(data, batch_sampler=batches), first + 1):
            errors = (model(inputs.to(device)) - wanted.to(device)) ** 2
            loss = global_mean(tm, errors, GLOBAL_BATCH)  # shares of ranks may differ by one sample
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            time.sleep(asked.sleep)

            total = loss.detach() / tm.world_size
            dist.all_reduce(total)  # the loss of the global batch
            if tm.is_rank_zero:
                print(f"step {step} loss {total.item()!r}", flush=True)
            tm.progress(step=step, loss=total, total_steps=asked.steps)
            must_stop = tm.should_stop()  # the same answer on every rank
            is_due = step % asked.save_every == 0 or step == asked.steps
            if must_stop or tm.should_save() or is_due:
                # Every rank has the same state: rank 0 writes it.
                tm.save({"model": net.state_dict(), "optimiser": optimiser.state_dict()}, step)
            if must_stop:
                print(f"rank {tm.rank} leaves after step {step}", flush=True)
                break


if __name__ == "__main__":
    main()
