"""The path of a manager's Unix socket is the leader's, and what is left behind is cleaned up."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainmaster.api.local_socket import SYSTEM_MODE, LocalSocket, listener_at, system_path


def test_a_standby_takes_the_path_when_it_leads_and_the_former_leader_leaves_it_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "manager.sock"
    leader = LocalSocket(path)
    leader.publish()
    assert listener_at(path) == os.getpid()
    with monkeypatch.context() as patched:
        patched.setattr(os, "getpid", lambda: 1)
        standby = LocalSocket(path, SYSTEM_MODE)
    assert path.stat().st_mode & 0o777 == 0o600
    standby.publish()
    assert path.stat().st_mode & 0o777 == 0o666
    leader.withdraw()
    assert listener_at(path) == os.getpid(), "the other one's is not removed"
    standby.withdraw()
    assert os.listdir(tmp_path) == []


def test_what_a_killed_standby_left_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "manager.sock"
    left = LocalSocket(path)
    left.sock.close()  # its process is gone
    os.rename(tmp_path / f"manager.sock.{os.getpid()}", tmp_path / "manager.sock.1")
    fresh = LocalSocket(path)
    fresh.publish()
    fresh.sock.close()
    assert os.listdir(tmp_path) == ["manager.sock"]


def test_the_folder_of_the_socket_for_everybody_must_not_be_open_to_changes(tmp_path: Path) -> None:
    path = system_path(tmp_path / "run" / "manager.sock")
    assert path.parent.stat().st_mode & 0o777 == 0o755
    path.parent.chmod(0o777)
    with pytest.raises(PermissionError, match="only root can change"):
        system_path(path)
