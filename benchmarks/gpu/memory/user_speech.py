"""Speech: convolutions over a spectrogram, bidirectional LSTMs, CTC loss, SGD with Nesterov momentum."""

import argparse

import torch
from torch import nn

FRAMES, BANDS, LETTERS, WORDS = 800, 80, 29, 100


class DeepSpeech(nn.Module):
    def __init__(self, channels=32, hidden=800, layers=4):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, channels, (11, 21), (2, 2), (5, 10)),
            nn.BatchNorm2d(channels),
            nn.Hardtanh(0, 20, inplace=True),
            nn.Conv2d(channels, channels, (11, 11), (1, 2), (5, 5)),
            nn.BatchNorm2d(channels),
            nn.Hardtanh(0, 20, inplace=True),
        )
        self.rnn = nn.LSTM(
            channels * BANDS // 4, hidden, layers, bidirectional=True, batch_first=True
        )
        self.fc = nn.Linear(2 * hidden, LETTERS)

    def forward(self, spectrogram):
        x = self.conv(spectrogram.unsqueeze(1))
        x = x.transpose(1, 2).flatten(2)
        x, _ = self.rnn(x)
        return self.fc(x).log_softmax(dim=-1)


def make_model():
    return DeepSpeech()


def make_batch(n):
    return torch.randn(n, FRAMES, BANDS), torch.randint(1, LETTERS, (n, WORDS))


def compute_loss(model, batch):
    spectrogram, text = batch
    scores = model(spectrogram).transpose(0, 1)
    n = text.shape[0]
    frames = torch.full((n,), scores.shape[0], dtype=torch.long)
    letters = torch.full((n,), WORDS, dtype=torch.long)
    return nn.functional.ctc_loss(scores, text, frames, letters, zero_infinity=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    model = make_model().to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=3e-4, momentum=0.9, nesterov=True)
    for step in range(args.steps):
        spectrogram, text = make_batch(args.batch)
        spectrogram, text = spectrogram.to(args.device), text.to(args.device)
        loss = compute_loss(model, (spectrogram, text))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 400)
        optimizer.step()
        print(f"{step} {loss.item():.2f}", flush=True)
