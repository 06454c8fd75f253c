# reason: nccl-error
"""Another rank is gone, says NCCL."""

from torch.distributed import DistBackendError

raise DistBackendError(
    "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:268, remote process exited or there was a"
    " network error, NCCL version 2.21.5\nncclRemoteError: A call failed possibly due to a network error or a remote"
    " process exiting prematurely.\nLast error:\nsocketPollConnect: connect returned Connection refused, retrying"
)
