"""`trainmaster user`: the roles, limits and budgets of users."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Literal
from urllib.parse import quote

import typer

from trainmaster.cli.support.command import command, group
from trainmaster.cli.support.console import cell, remark, show_answer, show_table
from trainmaster.cli.support.format import at
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
from trainmaster.cli.support.unknown_users import EVERYBODY, note_unknown_user
from trainmaster.client.manager_api import Json, ManagerApi
from trainmaster.errors import BadInput, Failed

COLUMNS = (
    "user",
    "role",
    "since",
    "gpus",
    "max gpus",
    "running",
    "max running",
    "jobs",
    "max jobs",
)
ROLE = "What the user may do: see all jobs, use their own, change every job and the cluster, or everything."
Role = Literal["viewer", "user", "operator", "admin"]


def user(client: ManagerApi, context: typer.Context, as_json: AsJson = False) -> None:
    """List users that have a role or limits of their own, set those, or take a role back.

    Users of the manager's machine have the role `user`: they submit jobs, and see and change their own.
    The manager's own user and root may do everything.

    Examples:
        trainmaster user list
        trainmaster user set ada --role operator
        trainmaster user set ada --max-gpus 8 --budget 100h --per month
        trainmaster user rm ada
    """
    if context.invoked_subcommand is None:
        show_users(client, as_json)


app = group(user)


@command(app, "list")
def users(client: ManagerApi, as_json: AsJson = False) -> None:
    """List users with a role or limits of their own, with what they use; without being admin, yourself.

    Examples:
        trainmaster user list
        trainmaster user list --json
    """
    show_users(client, as_json)


def show_users(client: ManagerApi, as_json: bool) -> None:
    limits = {each["user"]: each for each in client.get("/user-limits")["limits"]}
    roles: Json = {"users": []}
    with suppress(Failed):  # only admins see the roles
        roles = client.get("/users")
    if as_json or not (limits or roles["users"]):
        none = "No user has a role or limits of their own: `trainmaster user set --help` shows how."
        show_answer({**roles, "limits": list(limits.values())}, as_json, none)
        return
    columns = COLUMNS if limits else COLUMNS[:3]
    by_name = {each["name"]: each for each in roles["users"]}
    with_budget = any(each["budget"] for each in limits.values())
    rows = []
    for name in sorted({*limits, *by_name}):
        has, may = by_name.get(name), limits.get(name, {})
        row = [name, has and has["role"], has and at(has["changed_s"])]
        row += [may.get(key.replace(" ", "_")) for key in columns[3:]]
        if name == EVERYBODY:  # its limits are for each, and what all use together is not
            row[3::2] = [None] * len(row[3::2])
        rows.append([*row, budget_cell(may.get("budget"))] if with_budget else row)
    show_table((*columns, "budget used") if with_budget else columns, rows)
    spent = [each["budget"] for each in limits.values() if each["budget"]]
    remark("Warning", [each["warning"] for each in spent if each["warning"]])


@command(app, "set")
def set_role(
    client: ManagerApi,
    name: Annotated[str, argument("NAME", "User of the manager's machine.")],
    role: Annotated[Role | None, option("--role viewer|user|operator|admin", ROLE)] = None,
    max_gpus: Annotated[
        str | None, option("--max-gpus GPUS|none", "GPUs in use at once, in all queues, or none.")
    ] = None,
    max_running: Annotated[
        str | None, option("--max-running N|none", "Running jobs at once, or none.")
    ] = None,
    max_jobs: Annotated[
        str | None,
        option("--max-jobs N|none", "Jobs that have not ended; more are refused. Or none."),
    ] = None,
    budget: BudgetOption = None,
    per: PerOption = None,
    starting: StartingOption = None,
    when_used_up: RuleOption = None,
    as_json: AsJson = False,
) -> None:
    """Give a user a role, limits, or a budget of GPU-hours; what is left out stays as it is.

    A role counts over the socket, at once; tokens have roles of their own. Limits and budgets count for all
    jobs of the user. `*` stands for everybody who has no limits of their own.

    Examples:
        trainmaster user set ada --role operator
        trainmaster user set guest --role viewer
        trainmaster user set ada --max-gpus 8 --max-running 4
        trainmaster user set ada --budget 100h --per month
        trainmaster user set '*' --max-gpus 2 --max-jobs 50
        trainmaster user set ada --max-gpus none --budget none
    """
    path = quote(name, safe="")
    options = (max_gpus, max_running, max_jobs, budget, per, starting, when_used_up)
    has_limits = any(each is not None for each in options)
    if role is None and not has_limits:
        raise BadInput(
            "say what to set: --role, --max-gpus, --max-running, --max-jobs or --budget."
        )
    rows = client.get("/user-limits")["limits"] if has_limits else []
    known: Json = next((each for each in rows if each["user"] == name), {})
    stated = {
        "max_gpus": number_of(max_gpus, "--max-gpus", whole=False),
        "max_running": number_of(max_running, "--max-running"),
        "max_jobs": number_of(max_jobs, "--max-jobs"),
        "budget": budget_of(known.get("budget"), budget, per, starting, when_used_up),
    }
    answer: Json = {}
    said = []
    if has_limits:
        kept = {key: known.get(key) for key in stated}
        kept["budget"] = budget_of(known.get("budget"), None, None, None, known_rule(known))
        answer = client.put(f"/user-limits/{path}", changed(kept, stated))
        said.append(f"{name}: {limit_words(answer)}.")
    if role is not None:
        answer = answer | client.put(f"/users/{path}", {"role": role})
        said.append(f"{name} has the role {answer['role']}.")
    show_answer(answer, as_json, "\n".join(said))
    note_unknown_user(client, name)


def limit_words(row: Json) -> str:
    """`max gpus 8, budget 0 of 100 h per month (…)`."""
    keys = ("max_gpus", "max_running", "max_jobs")
    said = [f"{key.replace('_', ' ')} {cell(row[key])}" for key in keys if row[key] is not None]
    if row["budget"]:
        said.append(budget_words(row["budget"]))
    return ", ".join(said) or "no limits"


@command(app, "rm")
def remove(
    client: ManagerApi,
    names: Annotated[list[str], argument("NAME", "Users that go back to the role `user`.")],
    as_json: AsJson = False,
) -> None:
    """Take back the role of users: they have the role `user` again, and keep their jobs.

    Examples:
        trainmaster user rm ada
    """
    for name in dict.fromkeys(names):
        row = client.delete(f"/users/{quote(name, safe='')}")
        show_answer(row, as_json, f"{name} has the role user again.")
