# reason: host-out-of-memory
"""A tensor is larger than the host's memory."""

import torch

torch.empty(1 << 46, dtype=torch.float32)
