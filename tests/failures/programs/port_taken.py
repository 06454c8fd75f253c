# reason: address-in-use
"""Another program listens on the port of the job."""

import socket

from torch.distributed import TCPStore

taken = socket.socket()
taken.bind(("127.0.0.1", 0))
taken.listen()
TCPStore("127.0.0.1", taken.getsockname()[1], world_size=1, is_master=True)
