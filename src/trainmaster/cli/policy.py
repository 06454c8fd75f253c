"""`trainmaster policy`: which policy decides now; and `policy set`, which changes it at once."""

from __future__ import annotations

from typing import Annotated

import typer

from trainmaster.cli.support import completion
from trainmaster.cli.support.console import examples
from trainmaster.cli.support.options import AsJson, Data, Url

app = typer.Typer(
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
    epilog=examples(
        "trainmaster policy",
        "trainmaster policy set tiresias-l thresholds_gpu_s=3600,14400",
        "trainmaster policies",
    ),
)


@app.callback(invoke_without_command=True)
def policy(
    context: typer.Context, as_json: AsJson = False, url: Url = None, data: Data = None
) -> None:
    """Show the scheduling policy in use and its options."""
    if context.invoked_subcommand is not None:
        return
    from trainmaster.cli.support.client import connect

    with connect(url, data) as client:
        _show(client.get("/policy"), as_json)


@app.command(
    "set",
    epilog=examples(
        "trainmaster policy set fifo backfill=easy",
        "trainmaster policy set trainmaster",
    ),
)
def change(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Policy name; `trainmaster policies` lists them.",
            autocompletion=completion.one_policy,
        ),
    ],
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Options of the policy.")
    ] = None,
    as_json: AsJson = False,
    url: Url = None,
    data: Data = None,
) -> None:
    """Change the scheduling policy or its options, from now on."""
    from trainmaster.cli.support.client import connect
    from trainmaster.cli.support.format import settings_of

    options = settings_of(settings or (), "Option")
    with connect(url, data) as client:
        _show(client.put("/policy", {"name": name, "options": options}), as_json)


def _show(said: dict[str, object], as_json: bool) -> None:
    from trainmaster.cli.support.console import remark
    from trainmaster.cli.support.format import ago, show_pairs, write_json

    if as_json:
        write_json(said)
        return
    since = said.get("since_s")
    options = said.get("options")
    pairs = {"policy": str(said["name"])}
    if isinstance(since, int | float):
        pairs["since"] = ago(since)
    if isinstance(options, dict):
        pairs |= {f"  {key}": str(value) for key, value in options.items()}
    show_pairs(pairs)
    if said.get("trouble"):
        remark("Warning", (f"it raised an error: {said['trouble']}",))
