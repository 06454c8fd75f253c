# reason: cuda-out-of-memory
"""The GPU is full."""

import torch

print("step 12 loss 0.71")
raise torch.OutOfMemoryError(
    "CUDA out of memory. Tried to allocate 3.50 GiB. GPU 1 has a total capacity of 79.11 GiB of which 1.20 GiB is"
    " free. Process 4411 has 77.90 GiB memory in use. Of the allocated memory 70.12 GiB is allocated by PyTorch, and"
    " 6.01 GiB is reserved by PyTorch but unallocated."
)
