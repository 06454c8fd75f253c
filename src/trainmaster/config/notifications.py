"""Whom to tell of what happens: `notify` of a job file, and the operator's file for `up --notifications`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum, auto
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import Field, PlainValidator, WithJsonSchema, model_validator

from trainmaster.config.validation import FileModel, checked, shown
from trainmaster.config.yaml_file import read_mapping

MAIL = re.compile(r"[^\s@<>,;:\"\\]+@[^\s@<>,;:\"\\]+")
URL = re.compile(r"https?://(?P<host>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?([/?][!-~]*)?")
SLACK = "slack:"
MOST_TARGETS = 10


class Channel(StrEnum):
    """How a message travels."""

    MAIL = auto()
    WEBHOOK = auto()
    SLACK = auto()


@dataclass(frozen=True, slots=True)
class Target:
    """Where messages go: a mail address, a URL that gets JSON, or one that takes what Slack's take."""

    channel: Channel
    address: str

    @property
    def host(self) -> str:
        """Of a URL."""
        found = URL.fullmatch(self.address)
        return "" if found is None else found["host"].lower()

    @property
    def label(self) -> str:
        """For logs and notes: of a URL only the host, since the rest is often the key."""
        return self.address if self.channel is Channel.MAIL else f"{self.channel} at {self.host}"


def target_of(value: object) -> Target:
    """`ada@example.org`, `https://…` or `slack:https://…`."""
    said = value.strip() if isinstance(value, str) else ""
    if MAIL.fullmatch(said) and said.isprintable():
        return Target(Channel.MAIL, said)
    channel = Channel.SLACK if said.startswith(SLACK) else Channel.WEBHOOK
    url = said.removeprefix(SLACK)
    if URL.fullmatch(url):
        return Target(channel, url)
    raise ValueError(f"must be a mail address, https://… or slack:https://…, not {shown(value)}")


def _targets(value: object) -> tuple[Target, ...]:
    given = value if isinstance(value, list) else [value]
    if not 1 <= len(given) <= MOST_TARGETS:
        raise ValueError(f"must be one address or up to {MOST_TARGETS}, not {len(given)}")
    return tuple(dict.fromkeys(target_of(each) for each in given))


TARGET_SCHEMA = {
    "type": "string",
    "minLength": 3,
    "pattern": r"^\s*(\S+@\S+|(slack:)?https?://\S+)\s*$",
}
TARGETS_SCHEMA = {
    "anyOf": [
        TARGET_SCHEMA,
        {"type": "array", "items": TARGET_SCHEMA, "minItems": 1, "maxItems": MOST_TARGETS},
    ]
}
Targets = Annotated[tuple[Target, ...], PlainValidator(_targets), WithJsonSchema(TARGETS_SCHEMA)]
Occasion = Literal["started", "suspended", "hung", "idle", "retried", "failed", "ended"]


class Notify(FileModel):
    """Whom to tell of a job, and of what."""

    to: Targets = Field(
        description="Mail addresses, https://… (JSON is posted) or slack:https://… (also Mattermost and"
        " others that take the same)."
    )
    on: tuple[Occasion, ...] = Field(
        ("ended",),
        strict=False,
        min_length=1,
        description="started, suspended, hung, idle, retried, failed (for good), ended (in whatever way). Of"
        " an array only failed and ended are told, once, when all of it has ended.",
    )

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, raw: object) -> object:
        return {"to": raw} if isinstance(raw, str | list) else raw


class MailServer(FileModel):
    """The server that takes our mail."""

    host: str = Field(min_length=1)
    port: int = Field(587, ge=1, le=65535)
    security: Literal["starttls", "tls", "none"] = "starttls"
    user: str | None = None
    password_file: str | None = None
    sender: str = Field("trainmaster@localhost", alias="from")

    @model_validator(mode="after")
    def _is_safe(self) -> MailServer:
        if (self.user is None) != (self.password_file is None):
            raise ValueError("needs user and password_file together, or neither")
        if self.user is not None and self.security == "none":
            raise ValueError("would send the password unencrypted: security is starttls or tls")
        if not MAIL.fullmatch(self.sender):
            raise ValueError(f"has from {shown(self.sender)}, which is not a mail address")
        return self


class NotificationSettings(FileModel):
    """What an operator says of messages."""

    mail: MailServer | None = Field(None, description="The server that takes our mail.")
    operators: Targets = Field((), description="Who hears of the manager's own troubles.")
    webhook_hosts: tuple[str, ...] | None = Field(
        None,
        strict=False,
        description="Hosts that jobs may post to; `*.example.org` is all below it.",
    )
    url: str | None = Field(None, description="The page's address, for links in messages.")

    def refusal(self, target: Target, is_open: bool) -> str:
        """Why a job's messages cannot go there; empty where they can.

        `is_open`: jobs run as the manager's own user, so that they could post themselves what they like.
        """
        if target.channel is Channel.MAIL:
            return (
                ""
                if self.mail
                else "has no mail server: its operator names one by `up --notifications`"
            )
        if self.webhook_hosts is None:
            return (
                ""
                if is_open
                else "allows no webhooks: its operator names hosts by `up --notifications`"
            )
        if any(fnmatchcase(target.host, each.lower()) for each in self.webhook_hosts):
            return ""
        return (
            f"does not post to {target.host}: its operator allows {', '.join(self.webhook_hosts)}"
        )


def settings_in(text: str, where: str) -> NotificationSettings:
    """The operator's file; ConfigError where it cannot be used."""
    raw, lines = read_mapping(text, where, "docs/notifications.md")
    return checked(NotificationSettings, raw, where, lines)


NO_SETTINGS = checked(NotificationSettings, {})
"""Of a manager whose operator says nothing."""
