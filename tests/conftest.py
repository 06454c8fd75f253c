"""Fixtures that several folders of tests share, and Ctrl-C for the programs that they start."""

from __future__ import annotations

import signal

from tests.live.postgres import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]

# A shell lets what it starts in the background ignore Ctrl-C, and programs of tests would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
