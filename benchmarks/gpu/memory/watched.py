"""Run a training program in this process, then write what its allocator had at most.

python -m benchmarks.gpu.memory.watched RESULT FILE [OPTION ...]
"""

from __future__ import annotations

import json
import runpy
import sys
import time
from pathlib import Path

LARGEST = 8


def main(result: str, *command: str) -> None:
    began = time.monotonic()
    sys.argv = list(command)
    runpy.run_path(command[0], run_name="__main__")
    import torch

    found: dict[str, object] = {
        "torch": torch.__version__,
        "took_s": round(time.monotonic() - began, 2),
    }
    if torch.cuda.is_available():
        found |= allocator()
    Path(result).write_text(json.dumps(found))


def allocator() -> dict[str, object]:
    """Peaks of PyTorch's allocator, what the GPU has in use now, and the largest segments."""
    import torch

    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    stats = torch.cuda.memory_stats()
    sizes = sorted((each["total_size"] for each in torch.cuda.memory_snapshot()), reverse=True)
    return {
        "max_allocated": torch.cuda.max_memory_allocated(),
        "max_reserved": torch.cuda.max_memory_reserved(),
        "reserved_at_end": torch.cuda.memory_reserved(),
        "requested_peak": stats["requested_bytes.all.peak"],
        "retries": stats["num_alloc_retries"],
        "device_used_at_end": total - free,
        "segments": len(sizes),
        "largest_segments": sizes[:LARGEST],
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
