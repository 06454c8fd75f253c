"""`trainmaster policy`: the policy in use; and `policy set`, which changes it at once."""

from __future__ import annotations

from typing import Annotated

import typer

from trainmaster.cli.support import completion
from trainmaster.cli.support.client import Client, Json
from trainmaster.cli.support.command import command, group
from trainmaster.cli.support.console import remark, show_pairs, write_json
from trainmaster.cli.support.format import ago, settings_of
from trainmaster.cli.support.options import AsJson, argument

NAME = argument(
    "NAME",
    "Policy name; `trainmaster policies` lists them.",
    autocompletion=completion.one_policy,
)


def policy(client: Client, context: typer.Context, as_json: AsJson = False) -> None:
    """Show the scheduling policy in use and its options.

    Examples:
        trainmaster policy
        trainmaster policy set tiresias-l thresholds_gpu_s=3600,14400
        trainmaster policies
    """
    if context.invoked_subcommand is None:
        _show(client.get("/policy"), as_json)


app = group(policy)


@command(app, "set")
def change(
    client: Client,
    name: Annotated[str, NAME],
    settings: Annotated[list[str] | None, argument("KEY=VALUE", "Options of the policy.")] = None,
    as_json: AsJson = False,
) -> None:
    """Change the scheduling policy or its options, from now on.

    Examples:
        trainmaster policy set fifo backfill=easy
        trainmaster policy set trainmaster
    """
    options = settings_of(settings or (), "Option")
    _show(client.put("/policy", {"name": name, "options": options}), as_json)


def _show(answer: Json, as_json: bool) -> None:
    if as_json:
        write_json(answer)
        return
    since = answer.get("since_s")
    options = answer.get("options") or {}
    show_pairs(
        {"policy": answer["name"]}
        | ({} if since is None else {"since": ago(since)})
        | {f"  {key}": str(value) for key, value in options.items()}
    )
    if answer.get("trouble"):
        remark("Warning", (f"it raised an error: {answer['trouble']}",))
