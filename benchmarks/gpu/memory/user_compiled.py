"""An MLP-Mixer under torch.compile, AdamW, bf16 autocast."""

import argparse

import torch
from torch import nn


class MixerBlock(nn.Module):
    def __init__(self, tokens, width, token_inner, width_inner):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.across = nn.Sequential(
            nn.Linear(tokens, token_inner), nn.GELU(), nn.Linear(token_inner, tokens)
        )
        self.norm2 = nn.LayerNorm(width)
        self.within = nn.Sequential(
            nn.Linear(width, width_inner), nn.GELU(), nn.Linear(width_inner, width)
        )

    def forward(self, x):
        x = x + self.across(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.within(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self, width=768, depth=12, patch=16, image=224, classes=1000):
        super().__init__()
        self.stem = nn.Conv2d(3, width, patch, patch)
        tokens = (image // patch) ** 2
        self.blocks = nn.Sequential(
            *[MixerBlock(tokens, width, width // 2, 4 * width) for _ in range(depth)]
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(dim=1))


def make_model():
    return Mixer()


def make_batch(n):
    return torch.randn(n, 3, 224, 224), torch.randint(0, 1000, (n,))


def compute_loss(model, batch):
    images, labels = batch
    return nn.functional.cross_entropy(model(images), labels)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=192)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--no-compile", action="store_true")
    args = parser.parse_args()
    model = make_model().to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    trained = model if args.no_compile else torch.compile(model)
    for step in range(args.steps):
        batch = [x.to(args.device) for x in make_batch(args.batch)]
        with torch.autocast(args.device, dtype=torch.bfloat16):
            loss = compute_loss(trained, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
