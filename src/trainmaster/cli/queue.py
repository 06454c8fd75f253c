"""`trainmaster queue`: the jobs, as `ps` lists them; and `queue set`, which defines a queue."""

from __future__ import annotations

from typing import Annotated

import typer

from trainmaster.cli import ps
from trainmaster.cli.support.console import examples
from trainmaster.cli.support.options import AsJson, Data, Url

app = typer.Typer(
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
    epilog=examples(
        "trainmaster queue",
        "trainmaster queue --me",
        "trainmaster queue set vision --weight 2 --guaranteed 4 --maximum 12",
    ),
)
app.callback(invoke_without_command=True)(ps.ps)


@app.command(
    "set",
    epilog=examples(
        "trainmaster queue set vision --weight 2",
        "trainmaster queue set vision.night --parent vision --maximum 4",
    ),
)
def define(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Queue name.")],
    weight: Annotated[
        int | None,
        typer.Option("--weight", min=1, metavar="W", help="Weight."),
    ] = None,
    guaranteed: Annotated[
        float | None,
        typer.Option("--guaranteed", metavar="GPUS", help="Guaranteed GPUs."),
    ] = None,
    maximum: Annotated[
        float | None,
        typer.Option("--maximum", metavar="GPUS", help="Maximum number of GPUs."),
    ] = None,
    parent: Annotated[
        str | None, typer.Option("--parent", metavar="QUEUE", help="Parent queue.")
    ] = None,
    as_json: AsJson = False,
    url: Url = None,
    data: Data = None,
) -> None:
    """Define or change a queue; options that are left out keep their value."""
    from urllib.parse import quote

    from trainmaster.cli.queues import numbers_of
    from trainmaster.cli.support.client import connect
    from trainmaster.cli.support.console import screen
    from trainmaster.cli.support.format import write_json

    stated = {
        "weight": weight,
        "guaranteed_gpus": guaranteed,
        "maximum_gpus": maximum,
        "parent": parent,
    }
    with connect(url, data) as client:
        known = [each for each in client.get("/queues")["queues"] if each["name"] == name]
        kept = {key: known[0].get(key) for key in stated} if known else {}
        body = kept | {key: value for key, value in stated.items() if value is not None}
        wanted = {key: value for key, value in body.items() if value is not None}
        answer = client.put(f"/queues/{quote(name, safe='')}", wanted)
    if as_json:
        write_json(answer)
    else:
        screen().print(f"Queue {name}: {numbers_of(wanted)}.", markup=False)
