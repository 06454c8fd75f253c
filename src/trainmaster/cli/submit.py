"""`trainmaster submit`: jobs from files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainmaster.cli.live_options import AsJson, Data, DryRun, Url
from trainmaster.cli.wording import examples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainmaster.cli.client import Client, Json
    from trainmaster.cli.live_jobs import Submitted

EPILOG = examples(
    "trainmaster submit train.yaml",
    "trainmaster submit train.yaml --set gpus=4 --set env.LR=0.1",
    "trainmaster submit sweep.yaml --wait",
    "trainmaster submit train.yaml --dry-run",
    "cat train.yaml | trainmaster submit - --parsable",
)
STDIN = "-"


def submit(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help="Job files (YAML); several documents in one are several jobs;"
            " - is standard input.",
        ),
    ],
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the end, and return the jobs' exit code.")
    ] = False,
    dry_run: DryRun = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="Instead of what the file says."),
    ] = None,
    held: Annotated[
        bool, typer.Option("--held", help="Do not run before `trainmaster resume`.")
    ] = False,
    parsable: Annotated[
        bool, typer.Option("--parsable", help="Print the job ids alone, one per line.")
    ] = False,
    as_json: AsJson = False,
    url: Url = None,
    data: Data = None,
) -> None:
    """Submit jobs from files: all of them, or none."""
    from trainmaster.cli.client import connect
    from trainmaster.cli.live_jobs import send

    specs = [spec for file in files for spec in _specs(file, settings or (), held)]
    with connect(url, data) as client:
        if dry_run:
            _dry_run(client, specs, as_json)
            return
        found = send(client, specs)
        if not (as_json and wait):
            _say(found, parsable, as_json)
        if wait:
            _wait(client, found, as_json)


def _specs(file: str, settings: Sequence[str], held: bool) -> list[Json]:
    """The jobs of one file, checked here so that a mistake is named with its line."""
    from trainmaster.api.complaints import BadJobFile
    from trainmaster.api.jobfile import job_file_of
    from trainmaster.api.plain import check_plain
    from trainmaster.api.yamlfile import read_yaml
    from trainmaster.cli.complaints import BadInput
    from trainmaster.cli.live_jobs import surrounded

    name = "standard input" if file == STDIN else file
    found: list[Json] = []
    try:
        for raw, lines in read_yaml(_text(file)):
            check_plain(raw)
            spec = _with_settings(raw, settings)
            if isinstance(spec, dict):
                spec = surrounded(spec | ({"held": True} if held else {}))
            job_file_of(spec, lines)
            found.append(spec)
    except BadJobFile as bad:
        raise BadInput(f"{name}: {bad}") from None
    if not found:
        raise BadInput(f"{name} has no job in it: it needs a command at least.")
    return found


def _text(file: str) -> str:
    from trainmaster.cli.complaints import BadInput, why

    try:
        if file == STDIN:
            return sys.stdin.read()
        return Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise BadInput(f"{file} is no text: a job file is YAML in UTF-8.") from None
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {why(error)}.") from None


def _with_settings(raw: Any, settings: Sequence[str]) -> Any:
    """What `--set` says, instead of what the file says; `env.NAME=…` sets one variable."""
    from trainmaster.api.yamlfile import read_yaml
    from trainmaster.cli.live_words import settings_of

    if not isinstance(raw, dict):
        return raw
    spec = dict(raw)
    for key, text in settings_of(settings, "--set").items():
        field, dot, inner = key.partition(".")
        read = read_yaml(text)
        value = read[0][0] if read else ""
        if not dot:
            spec[field] = value
        else:
            spec[field] = {**(spec.get(field) or {}), inner: text if field == "env" else value}
    return spec


def _say(found: list[Submitted], parsable: bool, as_json: bool) -> None:
    from trainmaster.cli.live_words import write_json
    from trainmaster.cli.wording import screen

    if as_json:
        write_json({"jobs": [job.said for job in found]})
    elif parsable:
        sys.stdout.write("".join(f"{job.id}\n" for job in found))
    else:
        for job in found:
            screen().print(sentence_of(job), markup=False)
    sys.stdout.flush()


def sentence_of(job: Submitted) -> str:
    """What was submitted, in words."""
    name = f" ({job.name})" if job.name else ""
    if job.is_array:
        return f"Submitted array {job.id}{name}: {len(job.elements)} jobs."
    return f"Submitted job {job.id}{name}."


def _dry_run(client: Client, specs: list[Json], as_json: bool) -> None:
    from trainmaster.cli.live_dry_run import show_dry_run

    show_dry_run(client, specs, as_json)


def _wait(client: Client, found: list[Submitted], as_json: bool) -> None:
    """The code of the first job that did not succeed in the order of the files; of an array, the highest."""
    from trainmaster.cli.live_waiting import wait_for
    from trainmaster.cli.live_words import ended_sentence, write_json
    from trainmaster.cli.wording import remark

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
    bad = [row for row in rows if row.state != "succeeded"]
    remark("Note", (f"j{ended_sentence(row)[1:].rstrip('.')}" for row in bad[:10]))
    raise typer.Exit(max((row.exit_status for row in rows), default=0))
