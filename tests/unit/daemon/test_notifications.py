"""Whom a job's story is told, on which occasion, and what stays in the outbox until it was taken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainmaster.config.notifications import (
    NO_SETTINGS,
    Channel,
    Target,
    settings_in,
    target_of,
)
from trainmaster.config.validation import ConfigError
from trainmaster.daemon.notifications import (
    message_about,
    messages_about_health,
    occasions,
    troubles_told,
)
from trainmaster.daemon.outbox import (
    GIVEN_UP_AFTER_MS,
    MOST_PENDING,
    DamagedOutbox,
    Dropped,
    Message,
    Outbox,
    read_outbox,
    write_outbox,
)
from trainmaster.model.units import DAY
from trainmaster.store.rows import StoredJob, StoryRow

HOOK = "https://hooks.example.org/services/key"


def job(state: str) -> StoredJob:
    spec = json.dumps({"spec": {"command": "true", "notify": "ada@example.org"}})
    return StoredJob(
        "7", "res\nnet", "ada", "default", state, 0, 1, 2, 1000, 1, None, None, spec, "{}"
    )


def entry(what: str) -> StoryRow:
    return StoryRow("7", 2_000, 1, what, '{"attempt": 1, "exit_code": 1}')


@pytest.mark.parametrize(
    ("said", "want"),
    {
        "ada@example.org": Target(Channel.MAIL, "ada@example.org"),
        HOOK: Target(Channel.WEBHOOK, HOOK),
        f"slack:{HOOK}": Target(Channel.SLACK, HOOK),
    }.items(),
)
def test_an_address_says_how_its_messages_travel(said: str, want: Target) -> None:
    assert target_of(said) == want
    assert "key" not in want.label


@pytest.mark.parametrize(
    "said",
    [
        "ada",
        "ada@b\r\nBcc: x@y",
        "ftp://a",
        "https://",
        "https://a b",
        "https://u:p@host/",
        "file:///etc",
        3,
    ],
)
def test_what_is_no_address_is_refused(said: object) -> None:
    with pytest.raises(ValueError, match="must be a mail address"):
        target_of(said)


@pytest.mark.parametrize(
    ("what", "state", "is_last", "want"),
    [
        ("started", "running", True, ("started",)),
        ("hung", "running", True, ("hung",)),
        ("failed", "pending", False, ("retried",)),
        ("failed", "failed", False, ("retried",)),
        ("failed", "failed", True, ("failed", "ended")),
        ("stopped", "timed_out", True, ("failed", "ended")),
        ("stopped", "cancelled", True, ("ended",)),
        ("stopped", "pending", False, ()),
        ("saved", "running", True, ()),
    ],
)
def test_an_entry_is_told_on_its_occasion(
    what: str, state: str, is_last: bool, want: tuple[str, ...]
) -> None:
    assert occasions(entry(what), job(state), is_last) == want


def test_a_message_names_job_and_outcome_in_one_line() -> None:
    settings = settings_in("url: https://tm.example.org/", "file")
    made = message_about(job("failed"), entry("failed"), "ended", "ada@example.org", settings)
    assert made.subject == "Job 7 (res?net) has failed"
    assert made.text.endswith("\nhttps://tm.example.org/jobs/7")
    assert made.body["state"] == "failed"
    assert made.body["exit_code"] == 1


def test_operators_hear_of_each_trouble_once_and_when_it_is_over() -> None:
    settings = settings_in("operators: [ops@example.org]\nmail: {host: mail}", "file")
    first = [*messages_about_health((), ("The disk is full.",), 1, settings, "box")]
    assert [each.subject for each in first] == ["Trainmaster on box: The disk is full."]
    assert not [*messages_about_health(("x",), ("x",), 2, settings, "box")]
    over = [*messages_about_health(("The disk is full.",), (), 3, settings, "box")]
    assert over[0].text == "Over: The disk is full."


@pytest.mark.parametrize(
    ("before", "after", "is_same"),
    [
        ("Only 62.5 GiB are free: make room.", "Only 840 MiB are free: make room.", True),
        ("Only 2 KiB are free: make room.", "Only 1 byte are free: make room.", True),
        ("A step has taken 12 s so far.", "A step has taken 1,027 s so far.", True),
        ("900 of 1,024 files are open.", "1,000 of 1,024 files are open.", True),
        ("GPU 3 of n1 is set aside.", "GPU 4 of n1 is set aside.", False),
        (
            "Only 5 GiB are free where job 1 writes.",
            "Only 5 GiB are free where job 2 writes.",
            False,
        ),
    ],
)
def test_a_trouble_that_only_measures_otherwise_is_the_same_one(
    before: str, after: str, is_same: bool
) -> None:
    settings = settings_in("operators: [ops@example.org]\nmail: {host: mail}", "file")
    told = troubles_told((before,), (after,))
    assert told == ((before,) if is_same else (after,))
    made = [*messages_about_health((before,), told, 1, settings, "box")]
    assert [each.body["new"] for each in made] == ([] if is_same else [[after]])
    assert troubles_told((before,), ()) == ()


@pytest.mark.parametrize(
    ("file", "to", "is_open", "want"),
    [
        ("", "a@b.org", True, "has no mail server"),
        ("mail: {host: mail}", "a@b.org", False, ""),
        ("", HOOK, True, ""),
        ("", HOOK, False, "allows no webhooks"),
        ("webhook_hosts: ['*.example.org']", HOOK, False, ""),
        ("webhook_hosts: [other.org]", HOOK, True, "does not post to hooks.example.org"),
    ],
)
def test_what_cannot_be_delivered_is_refused_at_submission(
    file: str, to: str, is_open: bool, want: str
) -> None:
    settings = settings_in(file, "file") if file else NO_SETTINGS
    refusal = settings.refusal(target_of(to), is_open)
    assert want in refusal
    assert bool(refusal) == bool(want)


@pytest.mark.parametrize(
    "file",
    [
        "mail: {host: mail, user: tm}",
        "mail: {host: mail, user: tm, password_file: p, security: none}",
        "mail: {host: mail, from: nobody}",
        "operator: [a@b.org]",
    ],
)
def test_an_unsafe_or_mistaken_file_is_refused(file: str) -> None:
    with pytest.raises(ConfigError, match="file"):
        settings_in(file, "file")


def test_a_message_stays_until_it_was_taken_and_comes_once(tmp_path: Path) -> None:
    message = Message("7:ended", "ada@example.org", "s", "t", {"job": "7"})
    outbox = Outbox(3).with_messages([message, message], 1_000).with_messages([message], 1_500)
    write_outbox(tmp_path, outbox)
    assert (tmp_path / "notifications.json").stat().st_mode & 0o777 == 0o600
    assert read_outbox(tmp_path) == outbox
    assert [each.message for each in outbox.due(1_000)] == [message]
    late = outbox.failed(message, "refused", 1_000)
    assert not late.due(1_000 + 4_999)
    assert late.due(6_000)
    assert late.failed(message, "refused", 6_000).pending[0].due_ms == 16_000
    given_up = late.failed(message, "refused", 1_000 + GIVEN_UP_AFTER_MS)
    assert not given_up.pending
    assert given_up.dropped == (Dropped("", 1, 1_000 + GIVEN_UP_AFTER_MS),)
    taken = late.delivered(message)
    assert not taken.pending
    assert not taken.with_messages([message], 9_000).pending


def test_a_user_with_too_many_messages_loses_its_own_oldest_and_that_is_noted(
    tmp_path: Path,
) -> None:
    def messages(user: str, numbers: range) -> list[Message]:
        to = f"{user}@example.org"
        body = {"user": user} if user else {"event": "health"}
        return [Message(f"{user}{n}:ended:{to}", to, "s", "t", body) for n in numbers]

    outbox = Outbox().with_messages([*messages("", range(2)), *messages("bob", range(3))], 1)
    for first in range(0, 3 * MOST_PENDING, 500):
        outbox = outbox.with_messages(messages("eve", range(first, first + 500)), 2)
    owners = [each.message.owner for each in outbox.pending]
    assert (owners.count(""), owners.count("bob"), owners.count("eve")) == (2, 3, MOST_PENDING - 5)
    assert outbox.pending[-1].message.id.startswith(f"eve{3 * MOST_PENDING - 1}:")
    assert outbox.dropped_lately(3) == (Dropped("eve", 2 * MOST_PENDING + 5, 2),)
    assert not outbox.dropped_lately(2 + DAY)
    write_outbox(tmp_path, outbox)
    assert read_outbox(tmp_path) == outbox


def test_logs_do_not_say_where_a_message_goes() -> None:
    assert Message(f"7:ended:{HOOK}", HOOK, "s", "t", {}).about == "7:ended"


def test_an_outbox_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    (tmp_path / "notifications.json").write_text(
        '{"cursor": 3, "troubles": [], "pending": [], "known": ["7"]}'
    )
    assert read_outbox(tmp_path) == Outbox(3, known=("7",))


def test_a_damaged_outbox_is_put_aside_and_said(tmp_path: Path) -> None:
    assert read_outbox(tmp_path) is None
    (tmp_path / "notifications.json").write_text('{"cursor": 3')
    with pytest.raises(DamagedOutbox, match="damaged"):
        read_outbox(tmp_path)
    assert (tmp_path / "notifications.json.damaged").exists()
    assert read_outbox(tmp_path) is None
