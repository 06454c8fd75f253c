"""`trainmaster submit`: jobs from files."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from trainmaster.cli.support.console import examples
from trainmaster.cli.support.options import AsJson, Data, DryRun, Url

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainmaster.cli.support.client import Client, Refused
    from trainmaster.cli.support.job_files import ReadJob
    from trainmaster.cli.support.submit_request import Submitted

EPILOG = examples(
    "trainmaster submit train.yaml",
    "trainmaster submit train.yaml --set gpus=4 --set env.LR=0.1",
    "trainmaster submit sweep.yaml --wait",
    "trainmaster submit train.yaml --dry-run",
    "cat train.yaml | trainmaster submit - --parsable",
)


def submit(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help="Job files (YAML), each with one or more documents; - reads standard input.",
        ),
    ],
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the jobs end and return their exit code.")
    ] = False,
    dry_run: DryRun = False,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="FIELD=VALUE", help="Override a field of the file; can be repeated."
        ),
    ] = None,
    held: Annotated[
        bool,
        typer.Option("--held", help="Submit on hold: do not start before `trainmaster resume`."),
    ] = False,
    parsable: Annotated[
        bool, typer.Option("--parsable", help="Print only the job ids, one per line.")
    ] = False,
    as_json: AsJson = False,
    url: Url = None,
    data: Data = None,
) -> None:
    """Submit jobs from files: either all of them or none."""
    from trainmaster.cli.support.client import Refused, connect
    from trainmaster.cli.support.job_files import read_jobs
    from trainmaster.cli.support.submit_request import send, show_dry_run

    jobs = [job for file in files for job in read_jobs(file, settings or (), held)]
    specs = [job.spec for job in jobs]
    with connect(url, data) as client:
        try:
            if dry_run:
                show_dry_run(client, specs, as_json)
                return
            found = send(client, specs)
        except Refused as no:
            raise _blamed(jobs, no) from None
        if not (as_json and wait):
            _say(found, parsable, as_json)
        if wait:
            _wait(client, found, as_json)


def _blamed(jobs: Sequence[ReadJob], no: Refused) -> Refused:
    """The manager's refusal, with the file and line where there is one to be blamed."""
    from trainmaster.cli.support.client import Refused

    place = next((at for job in jobs if (at := job.place_of(str(no))) is not None), None)
    return no if place is None else Refused(f"{place}: {no}", no.status, no.code)


def _say(found: list[Submitted], parsable: bool, as_json: bool) -> None:
    from trainmaster.cli.support.console import screen
    from trainmaster.cli.support.format import write_json

    if as_json:
        write_json({"jobs": [job.said for job in found]})
    elif parsable:
        sys.stdout.write("".join(f"{job.id}\n" for job in found))
    else:
        for job in found:
            screen().print(job.sentence, markup=False)
    sys.stdout.flush()


def _wait(client: Client, found: list[Submitted], as_json: bool) -> None:
    """The code of the first job that did not succeed in the order of the files; of an array, the highest."""
    from trainmaster.cli.support.console import remark
    from trainmaster.cli.support.follow import wait_for
    from trainmaster.cli.support.format import ended_sentence, write_json

    try:
        rows = [row for job in found for row in wait_for(client, job)]
    except KeyboardInterrupt:
        named = " ".join(job.id for job in found)
        remark("Note", (f"the jobs go on; `trainmaster cancel {named}` ends them",))
        raise
    if as_json:
        write_json(
            {
                "jobs": [
                    {"id": r.id, "name": r.name, "state": r.state, "exit_code": r.exit_code}
                    for r in rows
                ]
            }
        )
    bad = [row for row in rows if row.exit_status]
    remark("Note", (f"j{ended_sentence(row)[1:].rstrip('.')}" for row in bad[:10]))
    raise typer.Exit(max((row.exit_status for row in rows), default=0))
