"""An MLP on a table with 26 categorical and 13 numeric columns, Adam, fp32."""

import argparse

import torch
from torch import nn

ROWS_PER_COLUMN = 100_000
CATEGORICAL, NUMERIC = 26, 13


class TabularMLP(nn.Module):
    def __init__(self, embed=16, hidden=(2048, 2048, 1024)):
        super().__init__()
        self.tables = nn.ModuleList(
            [nn.Embedding(ROWS_PER_COLUMN, embed) for _ in range(CATEGORICAL)]
        )
        layers, width = [], CATEGORICAL * embed + NUMERIC
        for size in hidden:
            layers += [nn.Linear(width, size), nn.BatchNorm1d(size), nn.ReLU(), nn.Dropout(0.2)]
            width = size
        self.net = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, categories, numbers):
        parts = [table(categories[:, i]) for i, table in enumerate(self.tables)]
        return self.net(torch.cat([*parts, numbers], dim=1)).squeeze(1)


def make_model():
    return TabularMLP()


def make_batch(n):
    categories = torch.randint(0, ROWS_PER_COLUMN, (n, CATEGORICAL))
    return categories, torch.randn(n, NUMERIC), torch.rand(n).round()


def compute_loss(model, batch):
    categories, numbers, clicked = batch
    return nn.functional.binary_cross_entropy_with_logits(model(categories, numbers), clicked)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=16384)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    model = make_model().to(args.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(args.steps):
        batch = [t.to(args.device) for t in make_batch(args.batch)]
        optimizer.zero_grad()
        loss = compute_loss(model, batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    print("losses", [round(float(x), 4) for x in losses])


if __name__ == "__main__":
    main()
