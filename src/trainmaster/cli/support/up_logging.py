"""Where the daemon's own log goes: lines of JSON in a file that never grows too large."""

from __future__ import annotations

import logging
import logging.handlers
from pathlib import Path

import structlog

FILE_BYTES = 16 << 20
FILES = 4


def log_to(path: Path) -> None:
    writer = logging.handlers.RotatingFileHandler(path, maxBytes=FILE_BYTES, backupCount=FILES)
    writer.setFormatter(logging.Formatter("%(message)s"))
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
