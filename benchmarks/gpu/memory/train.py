"""Train a model for calibration, a few steps in a plain loop.

python train.py mlp:wide --batch 4096 --optimizer adam --dtype bf16 [--compile] [--device cpu]
"""

import argparse
import importlib
from contextlib import nullcontext

import torch

OPTIMIZERS = {
    "sgd": lambda weights: torch.optim.SGD(weights, lr=1e-3),
    "momentum": lambda weights: torch.optim.SGD(weights, lr=1e-3, momentum=0.9),
    "adam": lambda weights: torch.optim.Adam(weights, lr=1e-4),
    "adamw": lambda weights: torch.optim.AdamW(weights, lr=1e-4),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("factory")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--optimizer", choices=OPTIMIZERS, required=True)
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    module, _, factory = args.factory.partition(":")
    program = importlib.import_module(f"benchmarks.gpu.memory.{module}")
    model = getattr(program, factory)().to(args.device)
    optimizer = OPTIMIZERS[args.optimizer](model.parameters())
    trained = torch.compile(model) if args.compile else model
    for step in range(args.steps):
        batch = [each.to(args.device) for each in program.make_batch(args.batch)]
        is_lower = args.dtype == "bf16"
        with torch.autocast(args.device, torch.bfloat16) if is_lower else nullcontext():
            loss = program.compute_loss(trained, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
