"""`trainmaster down`: stop the manager; its jobs go on."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from trainmaster.cli.support.console import show_answer
from trainmaster.cli.support.format import found_again, left_jobs
from trainmaster.cli.support.options import AsJson, option
from trainmaster.client.address import URL, is_alive, is_process_of
from trainmaster.client.job_lists import list_jobs
from trainmaster.client.manager_api import Json, ManagerApi, RequestRefused, Unreachable, job_path
from trainmaster.client.polling import pause, poll
from trainmaster.errors import Failed
from trainmaster.model.job_state import LIVE_STATES, JobState
from trainmaster.text.formatting import exact_length, plural

if TYPE_CHECKING:
    from trainmaster.engines.ray.withdraw import Withdrawn

RAY = (
    "Take back from Ray what the manager has there: launchers and reservations, or the cluster that `up"
    " --nodes` has started; also where no manager runs any more. Jobs that still run there end."
)
LONGEST_S = 60.0
NO_RAY = "It was not on Ray."
LIVE = {"state": ",".join(LIVE_STATES)}
JOBS = "Cancel all jobs first, and wait until they have ended."


def down(
    client: ManagerApi,
    jobs: Annotated[bool, option("--jobs", JOBS)] = False,
    ray: Annotated[bool, option("--ray", RAY)] = False,
    as_json: AsJson = False,
) -> None:
    """Stop the manager. Its jobs go on, and the next `trainmaster up` finds them again.

    Examples:
        trainmaster down
        trainmaster down --jobs
        trainmaster down --jobs --ray
        trainmaster down --ray
    """
    try:
        answer = client.get("/status")
    except (Unreachable, Failed) as nobody:
        if not ray or isinstance(nobody, RequestRefused):
            raise
        done = _withdraw_alone(client, nobody)
        about: Json = {"url": None, "pid": None, "jobs": None, "cancelled": 0, "standbys": []}
        show_answer({**about, "ray": asdict(done)}, as_json, done.sentence)
        return
    cancelled = _cancel_all(client) if jobs else 0
    is_leader = answer["role"] == "active"
    try:
        states = [row["state"] for row in list_jobs(client, LIVE)] if is_leader else []
        unknown = ""
    except (RequestRefused, Unreachable) as error:  # it can be stopped all the same
        states, unknown = [], f"{error} Jobs go on."
    left, folder = len(states), Path(answer["folder"])
    _end(client, answer["pid"])
    standbys = _managers_of(folder) if is_leader else []
    withdrawn, trouble = _withdraw(folder, standbys) if ray else (None, "")
    said = [f"{plural(cancelled, 'job')} cancelled."] if jobs else []
    if withdrawn is not None and states:
        said += [end_without_nodes(states, withdrawn.fence_s)]
    elif states:
        said += [_go_on(states, folder, bool(standbys))]
    said += [unknown] if unknown else []
    said += [f"The manager at {client.url} has stopped."]
    said += [_takes_over(standbys)] if standbys else []
    said += [trouble if withdrawn is None else withdrawn.sentence] if ray else []
    counts = {"jobs": left, "cancelled": cancelled, "standbys": standbys}
    report: Json = {"url": client.url, "pid": answer["pid"], **counts}
    if ray:
        report["ray"] = {"trouble": trouble} if withdrawn is None else asdict(withdrawn)
    show_answer(report, as_json, " ".join(said))


def _withdraw_alone(client: ManagerApi, nobody: Failed) -> Withdrawn:
    """What managers that do not run any more have left; `nobody` says that none runs."""
    folder = _folder_of(client)
    if folder is None or not folder.is_dir() or _managers_of(folder):
        raise nobody
    withdrawn, trouble = _withdraw(folder, ())
    if withdrawn is None:
        raise Failed(f"No Trainmaster runs in {folder}. {trouble}")
    return withdrawn


def _folder_of(client: ManagerApi) -> Path | None:
    """The data folder that is meant, though no manager runs there; None where an address is."""
    from trainmaster.cli.support.own_store import managed_folder

    url, data = client.stated
    return None if url or (data is None and os.environ.get(URL)) else managed_folder(data)


def _withdraw(folder: Path, standbys: Sequence[int]) -> tuple[Withdrawn | None, str]:
    """What is not on Ray any more, or why nothing was taken back: the manager has stopped all the same."""
    import asyncio

    from trainmaster.cli.support.background import LOG
    from trainmaster.cli.support.engine_option import RAY as NAME
    from trainmaster.cli.support.engine_option import remembered_engine, store_name
    from trainmaster.cli.support.manager_log import log_to
    from trainmaster.engines.protocol import EngineError
    from trainmaster.engines.ray import local_cluster
    from trainmaster.engines.ray.withdraw import withdraw

    if standbys:
        return None, "Nothing was taken back from Ray: that manager needs it."
    choice = remembered_engine(folder)
    if choice.name != NAME and not (folder / local_cluster.FILE).exists():
        return None, NO_RAY
    log_to(folder / LOG)
    try:
        return asyncio.run(withdraw(folder, store_name(folder), choice)), ""
    except EngineError as error:
        return None, f"Nothing was taken back from Ray: {error}"


def end_without_nodes(states: Sequence[str], fence_s: float) -> str:
    """What becomes of jobs whose nodes were taken from them."""
    running = states.count(JobState.RUNNING)
    if not running:
        return f"{left_jobs(0, len(states))} for the next `trainmaster up`."
    ends = "ends" if running == 1 else "end"
    again = "it" if running == 1 else "them"
    said = (
        f"{plural(running, 'job')} {ends} within {exact_length(round(1000 * fence_s))}: the next"
        f" `trainmaster up` starts {again} again from the last checkpoint"
    )
    return (
        f"{said}; {left_jobs(0, len(states) - running)}." if len(states) > running else f"{said}."
    )


def _go_on(states: Sequence[str], folder: Path, has_standby: bool) -> str:
    running = states.count(JobState.RUNNING)
    waiting = len(states) - running
    if has_standby:
        return f"{left_jobs(running, waiting)}."
    return found_again(running, waiting, folder)


def _takes_over(standbys: Sequence[int]) -> str:
    pids = ", ".join(map(str, standbys))
    who = f"Its standby (process {pids})" if len(standbys) == 1 else f"A standby (processes {pids})"
    return f"{who} takes over: `trainmaster down` stops that one too."


def _managers_of(folder: Path) -> list[int]:
    """Processes of the managers that use a data folder."""
    from trainmaster.daemon.folder_lock import LOCK
    from trainmaster.engines.local.processes import lock_holders

    return sorted(lock_holders(str(folder / LOCK)))


def _cancel_all(client: ManagerApi) -> int:
    """Cancel what has not ended, and wait for it; how many jobs that were."""
    found = [row["id"] for row in list_jobs(client, LIVE)]
    for id in found:
        try:
            client.post(job_path(id, "cancel"))
        except RequestRefused:
            continue  # it has ended meanwhile
    poll(lambda: None if client.get("/jobs", {**LIVE, "limit": 1})["jobs"] else True)
    if found:
        pause(2)  # so that commands that wait for these jobs see how they ended
    return len(found)


def _end(client: ManagerApi, pid: int) -> None:
    """Tell the process to end, and wait until it has."""
    url = client.url
    try:
        os.kill(pid, 0)
        if not is_process_of(client.place, pid):
            raise Failed(f"the manager at {url} is on another machine: stop it there.")
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    except PermissionError:
        raise Failed(
            f"the manager at {url} is another user's (process {pid}): only that user may stop it."
        ) from None
    until = time.monotonic() + LONGEST_S
    while is_alive(pid):
        if time.monotonic() > until:
            raise Failed(f"process {pid} has not ended within {LONGEST_S:g} s: see its log.")
        time.sleep(0.05)
