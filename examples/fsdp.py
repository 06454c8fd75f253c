"""FSDP: sharded checkpoints, written in the background, read again by any number of ranks.

    python examples/fsdp.py --steps 100
    torchrun --nproc-per-node 2 examples/fsdp.py --steps 100
    trainmaster submit examples/fsdp.yaml

When it is resized while it trains, ranks that stay keep their process, and shards go through a checkpoint.
"""

from __future__ import annotations

import hashlib
import time
from argparse import Namespace

import flags
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset

import trainmaster_sdk
from trainmaster_sdk.resize_rounds import rounds
from trainmaster_sdk.torch import ShardedCheckpoints, StepBatches, gang, global_mean

GLOBAL_BATCH = 48


def main() -> None:
    asked = flags.parsed(__doc__, steps=100, save_every=20)

    torch.manual_seed(asked.seed)
    x = torch.randn(2048, 16)
    data = TensorDataset(x, torch.sin(3 * x[:, :1]) + x[:, 1:2])

    with trainmaster_sdk.run() as tm:
        for _ in rounds(tm):  # one for each size that the job has
            with gang(tm) as device:
                train(tm, asked, data, device)


def train(
    tm: trainmaster_sdk.Session, asked: Namespace, data: TensorDataset, device: torch.device
) -> None:
    """With the ranks that there are now, until it ends or has to leave."""
    torch.manual_seed(asked.seed)
    model = nn.Sequential(nn.Linear(16, 63), nn.Tanh(), nn.Linear(63, 1)).to(device)
    mesh = init_device_mesh(device.type, (tm.world_size,))
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)

    # Each rank fills its own shards, whichever rank wrote them.
    checkpoints = ShardedCheckpoints(tm)
    weights, moments = get_state_dict(model, optimiser)
    first = checkpoints.load({"model": weights, "optimiser": moments}) or 0
    if first:
        set_state_dict(model, optimiser, model_state_dict=weights, optim_state_dict=moments)
    show(tm, model, first)
    batches = StepBatches(tm, len(data), GLOBAL_BATCH, first, asked.steps, asked.seed)

    for step, (inputs, wanted) in enumerate(DataLoader(data, batch_sampler=batches), first + 1):
        errors = (model(inputs.to(device)) - wanted.to(device)) ** 2
        loss = global_mean(tm, errors, GLOBAL_BATCH)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        time.sleep(asked.sleep)

        total = loss.detach() / tm.world_size
        dist.all_reduce(total)
        if tm.is_rank_zero:
            print(f"step {step} loss {total.item()!r}", flush=True)
        tm.progress(step=step, loss=total, total_steps=asked.steps)
        must_leave = tm.should_stop() or tm.is_resize_agreed
        is_due = step % asked.save_every == 0 or step == asked.steps
        if must_leave or tm.should_save() or is_due:
            weights, moments = get_state_dict(model, optimiser)
            checkpoints.save({"model": weights, "optimiser": moments}, step)  # goes on meanwhile
        if must_leave:
            show(tm, model, step)
            break
    checkpoints.wait()


def show(tm: trainmaster_sdk.Session, model: nn.Module, step: int) -> None:
    """A fingerprint of all parameters, of all ranks together: the same before and after a restart."""
    full = [parameter.full_tensor().detach().cpu() for parameter in model.parameters()]
    print_of = hashlib.sha256(b"".join(part.numpy().tobytes() for part in full)).hexdigest()
    if tm.is_rank_zero:
        print(f"at step {step} parameters {print_of}", flush=True)


if __name__ == "__main__":
    main()
