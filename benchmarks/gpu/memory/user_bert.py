"""BERT-base as an nn.TransformerEncoder with padding masks, masked words, AdamW, fp32."""

import argparse

import torch
from torch import nn

VOCAB, LENGTH, PAD = 30522, 256, 0


class MaskedLanguageModel(nn.Module):
    def __init__(self, width=768, layers=12, heads=12):
        super().__init__()
        self.words = nn.Embedding(VOCAB, width, padding_idx=PAD)
        self.positions = nn.Embedding(LENGTH, width)
        self.norm = nn.LayerNorm(width)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.1, activation="gelu", batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, VOCAB)

    def forward(self, tokens):
        where = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.norm(self.words(tokens) + self.positions(where))
        return self.head(self.encoder(x, src_key_padding_mask=tokens == PAD))


def make_model():
    return MaskedLanguageModel()


def make_batch(n):
    tokens = torch.randint(5, VOCAB, (n, LENGTH))
    lengths = torch.randint(LENGTH // 2, LENGTH + 1, (n, 1))
    tokens = tokens.masked_fill(torch.arange(LENGTH) >= lengths, PAD)
    labels = tokens.masked_fill(torch.rand(n, LENGTH) > 0.15, -100)
    return tokens, labels


def compute_loss(model, batch):
    tokens, labels = batch
    logits = model(tokens)
    return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    model = make_model().to(args.device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=args.steps)
    for step in range(args.steps):
        tokens, labels = [x.to(args.device) for x in make_batch(args.batch)]
        loss = compute_loss(model, (tokens, labels))
        loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        print(f"step {step}: {loss.item():.3f}", flush=True)
