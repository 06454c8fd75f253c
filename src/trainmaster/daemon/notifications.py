"""Tells people what happened: users of their jobs, operators of the manager's own troubles.

Jobs are followed by their stories, which are stored with each step, from the last entry that was looked at;
so what happens while the manager is down, or while a mail server is, is told later and nothing twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import structlog

from trainmaster.config.notifications import NotificationSettings, Notify, Target, target_of
from trainmaster.daemon.change_feed import ChangeFeed
from trainmaster.daemon.message_delivery import Undelivered, deliver
from trainmaster.daemon.outbox import DamagedOutbox, Message, Outbox, read_outbox, write_outbox
from trainmaster.daemon.places import PlaceLimits, Places
from trainmaster.daemon.request_errors import RequestError
from trainmaster.daemon.service_api import Health, Submission
from trainmaster.model.job_state import ENDED_STATES, LIVE_STATES, JobState
from trainmaster.model.units import DAY, SECOND
from trainmaster.store.errors import StoreError
from trainmaster.store.reader import StoreReader
from trainmaster.store.rows import JobFilter, StoredJob, StoryRow
from trainmaster.text.formatting import listing, plural
from trainmaster.text.messages import story_sentence

log = structlog.get_logger("trainmaster.notifications")

DELIVERIES = PlaceLimits(8, 2)
"""How many messages are delivered at once, and of one user; to one address they go one after another."""
LOOK_S = 15.0
"""How often the manager's health is looked at."""
TOGETHER_S = 0.5
"""What happens within so long is written down together: each time the disk is waited for."""
PAGE = 500
NAMED = 3
PLAIN = {"started": "started", "suspended": "suspended", "hung": "hung", "idle": "idle"}
"""Entries of a story that are told as they are, and on which occasion."""
ENDS = frozenset({"succeeded", "failed", "lost", "stopped", "withdrawn"})
"""Entries after which a job may have ended."""
FAILURES = frozenset({JobState.FAILED, JobState.TIMED_OUT})
AMOUNT = re.compile(r"[\d.,]+ (?:GiB|MiB|KiB|bytes?|s|of [\d,]+ files)\b")
"""What changes in a trouble that goes on."""
DROPPED = (
    "Notifications of {whose} were dropped within the last day: they could not be delivered for a day, or too"
    " many waited (manager.log says how many)."
)


# -- what to say ---------------------------------------------------------------------------------------


def notify_of(job: StoredJob) -> Notify | None:
    """Whom its job file names."""
    said = json.loads(job.spec_json)["spec"].get("notify")
    return None if said is None else Notify.model_validate(said)


def occasions(row: StoryRow, job: StoredJob, is_last: bool) -> tuple[str, ...]:
    """On which occasions this entry is told, the most telling first; `is_last`: no run comes after it."""
    if row.what in PLAIN:
        return (PLAIN[row.what],)
    if row.what not in ENDS:
        return ()
    if job.state in ENDED_STATES and is_last:
        return ("failed", "ended") if job.state in FAILURES else ("ended",)
    return ("retried",) if row.what in ("failed", "lost") else ()


def message_about(
    job: StoredJob, row: StoryRow, occasion: str, to: str, settings: NotificationSettings
) -> Message:
    detail = json.loads(row.detail_json)
    sentence = story_sentence(row.what, detail)
    state = JobState(job.state).label
    verb = state if occasion in ("ended", "failed") else occasion
    number = detail.get("attempt", "")
    return Message(
        f"{job.id}:{row.what}:{number}:{occasion}:{to}",
        to,
        _line(f"Job {job.id} ({job.name}) {_has(verb)}"),
        _text(f"{sentence}.", job.id, settings),
        _body(job, occasion, sentence, row.at_ms) | {"attempt": number or None},
    )


def message_about_array(
    rows: Sequence[StoredJob], at_ms: int, occasion: str, to: str, settings: NotificationSettings
) -> Message:
    """Of an array that has ended: how many of its jobs ended how."""
    array, first = rows[0].array or "", rows[0]
    counts = {state: sum(row.state == state for row in rows) for state in ENDED_STATES}
    said = listing([f"{count} {state.label}" for state, count in counts.items() if count])
    body = _body(first, occasion, said, at_ms) | {"job": array, "state": None, "exit_code": None}
    return Message(
        f"{array}:{occasion}:{to}",
        to,
        _line(f"Array {array} ({first.name}) has ended: {said}"),
        _text(f"{plural(len(rows), 'job')}: {said}.", array, settings),
        body | {"counts": {state.value: count for state, count in counts.items()}},
    )


def messages_about_health(
    told: Sequence[str], now: Sequence[str], at_ms: int, settings: NotificationSettings, host: str
) -> Iterator[Message]:
    """What is new among the troubles, and what is over; one message for each operator."""
    new = [each for each in now if each not in told]
    over = [each for each in told if each not in now]
    if not new and not over:
        return
    lines = [*new, *(f"Over: {each}" for each in over)]
    subject = _line(f"Trainmaster on {host}: {lines[0]}")
    body = {"event": "health", "host": host, "new": new, "over": over, "at_s": at_ms / SECOND}
    for target in settings.operators:
        to = text_of(target)
        yield Message(f"health:{at_ms}:{to}", to, subject, "\n".join(lines), body)


def troubles_told(told: Sequence[str], now: Sequence[str]) -> tuple[str, ...]:
    """The troubles there are now, in the words in which they were told.

    One in which only a size, a time or a number of files has changed is no new one: a disk that fills.
    """
    known = {AMOUNT.sub("", each): each for each in told}
    return tuple(known.get(AMOUNT.sub("", each), each) for each in now)


def text_of(target: Target) -> str:
    """As a file says it."""
    return f"slack:{target.address}" if target.channel == "slack" else target.address


HAPPENED = {
    "started": "has started",
    "hung": "hangs",
    "idle": "leaves its GPUs idle",
    "retried": "failed and is tried again",
}


def _has(verb: str) -> str:
    usual = f"has {verb}" if verb in ("succeeded", "failed", "timed out") else f"was {verb}"
    return HAPPENED.get(verb, usual)


def _body(job: StoredJob, occasion: str, sentence: str, at_ms: int) -> dict[str, object]:
    return {
        "event": occasion,
        "job": job.id,
        "name": job.name,
        "user": job.user,
        "queue": job.queue,
        "state": job.state,
        "exit_code": job.exit_code,
        "sentence": sentence,
        "at_s": at_ms / SECOND,
    }


def _text(said: str, job: str, settings: NotificationSettings) -> str:
    return f"{said}\n{settings.url.rstrip('/')}/jobs/{job}" if settings.url else said


def _line(text: str) -> str:
    """One line of printable characters, as the subject of a mail must be."""
    return "".join(each if each.isprintable() else "?" for each in text)[:200]


# -- telling it ----------------------------------------------------------------------------------------


class Notifier:
    """While its manager leads: follows the stories and the health, and delivers what is in the outbox."""

    def __init__(
        self,
        folder: Path,
        store: StoreReader,
        settings: NotificationSettings,
        *,
        is_open: bool,
        host: str,
    ) -> None:
        self._folder = folder
        self._store = store
        self._settings = settings
        self._is_open = is_open
        """Whether jobs run as the manager's own user, and could post themselves what they like."""
        self._host = host
        self._threads = ThreadPoolExecutor(DELIVERIES.most, "notifications")
        """A server that hangs holds up no other work."""
        self._places = Places(DELIVERIES)
        self._addresses: set[str] = set()
        """Where a message is being delivered to."""
        self._changed = asyncio.Event()
        """Set where the outbox has changed."""
        self._outbox = Outbox()
        self._damage = ""
        """That the file of the outbox could not be read at the start."""

    def check(self, asked: Submission) -> None:
        """Refuse a job whose messages could not be delivered."""
        said = asked.spec.get("notify")
        for target in () if said is None else Notify.model_validate(said).to:
            if refusal := self._settings.refusal(target, self._is_open):
                raise RequestError(f"notify: this manager {refusal}.")

    def notes(self) -> list[str]:
        """What could not be delivered so far."""
        late = [each for each in self._outbox.pending if each.tries]
        lost = [self._damage] if self._damage else []
        if not late:
            return lost
        named = {target_of(each.message.to).label: each.why for each in late[-NAMED:]}
        why = listing([f"{label} ({said})" for label, said in named.items()])
        return [*lost, f"{plural(len(late), 'notification')} could not be delivered yet: {why}."]

    def notes_of_users(self) -> list[str]:
        """Whose messages will not be delivered any more."""
        lately = self._outbox.dropped_lately(_now())
        return [DROPPED.format(whose=each.owner or "the manager itself") for each in lately]

    async def watch(self, feed: ChangeFeed, health: Callable[[], Health]) -> None:
        """Until cancelled."""
        try:
            found = read_outbox(self._folder)
        except DamagedOutbox as error:
            found, self._damage = None, f"Notifications may have been lost: {error}."
            log.error("notifications may have been lost", why=str(error))
        if found is None:  # the first start: what happened before is not told
            found = Outbox(cursor=await self._last_entry())
        self._outbox = found
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._collect(feed, health))
            tasks.create_task(self._deliver_all(tasks))

    async def _last_entry(self) -> int:
        while True:
            with contextlib.suppress(StoreError):
                return await asyncio.to_thread(self._store.last_story_entry)
            await asyncio.sleep(LOOK_S)

    async def _collect(self, feed: ChangeFeed, health: Callable[[], Health]) -> None:
        """Write down what is to be told, as it happens."""
        while True:
            changed = feed.changed
            try:
                while await self._collect_page():
                    pass
                self._keep(self._with_health(self._outbox, health()))
            except (StoreError, OSError) as error:
                log.warning("notifications wait", why=str(error))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), LOOK_S)
                await asyncio.sleep(TOGETHER_S)

    async def _collect_page(self) -> bool:
        """Whether there were entries since the last one."""
        entries = self._store.story_entries
        rows = await asyncio.to_thread(entries, self._outbox.cursor, PAGE)
        if not rows:
            return False
        found = await asyncio.to_thread(
            lambda: [message for _, row in rows for message in self._messages(row)]
        )
        self._keep(replace(self._outbox.with_messages(found, _now()), cursor=rows[-1][0]))
        return True

    def _messages(self, row: StoryRow) -> Iterator[Message]:
        if row.what not in PLAIN and row.what not in ENDS:
            return
        job = self._store.job(row.job)
        notify = None if job is None else notify_of(job)
        if job is None or notify is None:
            return
        wanted = set(notify.on)
        if job.array is not None:
            yield from self._messages_of_array(job, row, notify)
            return
        told = [each for each in occasions(row, job, self._is_last(row)) if each in wanted][:1]
        for occasion in told:
            for target in notify.to:
                yield message_about(job, row, occasion, text_of(target), self._settings)

    def _is_last(self, row: StoryRow) -> bool:
        story = self._store.story(row.job)
        later = story[story.index(row) + 1 :] if row in story else []
        return not any(each.what in ("started", "launch ordered", *ENDS) for each in later)

    def _messages_of_array(
        self, job: StoredJob, row: StoryRow, notify: Notify
    ) -> Iterator[Message]:
        live = frozenset(state.value for state in LIVE_STATES)
        if row.what not in ENDS or self._store.jobs(JobFilter(live, array=job.array, limit=1)):
            return
        rows = self._store.jobs(JobFilter(array=job.array, limit=100_000, is_brief=True))
        has_failed = any(each.state in FAILURES for each in rows)
        if "ended" in notify.on or ("failed" in notify.on and has_failed):
            occasion = "failed" if has_failed else "ended"
            for target in notify.to:
                to = text_of(target)
                yield message_about_array(rows, row.at_ms, occasion, to, self._settings)

    def _with_health(self, outbox: Outbox, health: Health) -> Outbox:
        if not self._settings.operators:
            return outbox
        own = set(self.notes())
        said = [each for each in (health.trouble, *health.notes) if each and each not in own]
        there = troubles_told(outbox.troubles, said)
        messages = messages_about_health(outbox.troubles, there, _now(), self._settings, self._host)
        return replace(outbox.with_messages(messages, _now()), troubles=there)

    def _keep(self, outbox: Outbox) -> None:
        """Written down first: what is sent then is not forgotten."""
        if outbox != self._outbox:
            write_outbox(self._folder, outbox)
            self._replace(outbox)

    def _keep_after_try(self, outbox: Outbox) -> None:
        """Remembered first: what was sent is not sent again because it cannot be written down."""
        self._replace(outbox)
        try:
            write_outbox(self._folder, outbox)
        except OSError as error:
            log.warning("a delivery could not be noted", why=str(error))

    def _replace(self, outbox: Outbox) -> None:
        lost = [each for each in outbox.dropped if each not in self._outbox.dropped]
        for each in lost:
            log.error("notifications are dropped", owner=each.owner, within_a_day=each.count)
        self._outbox = outbox
        self._changed.set()

    async def _deliver_all(self, tasks: asyncio.TaskGroup) -> None:
        """Several at once, and few of one user: a server that does not answer delays nobody else's."""
        while True:
            self._changed.clear()
            for pending in self._outbox.due(_now()):
                if self._may_deliver(pending.message):
                    self._addresses.add(pending.message.to)
                    self._places.take(pending.message.owner or None)
                    tasks.create_task(self._deliver(pending.message))
            later = (each for each in self._outbox.pending if self._may_deliver(each.message))
            due = min((each.due_ms for each in later), default=_now() + DAY)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), max(0.2, (due - _now()) / SECOND))

    def _may_deliver(self, message: Message) -> bool:
        is_busy = message.to in self._addresses
        return not is_busy and self._places.shortage(message.owner or None) is None

    async def _deliver(self, message: Message) -> None:
        loop, target = asyncio.get_running_loop(), target_of(message.to)
        try:
            await loop.run_in_executor(self._threads, deliver, message, target, self._settings)
        except Undelivered as error:
            log.warning("not delivered", to=target.label, about=message.about, why=str(error))
            self._keep_after_try(self._outbox.failed(message, str(error), _now()))
        else:
            log.info("delivered", to=target.label, about=message.about)
            self._keep_after_try(self._outbox.delivered(message))
        finally:
            self._addresses.discard(message.to)
            self._places.give_back(message.owner or None)
            self._changed.set()


def _now() -> int:
    return int(time.time() * SECOND)
