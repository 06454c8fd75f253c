# reason: index-out-of-range
"""A token is larger than the vocabulary."""

import torch

torch.nn.Embedding(1000, 16)(torch.tensor([3, 1000]))
