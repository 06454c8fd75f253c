"""`trainmaster down`: stop the manager; its jobs go on."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from trainmaster.cli.support.address import is_alive, is_process_of
from trainmaster.cli.support.client import Client, RequestRefused, Unreachable, job_path
from trainmaster.cli.support.console import show_answer
from trainmaster.cli.support.errors import Failed
from trainmaster.cli.support.format import found_again, left_jobs
from trainmaster.cli.support.job_table import list_jobs
from trainmaster.cli.support.options import AsJson, option
from trainmaster.cli.support.polling import pause, poll
from trainmaster.model.job_state import LIVE_STATES, JobState
from trainmaster.text.formatting import plural

RAY = (
    "Take back from Ray what the manager has there: launchers and reservations, or the cluster that `up"
    " --nodes` has started. Jobs that still run there end."
)
LONGEST_S = 60.0
NO_RAY = "It was not on Ray."
LIVE = {"state": ",".join(LIVE_STATES)}
JOBS = "Cancel all jobs first, and wait until they have ended."


def down(
    client: Client,
    jobs: Annotated[bool, option("--jobs", JOBS)] = False,
    ray: Annotated[bool, option("--ray", RAY)] = False,
    as_json: AsJson = False,
) -> None:
    """Stop the manager. Its jobs go on, and the next `trainmaster up` finds them again.

    Examples:
        trainmaster down
        trainmaster down --jobs
        trainmaster down --jobs --ray
    """
    answer = client.get("/status")
    cancelled = _cancel_all(client) if jobs else 0
    is_leader = answer["role"] == "active"
    try:
        states = [row["state"] for row in list_jobs(client, LIVE)] if is_leader else []
        unknown = ""
    except (RequestRefused, Unreachable) as error:  # it can be stopped all the same
        states, unknown = [], f"{error} Jobs go on."
    left = len(states)
    _end(client, answer["pid"])
    standbys = _managers_of(answer["folder"]) if is_leader else []
    said = [f"{plural(cancelled, 'job')} cancelled."] if jobs else []
    said += [_go_on(states, answer["folder"], bool(standbys))] if left else []
    said += [unknown] if unknown else []
    said += [f"The manager at {client.url} has stopped."]
    said += [_takes_over(standbys)] if standbys else []
    said += [_withdraw(Path(answer["folder"]))] if ray else []
    about = {"url": client.url, "pid": answer["pid"], "jobs": left, "standbys": standbys}
    show_answer(about, as_json, " ".join(said))


def _withdraw(folder: Path) -> str:
    """Without its engine's cluster the manager has stopped all the same."""
    import asyncio

    from trainmaster.cli.support.engine_option import RAY as NAME
    from trainmaster.cli.support.engine_option import remembered_engine, store_name
    from trainmaster.engines.protocol import EngineError
    from trainmaster.engines.ray.withdraw import withdraw

    choice = remembered_engine(folder)
    if choice.name != NAME:
        return NO_RAY
    try:
        return asyncio.run(withdraw(folder, store_name(folder), choice))
    except EngineError as error:
        return f"Nothing was taken back from Ray: {error}"


def _go_on(states: Sequence[str], folder: str, has_standby: bool) -> str:
    running = states.count(JobState.RUNNING)
    waiting = len(states) - running
    if has_standby:
        return f"{left_jobs(running, waiting)}."
    return found_again(running, waiting, Path(folder))


def _takes_over(standbys: Sequence[int]) -> str:
    pids = ", ".join(map(str, standbys))
    who = f"Its standby (process {pids})" if len(standbys) == 1 else f"A standby (processes {pids})"
    return f"{who} takes over: `trainmaster down` stops that one too."


def _managers_of(folder: str) -> list[int]:
    """Processes of the managers that use a data folder."""
    from trainmaster.daemon.folder_lock import LOCK
    from trainmaster.engines.local.processes import lock_holders

    return sorted(lock_holders(str(Path(folder) / LOCK)))


def _cancel_all(client: Client) -> int:
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


def _end(client: Client, pid: int) -> None:
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
