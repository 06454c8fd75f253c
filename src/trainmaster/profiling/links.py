"""Measures the links between devices, and between nodes, by all-reduces in processes of their own."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainmaster.estimators.interconnect import fit_link
from trainmaster.model.topology import Link

METER = Path(__file__).with_name("link_meter.py")
SIZES = (4_096, 65_536, 1_048_576, 4_194_304, 26_214_400)
"""Bytes of the all-reduces: the last is a bucket of gradients (PyTorch's default)."""
INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
SIOCGIFADDR = 0x8915
"""The address of a network interface (netdevice(7))."""
POLL_S = 0.1
END_S = 5.0


class CannotMeasure(Exception):
    """One sentence that says why, and what to do."""


class NoTorch(CannotMeasure):
    """Nothing was tried: the Python is missing, or has no torch."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """The nodes that measure together, and where they meet: rank 0 listens there."""

    rank: int
    nodes: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class LinkMeter:
    """How links are measured on this node."""

    python: str
    """That of the training environment: it has torch."""
    seconds: float
    """Of each size."""
    patience_s: float
    """How long ranks wait for each other."""

    def between_devices(self, ranks: int, *, on_gpus: bool) -> Link:
        """The link between so many devices of this node: GPUs by NCCL, else processes by gloo."""
        with tempfile.TemporaryDirectory(prefix="trainmaster-links-") as name:
            meet = f"file://{name}/meet"
            requests = [
                self._request(rank, ranks, meet, gpu=rank if on_gpus else None, own=None)
                for rank in range(ranks)
            ]
            env = {} if on_gpus else dict.fromkeys(INTERFACES[:1], "lo")
            found = self._results(requests, Path(name), env)
        return _fitted(ranks, found["times"])

    def between_nodes(self, meeting: Meeting, own: Link | None, *, on_gpus: bool) -> Nodes | None:
        """As one node of several, by one device of each; rank 0 alone knows what all of them found."""
        said = None if own is None else [own.bytes_per_s, own.latency_us]
        meet = f"tcp://{meeting.host}:{meeting.port}"
        gpu = 0 if on_gpus else None
        request = self._request(meeting.rank, meeting.nodes, meet, gpu=gpu, own=said)
        env = dict.fromkeys(INTERFACES, interface_to(meeting.host))
        with tempfile.TemporaryDirectory(prefix="trainmaster-links-") as name:
            found = self._results([request], Path(name), env)
        if meeting.rank:
            return None
        inside = tuple(Link(*each) for each in found["own"] if each is not None)
        return Nodes(_fitted(meeting.nodes, found["times"]), inside)

    def _request(
        self, rank: int, ranks: int, meet: str, *, gpu: int | None, own: object
    ) -> dict[str, Any]:
        return {
            "rank": rank,
            "ranks": ranks,
            "meet": meet,
            "gpu": gpu,
            "own": own,
            "sizes": SIZES,
            "seconds": self.seconds,
            "patience_s": self.patience_s,
        }

    def _results(
        self, requests: Sequence[dict[str, Any]], folder: Path, env: dict[str, str]
    ) -> dict[str, Any]:
        """What the first of these ranks writes; all have ended when this does."""
        files = [folder / f"{each['rank']}.json" for each in requests]
        own = {**env, **os.environ}
        running: list[subprocess.Popen[bytes]] = []
        try:
            for request, file in zip(requests, files, strict=True):
                command = [self.python, str(METER), json.dumps(request), str(file)]
                log = (folder / f"{request['rank']}.log").open("wb")
                with log:
                    running.append(
                        subprocess.Popen(
                            command, env=own, stdin=subprocess.DEVNULL, stdout=log, stderr=log
                        )
                    )
            until = time.monotonic() + 2 * self.patience_s + 10 * self.seconds * len(SIZES)
            while any(each.poll() is None for each in running) and time.monotonic() < until:
                if any(_trouble(file) for file in files):
                    break
                time.sleep(POLL_S)
        except OSError as error:
            raise NoTorch(
                f"cannot start {self.python} ({error.strerror}): name a Python with --python"
            ) from None
        finally:
            _end(running)
        for request, file in zip(requests, files, strict=True):
            if trouble := _trouble(file):
                raise _failure(trouble, self.python, f"rank {request['rank']} failed ({trouble})")
        for request, each in zip(requests, running, strict=True):
            if each.returncode:
                raise _death(folder / f"{request['rank']}.log", self.python)
        return json.loads(files[0].read_text()) if files[0].exists() else {}


@dataclass(frozen=True, slots=True)
class Nodes:
    """What several nodes found together."""

    between: Link
    inside: tuple[Link, ...]
    """Between the devices of each node that measured its own."""


def slowest(links: Sequence[Link]) -> Link:
    """The one that a gang over all of these has to wait for."""
    return Link(min(each.bytes_per_s for each in links), max(each.latency_us for each in links))


def interface_to(host: str) -> str:
    """The network interface over which this machine reaches a host, or has its address."""
    try:
        address = socket.gethostbyname(host)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            own = probe.getsockname()[0]
            for _, name in socket.if_nameindex():
                if _address_of(probe, name) == own:
                    return name
    except OSError as error:
        raise CannotMeasure(
            f"{host} cannot be reached ({error.strerror or error}): name another with --meet"
        ) from None
    raise CannotMeasure(f"no network interface has the address {own}: set {INTERFACES[0]}")


def _address_of(probe: socket.socket, interface: str) -> str | None:
    with contextlib.suppress(OSError):
        asked = struct.pack("256s", interface.encode()[:15])
        return socket.inet_ntoa(fcntl.ioctl(probe.fileno(), SIOCGIFADDR, asked)[20:24])
    return None


def _fitted(ranks: int, times: dict[str, float]) -> Link:
    try:
        return fit_link(ranks, {int(size): span for size, span in times.items()})
    except ValueError as error:
        raise CannotMeasure(str(error)) from None


def _trouble(file: Path) -> str:
    try:
        return str(json.loads(file.read_text()).get("trouble", ""))
    except (OSError, ValueError):  # not there yet, or not whole
        return ""


def _end(running: Sequence[subprocess.Popen[bytes]]) -> None:
    for each in running:
        if each.poll() is None:
            each.send_signal(signal.SIGTERM)
    for each in running:
        with contextlib.suppress(subprocess.TimeoutExpired):
            each.wait(END_S)
        each.kill()
        each.wait()


def _death(log: Path, python: str) -> CannotMeasure:
    said = log.read_text(errors="replace")
    lines = said.strip().splitlines() or ["it said nothing"]
    return _failure(said, python, f"a process that measures died ({lines[-1][:200]})")


def _failure(said: str, python: str, why: str) -> CannotMeasure:
    if "No module named 'torch'" in said:
        return NoTorch(
            f"{python} has no torch: name the Python of the training environment with --python"
        )
    return CannotMeasure(why)
