"""`trainmaster suspend`, `resume`, `cancel`, `save` and `move`: orders to jobs that have not ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from trainmaster.cli.support.console import screen, show_answer, write_json
from trainmaster.cli.support.errors import print_error
from trainmaster.cli.support.options import AsJson, JobName, JobNames, option
from trainmaster.client.manager_api import Json, ManagerApi, Query, RequestRefused, job_path
from trainmaster.errors import FAILED

Force = Annotated[bool, option("--force", "Do it even if work is lost that the job has not saved.")]

STOPPED_ON_NODE = "StoppedOnNode"
"""Why a job waits for more than room: its processes are stopped where they cannot go on now."""


def suspend(
    client: ManagerApi, jobs: JobNames, force: Force = False, as_json: AsJson = False
) -> None:
    """Suspend jobs: free their devices until they are resumed.

    On CPU slots a job stays in memory. On GPUs it is asked to save and ends, and goes on from its last
    checkpoint. One that cannot save is left alone, with a word on what would be lost, unless --force.

    Examples:
        trainmaster suspend 12
        trainmaster suspend 12 13 sweep
        trainmaster suspend --force 12
    """
    done = "is being suspended: `trainmaster resume {job}` lets it continue"
    held = "is held: `trainmaster resume {job}` lets it start"
    _order_each(
        client, jobs, "suspend", done, as_json, {"force": "true"} if force else None, unstarted=held
    )


def resume(client: ManagerApi, jobs: JobNames, as_json: AsJson = False) -> None:
    """Resume jobs that were suspended, or submitted with --held, as soon as devices are free.

    Examples:
        trainmaster resume 12
        trainmaster resume 12 13 sweep
    """
    done, starts = "continues as soon as there is room", "starts as soon as there is room"
    _order_each(client, jobs, "resume", done, as_json, unstarted=starts)


def cancel(
    client: ManagerApi,
    jobs: JobNames,
    now: Annotated[bool, option("--now", "Kill at once, without a grace period.")] = False,
    as_json: AsJson = False,
) -> None:
    """Cancel jobs: each is asked to stop, and killed after its grace period.

    Examples:
        trainmaster cancel 12
        trainmaster cancel --now 12
        trainmaster cancel 12 13_4 sweep
    """
    done = "is killed" if now else "is being cancelled"
    _order_each(client, jobs, "cancel", done, as_json, {"now": "true"} if now else None)


def save(client: ManagerApi, jobs: JobNames, as_json: AsJson = False) -> None:
    """Ask running jobs to write a checkpoint now and go on.

    Jobs hear of it through the SDK, or by SIGUSR1.

    Examples:
        trainmaster save 12
        trainmaster save 12 13
    """
    _order_each(client, jobs, "save", "is asked to save", as_json)


def move(
    client: ManagerApi,
    job: JobName,
    to: Annotated[str, option("--to NODE", "Target node.")],
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Move a running job to another node: it saves, stops and continues there.

    One that cannot save is left alone, with a word on what would be lost, unless --force.

    Examples:
        trainmaster move 12 --to node-3
        trainmaster move 12 --to node-3 --force
    """
    said = client.post(job_path(job, "move"), {"node": to} | ({"force": True} if force else {}))
    show_answer(said, as_json, f"Job {job} moves to {to}.")


def _order_each(
    client: ManagerApi,
    jobs: Sequence[str],
    action: str,
    done: str,
    as_json: bool,
    query: Query | None = None,
    *,
    unstarted: str = "",
) -> None:
    """POST the action for every job; exit code 1 if the manager refused one of them."""
    results: list[Json] = []
    for job in dict.fromkeys(jobs):
        try:
            row = client.post(job_path(job, action), query=query)
        except RequestRefused as no:
            print_error(str(no))
            results.append({"job": job, "done": False, "error": str(no)})
            continue
        results.append({"job": job, "done": True})
        if not as_json:
            said = unstarted if unstarted and row.get("start_s") is None else done
            said = said.format(job=job)
            waits = row.get("reason") or {}
            if action == "resume" and waits.get("code") == STOPPED_ON_NODE:
                said = f"does not continue yet. {waits['sentence'].removesuffix('.')}"
            screen().print(f"Job {job} {said}.", markup=False)
    if as_json:
        write_json({"jobs": results})
    if not all(each["done"] for each in results):
        raise typer.Exit(FAILED)
