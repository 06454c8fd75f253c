# reason: model-diverged
"""Anomaly detection finds a nan in the backward pass."""

import torch

x = torch.zeros(3, requires_grad=True)
with torch.autograd.detect_anomaly(check_nan=True):
    (torch.sqrt(x) * 0).sum().backward()
