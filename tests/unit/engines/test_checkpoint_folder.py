"""A checkpoint folder shows when a program saved last."""

from __future__ import annotations

import os
from pathlib import Path

from trainmaster.engines.local.checkpoint_folder import last_written_ns

AT_NS = 1_000_000_000_000


def written(path: Path, at_ns: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path, ns=(at_ns, at_ns))


def test_the_newest_file_counts_if_it_is_later_and_not_hidden(tmp_path: Path) -> None:
    assert last_written_ns(str(tmp_path / "none"), AT_NS) is None
    assert last_written_ns("", AT_NS) is None
    written(tmp_path / "step-1" / "model", AT_NS - 1)
    written(tmp_path / ".stop-0", AT_NS + 9)
    written(tmp_path / ".partial" / "model", AT_NS + 9)
    assert last_written_ns(str(tmp_path), AT_NS) is None
    written(tmp_path / "step-3" / "model", AT_NS + 3)
    written(tmp_path / "step-2" / "model", AT_NS + 2)
    assert last_written_ns(str(tmp_path), AT_NS) == AT_NS + 3
