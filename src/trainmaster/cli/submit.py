"""`trainmaster submit`: jobs from files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from trainmaster.cli.support.console import remark, screen, write, write_json
from trainmaster.cli.support.follow_to_end import wait_for
from trainmaster.cli.support.job_files import ReadJob, SubmitFlags, read_jobs
from trainmaster.cli.support.options import (
    AsJson,
    DryRun,
    Env,
    EnvFile,
    ExportAll,
    RanksFlag,
    Snapshot,
    argument,
    option,
)
from trainmaster.cli.support.submit_request import Submitted, environment_of, send, show_dry_run
from trainmaster.client.manager_api import ManagerApi, RequestRefused

FILES = "Job files (YAML), each with one or more documents; - reads standard input."


def submit(
    client: ManagerApi,
    files: Annotated[list[str], argument("FILE", FILES)],
    wait: Annotated[
        bool, option("--wait", "Wait until the jobs end and return their exit code.")
    ] = False,
    dry_run: DryRun = False,
    settings: Annotated[
        list[str] | None,
        option("--set FIELD=VALUE", "Override a field of the file; can be repeated."),
    ] = None,
    held: Annotated[
        bool, option("--held", "Submit on hold: do not start before `trainmaster resume`.")
    ] = False,
    snapshot: Snapshot = None,
    ranks: RanksFlag = None,
    env: Env = None,
    env_file: EnvFile = None,
    export_all: ExportAll = False,
    parsable: Annotated[
        bool, option("--parsable", "Print only the job ids, one per line.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Submit jobs from files: either all of them or none.

    Examples:
        trainmaster submit train.yaml
        trainmaster submit train.yaml --set gpus=4 --set env.LR=0.1
        trainmaster submit sweep.yaml --wait
        trainmaster submit train.yaml --dry-run
        cat train.yaml | trainmaster submit - --parsable
    """
    flags = SubmitFlags(
        settings=settings or (),
        fields={"held": held or None, "snapshot": snapshot, "ranks": ranks},
        env=environment_of(env or (), env_file or ()),
        export_all=export_all,
    )
    jobs = [job for file in files for job in read_jobs(file, flags)]
    specs = [job.spec for job in jobs]
    try:
        if dry_run:
            show_dry_run(client, specs, as_json)
            return
        found = send(client, specs)
    except RequestRefused as no:
        raise _with_place(client, jobs, no) from None
    if not (as_json and wait):
        _print_submitted(found, parsable, as_json)
    if wait:
        _wait(client, found, as_json)


def _with_place(client: ManagerApi, jobs: Sequence[ReadJob], no: RequestRefused) -> RequestRefused:
    """The manager's refusal, with the file and line that it is about, where that is known."""
    place = next((at for job in jobs if (at := job.place_of(str(no))) is not None), None)
    if place is None and len({job.file for job in jobs}) > 1:
        place = next((job.file for job in jobs if _is_refused_so(client, job, no)), None)
    return no if place is None else RequestRefused(f"{place}: {no}", no.status)


def _is_refused_so(client: ManagerApi, job: ReadJob, no: RequestRefused) -> bool:
    """Whether the manager refuses this one by itself with the same words."""
    try:
        client.post("/jobs", {"jobs": [job.spec]}, {"dry_run": "true"})
    except RequestRefused as alone:
        return str(alone) == str(no)
    return False


def _print_submitted(found: list[Submitted], parsable: bool, as_json: bool) -> None:
    if as_json:
        write_json({"jobs": [job.answer for job in found]})
    elif parsable:
        write("".join(f"{job.id}\n" for job in found))
    else:
        for job in found:
            screen().print(job.sentence, markup=False)
    sys.stdout.flush()


def _wait(client: ManagerApi, found: list[Submitted], as_json: bool) -> None:
    """The code of the first job that did not succeed in the order of the files; of an array, the highest."""
    try:
        rows = [row for job in found for row in wait_for(client, job)]
    except KeyboardInterrupt:
        named = " ".join(job.id for job in found)
        remark("Note", (f"the jobs go on; `trainmaster cancel {named}` ends them",))
        raise
    if as_json:
        shown = ("id", "name", "state", "exit_code")
        write_json({"jobs": [{key: getattr(row, key) for key in shown} for row in rows]})
    bad = [row for row in rows if row.exit_status]
    remark("Note", (f"j{row.end_sentence[1:].rstrip('.')}" for row in bad[:10]))
    raise typer.Exit(max((row.exit_status for row in rows), default=0))
