"""Which store and folder commands work on that need no manager, and who may use them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainmaster.cli.main import main
from trainmaster.cli.support.own_store import refuse_others_folder, store_of
from trainmaster.daemon.data_folder import StoreMark, write_mark
from trainmaster.errors import BadInput

COMMANDS = (["backup"], ["restore", "backup.tar.gz"], ["doctor"])


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_they_are_for_the_owner_of_the_folder(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert main([*command, "--data", str(tmp_path)]) == 2
    assert "only that user may do this there" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_root_reads_any_folder_and_leaves_no_files_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(
        Path, "stat", lambda _: os.stat_result((0o40700, 0, 0, 2, 7, 7, 0, 0, 0, 0))
    )
    refuse_others_folder(tmp_path, root_may=True)
    with pytest.raises(BadInput, match="the user with the id 7"):
        refuse_others_folder(tmp_path, root_may=False)


def test_a_folder_that_is_closed_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(_: Path) -> os.stat_result:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "stat", closed)
    with pytest.raises(BadInput, match="permission denied"):
        refuse_others_folder(tmp_path, root_may=True)


def test_the_store_is_the_one_that_the_folder_was_used_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRAINMASTER_DATABASE", raising=False)
    own = f"sqlite:///{tmp_path}/trainmaster.db"
    assert store_of(tmp_path, None, None) == own
    write_mark(tmp_path, StoreMark("s", "postgresql://tm@db/tm", 1))
    assert store_of(tmp_path, None, None) == "postgresql://tm@db/tm"
    write_mark(tmp_path, StoreMark("s", "sqlite:////before/it/was/moved/trainmaster.db", 1))
    assert store_of(tmp_path, None, None) == own
    assert store_of(tmp_path, "sqlite:////other.db", None) == "sqlite:////other.db"
