"""ResNet-50 with batch normalisation on 224x224 images, SGD with momentum, fp32."""

import argparse

import torch
from torch import nn


def conv_bn(c_in, c_out, kernel, stride=1):
    return nn.Sequential(
        nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(c_out)
    )


class Bottleneck(nn.Module):
    def __init__(self, c_in, width, stride):
        super().__init__()
        c_out = 4 * width
        self.conv1 = conv_bn(c_in, width, 1)
        self.conv2 = conv_bn(width, width, 3, stride)
        self.conv3 = conv_bn(width, c_out, 1)
        same = stride == 1 and c_in == c_out
        self.shortcut = nn.Identity() if same else conv_bn(c_in, c_out, 1, stride)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.relu(self.conv1(x))
        y = self.relu(self.conv2(y))
        y = self.conv3(y)
        y += self.shortcut(x)
        return self.relu(y)


class ResNet(nn.Module):
    def __init__(self, depths=(3, 4, 6, 3), classes=1000):
        super().__init__()
        layers = [conv_bn(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
        c_in = 64
        for stage, depth in enumerate(depths):
            width = 64 * 2**stage
            for i in range(depth):
                layers.append(Bottleneck(c_in, width, 2 if stage > 0 and i == 0 else 1))
                c_in = 4 * width
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(c_in, classes)

    def forward(self, x):
        return self.fc(self.pool(self.features(x)).flatten(1))


def make_model():
    return ResNet()


def make_batch(n):
    return torch.randn(n, 3, 224, 224), torch.randint(0, 1000, (n,))


def compute_loss(model, batch):
    images, labels = batch
    return nn.functional.cross_entropy(model(images), labels)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    net = make_model().to(args.device)
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    net.train()
    for step in range(args.steps):
        images, labels = make_batch(args.batch)
        images, labels = images.to(args.device), labels.to(args.device)
        opt.zero_grad()
        loss = compute_loss(net, (images, labels))
        loss.backward()
        opt.step()
        print(step, loss.item(), flush=True)
