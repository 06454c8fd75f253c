"""Fixtures that several folders of tests share, and Ctrl-C for the programs that they start."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tests.live.postgres import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]

# A shell lets what it starts in the background ignore Ctrl-C, and programs of tests would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _same_umask() -> Iterator[None]:
    """Commands that `up` and `restore` stand for close their process's files; the next test's stay open."""
    before = os.umask(0o022)
    yield
    os.umask(before)
