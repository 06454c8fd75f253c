"""People in the fault run: three Unix users with tokens, roles, limits and a budget, and what they may not.

`ada` and `bob` are plain users, `cleo` is an operator over the Unix socket and a viewer by token. Each tries
what is not theirs all the time. What must not be: something seen or done by a user who may not; a start over
a limit, over a budget, in maintenance or on reserved devices; GPU time that is not that of the supervisors'
journals; a request that was answered and is not in the audit log.

Limits are looked at when something starts or goes on: a limit does not end what runs. The truth is the
journals, by a clock that cannot be set.
"""

from __future__ import annotations

import http.client
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.live.daemons import LiveDaemon
from tests.unix_http import Answer, UnixConnection, ask
from tests.unix_http import as_user as in_process_of
from trainmaster.engines.local.journal import LAST, read, steady_ms
from trainmaster.model.launch_spec import Account

V1 = "/api/v1"
QUEUE = "shared"
PYTHON = "/usr/bin/python3"
"""One that every user of the machine can run."""
MAX_JOBS, ADAS_GPUS, BOBS_RUNNING, QUEUE_GPUS_PER_USER = 4, 2, 1, 1
BUDGET_STEP_GPU_S = 40
MUCH_GPU_S = 360_000
PER_ORDER_S = 1.0
"""How far the charged time of one stretch may be from that of the journal, for each GPU: the manager learns
of a start or an end by a message, on a machine that is busy."""
ORDERED_MS = 2_000
"""How long after new limits a run may still start that was ordered before them."""
REFUSED_WELL = range(400, 500)
NOT_ANSWERED = {500, 502, 503, 504}
NOTED = {401, 403}
STARTS, STOPS = {"started", "thawed"}, {"frozen", *LAST}


class Unanswered(ConnectionError):
    """The manager could not answer now: ask again later."""


@dataclass(frozen=True)
class Token:
    user: str
    id: str
    text: str


@dataclass(frozen=True)
class Span:
    """A time in which something holds, by the steady clock."""

    begin_ms: int
    end_ms: int

    def has(self, at_ms: int) -> bool:
        return self.begin_ms <= at_ms <= self.end_ms


@dataclass(frozen=True)
class Change:
    """A run takes GPUs, or leaves them."""

    at_ms: int
    job: str
    gpus: int
    """Fewer than 0: it leaves them."""


@dataclass
class People:
    """The users of one manager, and what is held against it."""

    accounts: tuple[Account, Account, Account]
    chance: random.Random
    manager: LiveDaemon
    """The one that leads now."""
    tokens: dict[str, Token] = field(default_factory=dict)
    revoked: list[Token] = field(default_factory=list)
    owners: dict[str, tuple[str, str, int]] = field(default_factory=dict)
    """User, queue and GPUs of each job."""
    refused: set[str] = field(default_factory=set)
    """Names of the jobs that were over a limit at submission."""
    answered: Counter[tuple[str, str, int, str]] = field(default_factory=Counter)
    """Verb, path, status and user of requests that belong into the audit log."""
    unallowed: list[str] = field(default_factory=list)
    over: list[str] = field(default_factory=list)
    unbounded: list[Span] = field(default_factory=list)
    """Times in which no limit is set, or not known to be."""
    lifted_ms: int | None = 0
    maintenance: list[Span] = field(default_factory=list)
    reserved: list[tuple[str, Span]] = field(default_factory=list)
    budgets: list[tuple[int, int]] = field(default_factory=list)
    """The time from which on the budget was so many GPU-seconds."""
    touched: set[str] = field(default_factory=set)
    """Jobs whose record was exchanged: what they used before is not in the new one."""
    budget_gpu_s: int = BUDGET_STEP_GPU_S
    forgotten: list[int] = field(default_factory=list)
    """When the store was exchanged: what was used of a budget before is not in the new one."""

    @property
    def ada(self) -> Account:
        return self.accounts[0]

    @property
    def cleo(self) -> Account:
        return self.accounts[2]

    def of(self, nonce: str) -> Account:
        """Whose job it is; the same again when it is asked for again."""
        return self.accounts[int(nonce, 16) % len(self.accounts)]

    # -- speaking --------------------------------------------------------------------------------------------

    def by_socket(
        self,
        account: Account,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        connect = partial(
            _over_socket, self.manager.socket, method, f"{V1}{path}", body, dict(headers or {})
        )
        return self._noted(account.name, method, path, in_process_of(account.uid, connect))

    def by_token(
        self,
        token: Token,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        place = urlsplit(self.manager.url or "")
        if not place.port:
            raise Unanswered("no manager leads")
        line = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
        shown = self.manager.bearer(token.text) | dict(headers or {})
        said = ask(line, method, f"{V1}{path}", body, shown)
        return self._noted("" if said.status == 401 else token.user, method, path, said)

    def admin(self, method: str, path: str, body: object = None) -> Answer:
        shown = Token("root", "", (self.manager.folder / "admin-token").read_text().strip())
        said = self.by_token(shown, method, path, body)
        if said.status in NOT_ANSWERED:
            raise Unanswered(said.text)
        return said

    def _noted(self, user: str, method: str, path: str, said: Answer) -> Answer:
        path = path.partition("?")[0]
        if method != "GET" or said.status in NOTED or path.endswith("/environment"):
            self.answered[method, f"{V1}{path}", said.status, user] += 1
        return said

    def submit(self, nonce: str, job: dict[str, Any]) -> str | None:
        """The id of the job; None if it is over a limit."""
        account, key = self.of(nonce), {"Idempotency-Key": nonce}
        token = self.tokens.get(account.name)
        if token is None or account is self.cleo or self.chance.random() < 0.5:
            said = self.by_socket(account, "POST", "/jobs", job, key)
        else:
            said = self.by_token(token, "POST", "/jobs", job, key)
        if said.status == 429:
            self.refused.add(str(job["name"]))
            return None
        if said.status not in {200, 201}:
            raise Unanswered(f"{said.status} {said.text}")
        id = str(said.json["jobs"][0]["id"])
        self.owners[id] = (account.name, str(job["queue"]), int(job["gpus"]))
        return id

    # -- rules -----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """With a store that knows nobody, or that may be older: roles, limits, tokens; revoked is revoked."""
        self.forgotten.append(steady_ms())
        self.budget_gpu_s = BUDGET_STEP_GPU_S
        self.admin("PUT", f"/users/{self.cleo.name}", {"role": "operator"})
        for token in self.revoked:
            self.admin("DELETE", f"/tokens/{token.id}")
        for account in self.accounts:
            self.renew(account)
        self.bind()

    def bind(self) -> None:
        ada, bob, cleo = self.accounts
        terms: dict[str, dict[str, int]] = {
            ada.name: {"max_gpus": ADAS_GPUS, "max_jobs": MAX_JOBS},
            bob.name: {"max_running": BOBS_RUNNING, "max_jobs": MAX_JOBS},
            cleo.name: {"max_jobs": MAX_JOBS},
        }
        self._rule(terms, self.budget_gpu_s, QUEUE_GPUS_PER_USER)
        if self.lifted_ms is not None:
            self.unbounded.append(Span(self.lifted_ms, steady_ms() + ORDERED_MS))
            self.lifted_ms = None

    def lift(self) -> None:
        """No limits for a while: every job can start."""
        if self.lifted_ms is None:
            self.lifted_ms = steady_ms()
        self._rule({account.name: {} for account in self.accounts}, MUCH_GPU_S, None)

    def _rule(self, terms: dict[str, dict[str, int]], gpu_s: int, per_user: int | None) -> None:
        for user, limits in terms.items():
            self._done(self.admin("PUT", f"/user-limits/{user}", limits))
        budget = {"gpu_hours": gpu_s / 3600, "per": "year", "when_used_up": "suspend"}
        bound = {} if per_user is None else {"max_gpus_per_user": per_user}
        self.budgets.append((steady_ms(), max(gpu_s, self.budgets[-1][1] if self.budgets else 0)))
        self._done(self.admin("PUT", f"/queues/{QUEUE}", {"budget": budget, **bound}))
        self.budgets.append((steady_ms(), gpu_s))

    def _done(self, said: Answer) -> None:
        assert said.status in {200, 201, 204}, said.text

    def renew(self, account: Account) -> None:
        role = "viewer" if account is self.cleo else "user"
        said = self.admin("POST", "/tokens", {"user": account.name, "role": role})
        self._done(said)
        self.tokens[account.name] = Token(account.name, said.json["id"], said.json["token"])

    def revoke(self, account: Account) -> None:
        token = self.tokens[account.name]
        self._done(self.admin("DELETE", f"/tokens/{token.id}"))
        self.revoked.append(token)
        del self.tokens[account.name]

    def used_ratio(self) -> float:
        """Of the budget, as the manager says."""
        rows = self.admin("GET", "/queues").json["queues"]
        return max((row["budget"]["used_ratio"] for row in rows if row["name"] == QUEUE), default=0)

    def budget_at(self, at_ms: int) -> int:
        return [gpu_s for since_ms, gpu_s in self.budgets if since_ms <= at_ms][-1]

    def raise_budget(self) -> None:
        """By what is needed for jobs to go on for a while."""
        used = self.used_ratio() * self.budget_gpu_s
        self.budget_gpu_s = int(used) + BUDGET_STEP_GPU_S
        self.bind()

    # -- what they do ----------------------------------------------------------------------------------------

    def live(self, rows: Mapping[str, Mapping[str, Any]]) -> None:
        """Ordinary life: tokens are exchanged, the budget grows, and everybody tries what they may not."""
        for account in self.accounts:
            if self.chance.random() < 0.15 and account.name in self.tokens:
                self.revoke(account)
            if account.name not in self.tokens:
                self.renew(account)
        if self.chance.random() < 0.5 and self.used_ratio() >= 1:
            self.raise_budget()
        self.check_owners(rows)
        self.snoop(rows)

    def check_owners(self, rows: Mapping[str, Mapping[str, Any]]) -> None:
        """Each job is of the user who submitted it."""
        for id, (user, _, _) in self.owners.items():
            if id in rows and rows[id]["user"] != user:
                self.unallowed.append(f"job {id} of {user} is of {rows[id]['user']}")

    def snoop(self, rows: Mapping[str, Mapping[str, Any]]) -> None:
        """Each tries something of another's and something of an operator's, and old tokens are shown."""
        for account in self.accounts:
            others = [id for id, row in rows.items() if row["user"] != account.name]
            if others:
                self._pry(account, self.chance.choice(others), rows)
        for token in self.chance.sample(self.revoked, min(2, len(self.revoked))):
            for path in ("/caller", "/jobs"):
                self.expect_refusal(token.user, "GET", path, self.by_token(token, "GET", path))

    def _pry(self, account: Account, job: str, rows: Mapping[str, Mapping[str, Any]]) -> None:
        verbs = ("", "/story", "/logs", "/explain", "/environment", "/outputs")
        deeds = ("cancel", "suspend", "resume", "save")
        limits: tuple[str, str, object] = ("PUT", f"/user-limits/{account.name}", {"max_gpus": 99})
        rule: tuple[str, str, object] = ("POST", "/tokens", {"user": account.name, "role": "admin"})
        if account is self.cleo:  # an operator sees jobs, and no secrets
            tries = [("GET", f"/jobs/{job}/environment", None), limits, rule]
        else:
            tries = [
                ("GET", f"/jobs/{job}{self.chance.choice(verbs)}", None),
                ("POST", f"/jobs/{job}/{self.chance.choice(deeds)}", {}),
                ("PATCH", f"/jobs/{job}", {"priority": 9}),
                self.chance.choice(
                    (
                        *(limits, rule, ("PUT", f"/queues/{QUEUE}", {"weight": 9})),
                        *(("POST", "/nodes/n0/drain", {}), ("GET", "/audit", None)),
                        *(("GET", "/tokens", None), ("GET", "/record/events", None)),
                        ("GET", f"/usage?user={self.cleo.name}", None),
                    )
                ),
            ]
        for method, path, body in tries:
            said = self.by_socket(account, method, path, body)
            self.expect_refusal(account.name, method, path, said)
        token = self.tokens.get(account.name)
        if token is not None:
            method, path, body = self.chance.choice(tries)
            said = self.by_token(token, method, path, body)
            self.expect_refusal(f"{account.name} by token", method, path, said)
        if account is not self.cleo:
            self._look(account, rows)
        self._read(account, job)

    def _look(self, account: Account, rows: Mapping[str, Mapping[str, Any]]) -> None:
        """Lists tell of others' jobs that they are there, and neither name nor program."""
        said = self.by_socket(account, "GET", "/jobs?limit=1000")
        if said.status != 200:
            return
        own = {str(row["name"]) for row in rows.values() if row["user"] == account.name}
        for row in said.json["jobs"]:
            if row["user"] != account.name and row["name"] and row["name"] not in own:
                self.unallowed.append(f"{account.name} sees the name of job {row['id']}: {row}")

    def _read(self, account: Account, job: str) -> None:
        """Files of the manager, and of others' jobs."""
        data = self.manager.folder
        for place in (data / "jobs" / job / "checkpoints" / "ticks", data / "admin-token"):
            if in_process_of(account.uid, partial(_can_read, place)):
                self.unallowed.append(f"{account.name} can read {place}")

    def expect_refusal(self, who: str, method: str, path: str, said: Answer) -> None:
        if said.status not in REFUSED_WELL and said.status not in NOT_ANSWERED:
            self.unallowed.append(f"{who}: {method} {path} -> {said.status} {said.text[:200]}")

    # -- the truth -------------------------------------------------------------------------------------------

    def over_limits(self, data: Path, devices: int) -> list[str]:
        """Starts that a limit, the budget, maintenance or a reservation forbids."""
        return [*self.over, *_over(self, changes(data, self.owners), devices)]

    def charged_wrongly(self, data: Path) -> list[str]:
        """Jobs whose GPU time is not that of their journals, give or take what an order may take."""
        rows = {row["job"]: row for row in self.admin("GET", "/usage?by=job").json["rows"]}
        found = []
        for id, (user, queue, gpus) in self.owners.items():
            truth = None if id in self.touched else used(data, id, gpus)
            if truth is None:
                continue
            row = rows.get(id, {"gpu_s": 0.0, "user": user, "queue": queue})
            if (row["user"], row["queue"]) != (user, queue):
                found.append(f"job {id} of {user} in {queue} is charged to {row}")
            slack = gpus * truth.stretches * PER_ORDER_S
            if not truth.least_s - slack <= row["gpu_s"] <= truth.most_s + slack:
                found.append(f"job {id} is charged {row['gpu_s']:.3f} GPU-s, on {gpus}: {truth}")
        return found

    def uncompared(self, data: Path) -> int:
        """How many jobs have no charge that can be compared with journals."""
        return sum(
            id in self.touched or used(data, id, gpus) is None
            for id, (_, _, gpus) in self.owners.items()
        )

    def missing(self, data: Path) -> list[str]:
        """Requests that were answered and that the audit log neither has nor counts as left out."""
        written: Counter[tuple[str, str, int, str]] = Counter()
        left_out: Counter[str] = Counter()
        for place in data.glob("audit.log*"):
            for line in place.read_text().splitlines():
                try:
                    said = json.loads(line)
                except ValueError:  # the manager was killed while it wrote
                    continue
                written[said["verb"], said["path"], said["status"], said["user"] or ""] += 1
                left_out[said["user"] or ""] += said.get("left_out") or 0
        found = []
        for what, count in (self.answered - written).items():
            counted = min(count, left_out[what[-1]])
            left_out[what[-1]] -= counted
            if count > counted:
                found.append(f"{count - counted} x {what}")
        return found


def _over_socket(
    place: str, method: str, path: str, body: object, headers: Mapping[str, str]
) -> Answer:
    return ask(UnixConnection(place), method, path, body, headers)


def _can_read(place: Path) -> bool:
    try:
        return bool(place.read_bytes()) or True
    except OSError:
        return False


def changes(data: Path, owners: Mapping[str, tuple[str, str, int]]) -> list[Change]:
    """When runs took and left GPUs, in order; one whose end is not written left them with its last entry."""
    found = []
    for job, (_, _, gpus) in owners.items():
        for folder in (data / "runs" / job).glob("*"):
            runs, at_ms, taken = False, 0, gpus_of(folder, gpus)
            for entry in read(str(folder)):
                at_ms = at_ms if "alive_ms" in entry else entry["steady_ms"]
                if entry["what"] in STARTS and not runs:
                    runs = True
                    found.append(Change(at_ms, job, taken))
                elif entry["what"] in STOPS and runs:
                    runs = False
                    found.append(Change(at_ms, job, -taken))
            if runs:
                found.append(Change(at_ms, job, -taken))
    return sorted(found, key=lambda change: (change.at_ms, change.gpus))


def gpus_of(folder: Path, gpus: int) -> int:
    """GPUs of a run: a pre-run has one."""
    return 1 if "TRAINMASTER_PRERUN" in (folder / "run.json").read_text() else gpus


@dataclass(frozen=True)
class Used:
    """GPU-seconds of a job by its journals, and in how many stretches.

    Of a run that was found gone, without an end, nobody knows how long it went on after its last entry.
    """

    least_s: float
    most_s: float
    stretches: int


def used(data: Path, job: str, gpus: int) -> Used | None:
    """None where an end is not written."""
    least, most, stretches = 0, 0, 0
    for folder in (data / "runs" / job).glob("*"):
        since_ms, last_ms, taken = None, 0, gpus_of(folder, gpus)
        for entry in read(str(folder)):
            at_ms = entry["steady_ms"]
            if entry["what"] in STARTS and since_ms is None:
                since_ms, stretches = at_ms, stretches + 1
            elif entry["what"] in STOPS and since_ms is not None:
                most += taken * (at_ms - since_ms)
                least += taken * ((last_ms if "alive_ms" in entry else at_ms) - since_ms)
                since_ms = None
            last_ms = at_ms
        if since_ms is not None:
            return None
    return Used(least / 1000, most / 1000, stretches)


def _over(people: People, history: list[Change], devices: int) -> Iterator[str]:
    ada, bob, _ = people.accounts
    gpus, running, in_queue = Counter[str](), Counter[str](), Counter[str]()
    spent = Spent()
    for change in history:
        user, queue, _ = people.owners[change.job]
        spent.pass_to(change.at_ms, sum(in_queue.values()), people.forgotten)
        gpus[user] += change.gpus
        running[user] += 1 if change.gpus > 0 else -1
        in_queue[user] += change.gpus if queue == QUEUE else 0
        if change.gpus < 0:
            continue
        said = f"at {change.at_ms} job {change.job} of {user} starts"
        if any(span.has(change.at_ms) for span in people.maintenance):
            yield f"{said} in maintenance"
        for holder, span in people.reserved:
            others = sum(gpus.values()) - gpus[holder]
            if user != holder and span.has(change.at_ms) and others > devices - 1:
                yield f"{said}: {others} of {devices} GPUs, of which one is reserved for {holder}"
        if any(span.has(change.at_ms) for span in people.unbounded):
            continue
        if user == ada.name and gpus[user] > ADAS_GPUS:
            yield f"{said}: {gpus[user]} GPUs of {ADAS_GPUS}"
        if user == bob.name and running[user] > BOBS_RUNNING:
            yield f"{said}: {running[user]} jobs run of {BOBS_RUNNING}"
        if queue == QUEUE:
            if in_queue[user] > QUEUE_GPUS_PER_USER:
                yield f"{said}: {in_queue[user]} GPUs in {QUEUE} of {QUEUE_GPUS_PER_USER}"
            spent.stretches += 1
            budget = people.budget_at(change.at_ms)
            if spent.gpu_ms / 1000 > budget + spent.stretches * PER_ORDER_S:
                yield f"{said}: {spent.gpu_ms / 1000:.1f} GPU-s of {budget} in {QUEUE} are used"


@dataclass
class Spent:
    """GPU time of the queue with the budget, since the store was last exchanged."""

    at_ms: int = 0
    gpu_ms: int = 0
    stretches: int = 0

    def pass_to(self, now_ms: int, gpus: int, forgotten: list[int]) -> None:
        if any(self.at_ms < at_ms <= now_ms for at_ms in forgotten):
            self.gpu_ms = self.stretches = 0
        else:
            self.gpu_ms += gpus * (now_ms - self.at_ms)
        self.at_ms = now_ms
