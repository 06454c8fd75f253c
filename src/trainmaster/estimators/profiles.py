"""Published single-GPU profiles by model name: what a job is taken for when it brings none of its own.

Speeds: TensorFlow's own benchmarks (`docs_src/performance/benchmarks.md`, May 2017, one P100 of a DGX-1,
synthetic ImageNet, images/s at 32 and at 64 images per step). Models that they leave out are scaled from
a relative by the ratio that tf_cnn_benchmarks gave on one RTX 2080 at 32 images (GitHub,
ggg17226/rtx2080-dl-benchmark). Sizes: Tiresias, Table 6 (`perf/model_zoo.py`).
"""

from __future__ import annotations

from typing import NamedTuple

from trainmaster.model.profile import Profile
from trainmaster.perf.model_zoo import MODELS, table_name

MIB_PER_MB = 1 << 20
"""Tiresias gives sizes in units of 2^20 bytes: 548.1 for the 143.7 million parameters of VGG-19."""


class ImagesPerSecond(NamedTuple):
    """Images per second on one P100."""

    at_32: float
    at_64: float | None = None


SPEEDS = {
    "inception3": ImagesPerSecond(128, 142),
    "resnet50": ImagesPerSecond(195, 219),
    "resnet152": ImagesPerSecond(82.7, 91.8),
    "vgg16": ImagesPerSecond(144, 154),
    "vgg11": ImagesPerSecond(144 * 240.60 / 126.27),
    "vgg19": ImagesPerSecond(144 * 108.83 / 126.27),
    "resnet101": ImagesPerSecond(195 * 108.99 / 178.01),
    "inception4": ImagesPerSecond(128 * 68.32 / 133.04),
    "googlenet": ImagesPerSecond(195 * 468.09 / 178.01),
}


def _size(model: str) -> int:
    return round(MODELS[model].total_mb * MIB_PER_MB)


ALEXNET = Profile(step_us=round(512e6 / 2987), batch=512, sync_bytes=_size("alexnet"))
"""The only one measured at 512 images per step."""


def _profile(model: str, speed: ImagesPerSecond) -> Profile:
    size = _size(model)
    at_32 = 32e6 / speed.at_32
    if speed.at_64 is None:
        return Profile(step_us=round(at_32), batch=32, sync_bytes=size)
    at_64 = 64e6 / speed.at_64
    fixed = max(0.0, 2 * at_32 - at_64)
    return Profile(step_us=round(at_64), batch=64, sync_bytes=size, fixed_us=round(fixed))


PROFILES = {
    **{model: _profile(model, speed) for model, speed in SPEEDS.items()},
    "alexnet": ALEXNET,
}


def known_profile(model: str) -> Profile | None:
    """The published profile of a model, its batch being that of one GPU."""
    return PROFILES.get(table_name(model))
