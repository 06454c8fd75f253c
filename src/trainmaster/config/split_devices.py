"""Devices and links of `split` as users write them: `24GiB`, `24GiB@0.5`, `24GiB/2`; `12GB/s,20us`."""

from __future__ import annotations

import re

from trainmaster.config.units import size_bytes
from trainmaster.model.units import NOMINAL
from trainmaster.split.devices import Device, Link

DEVICE = re.compile(
    r"(?P<memory>[\d.]+\s*[A-Za-z]+)(@(?P<speed>\d*\.?\d+))?(/(?P<streams>[1-9]\d?))?"
)
LINK = re.compile(r"(?P<rate>\d*\.?\d+)\s*(?P<unit>[GM])B/s(,\s*(?P<fixed>\d*\.?\d+)\s*us)?")
GIGA = {"G": 1.0, "M": 1e3}
"""Nanoseconds for each byte at 1 GB/s and at 1 MB/s."""


def split_devices(text: str) -> tuple[Device, ...]:
    """ValueError with one sentence where it cannot be read."""
    found: list[Device] = []
    for number, word in enumerate(each.strip() for each in text.split(",")):
        match = DEVICE.fullmatch(word)
        if match is None or not float(match["speed"] or 1):
            raise ValueError(
                f"`{word}` is not a device: write its memory, such as 24GiB, with its speed 24GiB@0.5, or as"
                " two streams of one GPU 24GiB/2."
            )
        try:
            memory = size_bytes(match["memory"])
        except ValueError:
            raise ValueError(
                f"`{match['memory']}` is not an amount of memory: write 24GiB."
            ) from None
        speed = round(float(match["speed"] or 1) * NOMINAL)
        streams = int(match["streams"] or 1)
        if streams == 1:
            found.append(Device(f"{number}", memory, speed))
            continue
        gpu = f"gpu {number}"
        found += [Device(f"{number}.{each}", memory, speed, gpu) for each in range(streams)]
    return tuple(found)


def split_link(text: str) -> Link:
    """ValueError with one sentence where it cannot be read."""
    match = LINK.fullmatch(text.strip())
    if match is None or not float(match["rate"]):
        raise ValueError(
            f"`{text}` is not a link: write its bandwidth and latency, such as 12GB/s,20us."
        )
    return Link(GIGA[match["unit"]] / float(match["rate"]), 1e3 * float(match["fixed"] or 0))
