"""Measure in a fresh process, and record the machine."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

from pebble import ProcessPool

R = TypeVar("R")


def in_fresh_process(measure: Callable[..., R], *args: object, limit_s: int | None = None) -> R:
    """Run `measure` in a fresh process; raises TimeoutError when it takes longer than the limit."""
    with ProcessPool(max_workers=1, context=get_context("spawn")) as pool:
        found: R = pool.schedule(measure, args=args, timeout=limit_s).result()
        return found


def write_report(out: Path, **figures: object) -> None:
    machine = {
        "machine": f"{platform.machine()}, {platform.processor() or 'unknown processor'}",
        "python": platform.python_version(),
        "date": datetime.now(UTC).date().isoformat(),
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(machine | figures, indent=1) + "\n")
    print(f"written to {out}")
