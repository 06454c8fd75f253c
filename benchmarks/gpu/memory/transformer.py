"""A causal Transformer: models, batches and loss for calibration."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

WORDS, LENGTH = 16384, 512


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        shape = (*x.shape[:2], self.heads, -1)
        parts = self.qkv(self.before(x)).chunk(3, dim=-1)
        query, key, value = (part.view(shape).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.inner(self.between(x))


class Decoder(nn.Module):
    def __init__(self, width, depth, is_checkpointed):
        super().__init__()
        self.is_checkpointed = is_checkpointed
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList([Block(width, width // 64) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, WORDS, bias=False)

    def forward(self, tokens):
        x = self.words(tokens) + self.places.weight
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.is_checkpointed else block(x)
        return self.head(self.norm(x))


def small():
    return Decoder(512, 8, is_checkpointed=False)


def large():
    return Decoder(1280, 20, is_checkpointed=False)


def large_checkpointed():
    return Decoder(1280, 20, is_checkpointed=True)


def make_batch(n):
    text = torch.randint(0, WORDS, (n, LENGTH + 1))
    return text[:, :-1], text[:, 1:]


def compute_loss(model, batch):
    tokens, targets = batch
    return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
