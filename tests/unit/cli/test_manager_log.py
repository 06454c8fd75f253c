"""Every line of the manager's log is a JSON object, whoever wrote it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from trainmaster.cli.support.manager_log import log_to


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    root, uvicorn = logging.getLogger(), logging.getLogger("uvicorn.error")
    handlers, level = root.handlers[:], root.level
    uvicorn.setLevel(logging.NOTSET)  # servers of other tests in this process set it
    log_to(tmp_path / "manager.log")
    yield tmp_path / "manager.log"
    root.handlers[0].close()
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_lines_of_ours_and_of_libraries_are_json(log: Path) -> None:
    structlog.get_logger("trainmaster.daemon").info("active", jobs=3)
    logging.getLogger("uvicorn.error").info("Started server process [%d]", 4711)
    try:
        raise OSError("no more files")
    except OSError:
        logging.getLogger("trainmaster.api").exception("a request failed")
    for _ in range(3):
        structlog.get_logger("trainmaster.daemon").warning("again", at=1)
    said = [json.loads(line) for line in log.read_text().splitlines()]
    used = ("trainmaster.daemon", "uvicorn.error", "trainmaster.api")  # others may log meanwhile
    ours, theirs, failed, again = [line for line in said if line["logger"] in used]
    assert (ours["event"], ours["jobs"], ours["level"]) == ("active", 3, "info")
    assert theirs["event"] == "Started server process [4711]"
    assert theirs["logger"] == "uvicorn.error"
    assert failed["event"] == "a request failed"
    assert failed["exception"].endswith("OSError: no more files")
    assert again["event"] == "again"
