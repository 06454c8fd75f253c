"""A checkpoint folder shows whether a program has saved."""

from __future__ import annotations

import os
from pathlib import Path

from trainmaster.engines.local.checkpoint_folder import has_file_since

AT_NS = 1_000_000_000_000


def written(path: Path, at_ns: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path, ns=(at_ns, at_ns))


def test_only_files_that_are_newer_and_not_hidden_count(tmp_path: Path) -> None:
    assert not has_file_since(str(tmp_path / "none"), AT_NS)
    assert not has_file_since("", AT_NS)
    written(tmp_path / "step-1" / "model", AT_NS - 1)
    written(tmp_path / ".stop-0", AT_NS + 1)
    written(tmp_path / ".partial" / "model", AT_NS + 1)
    assert not has_file_since(str(tmp_path), AT_NS)
    written(tmp_path / "step-2" / "model", AT_NS + 1)
    assert has_file_since(str(tmp_path), AT_NS)
