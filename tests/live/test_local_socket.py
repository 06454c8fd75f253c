"""The manager's Unix socket: who is at the other end, and who may connect."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from tests.live.daemons import live
from tests.unix_http import ADA, UnixConnection, as_user, ask


def test_it_answers_its_own_user_and_nobody_else_can_connect(tmp_path: Path) -> None:
    with live(tmp_path / "state", "--slots", "1") as daemon:
        said = json.loads((daemon.folder / "address").read_text())
        path = said["socket"]
        found = os.stat(path)
        assert stat.S_ISSOCK(found.st_mode)
        assert stat.S_IMODE(found.st_mode) == 0o600
        assert len(os.fsencode(path)) < 108
        assert ask(UnixConnection(path), "GET", "/api/v1/nodes").status == 200
        with pytest.raises(PermissionError):
            as_user(ADA, lambda: ask(UnixConnection(path), "GET", "/healthz"))
        daemon.kill()
        daemon.start()
        daemon.until_active()
        again = json.loads((daemon.folder / "address").read_text())
        assert again["socket"] == path, "what was left behind is replaced"
        assert ask(UnixConnection(path), "GET", "/healthz").json["role"] == "active"
        daemon.stop()
        assert not os.path.exists(path)
