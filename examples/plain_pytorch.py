"""A plain PyTorch loop on one device: what changes for Trainmaster is marked with (tm).

python examples/plain_pytorch.py --steps 200
"""

from __future__ import annotations

import time

import flags
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import trainmaster_sdk
from trainmaster_sdk.torch import StepBatches, seed_step


def main() -> None:
    asked = flags.parsed(__doc__, steps=200)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    torch.manual_seed(asked.seed)
    x = torch.randn(2048, 16)
    data = TensorDataset(x, x.prod(1, keepdim=True).sign() + x[:, :1])
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1)).to(
        device
    )
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)

    with trainmaster_sdk.run() as tm:  # (tm)
        first = 0
        if found := tm.load():  # (tm) go on where the last run stopped
            model.load_state_dict(found.state["model"])
            optimiser.load_state_dict(found.state["optimiser"])
            first = found.step
            print(f"going on from step {first}", flush=True)
        # (tm) the batches from this step on; with workers, add worker_init_fn=outlive_stop
        batches = StepBatches(tm, len(data), 64, first, asked.steps, asked.seed)
        loader = DataLoader(data, batch_sampler=batches)

        for step, (inputs, wanted) in enumerate(loader, first + 1):
            seed_step(
                tm, step, asked.seed
            )  # (tm) dropout by step, so that a restart changes nothing
            loss = nn.functional.mse_loss(model(inputs.to(device)), wanted.to(device))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            time.sleep(asked.sleep)
            print(f"step {step} loss {loss.item()!r}", flush=True)

            tm.progress(step=step, loss=loss, total_steps=asked.steps)  # (tm)
            must_stop = tm.should_stop()
            is_due = step % asked.save_every == 0 or step == asked.steps
            if must_stop or tm.should_save() or is_due:
                tm.save({"model": model.state_dict(), "optimiser": optimiser.state_dict()}, step)
            if must_stop:
                break


if __name__ == "__main__":
    main()
