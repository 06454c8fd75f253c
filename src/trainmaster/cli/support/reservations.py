"""What `node maintenance` and `reserve` share: when something begins, and the list."""

from __future__ import annotations

import time
from typing import Annotated

from trainmaster.cli.support.console import show_answer, show_table
from trainmaster.cli.support.format import seconds_of
from trainmaster.cli.support.moments import moment_ahead
from trainmaster.cli.support.options import option
from trainmaster.client.manager_api import Json, ManagerApi
from trainmaster.errors import BadInput, Failed
from trainmaster.model.units import SECOND
from trainmaster.text.formatting import first_of, utc_time
from trainmaster.text.reasons import reservation_for

COLUMNS = ("number", "what", "for", "from", "until", "state", "jobs there", "reason", "by")
NAMED = 5

From = Annotated[
    str | None,
    option(
        "--from TIME", "When it begins, in local time (2026-12-01T22:00, or 22:00); default: now."
    ),
]
In = Annotated[str | None, option("--in DURATION", "When it begins, from now (2h).")]
For = Annotated[str | None, option("--for DURATION", "How long it lasts (4h).")]
Why = Annotated[str, option("--reason TEXT", "Why, for people whose jobs wait.")]
Cancel = Annotated[int | None, option("--cancel NUMBER", "Cancel this one, begun or not.", min=1)]


def terms_of(begin: str | None, begin_in: str | None, lasts: str | None) -> Json:
    """When it is, as the manager takes it."""
    if begin is not None and begin_in is not None:
        raise BadInput("--from and --in both say when it begins: give one of them.")
    if lasts is None:
        raise BadInput("Say how long it lasts, with --for: --for 4h.")
    seconds_of(lasts, "--for")
    begin_s = None
    if begin is not None:
        begin_s = moment_ahead(begin, "--from", "--in")
    elif begin_in is not None:
        begin_s = time.time() + seconds_of(begin_in, "--in")
    return {"for": lasts} | ({} if begin_s is None else {"begin_s": begin_s})


def show_reservations(client: ManagerApi, as_json: bool, *, maintenance_only: bool = False) -> None:
    said = client.get("/reservations")
    rows = [each for each in said["reservations"] if each["is_maintenance"] or not maintenance_only]
    if as_json or not rows:
        nothing = "No maintenance is planned." if maintenance_only else "Nothing is reserved."
        show_answer({"reservations": rows}, as_json, nothing)
    else:
        show_table(COLUMNS, [_row(each) for each in rows])


def cancel(client: ManagerApi, number: int, as_json: bool, *, is_maintenance: bool) -> None:
    """Either kind by its own command: both have numbers of one row."""
    found = {each["number"]: each for each in client.get("/reservations")["reservations"]}
    if number in found and found[number]["is_maintenance"] is not is_maintenance:
        other = "reserve" if is_maintenance else "node maintenance"
        raise Failed(
            f"Not cancelled: {summary(found[number])}. `trainmaster {other} --cancel {number}` does it."
        )
    answer = client.delete(f"/reservations/{number}")
    show_answer(answer, as_json, f"Cancelled: {summary(answer)}.")


def summary(row: Json) -> str:
    """One of them in a few words."""
    what = "maintenance of" if row["is_maintenance"] else "reservation of"
    kept = "" if row["is_maintenance"] else f" for {reservation_for(row['user'], row['queue'])}"
    begin, end = (utc_time(round(row[key] * SECOND)) for key in ("begin_s", "end_s"))
    return f"number {row['number']}, {what} {_places(row)}{kept} from {begin} to {end}"


def _places(row: Json) -> str:
    return first_of(row["nodes"] or row["devices"], NAMED)


def _row(row: Json) -> list[object]:
    begin, end = (utc_time(round(row[key] * SECOND)) for key in ("begin_s", "end_s"))
    kept = "maintenance" if row["is_maintenance"] else reservation_for(row["user"], row["queue"])
    left = first_of(row["left"], NAMED) or "-"
    state = "begun" if row["has_begun"] else "planned"
    more = [state, left, row["reason"] or "-", row["by"] or "-"]
    return [row["number"], _places(row), kept, begin, end, *more]
