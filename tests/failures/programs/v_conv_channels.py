# reason: shape-mismatch
import torch

net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU())
net(torch.zeros(2, 1, 32, 32))
