"""Limits: what one manager puts up with, each with a default that suits one machine with a few users.

An operator changes them by `trainmaster up --limit NAME=VALUE`; docs/limits.md lists them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

from trainmaster.config.units import duration_ms, size_bytes
from trainmaster.config.validation import ConfigError, shown
from trainmaster.model.inputs import MOST_FAILURES
from trainmaster.model.units import DAY, GIB, KIB, MIB, MINUTE, SECOND
from trainmaster.text.formatting import as_sentence
from trainmaster.text.suggest import did_you_mean

MOST = 10**9


def _count(value: object, most: int) -> int:
    text = str(value).strip().replace("_", "")
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:12]) <= most:
        raise ValueError(f"must be a whole number from 1 to {most:,}, not {shown(value)}")
    return int(text)


def _number(default: int, says: str, most: int = MOST) -> Any:
    return field(default=default, metadata={"read": partial(_count, most=most), "says": says})


def _size(default: int, says: str) -> Any:
    return field(default=default, metadata={"read": size_bytes, "says": says})


def _time(default: int, says: str) -> Any:
    return field(default=default, metadata={"read": duration_ms, "says": says})


def _time_or_never(value: object) -> int:
    return 0 if str(value).strip() in ("0", "off", "never") else duration_ms(value)


@dataclass(frozen=True, slots=True)
class Limits:
    """Times are in milliseconds, sizes in bytes."""

    losses: int = _number(5, "Times in a row that a job may be lost before it has failed.")
    device_failures: int = _number(
        3, "Jobs in a row that may fail early on a device before it is set aside."
    )
    self_test: int = _time(30 * SECOND, "A device whose self-test takes longer is set aside.")
    retry_delay: int = _time(1 * SECOND, "Delay before the first retry; it grows with each one.")
    outage_delay: int = _time(
        10 * SECOND, "The same where only time helps: network, port in use; at least retry_delay."
    )
    max_retry_delay: int = _time(5 * MINUTE, "Longest delay before a retry.")
    input_failures: int = _number(
        3,
        "Jobs, of several users or programs, that fail on an input before it is set aside; at most 16.",
        most=MOST_FAILURES,
    )
    prerun: int = _time(1 * MINUTE, "Longest time of a pre-run on one device.")
    pids: int = _number(
        16_384, "Processes and threads of one run, where the machine can limit them."
    )
    max_grace: int = _time(5 * MINUTE, "Longest grace period of a job.")
    supervisor_silence: int = _time(
        1 * MINUTE, "A supervisor that does not answer for so long is killed; its run is lost."
    )
    fork_server_silence: int = _time(
        30 * SECOND, "A fork server that starts no supervisor for so long is replaced."
    )
    leader_silence: int = _time(
        30 * SECOND, "A leader that shows no sign of life for so long is replaced by a standby."
    )
    step_deadline: int = _time(
        30 * SECOND, "A manager that takes longer for one step is said not to work (/healthz)."
    )
    hang_idle: int = _time(
        10 * MINUTE, "No shorter silence of a run with an idle device is a hang."
    )
    hang_busy: int = _time(60 * MINUTE, "The same where its device is busy.")
    hang_start: int = _time(30 * MINUTE, "The same before its first step, with an idle device.")
    disk_free: int = _size(1 * GIB, "Free space of the data folder below which /healthz says so.")
    disk_full: int = _size(4 * MIB, "Free space of the data folder below which no job is started.")
    connections: int = _number(512, "Open connections to the API.")
    header_deadline: int = _time(10 * SECOND, "Time for the head of a request to come.")
    body_deadline: int = _time(1 * MINUTE, "Time for the body of a request to come.")
    body_bytes: int = _size(32 * MIB, "Size of the body of a request.")
    bodies_bytes: int = _size(128 * MIB, "Size of all bodies that are coming, together.")
    yaml_bytes: int = _size(1 * MIB, "Size of a body in YAML, which takes long to read.")
    requests: int = _number(256, "Requests that are answered at once, those below apart.")
    submissions: int = _number(32, "Submissions that are worked on at once.")
    followers: int = _number(200, "Requests that follow logs or changes at once.")
    forwards: int = _number(100, "Connections to ports of jobs (`forward`) at once.")
    pages: int = _number(128, "Pages, and files of them, that browsers are sent at once.")
    dashboards: int = _number(200, "Pages that are open in browsers at once.")
    user_connections: int = _number(
        128,
        "Open connections of one Unix user, or from one address of another machine; operators' only count"
        " in all.",
    )
    user_requests: int = _number(64, "Requests of one user that are answered at once.")
    user_submissions: int = _number(8, "Submissions of one user that are worked on at once.")
    user_followers: int = _number(
        50, "Requests of one user that follow logs or changes, or go to ports of jobs, at once."
    )
    user_pages: int = _number(48, "Pages, and files of them, that one user is sent at once.")
    user_dashboards: int = _number(30, "Pages that one user has open at once.")
    user_bodies_bytes: int = _size(
        32 * MIB, "Size of all bodies of one user that are coming, together; at least body_bytes."
    )
    user_rate: int = _number(50, "Requests of one user in a second.", most=1_000_000)
    user_burst: int = _number(500, "Requests of one user at once, after a pause.")
    array_elements: int = _number(10_000, "Jobs of one array.")
    jobs_per_request: int = _number(10_000, "Jobs of one submission, elements of arrays included.")
    live_jobs: int = _number(50_000, "Jobs that have not ended, in all.")
    command_bytes: int = _size(64 * KIB, "Size of a job's command.")
    queue_names: int = _number(100, "Names of queues that jobs may use where none is defined.")
    snapshot_bytes: int = _size(200 * MIB, "Size of the code that a snapshot copies.")
    snapshot_files: int = _number(20_000, "Files that a snapshot copies.")
    snapshots: int = _number(
        2, "Snapshots that are copied at once; one user has half of them at most."
    )
    snapshot_deadline: int = _time(2 * MINUTE, "Time for one snapshot to be copied.")
    folder_deadline: int = _time(10 * SECOND, "Time for the folder of a job to answer.")
    archive_silence: int = _time(
        1 * MINUTE, "An archive of outputs of which nothing is made or taken for so long is ended."
    )
    story_rows: int = _number(2_000, "Entries in a job's story; beyond it only ends are kept.")
    keep_logs: int = _time(
        30 * DAY,
        "How long logs and copied code of a job are kept after its end; what is older is removed every hour,"
        " or as often as this says, at least a minute apart.",
    )
    keep_events: int = _time(
        7 * DAY, "How long the event log goes back; a snapshot covers the rest."
    )
    keep_progress: int = _time(
        1 * DAY,
        "How long each progress report of a job is kept; then one a minute, and after ten times as long one"
        " an hour.",
    )
    keep_checkpoints: int = _time(
        3650 * DAY,
        "How long checkpoints in the manager's own folder are kept after their job's end.",
    )
    daily_whatif: int = field(
        default=1 * DAY,
        metadata={
            "read": _time_or_never,
            "says": "How often, and over how long a past, it is simulated whether another policy would have"
            " done better; 0: never.",
        },
    )


def limits_of(stated: Iterable[str]) -> Limits:
    """The limits with these `name=value` instead of the defaults."""
    found: dict[str, int] = {}
    known = {each.name: each for each in fields(Limits)}
    for text in stated:
        name, equals, value = text.partition("=")
        if not equals or name not in known:
            all_of = f"write NAME=VALUE with one of {', '.join(known)}."
            near = all_of if name in known else did_you_mean(name, known, all_of)
            raise ConfigError(f"{shown(text)} is not a limit: {near}")
        try:
            found[name] = known[name].metadata["read"](value)
        except ValueError as error:
            raise ConfigError(as_sentence(f"the limit {name} {error}")) from None
    return replace(Limits(), **found)
