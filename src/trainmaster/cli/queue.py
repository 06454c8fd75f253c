"""`trainmaster queue`: the queues, and defining and removing one; `queues` is short for the list."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated
from urllib.parse import quote

import typer

from trainmaster.cli.support.command import command, group
from trainmaster.cli.support.console import cell, remark, show_answer, show_table, write_json
from trainmaster.cli.support.limit_options import (
    BudgetOption,
    PerOption,
    RuleOption,
    StartingOption,
    budget_cell,
    budget_of,
    budget_words,
    changed,
    known_rule,
    number_of,
)
from trainmaster.cli.support.options import AsJson, argument, option
from trainmaster.client.manager_api import Json, ManagerApi
from trainmaster.errors import BadInput, Failed

COLUMNS = {
    "queue": "name",
    "in": "parent",
    "weight": "weight",
    "guaranteed": "guaranteed_gpus",
    "maximum": "maximum_gpus",
    "gpus held": "gpus",
    "running": "running",
    "pending": "pending",
    "suspended": "suspended",
}
PER_USER = {
    "gpus per user": "max_gpus_per_user",
    "running per user": "max_running_per_user",
    "jobs per user": "max_jobs_per_user",
}
"""Shown where some queue has such a limit."""
SETTINGS = {key: COLUMNS[key] for key in ("in", "weight", "guaranteed", "maximum")} | PER_USER


def queue(client: ManagerApi, context: typer.Context, as_json: AsJson = False) -> None:
    """List queues, define or remove one.

    Examples:
        trainmaster queue list
        trainmaster queue set vision --weight 2 --guaranteed 4 --maximum 12
        trainmaster queue set vision --budget 500h --per week --max-gpus-per-user 4
        trainmaster queue rm vision
    """
    if context.invoked_subcommand is None:
        show_queues(client, as_json)


app = group(queue)


@command(app, "list")
def queues(client: ManagerApi, as_json: AsJson = False) -> None:
    """List queues: weight, guaranteed and maximum GPUs, limits, GPUs in use, budget, and jobs by state.

    Examples:
        trainmaster queues
        trainmaster queues --json
        trainmaster queue set vision --weight 2 --guaranteed 4
    """
    show_queues(client, as_json)


def show_queues(client: ManagerApi, as_json: bool) -> None:
    said = client.get("/queues")
    if as_json:
        write_json(said)
    else:
        queues = said["queues"]
        limits = {
            name: key for name, key in PER_USER.items() if any(each.get(key) for each in queues)
        }
        columns = COLUMNS | limits
        rows = [[each.get(key) for key in columns.values()] for each in queues]
        names = tuple(columns)
        if any(each.get("budget") for each in queues):
            names = (*names, "budget used")
            rows = [
                [*row, budget_cell(each.get("budget"))]
                for row, each in zip(rows, queues, strict=True)
            ]
        show_table(names, rows)
        remark("Warning", _spent(queues))


def _spent(rows: list[Json]) -> list[str]:
    """Budgets of which little is left."""
    budgets = (each.get("budget") for each in rows)
    return [each["warning"] for each in budgets if each and each["warning"]]


@command(app, "set")
def define(
    client: ManagerApi,
    name: Annotated[str, argument("NAME", "Queue name.")],
    weight: Annotated[int | None, option("--weight W", "Weight.", min=1)] = None,
    guaranteed: Annotated[float | None, option("--guaranteed GPUS", "Guaranteed GPUs.")] = None,
    maximum: Annotated[
        str | None, option("--maximum GPUS|none", "Maximum number of GPUs, or none.")
    ] = None,
    max_gpus: Annotated[
        str | None, option("--max-gpus-per-user GPUS|none", "GPUs that one user may hold, or none.")
    ] = None,
    max_running: Annotated[
        str | None,
        option("--max-running-per-user N|none", "Jobs that one user may run at once, or none."),
    ] = None,
    max_jobs: Annotated[
        str | None,
        option(
            "--max-jobs-per-user N|none",
            "Jobs of one user that have not ended; more are refused. Or none.",
        ),
    ] = None,
    budget: BudgetOption = None,
    per: PerOption = None,
    starting: StartingOption = None,
    when_used_up: RuleOption = None,
    parent: Annotated[str | None, option("--parent QUEUE", "Parent queue.")] = None,
    unpreemptible: Annotated[
        bool | None,
        option(
            "--allow-unpreemptible/--forbid-unpreemptible",
            "Whether its jobs may be `preemptible: false`.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Define or change a queue; options that are left out keep their value.

    Limits, maxima and budgets hold under every policy, and for the queues inside it too. A budget counts the
    GPU-hours that jobs hold from when it is set.

    Examples:
        trainmaster queue set vision --weight 2
        trainmaster queue set vision.night --parent vision --maximum 4
        trainmaster queue set vision --max-gpus-per-user 4 --max-jobs-per-user 20
        trainmaster queue set vision --budget 500h --per week
        trainmaster queue set lab --budget 20000h --per year --starting 2026-10-01
        trainmaster queue set vision --budget none --maximum none
    """
    name = _name(name)
    rows = client.get("/queues")["queues"]
    known: Json = next((each for each in rows if each["name"] == name), {})
    stated = {
        "weight": weight,
        "guaranteed_gpus": guaranteed,
        "maximum_gpus": number_of(maximum, "--maximum", whole=False),
        "parent": parent,
        "allow_unpreemptible": unpreemptible,
        "max_gpus_per_user": number_of(max_gpus, "--max-gpus-per-user", whole=False),
        "max_running_per_user": number_of(max_running, "--max-running-per-user"),
        "max_jobs_per_user": number_of(max_jobs, "--max-jobs-per-user"),
        "budget": budget_of(known.get("budget"), budget, per, starting, when_used_up),
    }
    kept: Json = {key: known.get(key) for key in stated}
    kept["budget"] = budget_of(known.get("budget"), None, None, None, known_rule(known))
    wanted = changed(kept, stated)
    row = client.put(f"/queues/{quote(name, safe='')}", wanted)
    said = [
        f"{key} {cell(row[field])}" for key, field in SETTINGS.items() if row.get(field) is not None
    ]
    if row.get("budget"):
        said.append(budget_words(row["budget"]))
    if not row["allow_unpreemptible"]:
        said.append("no unpreemptible jobs")
    show_answer(row, as_json, f"Queue {name}: {', '.join(said)}.")
    remark("Warning", cautions(client))


def cautions(client: ManagerApi) -> list[str]:
    """What the queues promise and the cluster, or its policy, does not keep."""
    with suppress(Failed):  # what was asked for is done
        return list(_broken_promises(client))
    return []


def _broken_promises(client: ManagerApi) -> Iterator[str]:
    defined = [each for each in client.get("/queues")["queues"] if each["is_defined"]]
    promised = sum(each["guaranteed_gpus"] for each in defined if each["parent"] is None)
    devices = client.get("/status")["devices"] or 0
    if promised > devices:
        yield f"queues are guaranteed {promised:g} GPUs together, and there are {devices}"
    policy = client.get("/policy")
    if defined and not policy.get("obeys_queues", True):
        yield (
            f"the policy {policy['name']} does not look at queues, so their weights and guarantees"
            " have no effect; fair, two-level, philly, antman and trainmaster do"
        )


def _name(name: str) -> str:
    from trainmaster.config.job_file import read_name

    try:
        return read_name(name)
    except ValueError as error:
        raise BadInput(f"the name of a queue {error}.") from None


@command(app, "rm")
def remove(
    client: ManagerApi,
    names: Annotated[list[str], argument("NAME", "Queues to remove.")],
    as_json: AsJson = False,
) -> None:
    """Remove queues that nothing is in: no unfinished job, and no other queue.

    The queue `default` is always there: what was set for it is forgotten.

    Examples:
        trainmaster queue rm vision
    """
    for name in dict.fromkeys(map(_name, names)):
        answer = client.delete(f"/queues/{quote(name, safe='')}")
        show_answer(answer, as_json, f"Queue {name} is removed.")
