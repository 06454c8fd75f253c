"""`trainmaster set`: change what a job asks for."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from trainmaster.cli.support.console import examples
from trainmaster.cli.support.options import AsJson, Data, JobName, Url

EPILOG = examples(
    "trainmaster set 12 priority=10",
    "trainmaster set 12 queue=vision max_runtime=4h",
    "trainmaster set 12 deadline=1d retries=0",
)
WHOLE = ("priority", "retries")
FIELDS = ("priority", "queue", "max_runtime", "deadline", "retries", "name")


def change(
    job: JobName,
    settings: Annotated[
        list[str], typer.Argument(metavar="KEY=VALUE", help=f"One or more of {', '.join(FIELDS)}.")
    ],
    as_json: AsJson = False,
    url: Url = None,
    data: Data = None,
) -> None:
    """Change the priority, queue, limits or name of a job that has not ended."""
    from trainmaster.cli.support.client import connect, of
    from trainmaster.cli.support.console import screen
    from trainmaster.cli.support.format import settings_of, write_json

    body = {key: _value(key, text) for key, text in settings_of(settings, "Setting").items()}
    with connect(url, data) as client:
        answer = client.patch(of(job), body)
    if as_json:
        write_json(answer)
    else:
        said = ", ".join(f"{key} {value}" for key, value in body.items())
        screen().print(f"Job {job}: {said}.", markup=False)


def _value(key: str, text: str) -> Any:
    from trainmaster.cli.support.errors import BadInput
    from trainmaster.text.suggest import did_you_mean

    if key not in FIELDS:
        raise BadInput(f"A job's `{key}` cannot be changed: {did_you_mean(key, FIELDS)}")
    if key in WHOLE:
        try:
            return int(text)
        except ValueError:
            raise BadInput(f"{key} `{text}` is not a whole number: write {key}=10.") from None
    return text
