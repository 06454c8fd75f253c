# reason: built-without-cuda
"""The build of PyTorch has no CUDA."""

import torch

if torch.version.cuda is not None:  # where this test has a GPU build
    raise AssertionError("Torch not compiled with CUDA enabled")
torch.zeros(1).cuda()
