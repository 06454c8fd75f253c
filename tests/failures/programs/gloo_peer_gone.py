# reason: peer-connection-lost
"""One rank of two ends without a word."""

import os

import torch
import torch.distributed as dist

store = f"/tmp/gloo-peer-{os.getpid()}"
child = os.fork()
rank = 1 if child == 0 else 0
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
if rank == 1:
    os._exit(3)
os.waitpid(child, 0)
try:
    dist.all_reduce(torch.ones(1))
finally:
    os.unlink(store)
