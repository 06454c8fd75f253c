# reason: shape-mismatch
import torch

torch.nn.LSTM(16, 8)(torch.zeros(5, 2, 12))
