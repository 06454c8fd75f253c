"""What a queue holds beyond its guarantee, and what it is owed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def borrowed(row: Mapping[str, Any]) -> float:
    """GPUs that it holds beyond its guarantee."""
    return max(0.0, float(row["gpus"] - row["guaranteed_gpus"]))


def lacking(row: Mapping[str, Any]) -> float:
    """GPUs of its guarantee that it does not hold although jobs of it wait."""
    waits = row["pending"] + row["suspended"]
    return max(0.0, float(row["guaranteed_gpus"] - row["gpus"])) if waits else 0.0
