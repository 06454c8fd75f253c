"""`trainmaster user`: the roles of the users of the manager's machine."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import quote

import typer

from trainmaster.cli.support.client import Client
from trainmaster.cli.support.command import command, group
from trainmaster.cli.support.console import show_answer, show_table
from trainmaster.cli.support.format import at
from trainmaster.cli.support.options import AsJson, argument, option

COLUMNS = ("user", "role", "since")
ROLE = "What the user may do: see all jobs, use their own, change every job and the cluster, or everything."
Role = Literal["viewer", "user", "operator", "admin"]


def user(client: Client, context: typer.Context, as_json: AsJson = False) -> None:
    """List users that have a role of their own, give one, or take it back.

    Users of the manager's machine have the role `user`: they submit jobs, and see and change their own.
    The manager's own user and root may do everything.

    Examples:
        trainmaster user list
        trainmaster user set ada --role operator
        trainmaster user rm ada
    """
    if context.invoked_subcommand is None:
        show_users(client, as_json)


app = group(user)


@command(app, "list")
def users(client: Client, as_json: AsJson = False) -> None:
    """List users that have a role of their own.

    Examples:
        trainmaster user list
        trainmaster user list --json
    """
    show_users(client, as_json)


def show_users(client: Client, as_json: bool) -> None:
    said = client.get("/users")
    if as_json or not said["users"]:
        none = "No user has a role of their own: `trainmaster user set NAME --role operator`."
        show_answer(said, as_json, none)
    else:
        rows = [[each["name"], each["role"], at(each["changed_s"])] for each in said["users"]]
        show_table(COLUMNS, rows)


@command(app, "set")
def set_role(
    client: Client,
    name: Annotated[str, argument("NAME", "User of the manager's machine.")],
    role: Annotated[Role, option("--role viewer|user|operator|admin", ROLE)],
    as_json: AsJson = False,
) -> None:
    """Give a user a role. It counts over the socket, at once; tokens have roles of their own.

    Examples:
        trainmaster user set ada --role operator
        trainmaster user set guest --role viewer
    """
    row = client.put(f"/users/{quote(name, safe='')}", {"role": role})
    show_answer(row, as_json, f"{name} has the role {row['role']}.")


@command(app, "rm")
def remove(
    client: Client,
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
