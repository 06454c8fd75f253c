"""`trainmaster policy`: the policy in use; and `policy set`, which changes it at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from trainmaster.cli.policies import policies
from trainmaster.cli.queue import cautions
from trainmaster.cli.support import completion
from trainmaster.cli.support.command import command, group
from trainmaster.cli.support.console import remark, show_pairs, write_json
from trainmaster.cli.support.format import ago, settings_of
from trainmaster.cli.support.options import AsJson, argument, option
from trainmaster.client.manager_api import Json, ManagerApi
from trainmaster.errors import BadInput, system_reason

NAME = argument(
    "NAME",
    "Policy name, or a policy file; `trainmaster policies` lists the names.",
    autocompletion=completion.one_policy,
)

SHOWN = argument("NAME", "A policy.", autocompletion=completion.one_policy)


def policy(client: ManagerApi, context: typer.Context, as_json: AsJson = False) -> None:
    """Show the scheduling policy in use, list the others, or choose another.

    Examples:
        trainmaster policy
        trainmaster policy list
        trainmaster policy show tiresias-l
        trainmaster policy set tiresias-l thresholds_gpu_s=3600,14400
    """
    if context.invoked_subcommand is None:
        _show(client.get("/policy"), as_json)


app = group(policy)


@command(app, "list")
def listed(as_json: AsJson = False) -> None:
    """List the policies.

    Examples:
        trainmaster policy list
        trainmaster policy list --json
    """
    policies(None, as_json)


@command(app)
def show(
    client: ManagerApi, name: Annotated[str | None, SHOWN] = None, as_json: AsJson = False
) -> None:
    """Show the policy in use; with NAME, what that policy does and its options.

    Examples:
        trainmaster policy show
        trainmaster policy show tiresias-l
    """
    if name is None:
        _show(client.get("/policy"), as_json)
    else:
        policies(name, as_json)


@command(app, "set")
def change(
    client: ManagerApi,
    name: Annotated[str, NAME],
    settings: Annotated[list[str] | None, argument("KEY=VALUE", "Options of the policy.")] = None,
    more: Annotated[
        list[str] | None, option("--set KEY=VALUE", "The same, as in `up` and `simulate`.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Change the scheduling policy or its options, from now on.

    NAME may be a file with a policy of your own, if you run the manager. It stores the file's content: change
    the file, and set it again.

    Examples:
        trainmaster policy set fifo backfill=easy
        trainmaster policy set gandiva --set quantum_s=60
        trainmaster policy set ./small_first.py
        trainmaster policy set trainmaster
    """
    options = settings_of([*(settings or ()), *(more or ())], "Option")
    _show(client.put("/policy", _body(name, options)), as_json)
    remark("Warning", cautions(client))


def _body(name: str, options: Mapping[str, str]) -> Json:
    """The request, with the content of the files that are named: the manager may be in another folder."""
    from trainmaster.catalog import CatalogError
    from trainmaster.policy_files import is_path, spec_of

    try:
        spec = spec_of(name, options)
    except CatalogError:
        if is_path(name):
            raise
        return {"name": name, "options": options}  # the manager may know more policies than we do
    except OSError as error:
        raise BadInput(f"{error.filename} cannot be read: {system_reason(error)}.") from None
    return {
        "name": spec.name,
        "options": options,
        "source": spec.source,
        "files": dict(spec.files),
    }


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
        remark("Warning", (answer["trouble"],))
