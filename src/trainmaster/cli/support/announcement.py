"""What `trainmaster up` says when it is up, and when it ends."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from trainmaster.cli.support.background import PAGE
from trainmaster.cli.support.format import found_again
from trainmaster.cli.support.remembered_reasons import Reasons, changed_rows
from trainmaster.cli.support.remembered_slots import Devices
from trainmaster.client.address import DATA, SYSTEM_FOLDER, user_data_folder
from trainmaster.daemon.daemon import Daemon
from trainmaster.daemon.unix_users import own_name
from trainmaster.text.formatting import listing, plural

AS_ROOT = (
    "Note: jobs run as root here, whoever submits them: start it as a user of its own, or with --system,"
    " where jobs run as their users."
)
NO_LINK = "`trainmaster token link` prints a link that opens its page."
ONE_ACCOUNT = (
    "Jobs run as {user}, whoever submits them: give tokens only to people who may use this account."
)


def announcement(
    daemon: Daemon,
    url: str,
    folder: Path,
    devices: Devices | None,
    reasons: Reasons | None = None,
    link: str = "",
) -> Iterator[str]:
    """What it does, where it is, what it found, and how to reach it."""
    health = daemon.health()
    if health.trouble:
        yield f"Trainmaster at {url}, waiting for its database: {health.trouble}"
    elif health.role != "active":
        yield f"Trainmaster at {url}, a standby: another one leads on this database and is used."
        return
    else:
        yield f"Trainmaster at {url}, state in {folder}"
        yield f"{PAGE}{link}" if link else NO_LINK
        if devices is not None and devices.is_remembered:
            yield f"{devices.shown}, as at the last start: --slots says otherwise."
        if devices is not None and devices.has_remembered_memory:
            said = f"{devices.gpu_memory} to book on each GPU, as at the last start"
            yield f"{said}: --gpu-memory says otherwise."
        if reasons is not None and reasons.is_remembered:
            added = listing([*changed_rows(reasons.value)]) or "all as ours"
            yield f"Failure reasons of the last start ({added}): --failure-reasons says otherwise."
        running, waiting = daemon.live_jobs()
        kinds = ((running, "running job"), (waiting, "waiting job"))
        found = [plural(number, kind) for number, kind in kinds if number]
        if found:
            yield f"Found {' and '.join(found)}."
    if folder not in (user_data_folder(), SYSTEM_FOLDER):
        yield f"In other terminals: export {DATA}={shlex.quote(str(folder))}"
    if daemon.runs_as_user:
        yield "Jobs run as the users who submit them."
        if health.role == "active" and (former := daemon.jobs_without_account()):
            yield (
                f"Note: {plural(former, 'job')} from before --run-as-user"
                f" {'runs' if former == 1 else 'run'} as root: `trainmaster ps` lists them."
            )
    else:
        yield AS_ROOT if os.geteuid() == 0 else ONE_ACCOUNT.format(user=own_name())


def farewell(daemon: Daemon, folder: Path) -> str:
    """What goes on without the manager, and how to come back to it."""
    if not daemon.is_active.is_set():
        return "Stopped."
    running, waiting = daemon.live_jobs()
    if not running and not waiting:
        return "Stopped; there are no unfinished jobs."
    return f"Stopped. {found_again(running, waiting, folder)}"
