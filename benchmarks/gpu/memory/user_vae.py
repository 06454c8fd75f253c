"""A convolutional variational autoencoder on 128x128 images, Adam, fp32."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class VAE(nn.Module):
    def __init__(self, latent=256, widths=(64, 128, 256, 512)):
        super().__init__()
        encoder, c = [], 3
        for width in widths:
            encoder += [nn.Conv2d(c, width, 4, 2, 1), nn.BatchNorm2d(width), nn.LeakyReLU(0.2)]
            c = width
        self.encoder = nn.Sequential(*encoder, nn.Flatten())
        self.to_mean = nn.Linear(c * 8 * 8, latent)
        self.to_logvar = nn.Linear(c * 8 * 8, latent)
        self.from_latent = nn.Linear(latent, c * 8 * 8)
        decoder = []
        for width in (*reversed(widths[:-1]), 32):
            decoder += [
                nn.ConvTranspose2d(c, width, 4, 2, 1),
                nn.BatchNorm2d(width),
                nn.LeakyReLU(0.2),
            ]
            c = width
        self.decoder = nn.Sequential(
            nn.Unflatten(1, (widths[-1], 8, 8)), *decoder, nn.Conv2d(c, 3, 3, padding=1)
        )

    def forward(self, x):
        h = self.encoder(x)
        mean, logvar = self.to_mean(h), self.to_logvar(h)
        z = mean + torch.randn_like(mean) * (0.5 * logvar).exp()
        return self.decoder(self.from_latent(z)).sigmoid(), mean, logvar


def make_model():
    return VAE()


def make_batch(n):
    return (torch.rand(n, 3, 128, 128),)


def compute_loss(model, batch):
    (images,) = batch
    made, mean, logvar = model(images)
    divergence = -0.5 * (1 + logvar - mean.square() - logvar.exp()).sum()
    return (F.mse_loss(made, images, reduction="sum") + divergence) / images.shape[0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    vae = make_model().to(args.device)
    optimizer = torch.optim.Adam(vae.parameters(), lr=2e-4)
    for _ in range(args.steps):
        images = make_batch(args.batch)[0].to(args.device)
        loss = compute_loss(vae, (images,))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("loss", loss.item())


if __name__ == "__main__":
    main()
