"""`trainmaster top`: the GPUs, jobs and queues in the terminal, as they change."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Annotated

from trainmaster.cli.support.console import write, write_json
from trainmaster.cli.support.options import AsJson, OnlyMe, option
from trainmaster.cli.support.plain_table import screen_width
from trainmaster.cli.top_screen.cluster_view import Choice, read_cluster
from trainmaster.cli.top_screen.snapshot_text import snapshot_text
from trainmaster.client.manager_api import ManagerApi
from trainmaster.errors import Failed

NOT_INSTALLED = (
    "`trainmaster top` draws with Textual, which is not installed here: `pip install 'trainmaster[tui]'`;"
    " `trainmaster top --once` works without it."
)
TEXT = "Only jobs with this in their name or id."


def top(
    client: ManagerApi,
    me: OnlyMe = False,
    text: Annotated[str, option("--filter TEXT", TEXT)] = "",
    once: Annotated[bool, option("--once", "Print it once, as plain text.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show GPUs, jobs and queues in the terminal, as they change.

    Keys: arrows choose a job, Enter shows its details, s suspends, r resumes and c cancels it, m switches
    between my jobs and all, / filters, Tab shows queues, q quits. Where the output goes to a file or a
    pipe, it is printed once.

    Examples:
        trainmaster top
        trainmaster top --me
        trainmaster top --once
        trainmaster top --json | jq '.status.used'
    """
    choice = Choice(me, text.strip())
    if as_json:
        view = read_cluster(client, choice)
        lists = {"nodes": view.nodes, "queues": view.queues, "jobs": view.jobs}
        write_json({"status": view.status, **lists, "more_jobs": view.is_cut})
        return
    if once or not (sys.stdout.isatty() and sys.stdin.isatty()):
        write(snapshot_text(read_cluster(client, choice), choice, screen_width()))
        return
    if find_spec("textual") is None:
        raise Failed(NOT_INSTALLED)
    read_cluster(client, choice)  # what does not work is said before the screen is taken
    from trainmaster.cli.top_screen.app import TopApp

    TopApp(client, choice).run()
