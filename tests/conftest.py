"""Fixtures that several folders of tests share."""

from __future__ import annotations

from tests.live.postgres import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]
