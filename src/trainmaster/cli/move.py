"""`trainmaster move`: take a job to another node."""

from __future__ import annotations

from typing import Annotated

import typer

from trainmaster.cli.support.console import examples
from trainmaster.cli.support.options import AsJson, Data, JobName, Url

EPILOG = examples("trainmaster move 12 --to node-3")


def move(
    job: JobName,
    to: Annotated[str, typer.Option("--to", metavar="NODE", help="Target node.")],
    as_json: AsJson = False,
    url: Url = None,
    data: Data = None,
) -> None:
    """Move a running job to another node: it saves, stops and continues there."""
    from trainmaster.cli.support.client import connect, of
    from trainmaster.cli.support.console import screen
    from trainmaster.cli.support.format import write_json

    with connect(url, data) as client:
        answer = client.post(of(job, "move"), {"node": to})
    if as_json:
        write_json(answer)
    else:
        screen().print(f"Job {job} moves to {to}.", markup=False)
