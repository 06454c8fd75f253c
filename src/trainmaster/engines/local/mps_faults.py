"""Whose fault it was that a client of MPS failed: its own, or that of a neighbour on the same daemon.

A fatal fault of one client (an illegal address, say) ends the others of its GPU as well, with an error that
does not say whose it was. On an H200 a failed assertion of one client left its neighbour alone; a fault that
took the neighbours down was not seen on hardware, and is judged by NVIDIA's documentation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from trainmaster.model.engine_reports import Ended, Lost, StopOrder

WINDOW_MS = 10_000
"""Clients of one daemon that fail within this time of one another fail of one fault."""
OF_THE_GPU = re.compile(
    r"CUDA error|CUDA_ERROR_|cudaError|CUBLAS_STATUS|CUDNN_STATUS|illegal memory access"
    r"|unspecified launch failure|MPS (client|server)",
    re.IGNORECASE,
)
"""What a program prints that fails of its GPU."""
OUT_OF_MEMORY = re.compile(r"out of memory|OutOfMemory|MEMORY_ALLOCATION", re.IGNORECASE)
"""That is a client's own affair: the others do not notice."""
FAULT = re.compile(r"fatal|fault|exception", re.IGNORECASE)
STAMP = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")


@dataclass(frozen=True, slots=True)
class ClientFailure:
    """A client of MPS that failed by itself."""

    gpu: str
    end: Ended


def has_failed(end: Ended) -> bool:
    """Whether it failed, and nobody had told it to stop."""
    return end.code != 0 and end.asked is StopOrder.NOTHING


def fault_line(lines: Iterable[str], at_ms: int) -> str:
    """The last line of an MPS log that tells of a fault at about that time; empty if none does."""
    found = ""
    for line in lines:
        stamp = STAMP.match(line)
        if stamp is None or not FAULT.search(line):
            continue
        then = datetime.fromisoformat(stamp[1]).astimezone().timestamp() * 1000
        if abs(then - at_ms) <= WINDOW_MS:
            found = line.strip()
    return found


def collateral(
    failure: ClientFailure, earlier: Sequence[ClientFailure], evidence: str = ""
) -> Lost | None:
    """The failure as a loss, where a neighbour that failed just before it is to blame; None: its own.

    `evidence` is what the daemon's log says of it. Without that the program must have failed of its GPU.
    """
    end = failure.end
    first = next(
        (
            each.end
            for each in earlier
            if each.gpu == failure.gpu
            and each.end.run.job != end.run.job
            and abs(end.at_ms - each.end.at_ms) <= WINDOW_MS
        ),
        None,
    )
    is_of_the_gpu = bool(evidence) or bool(OF_THE_GPU.search(end.tail))
    if first is None or not is_of_the_gpu or OUT_OF_MEMORY.search(end.tail):
        return None
    said = f" (its log: {evidence})" if evidence else ""
    why = (
        f"A fault of job {first.run.job} ended it as well: both shared their GPU by MPS{said}."
        " This does not count as a failure of its own."
    )
    return Lost(end.run, end.at_ms, why, end.steady_ms)
