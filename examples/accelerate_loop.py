"""A loop with Hugging Face Accelerate: the SDK saves and loads all that the accelerator has prepared.

python examples/accelerate_loop.py --steps 100
"""

from __future__ import annotations

import time

import flags
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import trainmaster_sdk
from trainmaster_sdk.accelerate import AccelerateLoop
from trainmaster_sdk.torch import StepBatches


def main() -> None:
    asked = flags.parsed(__doc__, steps=100)

    torch.manual_seed(asked.seed)
    x = torch.randn(2048, 16)
    data = TensorDataset(x, torch.sin(3 * x[:, :1]) + x[:, 1:2])
    model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    with trainmaster_sdk.run() as tm:
        accelerator = Accelerator()
        model, optimizer = accelerator.prepare(model, optimizer)
        loop = AccelerateLoop(tm, accelerator, save_every=asked.save_every)
        step = loop.load()
        batches = StepBatches(tm, len(data), 64, step, asked.steps, asked.seed)
        for inputs, wanted in DataLoader(data, batch_sampler=batches):
            output = model(inputs.to(accelerator.device))
            loss = nn.functional.mse_loss(output, wanted.to(accelerator.device))
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            time.sleep(asked.sleep)
            step += 1
            print(f"step {step} loss {loss.item()!r}", flush=True)
            if loop.should_leave(step, loss=loss, total_steps=asked.steps):
                break
        accelerator.end_training()


if __name__ == "__main__":
    main()
