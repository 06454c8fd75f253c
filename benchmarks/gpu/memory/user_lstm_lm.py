"""A word-level LSTM language model, plain SGD with clipped gradients, fp32."""

import argparse

import torch
from torch import nn

WORDS = 33278
BPTT = 70


class LSTMModel(nn.Module):
    def __init__(self, embed=650, hidden=1500, layers=2, dropout=0.5):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(WORDS, embed)
        self.rnn = nn.LSTM(embed, hidden, layers, dropout=dropout)
        self.decoder = nn.Linear(hidden, WORDS)

    def forward(self, text):
        output, _ = self.rnn(self.drop(self.encoder(text)))
        return self.decoder(self.drop(output))


def make_model():
    return LSTMModel()


def make_batch(n):
    stream = torch.randint(0, WORDS, (BPTT + 1, n))
    return stream[:-1], stream[1:]


def compute_loss(model, batch):
    text, target = batch
    logits = model(text)
    return nn.functional.nll_loss(logits.view(-1, WORDS).log_softmax(dim=1), target.reshape(-1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=80)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--clip", type=float, default=0.25)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    device = torch.device(args.device)

    model = make_model().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=20)
    total = 0.0
    for _ in range(args.steps):
        text, target = make_batch(args.batch)
        optimizer.zero_grad()
        loss = compute_loss(model, (text.to(device), target.to(device)))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        total += loss.item()
    print(f"mean loss {total / args.steps:.3f}")


if __name__ == "__main__":
    main()
