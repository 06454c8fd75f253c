# reason: checkpoint-mismatch
"""A checkpoint of another model is loaded."""

import torch

torch.nn.Linear(8, 4).load_state_dict(torch.nn.Conv2d(3, 4, 3).state_dict())
