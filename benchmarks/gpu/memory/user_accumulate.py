"""A text classifier with a Transformer, gradients of four small batches before each step, Adam, bf16."""

import argparse

import torch
from torch import nn

VOCAB, LENGTH, ACCUMULATE = 50000, 512, 4


class Classifier(nn.Module):
    def __init__(self, width=1024, layers=16, heads=16, classes=20):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width)
        self.position = nn.Parameter(torch.zeros(LENGTH, width))
        self.layers = nn.ModuleList(
            [
                nn.TransformerEncoderLayer(
                    width, heads, 4 * width, dropout=0.1, batch_first=True, norm_first=True
                )
                for _ in range(layers)
            ]
        )
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, classes)

    def forward(self, tokens):
        x = self.embed(tokens) + self.position
        for layer in self.layers:
            x = layer(x)
        return self.out(self.norm(x).mean(dim=1))


def make_model():
    return Classifier()


def make_batch(n):
    return torch.randint(0, VOCAB, (n, LENGTH)), torch.randint(0, 20, (n,))


def compute_loss(model, batch):
    tokens, labels = batch
    return nn.functional.cross_entropy(model(tokens), labels) / ACCUMULATE


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=16, help="of one forward pass")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    model = make_model().to(args.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for step in range(args.steps):
        optimizer.zero_grad()
        running = 0.0
        for _ in range(ACCUMULATE):
            batch = [x.to(args.device) for x in make_batch(args.batch)]
            with torch.autocast(args.device, dtype=torch.bfloat16):
                loss = compute_loss(model, batch)
            loss.backward()
            running += loss.item()
        optimizer.step()
        print(f"update {step}: {running:.4f}", flush=True)


if __name__ == "__main__":
    main()
