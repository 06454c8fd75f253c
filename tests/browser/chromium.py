"""Where a real Chromium is, or how one gets here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)
"""It asks nobody for anything but the page."""


def executable() -> str | None:
    """That of the system; None: Playwright's own."""
    found = _on_path()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(
            "apt-get update -qq && apt-get install -y -qq chromium", shell=True, capture_output=True
        )
        found = _on_path()
    if found is not None:
        return found
    said = subprocess.run(
        [sys.executable, "-m", "playwright", "install", "chromium"], capture_output=True, text=True
    )
    if said.returncode:
        pytest.fail(
            "There is no Chromium on PATH, and neither apt-get (as root) nor `playwright install chromium`"
            " could install one: install Chromium, or Google Chrome."
        )
    return None


def _on_path() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name))), None)
