# reason: shape-mismatch
import torch

torch.zeros(4, 8).view(5, -1)
