"""What CUDA and its libraries take on the GPU beside tensors: one operation after another in one process.

    python -m benchmarks.gpu.memory.calibrate RESULT

After each operation: memory in use on the GPU, and what of it PyTorch's allocator holds and has handed out.
What is in use beside the allocator is the context with the code of the kernels loaded so far; what is handed
out while no tensor is alive is a workspace of a library.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path


def stages() -> dict[str, Callable[[], None]]:
    import torch
    from torch import nn

    device = "cuda"

    def context() -> None:
        torch.cuda.init()
        torch.cuda.synchronize()

    def first_kernel() -> None:
        torch.ones(1024, device=device).add_(1)

    def product(dtype: torch.dtype) -> None:
        left = torch.randn(1024, 1024, device=device, dtype=dtype)
        left @ left

    def linear(dtype: torch.dtype) -> None:
        layer = nn.Linear(1024, 1024, device=device, dtype=dtype)
        torch.relu(layer(torch.randn(512, 1024, device=device, dtype=dtype))).sum().backward()

    def convolution(dtype: torch.dtype) -> None:
        layer = nn.Conv2d(64, 64, 3, padding=1, device=device, dtype=dtype)
        norm = nn.BatchNorm2d(64, device=device)
        images = torch.randn(16, 64, 56, 56, device=device, dtype=dtype)
        norm(layer(images).float()).sum().backward()

    def attention() -> None:
        query = torch.randn(4, 8, 512, 64, device=device, dtype=torch.bfloat16, requires_grad=True)
        made = nn.functional.scaled_dot_product_attention(query, query, query, is_causal=True)
        made.sum().backward()

    def recurrent() -> None:
        layer = nn.LSTM(256, 256, 2, batch_first=True, device=device)
        layer(torch.randn(32, 64, 256, device=device))[0].sum().backward()

    def optimizer() -> None:
        layer = nn.Linear(1024, 1024, device=device)
        steps = torch.optim.AdamW(layer.parameters())
        layer(torch.randn(512, 1024, device=device)).sum().backward()
        steps.step()

    return {
        "context": context,
        "first kernel": first_kernel,
        "fp32 product": lambda: product(torch.float32),
        "bf16 product": lambda: product(torch.bfloat16),
        "fp32 linear layer": lambda: linear(torch.float32),
        "bf16 linear layer": lambda: linear(torch.bfloat16),
        "fp32 convolution": lambda: convolution(torch.float32),
        "bf16 convolution": lambda: convolution(torch.bfloat16),
        "bf16 attention": attention,
        "LSTM": recurrent,
        "AdamW": optimizer,
    }


def main(result: str) -> None:
    import torch

    rows: list[dict[str, object]] = []
    for name, does in stages().items():
        does()
        gc.collect()
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        rows.append(
            {
                "after": name,
                "device_used": total - free,
                "reserved": torch.cuda.memory_reserved(),
                "allocated": torch.cuda.memory_allocated(),
            }
        )
    kept = [
        block["size"]
        for segment in torch.cuda.memory_snapshot()
        for block in segment["blocks"]
        if block["state"] == "active_allocated"
    ]
    found = {"rows": rows, "kept_blocks": sorted(kept, reverse=True)}
    found |= {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
    }
    Path(result).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
