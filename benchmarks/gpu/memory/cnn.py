"""A residual convolutional network: models, batches and loss for calibration."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

CLASSES = 100


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x):
        return torch.relu(x + self.body(x))


class Network(nn.Module):
    def __init__(self, channels, blocks, is_checkpointed):
        super().__init__()
        self.is_checkpointed = is_checkpointed
        self.stages = nn.ModuleList()
        given = 3
        for stage in range(4):
            out = channels * 2**stage
            first = nn.Conv2d(given, out, 3, 1 if stage == 0 else 2, 1)
            self.stages.append(nn.Sequential(first, *(Residual(out) for _ in range(blocks))))
            given = out
        self.head = nn.Linear(given, CLASSES)

    def forward(self, x):
        for stage in self.stages:
            x = checkpoint(stage, x, use_reentrant=False) if self.is_checkpointed else stage(x)
        return self.head(x.mean(dim=(2, 3)))


def small():
    return Network(32, 2, is_checkpointed=False)


def large():
    return Network(64, 4, is_checkpointed=False)


def large_checkpointed():
    return Network(64, 4, is_checkpointed=True)


def make_batch(n):
    return torch.randn(n, 3, 128, 128), torch.randint(0, CLASSES, (n,))


def compute_loss(model, batch):
    images, labels = batch
    return nn.functional.cross_entropy(model(images), labels)
