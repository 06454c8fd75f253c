"""A U-Net that segments 256x256 images, Adam, bf16 autocast."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class DoubleConv(nn.Sequential):
    def __init__(self, c_in, c_out):
        super().__init__(
            nn.Conv2d(c_in, c_out, 3, padding=1, bias=False),
            nn.GroupNorm(8, c_out),
            nn.SiLU(),
            nn.Conv2d(c_out, c_out, 3, padding=1, bias=False),
            nn.GroupNorm(8, c_out),
            nn.SiLU(),
        )


class UNet(nn.Module):
    def __init__(self, channels=(64, 128, 256, 512), classes=21):
        super().__init__()
        self.down = nn.ModuleList()
        c = 3
        for width in channels:
            self.down.append(DoubleConv(c, width))
            c = width
        self.middle = DoubleConv(c, 2 * c)
        self.up, self.merge = nn.ModuleList(), nn.ModuleList()
        c = 2 * c
        for width in reversed(channels):
            self.up.append(nn.ConvTranspose2d(c, width, 2, stride=2))
            self.merge.append(DoubleConv(2 * width, width))
            c = width
        self.out = nn.Conv2d(c, classes, 1)

    def forward(self, x):
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = self.middle(x)
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([skips.pop(), up(x)], dim=1))
        return self.out(x)


def make_model():
    return UNet()


def make_batch(n):
    return torch.rand(n, 3, 256, 256), torch.randint(0, 21, (n, 256, 256))


def compute_loss(model, batch):
    images, masks = batch
    return F.cross_entropy(model(images), masks)


def train(args):
    model = make_model().to(args.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for step in range(args.steps):
        images, masks = make_batch(args.batch)
        images, masks = images.to(args.device), masks.to(args.device)
        with torch.autocast(args.device, dtype=torch.bfloat16):
            loss = compute_loss(model, (images, masks))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"{step}: {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--device", default="cuda")
    train(parser.parse_args())
