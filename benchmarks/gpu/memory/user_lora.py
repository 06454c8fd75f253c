"""LoRA: a frozen Transformer of 800 million parameters with small trained adapters, AdamW, bf16 autocast."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, LENGTH = 32000, 1024


class LoRALinear(nn.Module):
    def __init__(self, base, rank=16, alpha=32):
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + self.scale * self.up(self.down(x))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        y = self.norm1(x)
        q, k, v = (
            f(y).view(b, t, self.heads, c // self.heads).transpose(1, 2)
            for f in (self.query, self.key, self.value)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class LM(nn.Module):
    def __init__(self, width=1536, layers=26, heads=16):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width)
        self.pos = nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCAB, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens) + self.pos.weight
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def add_lora(model):
    """Freeze everything, then wrap the query and value projections."""
    model.requires_grad_(False)
    for block in model.blocks:
        block.query = LoRALinear(block.query)
        block.value = LoRALinear(block.value)
    return model


def make_model():
    return add_lora(LM())


def make_batch(n):
    text = torch.randint(0, VOCAB, (n, LENGTH + 1))
    return text[:, :-1], text[:, 1:]


def compute_loss(model, batch):
    tokens, targets = batch
    return F.cross_entropy(model(tokens).reshape(-1, VOCAB), targets.reshape(-1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    model = make_model().to(args.device)
    trainable = [p for p in model.parameters() if p.requires_grad]
    print(f"training {sum(p.numel() for p in trainable):,} parameters")
    optimizer = torch.optim.AdamW(trainable, lr=2e-4)
    for step in range(args.steps):
        tokens, targets = (x.to(args.device) for x in make_batch(args.batch))
        with torch.autocast(args.device, dtype=torch.bfloat16):
            loss = compute_loss(model, (tokens, targets))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
