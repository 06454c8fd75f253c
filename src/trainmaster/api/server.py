"""Manager and HTTP server in one event loop: started and stopped together."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import json
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from trainmaster.api.app import create_app
from trainmaster.api.audit_log import FILE, AuditFile
from trainmaster.api.connections import bounded_protocol
from trainmaster.api.front import PLAIN, Front
from trainmaster.api.host_check import names_of
from trainmaster.api.identity import manager_itself
from trainmaster.api.local_socket import LocalSocket
from trainmaster.api.page_process import PageProcess
from trainmaster.api.routes.accounts import link_of
from trainmaster.api.sessions import Sessions
from trainmaster.daemon.admin_token import ensure_admin_token
from trainmaster.daemon.daemon import Daemon
from trainmaster.daemon.request_errors import RequestError
from trainmaster.durable_files import write_whole

log = structlog.get_logger("trainmaster.serving")

LAST_ANSWERS_S = 3
PORTS = 20
"""How many ports are tried where the usual one is taken."""
RARELY = (50_000, 20, 20)
"""Thresholds of the garbage collector. Answers are many small objects that live for milliseconds, beside
ten thousand jobs that live for days: with the defaults it would scan all of them all the time."""
Beside = Callable[[Daemon], Awaitable[None]]


class Server(uvicorn.Server):
    """A server on a TCP socket and Unix sockets, which leaves signals to us."""

    def __init__(
        self,
        config: uvicorn.Config,
        local: dict[socket.socket, type[H11Protocol]],
        audit: AuditFile,
    ) -> None:
        """`local`: the Unix sockets, each with what it speaks."""
        super().__init__(config)
        self._local = local
        self._audit = audit

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Unix sockets never speak TLS, whatever the other one does."""
        await super().startup(sockets)
        loop = asyncio.get_running_loop()
        for sock, speaks in self._local.items():
            made: Callable[[], asyncio.Protocol] = partial(
                speaks,
                config=self.config,
                server_state=self.server_state,
                app_state=self.lifespan.state,
            )
            self.servers.append(await loop.create_server(made, sock=sock))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        self._audit.end()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listening(host: str, port: int) -> socket.socket:
    """A socket on that address, before anything else starts; OSError if it is in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named, else asyncio does not know it for TCP and leaves Nagle's algorithm on: every
    # answer after the first of a connection would come 40 ms late.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen()
    except OSError:
        sock.close()
        raise
    return sock


def listening_near(host: str, port: int) -> socket.socket:
    """A socket on that port, or on the next one that is free; OSError if none of them is."""
    for near in range(port, port + PORTS):
        try:
            return listening(host, near)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    return listening(host, port)


async def serve(
    daemon: Daemon,
    sock: socket.socket,
    local: LocalSocket,
    address: Path,
    when_up: Callable[[str], None] = lambda _: None,
    beside: Beside | None = None,
    before_end: Beside | None = None,
    front: Front = PLAIN,
    pages: PageProcess | None = None,
) -> None:
    """Until SIGINT or SIGTERM, or until the manager fails.

    `when_up` is called as soon as it answers and knows its role, with a link that opens its page;
    `beside` runs once it is active, `before_end` when it is told to end (a second signal cuts it short).
    """
    gc.set_threshold(*RARELY)
    stop = _signalled()
    sessions = Sessions()
    server = _server(daemon, sock, local, sessions, front, pages)
    places = _Places(front.url(sock), front.page_url(sock), local, address)
    tasks = [
        asyncio.create_task(server.serve(sockets=[sock]), name="http"),
        asyncio.create_task(daemon.run(), name="daemon"),
        asyncio.create_task(stop.wait(), name="signals"),
    ]
    app: FastAPI = server.config.app  # type: ignore[assignment]
    comparing = asyncio.create_task(app.state.daily.run())
    comparing.add_done_callback(_complain)
    announcing = asyncio.create_task(_announce(daemon, places, sessions, when_up, beside))
    announcing.add_done_callback(_complain)
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        if before_end is not None and daemon.is_active.is_set():
            stop.clear()
            announcing.cancel()
            await _unless(stop, before_end(daemon))
    finally:
        if pages is not None:  # it would follow the manager until the last answer
            pages.end()
        server.should_exit = True
        announcing.cancel()
        tasks[1].cancel()
        comparing.cancel()
        await app.state.simulations.close()
        ended = await asyncio.gather(*tasks[:2], announcing, comparing, return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception):
                log.error("a part of the manager has failed at its end", exc_info=error)
        tasks[2].cancel()
        places.withdraw()
        if pages is not None:
            pages.sessions.withdraw()


def _signalled() -> asyncio.Event:
    """Set by SIGINT and SIGTERM, each time."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


def _server(
    daemon: Daemon,
    sock: socket.socket,
    local: LocalSocket,
    sessions: Sessions,
    front: Front,
    pages: PageProcess | None,
) -> Server:
    app = create_app(
        daemon,
        daemon.metrics,
        names_of(sock) | front.names(),
        url=front.page_url(sock),
        fingerprint=front.fingerprint(),
        sessions=sessions,
        audit=daemon.folder / FILE,
        is_proxied=front.proxy is not None,
        pages=pages,
    )
    speaks = bounded_protocol(daemon.limits, is_proxied=front.proxy is not None)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=LAST_ANSWERS_S,
        lifespan="off",
        http=speaks,
        ws="none",
        proxy_headers=False,  # whoever asks could write them
        ssl_certfile=front.certificate,
        ssl_keyfile=front.key,
    )
    sockets: dict[socket.socket, type[H11Protocol]] = {local.sock: speaks}
    if pages is not None:
        sockets[pages.sessions.sock] = bounded_protocol(daemon.limits, only_sessions=True)
    return Server(config, sockets, app.state.audit)


@dataclass(frozen=True, slots=True)
class _Places:
    """Where a manager answers, for clients to find."""

    url: str
    page_url: str
    local: LocalSocket
    file: Path

    def publish(self) -> None:
        self.local.publish()
        said = {"url": self.url, "socket": str(self.local.path), "pid": os.getpid()}
        write_whole(self.file, json.dumps(said))

    def withdraw(self) -> None:
        """Remove what is ours, unless another manager has written its own."""
        self.local.withdraw()
        with contextlib.suppress(OSError):
            if json.loads(self.file.read_text())["pid"] == os.getpid():
                self.file.unlink()


def _complain(task: asyncio.Task[None]) -> None:
    """Log the failure of a task that runs beside the manager."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        log.error("a task beside the manager has failed", exc_info=error)


async def _unless(stop: asyncio.Event, work: Awaitable[None]) -> None:
    """Do this, unless another signal comes first."""
    both = [asyncio.ensure_future(work), asyncio.create_task(stop.wait())]
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    for task in both:
        task.cancel()


async def _announce(
    daemon: Daemon,
    places: _Places,
    sessions: Sessions,
    when_up: Callable[[str], None],
    beside: Beside | None,
) -> None:
    """Say that it is up and write its address; a standby only writes it when it leads."""
    await daemon.is_settled.wait()
    if daemon.is_active.is_set():
        await _write_token(daemon)
    if daemon.is_active.is_set() or daemon.health().trouble:
        places.publish()
    when_up(link_of(places.page_url, sessions.new_link(manager_itself())))
    await daemon.is_active.wait()
    await _write_token(daemon)
    places.publish()
    if beside is not None:
        await beside(daemon)


async def _write_token(daemon: Daemon) -> None:
    """The admin token, for clients that cannot use the Unix socket; a manager without one still works."""
    try:
        await ensure_admin_token(daemon.accounts, daemon.folder)
    except (OSError, RequestError) as error:
        log.error("the admin token could not be written", why=str(error))
