"""The entry in a program's PYTHONPATH that makes the SDK importable there and counts optimizer steps."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import trainmaster_sdk

PATH_ENTRY = str(Path(trainmaster_sdk.__file__).parent / "path_entry")
"""A folder with nothing but a sitecustomize.py."""


def with_path_entry(env: Mapping[str, str]) -> dict[str, str]:
    """The same environment with our entry first. An empty entry would mean the current folder."""
    before = env.get("PYTHONPATH")
    return {**env, "PYTHONPATH": f"{PATH_ENTRY}{os.pathsep}{before}" if before else PATH_ENTRY}
