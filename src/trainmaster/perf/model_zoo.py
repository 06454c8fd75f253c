"""Published models: how large, how skewed, and under which name tables know them.

Skew = largest tensor / total size (Tiresias, Table 6).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from trainmaster.model.units import NOMINAL


@dataclass(frozen=True, slots=True)
class ModelSize:
    total_mb: float
    largest_mb: float

    @property
    def skew_ppm(self) -> int:
        return round(NOMINAL * self.largest_mb / self.total_mb)


MODELS = {
    "vgg19": ModelSize(548.1, 392.0),
    "vgg16": ModelSize(527.8, 392.0),
    "vgg11": ModelSize(506.8, 392.0),
    "alexnet": ModelSize(235.9, 144.0),
    "resnet152": ModelSize(230.2, 9.0),
    "resnet101": ModelSize(170.4, 9.0),
    "resnet50": ModelSize(97.7, 9.0),
    "inception4": ModelSize(162.9, 5.9),
    "inception3": ModelSize(91.0, 7.8),
    "googlenet": ModelSize(26.7, 3.9),
}

DEFAULT_MODEL = "default"
"""In a table by model: every model that is not listed."""
OTHER_NAMES = {"inceptionv3": "inception3", "inceptionv4": "inception4"}


@lru_cache(maxsize=4_096)
def table_name(model: str) -> str:
    """The name that tables use: `ResNet-50 (batch size 64)` is resnet50, `Inception_v3` inception3."""
    bare = "".join(letter for letter in model.partition("(")[0].lower() if letter.isalnum())
    return OTHER_NAMES.get(bare, bare)


def skew_ppm(model: str) -> int:
    """Largest tensor as a part of the whole; an unknown model is not skewed."""
    known = MODELS.get(table_name(model))
    return known.skew_ppm if known is not None else 0
