# reason: cuda-out-of-memory
"""The GPU is full; then the emergency checkpoint fails as well."""

import torch

try:
    raise torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 8 GiB"
    )
except torch.OutOfMemoryError:
    with open("/dev/full", "w") as file:
        file.write("an emergency checkpoint")
