"""The systemd unit: training must survive a restart of it, and its command is the one that was given."""

from __future__ import annotations

import configparser
import os
import shlex
import sys
from pathlib import Path

import pytest

from trainmaster.cli.main import main
from trainmaster.cli.support.service_notifications import ServiceNotifications
from trainmaster.cli.support.service_unit import unit_text


def parsed(text: str) -> configparser.ConfigParser:
    found = configparser.ConfigParser(interpolation=None, delimiters=("=",))
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read_string(text)
    return found


@pytest.mark.parametrize("is_system", [False, True])
def test_training_survives_a_restart_of_the_service(is_system: bool) -> None:
    text = unit_text(
        ["python", "-m", "trainmaster"], Path("/data"), {}, for_root=True, is_system=is_system
    )
    service = parsed(text)["Service"]
    assert service["KillMode"] == "process"
    assert service["OOMPolicy"] == "continue"
    assert service["TasksMax"] == "infinity"
    assert (service["Type"], service["Restart"]) == ("notify", "on-failure")
    assert (service["Delegate"], service["DelegateSubgroup"]) == ("yes", "manager")
    assert service.get("RuntimeDirectoryPreserve") == ("yes" if is_system else None)
    hidden = {"PrivateTmp", "ProtectSystem", "ProtectHome", "NoNewPrivileges", "DevicePolicy"}
    assert not hidden & set(service)


def test_the_command_is_the_one_that_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRAINMASTER_HOSTS", "tower,tower.lan")
    (tmp_path / "ours.yaml").write_text("")
    folder = tmp_path / "50% of $it"
    options = ["--slots", "2", "--failure-reasons", "ours.yaml", "--set", "min_run_s=5"]
    assert main(["up", "--print-unit", "--data", str(folder), *options]) == 0
    unit = parsed(capsys.readouterr().out)
    assert unit["Service"]["Environment"] == "TRAINMASTER_HOSTS=tower,tower.lan"
    command = shlex.split(unit["Service"]["ExecStart"])
    meant = [word.replace("%%", "%").replace("$$", "$") for word in command]
    assert meant[:6] == [sys.executable, "-m", "trainmaster", "up", "--data", str(folder)]
    given = dict(zip(meant[6::2], meant[7::2], strict=True))
    assert given == {
        "--slots": "2",
        "--failure-reasons": str(tmp_path / "ours.yaml"),
        "--set": "min_run_s=5",
    }
    wanted = "multi-user.target" if os.geteuid() == 0 else "default.target"
    assert unit["Install"]["WantedBy"] == wanted
    assert not folder.exists(), "nothing is started or made"


def test_a_watchdog_of_another_process_is_not_ours() -> None:
    def ping_s(**said: str) -> float | None:
        return ServiceNotifications(dict(said)).ping_s

    ours = str(os.getpid())
    assert ping_s(NOTIFY_SOCKET="/x", WATCHDOG_USEC="3000000", WATCHDOG_PID=ours) == 1.0
    assert ping_s(NOTIFY_SOCKET="/x", WATCHDOG_USEC="3000000") == 1.0
    assert ping_s(NOTIFY_SOCKET="/x", WATCHDOG_USEC="3000000", WATCHDOG_PID="1") is None
    assert ping_s(WATCHDOG_USEC="3000000") is None
    assert ping_s() is None
