"""A trouble that comes thousands of times is one line a minute."""

from __future__ import annotations

import io
import logging

import pytest

from trainmaster.daemon import repeated_lines

NONE = {repeated_lines.DROPPED: 0}


def test_equal_lines_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now, out = [100.0], io.StringIO()
    monkeypatch.setattr(repeated_lines.time, "monotonic", lambda: now[0])
    handler = logging.StreamHandler(out)
    handler.addFilter(repeated_lines.RepeatedLines())
    handler.setFormatter(logging.Formatter("%(message)s %(more_like_it)s", defaults=NONE))
    logger = logging.Logger("trouble")
    logger.addHandler(handler)
    for step in range(1000):
        logger.error('{"event": "no more files", "timestamp": "%s"}', step)
        logger.info("said every time")
    logger.error('{"event": "another trouble"}')
    now[0] += 61
    logger.error('{"event": "no more files", "timestamp": "later"}')
    lines = [line for line in out.getvalue().splitlines() if "said" not in line]
    assert len(out.getvalue().splitlines()) == 1000 + 3
    assert lines[0].startswith('{"event": "no more files"')
    assert lines[2].endswith(" 999")
