"""Two network namespaces joined by a link of a known bandwidth and latency. It needs root.

Each has one end of a TUN device; packets are carried over by a thread, later by the latency, and the kernel's
token bucket (tc-tbf) lets them out at the bandwidth. The kernel's own delays (netem) are not in every kernel.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import os
import select
import struct
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

TUN = Path("/dev/net/tun")
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
MTU = 9000
BURST_BYTES = 32_000
"""What the token bucket lets out at once: a few packets."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """One side of the link."""

    name: str
    address: str

    def command(self, words: Sequence[str]) -> list[str]:
        """The same command inside."""
        return ["ip", "netns", "exec", self.name, *words]


@contextlib.contextmanager
def shaped_link(bytes_per_s: int, latency_s: float) -> Iterator[tuple[Namespace, Namespace]]:
    """Two namespaces; packets from one to the other take so long, and so many bytes pass in a second."""
    assert os.geteuid() == 0, "this test makes network namespaces, and needs root"
    assert TUN.exists(), f"this test needs {TUN}: load the kernel's module tun"
    tag = uuid.uuid4().hex[:6]
    sides = tuple(Namespace(f"tm-{tag}-{n}", f"10.231.7.{n}") for n in (1, 2))
    stop, ends = threading.Event(), [os.open(TUN, os.O_RDWR) for _ in sides]
    carrier = threading.Thread(target=_carry, args=(ends, latency_s, stop))
    try:
        for side, end in zip(sides, ends, strict=True):
            device = f"tm{side.name[3:]}"
            fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH", device.encode(), IFF_TUN | IFF_NO_PI))
            os.set_blocking(end, False)
            _run("ip", "netns", "add", side.name)
            _run("ip", "link", "set", device, "netns", side.name)
            _run(*side.command(["ip", "link", "set", "lo", "up"]))
            _run(*side.command(["ip", "addr", "add", f"{side.address}/30", "dev", device]))
            _run(*side.command(["ip", "link", "set", device, "mtu", str(MTU), "up"]))
            _run(*side.command(["ip", "link", "set", device, "txqueuelen", "5000"]))
            shape = f"rate {bytes_per_s * 8}bit burst {BURST_BYTES} limit 8000000"
            _run(
                *side.command(["tc", "qdisc", "add", "dev", device, "root", "tbf", *shape.split()])
            )
        carrier.start()
        yield sides[0], sides[1]
    finally:
        stop.set()
        if carrier.ident is not None:
            carrier.join()
        for end in ends:
            os.close(end)
        for side in sides:
            subprocess.run(["ip", "netns", "del", side.name], capture_output=True, check=False)


def _carry(ends: Sequence[int], latency_s: float, stop: threading.Event) -> None:
    """Every packet to the other end, after the latency."""
    other = dict(zip(ends, reversed(ends), strict=True))
    waiting: list[tuple[float, int, int, bytes]] = []
    number = 0
    while not stop.is_set():
        wait = 0.05 if not waiting else max(0.0, min(0.05, waiting[0][0] - time.monotonic()))
        for end in select.select(ends, [], [], wait)[0]:
            with contextlib.suppress(BlockingIOError):
                while packet := os.read(end, MTU + 64):
                    number += 1
                    due = time.monotonic() + latency_s
                    heapq.heappush(waiting, (due, number, other[end], packet))
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            _, _, end, packet = heapq.heappop(waiting)
            with contextlib.suppress(BlockingIOError, OSError):  # lost, as on any full link
                os.write(end, packet)


def _run(*words: str) -> None:
    said = subprocess.run(words, capture_output=True, text=True, check=False)
    assert said.returncode == 0, f"{' '.join(words)}: {said.stderr.strip()}"
