"""DistributedDataParallel on devices of unequal speed: each rank's share of a batch follows what it can do.

    python examples/balanced_ddp.py --steps 200
    torchrun --nproc-per-node 2 examples/balanced_ddp.py --steps 200

The global batches are those of ddp.py, and so are the losses, up to rounding.
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
from trainmaster_sdk.balanced import BalancedShares
from trainmaster_sdk.torch import StepBatches, gang, global_mean

GLOBAL_BATCH = 48


def main() -> None:
    asked = flags.parsed(__doc__, steps=200)

    torch.manual_seed(asked.seed)
    x = torch.randn(2048, 16)
    data = TensorDataset(x, torch.sin(3 * x[:, :1]) + x[:, 1:2])

    with trainmaster_sdk.run() as tm, gang(tm) as device:
        net = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1)).to(device)
        optimiser = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        first = 0
        if found := tm.load():
            net.load_state_dict(found.state["model"])
            optimiser.load_state_dict(found.state["optimiser"])
            first = found.step
        model = DistributedDataParallel(net)
        shares = BalancedShares(tm, net)  # measures what this rank computes for itself
        batches = StepBatches(
            tm, len(data), GLOBAL_BATCH, first, asked.steps, asked.seed, shares=shares
        )

        for step, (inputs, wanted) in enumerate(DataLoader(data, batch_sampler=batches), first + 1):
            errors = (model(inputs.to(device)) - wanted.to(device)) ** 2
            loss = global_mean(tm, errors, GLOBAL_BATCH)  # each sample counts alike
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            if shares.update() and tm.is_rank_zero:  # all ranks, after each step
                print(f"shares of the next batches: {shares.next_shares}", flush=True)
            time.sleep(asked.sleep)

            total = loss.detach() / tm.world_size
            dist.all_reduce(total)  # the loss of the global batch
            if tm.is_rank_zero:
                print(f"step {step} loss {total.item()!r}", flush=True)
            tm.progress(step=step, loss=total, total_steps=asked.steps)
            must_stop = tm.should_stop()
            is_due = step % asked.save_every == 0 or step == asked.steps
            if must_stop or tm.should_save() or is_due:
                tm.save({"model": net.state_dict(), "optimiser": optimiser.state_dict()}, step)
            if must_stop:
                break


if __name__ == "__main__":
    main()
