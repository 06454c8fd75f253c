# reason: index-out-of-range
import torch

tokens = torch.tensor([[1, 5, 50257]])
torch.nn.Embedding(50257, 8)(tokens)
