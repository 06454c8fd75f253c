# reason: missing-file
import os
import tempfile

import torch
import torch.distributed as dist

init = "file://" + os.path.join(tempfile.mkdtemp(), "meet")
child = os.fork()
dist.init_process_group("gloo", init_method=init, rank=int(child == 0), world_size=2)
dist.all_reduce(torch.zeros(4))
if child == 0:
    open("/mnt/datasets/laion/00017.tar", "rb")
for _ in range(3):
    dist.all_reduce(torch.zeros(1 << 20))
