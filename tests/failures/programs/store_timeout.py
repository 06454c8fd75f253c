# reason: rendezvous-timeout
"""The second rank never comes."""

from datetime import timedelta

from torch.distributed import TCPStore

TCPStore("127.0.0.1", 0, world_size=2, is_master=True, timeout=timedelta(seconds=1))
