# reason: checkpoint-mismatch
"""The optimizer state is that of another model."""

import torch

small = torch.optim.Adam(torch.nn.Linear(2, 2).parameters())
large = torch.optim.Adam(
    torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)).parameters()
)
large.load_state_dict(small.state_dict())
