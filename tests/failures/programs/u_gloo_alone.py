# reason: rendezvous-timeout
import os
from datetime import timedelta

import torch.distributed as dist

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="2")
dist.init_process_group("gloo", timeout=timedelta(seconds=1))
