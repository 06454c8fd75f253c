"""Recurrent networks over sequences of vectors: models, batches and loss for calibration."""

import torch
from torch import nn

FEATURES, LENGTH = 128, 200


class Recurrent(nn.Module):
    def __init__(self, kind, hidden, depth):
        super().__init__()
        self.rnn = kind(FEATURES, hidden, depth, batch_first=True)
        self.head = nn.Linear(hidden, FEATURES)

    def forward(self, x):
        return self.head(self.rnn(x)[0])


def lstm():
    return Recurrent(nn.LSTM, 1024, 3)


def gru():
    return Recurrent(nn.GRU, 1536, 2)


def make_batch(n):
    series = torch.randn(n, LENGTH + 1, FEATURES)
    return series[:, :-1], series[:, 1:]


def compute_loss(model, batch):
    given, wanted = batch
    return nn.functional.mse_loss(model(given), wanted)
