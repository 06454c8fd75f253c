"""Log lines that come again and again: the first is written, then one a minute with how many there were."""

from __future__ import annotations

import json
import logging
import time
from collections import OrderedDict

EVERY_S = 60.0
REMEMBERED = 256
DROPPED = "more_like_it"
"""The attribute of a record that says how many like it were dropped since the last one."""


class RepeatedLines(logging.Filter):
    """Drops lines that were written within the last minute, times aside."""

    def __init__(self) -> None:
        super().__init__()
        self._written: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """By line: when it was last written, and how often it came since."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        key, now = _key(record), time.monotonic()
        at, dropped = self._written.get(key, (None, 0))
        if at is not None and now - at < EVERY_S:
            self._written[key] = (at, dropped + 1)
            return False
        self._written[key] = (now, 0)
        self._written.move_to_end(key)
        while len(self._written) > REMEMBERED:
            self._written.popitem(last=False)
        if dropped:
            setattr(record, DROPPED, dropped)
        return True


def _key(record: logging.LogRecord) -> str:
    said = record.getMessage()
    if said.startswith("{"):
        try:
            fields = json.loads(said)
            fields.pop("timestamp", None)
            said = json.dumps(fields)
        except ValueError:
            pass
    raised = repr(record.exc_info[1]) if record.exc_info else ""
    return f"{record.name} {said} {raised}"
