"""What a path is like, as the manager sees it when it looks whether an input has changed."""

from __future__ import annotations

from pathlib import Path

from trainmaster.daemon.file_worker import stamp
from trainmaster.failures.input_blocks import MISSING


def test_a_missing_path_has_changed_when_the_folder_above_it_has(tmp_path: Path) -> None:
    path = tmp_path / "res" / "deep" / "metrics.csv"
    seen = [stamp(str(path))]
    (tmp_path / "other").touch()
    assert stamp(str(path)) == seen[0], "what else is made there says nothing of it"
    for folder in (path.parent.parent, path.parent):
        folder.mkdir()
        seen.append(stamp(str(path)))
    path.parent.chmod(0o500)
    seen.append(stamp(str(path)))
    assert len(set(seen)) == 4
    assert all(each.startswith(MISSING) for each in seen)
    path.parent.chmod(0o700)
    path.touch()
    assert not stamp(str(path)).startswith(MISSING)


def test_a_url_has_no_folder() -> None:
    assert stamp("s3://bucket/train.rec") == MISSING
