"""Translation with GRUs, attention and one embedding for source, target and output; Adam, fp32."""

import argparse

import torch
from torch import nn

VOCAB, SOURCE, TARGET = 32000, 60, 50


class Seq2Seq(nn.Module):
    def __init__(self, width=512):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width)
        self.encoder = nn.GRU(
            width, width // 2, 2, batch_first=True, bidirectional=True, dropout=0.2
        )
        self.decoder = nn.GRU(width, width, 2, batch_first=True, dropout=0.2)
        self.mix = nn.Linear(2 * width, width)
        self.out = nn.Linear(width, VOCAB)
        self.out.weight = self.embed.weight

    def forward(self, source, target):
        memory, _ = self.encoder(self.embed(source))
        states, _ = self.decoder(self.embed(target))
        scores = torch.bmm(states, memory.transpose(1, 2))
        context = torch.bmm(scores.softmax(dim=-1), memory)
        return self.out(torch.tanh(self.mix(torch.cat([states, context], dim=-1))))


def make_model():
    return Seq2Seq()


def make_batch(n):
    target = torch.randint(0, VOCAB, (n, TARGET + 1))
    return torch.randint(0, VOCAB, (n, SOURCE)), target[:, :-1], target[:, 1:]


def compute_loss(model, batch):
    source, given, wanted = batch
    return nn.functional.cross_entropy(model(source, given).flatten(0, 1), wanted.flatten())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    model = make_model().to(args.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    for step in range(args.steps):
        batch = tuple(x.to(args.device) for x in make_batch(args.batch))
        loss = compute_loss(model, batch)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        print(step, loss.item(), flush=True)


if __name__ == "__main__":
    main()
