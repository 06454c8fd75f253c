# reason: nccl-timeout
"""The watchdog of NCCL ends a rank that waits too long."""

import os
import sys

timed_out = (
    "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=812, OpType=ALLREDUCE, NumelIn=25600,"
    " NumelOut=25600, Timeout(ms)=600000) ran for 600031 milliseconds before timing out."
)
sys.stderr.write(
    f"[rank3]:[E1116 10:00:01.123456789 ProcessGroupNCCL.cpp:632] {timed_out}\n"
    "[rank3]:[E1116 10:00:01.123456790 ProcessGroupNCCL.cpp:684] [Rank 3] Some NCCL operations have failed or timed"
    " out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted data.\n"
    "terminate called after throwing an instance of 'c10::DistBackendError'\n"
    f"  what():  [PG ID 0 PG GUID 0(default_pg) Rank 3] Process group watchdog thread terminated with exception:"
    f" {timed_out}\nException raised from checkTimeout at ProcessGroupNCCL.cpp:635 (most recent call first):\n"
    "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x96 (0x7f22 in libc10.so)\n"
)
sys.stderr.flush()
os.abort()
