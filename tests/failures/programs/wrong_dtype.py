# reason: semantic-error
"""Two types of numbers are multiplied."""

import torch

torch.nn.Linear(4, 4)(torch.ones(2, 4, dtype=torch.long))
