"""The systemd unit of a manager."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

UNIT = """\
# Written by `trainmaster up --print-unit`. {install}
[Unit]
Description=Trainmaster, the manager of GPU jobs
Wants=network-online.target
After=network-online.target remote-fs.target time-sync.target nvidia-persistenced.service postgresql.service
RequiresMountsFor={folder}
StartLimitIntervalSec=10min
StartLimitBurst=20

[Service]
Type=notify
{variables}ExecStart={command}
# Wrong options (exit code 2) do not become right by trying again.
Restart=on-failure
RestartPreventExitStatus=2
RestartSec=5
# A manager whose event loop stands still is started again.
WatchdogSec=2min
# A large store takes a while to be brought up to date after an upgrade.
TimeoutStartSec=30min
TimeoutStopSec=1min

# Training survives: only the manager is stopped, and the next start takes over what runs.
KillMode=process
# One job without memory is not a reason to stop the others.
OOMPolicy=continue
# Control groups of jobs are made beside the manager's own, which DelegateSubgroup= (systemd 254) moves
# one level lower, so that the service can start again while jobs are left in its group.
Delegate=yes
DelegateSubgroup=manager
TasksMax=infinity
LimitNOFILE=65536:1048576
LimitMEMLOCK=infinity
{runtime}
# Jobs inherit what is set here. Sandboxing (PrivateTmp, ProtectSystem, NoNewPrivileges, DevicePolicy,
# ProtectKernelModules, system call filters) would hide their data, their GPUs or nvidia-modprobe from them.
UMask=0077
KeyringMode=private

[Install]
WantedBy={target}
"""
RUNTIME = """
# /run/trainmaster/manager.sock; the folder stays while the manager is stopped.
RuntimeDirectory=trainmaster
RuntimeDirectoryMode=0755
RuntimeDirectoryPreserve=yes
"""
FOR_SYSTEM = """\
As root:
#   trainmaster up --print-unit ... > /etc/systemd/system/trainmaster.service
#   systemctl daemon-reload && systemctl enable --now trainmaster"""
FOR_USER = """\
As the user:
#   trainmaster up --print-unit ... > ~/.config/systemd/user/trainmaster.service
#   systemctl --user daemon-reload && systemctl --user enable --now trainmaster
#   loginctl enable-linger      (without it jobs end when you log out)"""


def unit_text(
    command: Sequence[str],
    folder: Path,
    variables: Mapping[str, str],
    *,
    for_root: bool,
    is_system: bool,
) -> str:
    """A unit that starts this command with these variables: of the system for root, else of the user."""
    return UNIT.format(
        install=FOR_SYSTEM if for_root else FOR_USER,
        folder=_quoted(str(folder)),
        variables="".join(
            f"Environment={_quoted(f'{name}={value}')}\n" for name, value in variables.items()
        ),
        command=" ".join(map(_quoted, command)),
        runtime=RUNTIME if is_system else "",
        target="multi-user.target" if for_root else "default.target",
    )


def _quoted(word: str) -> str:
    """As systemd reads a word: specifiers and variables are doubled, and spaces need quotes."""
    meant = word.replace("\\", "\\\\").replace("%", "%%").replace("$", "$$")
    if word and not any(each in word for each in " \t\n'\";"):
        return meant
    return '"' + meant.replace('"', '\\"').replace("\n", "\\n") + '"'
