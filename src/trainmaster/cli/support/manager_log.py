"""The manager's own log: lines of JSON in a file that never grows too large."""

from __future__ import annotations

import json
import logging
import logging.handlers
from datetime import UTC, datetime
from pathlib import Path

import structlog

from trainmaster.daemon.repeated_lines import DROPPED, RepeatedLines

LOG_BYTES = 16 << 20
LOG_FILES = 4


class JsonLines(logging.Formatter):
    """One JSON object for each record: ours are that already, those of libraries are made one."""

    def format(self, record: logging.LogRecord) -> str:
        said = record.getMessage()
        fields = _object(said) or {
            "event": said,
            "level": record.levelname.lower(),
            "logger": record.name,
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        dropped = getattr(record, DROPPED, 0)
        return json.dumps(fields | ({DROPPED: dropped} if dropped else {}))


def _object(text: str) -> dict[str, object] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def log_to(path: Path) -> None:
    """Everything that is logged goes there from now on."""
    writer = logging.handlers.RotatingFileHandler(path, maxBytes=LOG_BYTES, backupCount=LOG_FILES)
    writer.setFormatter(JsonLines())
    writer.addFilter(RepeatedLines())
    logging.raiseExceptions = False  # a log on a full disk is not worth a traceback for every line
    root = logging.getLogger()
    root.handlers[:] = [writer]
    root.setLevel(logging.INFO)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    structlog.configure(
        processors=[
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
