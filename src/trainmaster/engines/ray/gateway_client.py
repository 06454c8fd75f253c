"""The manager's side of its gateway to a Ray cluster: starts it, starts it again, and keeps `NodeLink`."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import pickle
import sys
import time
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import IO, Any

import structlog

from trainmaster.engines.local.processes import python_path
from trainmaster.engines.protocol import EngineError
from trainmaster.engines.ray.frames import framed, next_value
from trainmaster.engines.ray.gateway_messages import (
    Answer,
    AskReserved,
    Call,
    Connect,
    Nodes,
    Refused,
    Request,
    Reserve,
    Withdraw,
)
from trainmaster.engines.ray.launcher_actor import LAUNCHER, Unconfirmed
from trainmaster.engines.ray.node_link import NodeNews, NotReserved, Unreachable
from trainmaster.engines.ray.node_news import NodeBook, Sight
from trainmaster.model.engine_reports import ClusterNode
from trainmaster.model.job import Run
from trainmaster.text.formatting import exact_length, utc_time

log = structlog.get_logger(__name__)

CONNECT_S = 60.0
"""How long the cluster may take to answer at the start, ..."""
SETTLED_S = 60.0
"""... and its launchers to start."""
REACH_S = 5.0
AGAIN_S = (0.2, 1.0, 2.0, 5.0)
"""Pauses before a gateway that has ended is started again; the last one from then on."""
LOG_BYTES = 1 << 22
NO_RAY = (
    "The Ray engine needs Ray, and this Python does not have it: pip install 'ray[default]', the same version"
    " as on the nodes."
)
AWAY = "The connection to the Ray cluster is lost; it is made again."
SILENT = "Ray's head at {} does not answer since {}: nothing is started, and nodes are as they were then."
END = " Jobs end at {} unless it answers before; they are started again when it is back."
ENDED = " Jobs have ended at {}; they are started again when it is back."
NOT_SEEN = (
    "Ray's head at {} has not answered since this manager started: jobs and their logs can be looked at, and"
    " nothing is started. Jobs end once it is away for {}; they are started again when it is back."
)


class Gateway:
    """`store` names the manager's data folder: each has launchers, reservations and folders of its own."""

    def __init__(
        self,
        address: str,
        store: str,
        fence_s: float = 60.0,
        *,
        serves_users: bool = False,
        environ: Mapping[str, str] | None = None,
        log_file: Path | None = None,
        launcher: str = LAUNCHER,
        longest_fence_s: float = 0.0,
        noted_fence_s: Callable[[], float] | None = None,
    ) -> None:
        self.address = address
        self._fence_s = fence_s
        longest_s = max(fence_s, longest_fence_s)
        self._connect = Connect(address, store, fence_s, longest_s, serves_users, launcher)
        self._environ = dict(environ or {})
        """Variables by which Ray's client is let in, beside our own."""
        self._log_file = log_file
        self._book = NodeBook(int(fence_s * 1000), int(longest_s * 1000))
        self._noted_fence_s = noted_fence_s
        """The longest that any manager of the store has noted."""
        self._last: tuple[Sight, ...] = ()
        self._tell: Callable[[NodeNews], None] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._numbers = count(1)
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._keeping: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        self._refused = ""
        self._seen_ms: int | None = None
        """When the cluster answered last, by the wall clock."""
        self._is_away = False
        """Whether the cluster has not answered since then, ..."""
        self._is_lost = False
        """... and whether there is no gateway to it."""
        self._troubles: tuple[str, ...] = ()
        self._alive: tuple[tuple[str, str], ...] = ()

    @property
    def nodes(self) -> tuple[ClusterNode, ...]:
        """Those that can be used now."""
        return self._book.found

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def connect(self, *, may_be_away: bool = False) -> None:
        """Until the cluster answers and its launchers have started; EngineError where it does not.

        With `may_be_away` a head that nothing listens at is waited for while there are no nodes.
        """
        if self._keeping is not None:
            return
        if not has_ray():
            raise EngineError(NO_RAY)
        try:
            await self._reach()
        except EngineError:
            if not may_be_away:
                raise
            self._is_away = True
            self._keeping = asyncio.create_task(self._keep_when_reached())
            return
        self._keeping = asyncio.create_task(self._keep())
        settled = asyncio.create_task(self._settled.wait())
        done, _ = await asyncio.wait(
            [settled, self._keeping],
            timeout=CONNECT_S + SETTLED_S,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if settled in done:
            return
        settled.cancel()
        await self.close()
        raise EngineError(self._refused or f"The Ray cluster at {self.address} does not answer.")

    async def open(self, tell: Callable[[NodeNews], None]) -> None:
        await self.connect()
        self._tell = tell
        for each in self._book.now():
            tell(each)

    async def call(self, node: str, method: str, *words: object) -> object:
        number = next(self._numbers)
        try:
            said: bytes = await self._ask(Call(number, node, method, pickle.dumps(words)))
        except Unreachable:
            if self._settled.is_set():
                self._say(self._book.miss(node, _now_ms()))
            raise
        is_done, value = pickle.loads(said)
        if is_done:
            return value
        if isinstance(value, Unconfirmed):
            raise Unreachable(f"{node} takes no calls: {value}.")
        raise value

    async def reserve(
        self, run: Run, thousandths: Mapping[str, int], cpus: Mapping[str, int]
    ) -> None:
        await self._ask(Reserve(next(self._numbers), run, dict(thousandths), dict(cpus)))

    async def reserved(self) -> Mapping[Run, Mapping[str, int]]:
        found: Mapping[Run, Mapping[str, int]] = await self._ask(AskReserved(next(self._numbers)))
        return found

    async def withdraw(self) -> None:
        """Take back what is on the cluster: launchers and reservations. Runs are ended by their fences."""
        await self._ask(Withdraw(next(self._numbers)))

    def alive(self) -> tuple[tuple[str, str], ...]:
        return self._alive

    async def settled(self) -> None:
        await self._settled.wait()

    def troubles(self) -> tuple[str, ...]:
        if self._is_away:
            return (self._absence(), *self._troubles)
        lost = " ".join(filter(None, [AWAY, self._refused]))
        return (*((lost,) if self._is_lost else ()), *self._troubles)

    def _absence(self) -> str:
        if self._seen_ms is None:
            return NOT_SEEN.format(self.address, exact_length(round(1000 * self._fence_s)))
        end_ms = self._seen_ms + round(1000 * self._fence_s)
        end = ENDED if time.time() * 1000 > end_ms else END
        return SILENT.format(self.address, utc_time(self._seen_ms)) + end.format(utc_time(end_ms))

    async def close(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError, EngineError):
                await self._keeping
            self._keeping = None
        await self._end()
        self._fail("The manager is closing.")

    # -- the process ---------------------------------------------------------------------------------------

    async def _keep_when_reached(self) -> None:
        while True:
            with contextlib.suppress(EngineError):
                await self._reach()
                break
            await asyncio.sleep(AGAIN_S[1])
        await self._keep(is_patient=True)

    async def _keep(self, *, is_patient: bool = False) -> None:
        """A gateway, and another one whenever it has ended."""
        for attempt in count():
            if attempt:
                await asyncio.sleep(AGAIN_S[min(attempt, len(AGAIN_S)) - 1])
            try:
                await self._one_life()
            except Exception as error:  # no process can be started, or what it said cannot be read
                log.exception("the gateway to Ray failed")
                self._refused = f"The gateway to Ray failed: {str(error) or type(error).__name__}."
            finally:
                await self._end()
            self._is_lost = True
            self._fail("The connection to the Ray cluster was lost.")
            if self._refused and not (self._settled.is_set() or is_patient):
                return
            log.error("the gateway to Ray has ended and is started again", why=self._refused)

    async def _one_life(self) -> None:
        with self._errors() as errors:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "trainmaster.engines.ray.gateway"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env=os.environ | self._environ | {"PYTHONPATH": python_path()},
                start_new_session=True,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(framed(self._connect))
        with contextlib.suppress(EOFError):
            while True:
                self._take(await next_value(self._process.stdout))

    def _take(self, said: Answer | Nodes | Refused) -> None:
        if isinstance(said, Answer):
            self._answer(said)
        elif isinstance(said, Refused):
            self._refused = said.why
        else:
            self._look(said)

    def _look(self, said: Nodes) -> None:
        self._is_away, self._is_lost, self._refused = not said.is_answered, False, ""
        if not said.is_answered:
            return
        self._seen_ms = time.time_ns() // 1_000_000
        if said.looked is not None:
            self._last, self._troubles = said.looked.sights, said.looked.troubles
            self._alive = said.looked.alive
            if said.looked.is_settled:
                self._settled.set()
        if self._noted_fence_s is not None:
            with contextlib.suppress(EngineError, OSError):
                self._book.lengthen(int(self._noted_fence_s() * 1000))
        self._say(self._book.see(self._last, _now_ms()))

    def _say(self, news: list[NodeNews]) -> None:
        for each in news:
            log.info("news of a node", news=each)
            if self._tell is not None:
                self._tell(each)

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _reach(self) -> None:
        """Ray itself takes a minute to say that nobody listens there."""
        host, _, port = self.address.rpartition(":")
        try:
            opened = asyncio.open_connection(host.strip("[]"), int(port))
            _, writer = await asyncio.wait_for(opened, REACH_S)
        except (OSError, ValueError, TimeoutError):
            raise EngineError(
                f"No Ray cluster answers at {self.address}: give the address of its head, as `ray start"
                " --head` shows it (HOST:6379)."
            ) from None
        writer.close()

    def _errors(self) -> IO[bytes]:
        """Where what Ray writes goes: what it kept writing is dropped at the next start."""
        if self._log_file is None:
            return open(os.devnull, "wb")
        is_full = self._log_file.exists() and self._log_file.stat().st_size > LOG_BYTES
        return self._log_file.open("wb" if is_full else "ab")

    # -- requests ------------------------------------------------------------------------------------------

    async def _ask(self, request: Request) -> Any:
        process = self._process
        if process is None or process.stdin is None:
            raise Unreachable("The Ray cluster is not connected now.")
        answer = self._asked[request.number] = asyncio.get_running_loop().create_future()
        try:
            process.stdin.write(framed(request))
            return await answer
        finally:
            self._asked.pop(request.number, None)

    def _answer(self, said: Answer) -> None:
        asked = self._asked.get(said.number)
        if asked is None or asked.done():
            return
        if said.unreachable:
            asked.set_exception(Unreachable(said.unreachable))
        elif said.not_reserved:
            asked.set_exception(NotReserved(said.not_reserved))
        else:
            asked.set_result(said.value)

    def _fail(self, why: str) -> None:
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(Unreachable(why))


def has_ray() -> bool:
    """Whether Ray is installed here: it is not loaded."""
    return importlib.util.find_spec("ray") is not None


def _now_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
