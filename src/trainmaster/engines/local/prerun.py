"""A pre-run: what a program is given so that its first iterations leave nothing behind.

Checkpoints go into a folder of the run's own, which is removed with the run's end; a copy of the code is
copied again. Experiment trackers write to the disk instead of their servers.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

from trainmaster.engines.local.prerun_end import folder_of
from trainmaster.engines.local.privileges import give_folder, is_users, run_as
from trainmaster.model.launch_spec import LaunchSpec
from trainmaster.model.units import SECOND
from trainmaster_sdk import wire

GRACE_MS = 5 * SECOND
"""How long it may take to leave, at most: it has nothing to save."""
TRACKERS = ".trackers"
"""In the checkpoint folder, which containers see too: what trackers write."""
CODE = "code"
"""What copies of code are called in the data folder."""


def quiet_trackers(folder: str) -> dict[str, str]:
    """What keeps experiment trackers from their servers, by their documentation; TensorBoard has none."""
    return {
        "WANDB_MODE": "offline",
        "WANDB_DIR": folder,
        "MLFLOW_TRACKING_URI": Path(folder, "mlruns").as_uri(),
        "COMET_START_ONLINE": "false",
        "COMET_MODE": "OFFLINE",
        "COMET_AUTO_LOG_DISABLE": "true",
        "COMET_OFFLINE_DIRECTORY": folder,
        "NEPTUNE_MODE": "offline",
        "NEPTUNE_LOG_DIRECTORY": folder,
        "NEPTUNE_DATA_DIRECTORY": folder,
        "CLEARML_OFFLINE_MODE": "1",
        "SWANLAB_MODE": "offline",
    }


def prerun_spec(spec: LaunchSpec, run_folder: Path) -> LaunchSpec:
    """The same program with folders of its own, quiet trackers and a short grace period."""
    folder = Path(folder_of(str(run_folder), spec.account))
    checkpoints = folder / "checkpoints"
    own = quiet_trackers(str(checkpoints / TRACKERS)) | {wire.PRERUN: "1"}
    stated = [(name, value) for name, value in spec.env if name not in own]
    is_copy = (
        Path(spec.workdir).name == CODE and run_folder.parents[2] in Path(spec.workdir).parents
    )
    return replace(
        spec,
        checkpoint_dir=str(checkpoints),
        workdir=str(folder / CODE) if is_copy else spec.workdir,
        env=(*stated, *own.items()),
        # a container is removed in the time that its job has, and would outlive a shorter one
        grace_ms=spec.grace_ms if spec.prefix else min(spec.grace_ms, GRACE_MS),
        max_runtime_ms=None,
    )


def make_folder(spec: LaunchSpec, run_folder: Path) -> None:
    """Make its own folders, the copy of a copy of the code among them."""
    own, account = prerun_spec(spec, run_folder), spec.account
    trackers = os.path.join(own.checkpoint_dir, TRACKERS)
    if is_users(account):
        give_folder(folder_of(str(run_folder), account), account)
        run_as(account, ("mkdir", "-p", trackers))
        if own.workdir != spec.workdir:
            run_as(account, ("rm", "-rf", own.workdir))  # of a start that was broken off
            run_as(account, ("cp", "-RPp", spec.workdir, own.workdir))
        return
    os.makedirs(trackers, mode=0o700, exist_ok=True)
    if own.workdir != spec.workdir and not os.path.exists(own.workdir):
        shutil.copytree(spec.workdir, own.workdir, symlinks=True)
