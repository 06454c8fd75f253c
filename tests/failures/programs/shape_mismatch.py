# reason: shape-mismatch
"""A layer gets features of another size."""

import torch

model = torch.nn.Sequential(torch.nn.Linear(128, 64), torch.nn.ReLU(), torch.nn.Linear(32, 10))
print("epoch 0 starts")
model(torch.randn(16, 128)).sum().backward()
