"""The manager's own log: lines of JSON in a file that never grows too large."""

from __future__ import annotations

import logging
import logging.handlers
from pathlib import Path

import structlog

from trainmaster.daemon.repeated_lines import RepeatedLines

LOG_BYTES = 16 << 20
LOG_FILES = 4


def log_to(path: Path) -> None:
    """Everything that is logged goes there from now on."""
    writer = logging.handlers.RotatingFileHandler(path, maxBytes=LOG_BYTES, backupCount=LOG_FILES)
    writer.setFormatter(logging.Formatter("%(message)s"))
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
