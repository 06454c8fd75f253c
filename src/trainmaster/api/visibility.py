"""What a caller sees of jobs that are not its own.

A plain user sees id, user, queue, state and number of GPUs, and nothing else; a viewer also the names.
Operators see every job, without the values of its environment, which are its owner's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainmaster.api.caller import Caller, Role
from trainmaster.daemon.job_rows import Holder, JobRow
from trainmaster.daemon.response_models import ChangeRow, InputRow
from trainmaster.daemon.service_api import Asker, Health

HIDDEN = "(hidden)"
"""Stands for the value of a variable of someone else's job."""
STATE_CHANGES = frozenset(
    {
        *("submitted", "held", "released", "started", "suspended", "resumed"),
        *("succeeded", "failed", "lost", "stopped", "withdrawn"),
    }
)
"""Changes of other users' jobs that are told: those that show in the state."""
NAMED = re.compile(r"(\d+(?:_\d+)?) \(.*\)", re.DOTALL)
"""A job as stories name it: `14 (resnet)`."""


def asker(caller: Caller) -> Asker:
    """Whose jobs the caller finds by id and name."""
    return Asker(caller.user, sees_all=caller.is_operator)


def sees(caller: Caller, user: str) -> bool:
    """Whether the caller sees the jobs of this user in full."""
    return caller.is_operator or caller.owns(user)


def sees_names(caller: Caller, user: str) -> bool:
    return caller.role is Role.VIEWER or sees(caller, user)


def sees_secrets(caller: Caller, user: str) -> bool:
    """Whether the caller sees the environment of this user's jobs."""
    return caller.is_admin or caller.owns(user)


def shown_row(row: JobRow, caller: Caller) -> JobRow:
    """A row of a list."""
    if sees(caller, row.user):
        return row
    return JobRow(
        **_shown(row, caller),
        transition=None,
        reason=None,
        suspended_by=None,
        nodes=[],
        gpus_now=None,
        min_gpus=None,
        max_gpus=None,
        submit_s=0,
        start_s=None,
        finish_s=None,
        queue_s=0,
        waiting_s=None,
        run_s=0,
        gpu_s=0,
        priority=0,
        attempt=0,
        restarts=0,
        preemptions=0,
        lost_s=0,
        exit_code=None,
        end_reason=None,
        deadline=None,
        array=row.array,
        array_index=row.array_index,
        progress=None,
        hung=None,
        prerun=None,
    )


def shown_holder(row: JobRow, caller: Caller) -> Holder:
    """A job that blocks another."""
    if not sees(caller, row.user):
        return Holder(**_shown(row, caller))
    return Holder(row.id, row.name, row.user, row.queue, row.state, row.gpus, row.devices)


def _shown(row: JobRow, caller: Caller) -> dict[str, Any]:
    return {
        "id": row.id,
        "name": row.name if sees_names(caller, row.user) else "",
        "user": row.user,
        "queue": row.queue,
        "state": row.state,
        "gpus": row.gpus,
        "devices": [],
    }


def shown_change(change: ChangeRow, caller: Caller) -> ChangeRow | None:
    """What happened, as the caller may know it; None where it may not."""
    if change.job is None or caller.is_operator:
        return change
    if caller.owns(change.user or ""):
        return replace(change, detail=without_names(change.detail))
    return replace(change, detail={}) if change.what in STATE_CHANGES else None


def without_names(detail: Mapping[str, Any]) -> dict[str, Any]:
    """Details of a story, in which other jobs are named by their ids only."""
    return {key: _without_names(value) for key, value in detail.items()}


def _without_names(value: object) -> object:
    if isinstance(value, str):
        found = NAMED.fullmatch(value)
        return value if found is None else found[1]
    return [_without_names(each) for each in value] if isinstance(value, list | tuple) else value


def shown_spec(spec: Mapping[str, Any], caller: Caller, user: str) -> dict[str, Any]:
    """The job file, with the values of its environment for its owner only."""
    env = spec.get("env")
    if sees_secrets(caller, user) or not isinstance(env, Mapping):
        return dict(spec)
    return {**spec, "env": dict.fromkeys(env, HIDDEN)}


def shown_inputs(rows: Iterable[InputRow], caller: Caller, own: frozenset[str]) -> list[InputRow]:
    """Inputs that are set aside: of a plain user those that a job of its own failed on or waits for."""
    if caller.role is not Role.USER:
        return list(rows)
    return [
        replace(row, jobs=_own(row.jobs, own), waiting=_own(row.waiting, own), users=[])
        for row in rows
        if caller.user in row.users or not own.isdisjoint(row.waiting)
    ]


def _own(jobs: Sequence[str], own: frozenset[str]) -> list[str]:
    return [job for job in jobs if job in own]


def shown_notes(health: Health, caller: Caller) -> list[str]:
    """What does not work as it should; a plain user is not told of other users' jobs."""
    if caller.role is not Role.USER:
        return list(health.notes)
    return [note for note in health.notes if note not in health.about_jobs]
