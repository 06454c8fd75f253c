"""Files of a data folder in a backup and out of it, on every version of Python that Trainmaster runs on."""

from __future__ import annotations

import os
import stat
import tarfile
from pathlib import Path

import pytest

from trainmaster.daemon.backup_file import FOLDER, unpack, writing


@pytest.fixture
def python_3_11_2(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Debian 12 has it: `tarfile` cannot judge what it extracts."""
    extract = tarfile.TarFile.extract

    def without_filter(self: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
        extract(self, member, path)

    for name in ("data_filter", "FilterError"):
        monkeypatch.delattr(tarfile, name, raising=False)
    monkeypatch.setattr(tarfile.TarFile, "extract", without_filter)


@pytest.mark.usefixtures("python_3_11_2")
def test_files_are_put_back_as_they_were_and_links_that_lead_out_are_left_out(
    tmp_path: Path,
) -> None:
    source, made, target = tmp_path / "source", tmp_path / "made.tar.gz", tmp_path / "target"
    folder = source / "jobs" / "1"
    folder.mkdir(parents=True)
    target.mkdir()
    (folder / "model").write_bytes(b"weights")
    (folder / "train").write_text("true")
    (folder / "train").chmod(0o777)
    os.utime(folder / "model", (1_000_000, 1_000_000))
    (folder / "newest").symlink_to("model")
    (folder / "out").symlink_to("../../../elsewhere")
    (folder / "root").symlink_to("/etc")
    with writing(made) as writer:
        paths = [source / "jobs", folder, *sorted(folder.iterdir())]
        said = [writer.add_path(path, f"{FOLDER}{path.relative_to(source)}") for path in paths]
    assert [each for each in said if each] == [
        f"{folder / name} leads out of the data folder, and was left out"
        for name in ("out", "root")
    ]
    assert unpack(made, target).left_out == 0
    back = target / "jobs" / "1"
    assert sorted(each.name for each in back.iterdir()) == ["model", "newest", "train"]
    assert (back / "newest").read_bytes() == b"weights"
    assert (back / "model").stat().st_mtime == 1_000_000
    assert stat.S_IMODE((back / "train").stat().st_mode) == 0o755


@pytest.mark.usefixtures("python_3_11_2")
def test_a_link_in_a_backup_that_leads_out_is_not_put_back(tmp_path: Path) -> None:
    made, target = tmp_path / "made.tar.gz", tmp_path / "target"
    target.mkdir()
    with tarfile.open(made, "w:gz") as archive:
        for name, leads_to in (("jobs", ""), ("jobs/out", "../../etc"), ("jobs/in", "model")):
            info = tarfile.TarInfo(f"{FOLDER}{name}")
            info.type = tarfile.SYMTYPE if leads_to else tarfile.DIRTYPE
            info.mode, info.linkname = 0o755, leads_to
            archive.addfile(info)
    assert unpack(made, target).left_out == 1
    assert [each.name for each in (target / "jobs").iterdir()] == ["in"]
