# reason: model-diverged
import torch

x = torch.tensor([-1.0], requires_grad=True)
with torch.autograd.detect_anomaly():
    torch.sqrt(x).sum().backward()
