"""The manager's session with one node: orders in turn, until each is answered, and what is new there."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

import structlog

from trainmaster.engines.protocol import Abilities
from trainmaster.engines.ray.node_link import NodeLink, Unreachable
from trainmaster.engines.ray.node_reports import Batch, Begun, SessionOver, SessionUnknown
from trainmaster.engines.run_limits import RunLimits
from trainmaster.model.job import Run

log = structlog.get_logger(__name__)

WAIT_S = 20.0
"""How long a launcher waits for news before it says that there are none."""
FORGET = "forget"
"""The request that outlives its node: its disk may come back."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0


class NodeIsGone(Exception):
    """The node is dead: nobody will answer."""


@dataclass(frozen=True, slots=True)
class Request:
    """A call of a launcher's method, without its session."""

    run: Run
    method: str
    words: tuple[object, ...]


class NodeSession:
    """One node. `begun` is told when a session has begun there, before any order is sent in it; `take` what
    is new, one batch after the other."""

    def __init__(
        self,
        link: NodeLink,
        name: str,
        limits: RunLimits,
        begun: Callable[[NodeSession], Awaitable[None]],
        take: Callable[[str, Batch], Awaitable[None]],
    ) -> None:
        self.name = name
        self.host = ""
        """The address at which other nodes reach it; empty until it is found."""
        self.abilities: Abilities | None = None
        self.is_usable = False
        """Whether a session has begun there."""
        self.sees_folder = True
        """Whether it sees the manager's folder; else the files of jobs are sent there."""
        self.is_gone = False
        self.silent_ms: int | None = None
        """Since when it has not answered; None: it answers."""
        self.is_superseded = False
        """Whether another manager gives orders to it now."""
        self._link = link
        self._limits = limits
        self._begun = begun
        self._take = take
        self._session: int | None = None
        self._is_ready = asyncio.Event()
        """Set while orders can be sent."""
        self._woken = asyncio.Event()
        """Set when something is known that ends a pause."""
        self._has_work = asyncio.Event()
        self._requests: deque[Request] = deque()
        self._tasks = [asyncio.create_task(self._follow()), asyncio.create_task(self._send())]

    def found(self, host: str) -> None:
        """It is there; whether its launcher is another one shows with the next call."""
        self.host, self.is_gone = host, False
        self._woken.set()

    def gone(self) -> None:
        """It is dead: what it was to be told is not told any more."""
        self.is_gone, self.is_usable, self._session = True, False, None
        self._is_ready.clear()
        left = [each for each in self._requests if each.method == FORGET]
        self._requests.clear()
        self._requests.extend(left)
        self._woken.set()

    def post(self, run: Run, method: str, *words: object) -> None:
        """Call this as soon as all before it have been answered, until it is answered."""
        self._requests.append(Request(run, method, words))
        self._has_work.set()

    async def ask(self, method: str, *words: object) -> object:
        """The answer, as soon as there is one; NodeIsGone where nobody will give it."""
        while True:
            await self._ready()
            try:
                return await self._call(method, *words)
            except Unreachable:
                await self._pause(FIRST_PAUSE_S)
            except SessionUnknown:
                self._forget_session()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task

    async def call_begun(self, method: str, *words: object) -> object:
        """For `begun`: once, in the session that has begun."""
        return await self._call(method, *words)

    # -- the work ------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        """Begin a session, and take what is new there, for as long as there is a manager."""
        pause, after = FIRST_PAUSE_S, 0
        while not self.is_superseded:
            try:
                if self._session is None:
                    after = 0
                    await self._begin()
                batch = await self._call("next", after, WAIT_S)
                assert isinstance(batch, Batch)
                if batch.number > after:
                    await self._take(self.name, batch)
                    after = batch.number
                pause = FIRST_PAUSE_S
            except Unreachable:
                await self._pause(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
            except SessionUnknown:
                self._forget_session()
            except SessionOver as over:
                self._forget_session()
                self.is_superseded = True
                log.error("another manager gives orders to a node", node=self.name, why=str(over))
            except Exception:
                log.exception("news of a node could not be taken", node=self.name)
                await self._pause(LONGEST_PAUSE_S)

    async def _begin(self) -> None:
        begun = await self._link.call(self.name, "begin", self._limits)
        assert isinstance(begun, Begun)
        self._session, self.abilities, self.silent_ms = begun.session, begun.abilities, None
        try:
            await self._begun(self)
        except BaseException:
            self._session = None
            raise
        self._is_ready.set()

    async def _send(self) -> None:
        """One request after the other."""
        pause = FIRST_PAUSE_S
        while True:
            await self._has_work.wait()
            await self._is_ready.wait()
            if not self._requests:
                self._has_work.clear()
                continue
            request = self._requests[0]
            try:
                await self._call(request.method, *request.words)
                pause = FIRST_PAUSE_S
            except Unreachable:
                await self._pause(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
                continue
            except (SessionUnknown, SessionOver):
                self._forget_session()
                continue
            except Exception:
                log.exception("a node refused an order", node=self.name, request=request.method)
            if self._requests and self._requests[0] is request:
                self._requests.popleft()

    async def _call(self, method: str, *words: object) -> object:
        if self._session is None:
            raise Unreachable
        try:
            answer = await self._link.call(self.name, method, self._session, *words)
        except Unreachable:
            self.silent_ms = self.silent_ms or time.time_ns() // 1_000_000
            raise
        self.silent_ms = None
        return answer

    def _forget_session(self) -> None:
        self._session, self.is_usable = None, False
        self._is_ready.clear()

    async def _ready(self) -> None:
        while not self._is_ready.is_set():
            if self.is_gone:
                raise NodeIsGone(self.name)
            await self._pause(FIRST_PAUSE_S)

    async def _pause(self, pause_s: float) -> None:
        """Less where the node is found meanwhile."""
        self._woken.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._woken.wait()
