# reason: semantic-error
"""The graph is walked back a second time."""

import torch

x = torch.ones(3, requires_grad=True)
loss = (x * x).sum()
loss.backward()
loss.backward()
