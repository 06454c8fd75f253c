"""`trainmaster reserve`: devices kept for a user or a queue in a time that is known before."""

from __future__ import annotations

from typing import Annotated

from trainmaster.cli.support.console import remark, show_answer
from trainmaster.cli.support.options import AsJson, argument, option
from trainmaster.cli.support.reservations import (
    Cancel,
    For,
    From,
    In,
    Why,
    cancel,
    show_reservations,
    summary,
    terms_of,
)
from trainmaster.cli.support.unknown_users import note_unknown_user
from trainmaster.client.manager_api import ManagerApi
from trainmaster.errors import BadInput
from trainmaster.model.queue import DEFAULT_QUEUE

Places = Annotated[
    list[str] | None,
    argument("GPUS", "How many devices, or which: a node (n0), or devices of it (n0:0 n0:1)."),
]


def reserve(
    client: ManagerApi,
    places: Places = None,
    user: Annotated[str | None, option("--user USER", "Whose jobs may use them.")] = None,
    queue: Annotated[str | None, option("--queue QUEUE", "Queue whose jobs may use them.")] = None,
    begin: From = None,
    begin_in: In = None,
    lasts: For = None,
    reason: Why = "",
    force: Annotated[
        bool, option("--force", "End other runs there when it begins, even if they lose work.")
    ] = False,
    cancelled: Cancel = None,
    as_json: AsJson = False,
) -> None:
    """Keep devices free for the jobs of a user or a queue, for a time; without arguments, list what is.

    No other job is started there that might still run when it begins: jobs with a time limit (`--time`) or a
    predicted end before that still are. What runs there then is suspended if it loses nothing by that. Jobs
    of that user or queue may use these devices at any time, and other devices as well.

    Examples:
        trainmaster reserve 4 --user ada --from 2026-12-01T09:00 --for 8h
        trainmaster reserve n0:0 n0:1 --queue vision --in 2h --for 1d --reason "paper deadline"
        trainmaster reserve
        trainmaster reserve --cancel 3
    """
    if cancelled is not None:
        cancel(client, cancelled, as_json, is_maintenance=False)
        return
    if not places:
        if begin or begin_in or lasts or user or queue:
            raise BadInput("Say which devices, or how many: `trainmaster reserve 4 --user ada …`.")
        show_reservations(client, as_json)
        return
    if not (user or queue):
        raise BadInput(
            "Say whom it is for, with --user or --queue; `trainmaster node maintenance` keeps nodes free of"
            " all jobs."
        )
    body = {**terms_of(begin, begin_in, lasts), "reason": reason, "force": force}
    is_count = len(places) == 1 and places[0].isdecimal()
    body |= {"devices": int(places[0])} if is_count else {"places": places}
    body |= {key: value for key, value in (("user", user), ("queue", queue)) if value}
    answer = client.post("/reservations", body)
    show_answer(answer, as_json, f"Reserved: {summary(answer)}.")
    note_unknown_user(client, user)
    if queue is not None:
        known = [each["name"] for each in client.get("/queues")["queues"]]
        is_free = queue != DEFAULT_QUEUE and queue not in known
        note = (
            f"no queue is defined: jobs with `queue: {queue}` are meant, if that is not misspelled"
        )
        remark("Note", [note] if is_free else [])


def reservations(client: ManagerApi, as_json: AsJson = False) -> None:
    """List maintenance and reservations, now and later.

    Examples:
        trainmaster reservations
        trainmaster reservations --json
    """
    show_reservations(client, as_json)
