"""Messages that are still to be delivered, in a file of the data folder: a restart forgets and repeats none.

A message is in the file before it is sent and leaves it when it was taken, so that at worst, after a crash
between the two, it comes twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from trainmaster.durable_files import write_whole
from trainmaster.model.units import DAY, MINUTE, SECOND

FILE = "notifications.json"
MOST_PENDING = 1_000
REMEMBERED = 1_000
"""How many messages are remembered as sent, so that none is sent again."""
FIRST_DELAY_MS = 5 * SECOND
LONGEST_DELAY_MS = 10 * MINUTE
GIVEN_UP_AFTER_MS = DAY


@dataclass(frozen=True, slots=True)
class Message:
    """One message for one target."""

    id: str
    """The same event for the same target has the same one."""
    to: str
    """As the job file or the operator's file says it."""
    subject: str
    text: str
    body: Mapping[str, object]
    """What webhooks get, as JSON."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A message that has not been delivered yet."""

    message: Message
    since_ms: int
    due_ms: int
    tries: int = 0
    why: str = ""
    """Why the last try failed."""


@dataclass(frozen=True, slots=True)
class Outbox:
    cursor: int = 0
    """The last entry of all stories that messages were made of."""
    troubles: tuple[str, ...] = ()
    """The sentences of /healthz that the operators were told."""
    pending: tuple[Pending, ...] = ()
    known: tuple[str, ...] = ()
    """Ids of the last messages."""

    def with_messages(self, messages: Iterable[Message], now: int) -> Outbox:
        """And these, unless they are known; the oldest go where there are too many."""
        known = set(self.known)
        new = list({each.id: each for each in messages if each.id not in known}.values())
        pending = (*self.pending, *(Pending(each, now, now) for each in new))
        return replace(
            self,
            pending=pending[-MOST_PENDING:],
            known=(*self.known, *(each.id for each in new))[-REMEMBERED:],
        )

    def due(self, now: int) -> tuple[Pending, ...]:
        return tuple(each for each in self.pending if each.due_ms <= now)

    def next_due(self) -> int | None:
        return min((each.due_ms for each in self.pending), default=None)

    def delivered(self, message: Message) -> Outbox:
        left = tuple(each for each in self.pending if each.message.id != message.id)
        return replace(self, pending=left)

    def failed(self, message: Message, why: str, now: int) -> Outbox:
        """To be tried again later, ever more rarely, and given up after a day."""
        return replace(
            self,
            pending=tuple(
                _later(each, why, now) if each.message.id == message.id else each
                for each in self.pending
                if each.message.id != message.id or now - each.since_ms < GIVEN_UP_AFTER_MS
            ),
        )


def _later(pending: Pending, why: str, now: int) -> Pending:
    delay = min(LONGEST_DELAY_MS, FIRST_DELAY_MS << min(pending.tries, 20))
    return replace(pending, due_ms=now + delay, tries=pending.tries + 1, why=why)


class DamagedOutbox(ValueError):
    """The file is there and cannot be used."""


def read_outbox(folder: Path) -> Outbox | None:
    """What the file says; None where there is none. A damaged one is put aside, and DamagedOutbox says so."""
    place = folder / FILE
    try:
        said = json.loads(place.read_text("utf-8"))
        return Outbox(
            said["cursor"],
            tuple(said["troubles"]),
            tuple(_pending_of(each) for each in said["pending"]),
            tuple(said["known"]),
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        aside = place.rename(f"{place}.damaged")
        raise DamagedOutbox(f"{place} was damaged ({error}), and is {aside.name} now") from None


def write_outbox(folder: Path, outbox: Outbox) -> None:
    """All of it or nothing, for its owner alone: the addresses of webhooks are secrets."""
    write_whole(folder / FILE, json.dumps(asdict(outbox)), 0o600)


def _pending_of(said: Mapping[str, object]) -> Pending:
    fields = dict(said)
    message = fields.pop("message")
    return Pending(Message(**message), **fields)  # type: ignore[arg-type]
