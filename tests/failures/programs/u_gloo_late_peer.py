# reason: nccl-timeout
import os
import tempfile
import time
from datetime import timedelta

import torch
import torch.distributed as dist

init = "file://" + os.path.join(tempfile.mkdtemp(), "meet")
child = os.fork()
dist.init_process_group(
    "gloo", init_method=init, rank=int(child == 0), world_size=2, timeout=timedelta(seconds=2)
)
if child == 0:
    time.sleep(4)
    os._exit(0)
dist.all_reduce(torch.zeros(4))
