"""Messages that are still to be delivered, in a file of the data folder: a restart forgets and repeats none.

A message is in the file before it is sent and leaves it when it was taken, so that at worst, after a crash
between the two, it comes twice.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from trainmaster.daemon.places import first_out
from trainmaster.durable_files import write_whole
from trainmaster.model.units import DAY, MINUTE, SECOND

FILE = "notifications.json"
MOST_PENDING = 1_000
"""Beyond this whoever has the most loses the oldest."""
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

    @property
    def owner(self) -> str:
        """The user whose job it is about; empty: it is for the operators."""
        return str(self.body.get("user", ""))

    @property
    def about(self) -> str:
        """Its id for logs: where it goes may be a key."""
        return self.id.removesuffix(f":{self.to}")


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
class Dropped:
    """Messages of one user that will never be delivered."""

    owner: str
    count: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class Outbox:
    cursor: int = 0
    """The last entry of all stories that messages were made of."""
    troubles: tuple[str, ...] = ()
    """The sentences of /healthz that the operators were told."""
    pending: tuple[Pending, ...] = ()
    known: tuple[str, ...] = ()
    """Ids of the last messages."""
    dropped: tuple[Dropped, ...] = ()
    """What was given up, by user."""

    def with_messages(self, messages: Iterable[Message], now: int) -> Outbox:
        """And these, unless they are known; of too many, the oldest of whoever has the most go."""
        known = set(self.known)
        new = list({each.id: each for each in messages if each.id not in known}.values())
        pending = [*self.pending, *(Pending(each, now, now) for each in new)]
        lost = []
        while len(pending) > MOST_PENDING:
            lost.append(pending.pop(first_out([each.message.owner for each in pending])))
        known_now = (*self.known, *(each.id for each in new))[-REMEMBERED:]
        return replace(self, pending=tuple(pending), known=known_now)._without(lost, now)

    def due(self, now: int) -> tuple[Pending, ...]:
        return tuple(each for each in self.pending if each.due_ms <= now)

    def delivered(self, message: Message) -> Outbox:
        left = tuple(each for each in self.pending if each.message.id != message.id)
        return replace(self, pending=left)

    def failed(self, message: Message, why: str, now: int) -> Outbox:
        """To be tried again later, ever more rarely, and given up after a day."""
        tried = [each for each in self.pending if each.message.id == message.id]
        lost = [each for each in tried if now - each.since_ms >= GIVEN_UP_AFTER_MS]
        kept = (each for each in self.pending if each not in lost)
        pending = tuple(_later(each, why, now) if each in tried else each for each in kept)
        return replace(self, pending=pending)._without(lost, now)

    def dropped_lately(self, now: int) -> tuple[Dropped, ...]:
        """Within the last day."""
        return tuple(each for each in self.dropped if now - each.last_ms < DAY)

    def _without(self, lost: Sequence[Pending], now: int) -> Outbox:
        """With a note of these, which are not tried again, for a day."""
        counts = Counter(each.message.owner for each in lost)
        recent = self.dropped_lately(now)
        old = (each for each in recent if each.owner not in counts)
        before = {each.owner: each.count for each in recent}
        new = (Dropped(owner, before.get(owner, 0) + n, now) for owner, n in counts.items())
        return replace(self, dropped=(*old, *new))


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
            tuple(Dropped(**each) for each in said.get("dropped", ())),
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
