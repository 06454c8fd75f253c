# reason: shape-mismatch
import torch

loss = torch.nn.BCELoss()
loss(torch.rand(8, 1), torch.rand(8))
