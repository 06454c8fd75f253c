"""The manager of `trainmaster up`, from its start to the signal that ends it."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from trainmaster.api.front import PLAIN, Front
from trainmaster.api.local_socket import (
    OWN_MODE,
    SYSTEM_MODE,
    LocalSocket,
    listener_at,
    own_path,
    system_path,
)
from trainmaster.api.page_process import PageProcess
from trainmaster.api.server import listening, listening_near, serve
from trainmaster.catalog import engine_maker
from trainmaster.cli.support.announcement import announcement, farewell
from trainmaster.cli.support.background import LOG, unusable_folder
from trainmaster.cli.support.console import is_private, say
from trainmaster.cli.support.demo import demonstrate, end_demonstration
from trainmaster.cli.support.engine_option import remember_engine, remembered_engine, store_name
from trainmaster.cli.support.format import by_sentence
from trainmaster.cli.support.link_profiling import LINKS
from trainmaster.cli.support.manager_log import log_to
from trainmaster.cli.support.private_folder import keep_private, open_to_users
from trainmaster.cli.support.remembered_file import Remembered
from trainmaster.cli.support.remembered_reasons import REASONS, Reasons
from trainmaster.cli.support.remembered_slots import Devices, remember_devices
from trainmaster.cli.support.remembered_users import Serves, remember_users
from trainmaster.cli.support.service_notifications import ServiceNotifications
from trainmaster.client.address import ADDRESS, PORT, is_manager, pid_in
from trainmaster.client.connection import Place
from trainmaster.config.container_options import ANY, HARMLESS
from trainmaster.config.limits import Limits
from trainmaster.config.links import MeasuredLinks
from trainmaster.config.notifications import NotificationSettings
from trainmaster.config.type_speeds import Speeds
from trainmaster.daemon.daemon import Daemon
from trainmaster.daemon.data_folder import COPIES, RESTORED, ColdStart
from trainmaster.daemon.folder_lock import is_in_use
from trainmaster.daemon.idle_watch import IdleRule
from trainmaster.daemon.request_errors import BadStart, RequestError
from trainmaster.engines.engine_settings import EngineChoice, EngineSettings, MakeEngine
from trainmaster.engines.local.descriptors import raise_limit
from trainmaster.engines.protocol import Engine, EngineError
from trainmaster.engines.run_limits import RunLimits
from trainmaster.errors import BadInput, Failed, system_reason
from trainmaster.failures.hang_rule import HangLimits
from trainmaster.model.policy_spec import PolicySpec
from trainmaster.store.errors import StoreError
from trainmaster.store.open import open_store, put_back_copy
from trainmaster.store.store import Store
from trainmaster.text.formatting import plural
from trainmaster.whatif.forecast import forecast_start

NOTIFICATIONS = "notifications.yaml"
"""A file of the data folder: the content of the file that `--notifications` named last."""


@dataclass(frozen=True, slots=True)
class StartOptions:
    """What the command line says of a manager, beside where it listens."""

    folder: Path
    devices: Devices | None
    """Of this machine; None: those of a cluster."""
    engine: EngineChoice
    database: str | None
    """None: SQLite in the folder."""
    policy: PolicySpec | None
    """None: the one that was set last."""
    cold_start: ColdStart
    limits: Limits
    ends_lost_runs: bool
    """Whether runs are ended whose devices are gone."""
    demo: bool
    ends_demo: bool
    reasons: Reasons
    """Why runs fail."""
    notifications: Remembered[NotificationSettings]
    """How messages travel, and who hears of troubles."""
    links: Remembered[MeasuredLinks]
    """Those between its devices, as they were measured."""
    tests_devices: bool = False
    """Whether idle devices are tested at the start."""
    speeds: Speeds | None = None
    """Of types of devices, as stated; None: as before."""
    front: Front = PLAIN
    """What stands before its TCP socket."""
    serves: Serves = Serves.ONE
    container_options: tuple[str, ...] = ()
    """Options of containers that jobs may have; none said: those that fit who it serves."""
    idle_rule: IdleRule | None = None
    """What is done about jobs on idle GPUs."""
    has_page: bool = True
    """Whether it serves pages to browsers."""

    @property
    def is_system(self) -> bool:
        """Whether it is the manager for everybody on this machine."""
        return self.serves is Serves.SYSTEM

    @property
    def runs_as_user(self) -> bool:
        """Whether each job runs as the Unix user who submits it."""
        return self.serves is not Serves.ONE


def run_manager(start: StartOptions, host: str, port: int | None) -> None:
    """Until a signal stops it; what keeps it from starting is one sentence."""
    folder = start.folder
    try:
        keep_private(folder)
        if start.runs_as_user:
            open_to_users(folder)
        log_to(folder / LOG)
    except OSError as error:
        raise unusable_folder(folder, error) from None
    try:
        sock = listening_near(host, PORT) if port is None else listening(host, port)
    except OSError as error:
        raise Failed(_unusable_port(host, PORT if port is None else port, error)) from None
    raise_limit()
    local = _local_socket(start)
    pages = PageProcess(folder) if start.has_page else None
    try:
        asyncio.run(_serve(start, sock, local, pages))
    except BadStart as error:
        raise BadInput(str(error)) from None
    except (RequestError, StoreError, EngineError) as error:
        raise Failed(str(error)) from None
    finally:
        if pages is not None:
            pages.end()
            pages.sessions.withdraw()
        local.withdraw()


def _local_socket(start: StartOptions) -> LocalSocket:
    """Where local clients connect; a standby only takes the path when it leads."""
    folder = start.folder
    try:
        path = system_path() if start.is_system else own_path(folder)
        other = listener_at(path)
        if start.is_system and other not in (None, pid_in(folder)):
            raise Failed(
                f"{path} is used by another manager (process {other}): stop that one, or start this one"
                " without --system."
            )
        return LocalSocket(path, SYSTEM_MODE if start.is_system else OWN_MODE)
    except EngineError as error:
        raise Failed(str(error)) from None
    except OSError as error:
        raise Failed(f"its Unix socket cannot be made: {error}.") from None


def _unusable_port(host: str, port: int, error: OSError) -> str:
    """Why it cannot listen there, and what to do where another program does."""
    if error.errno != errno.EADDRINUSE:
        return f"{host}:{port}: {system_reason(error)}."
    shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    who = "a Trainmaster" if is_manager(Place(f"http://{shown}")) else "another program"
    return f"{shown} is in use by {who}: without --port the next free port is taken."


async def _serve(
    start: StartOptions, sock: socket.socket, local: LocalSocket, pages: PageProcess | None
) -> None:
    service = ServiceNotifications(os.environ)
    folder, engine, store = start.folder, await _engine(start), _store(start)
    daemon = Daemon(
        store,
        engine,
        folder,
        policy=start.policy,
        forecaster=forecast_start,
        cold_start=start.cold_start,
        ends_lost_runs=start.ends_lost_runs,
        limits=start.limits,
        tests_devices=start.tests_devices,
        stated_speeds=start.speeds,
        reasons=start.reasons.value,
        notifications=start.notifications.value,
        idle_rule=start.idle_rule,
        container_options=start.container_options or (HARMLESS if start.runs_as_user else ANY),
        runs_as_user=start.runs_as_user,
        say=say,
    )

    async def when_active(active: Daemon) -> None:
        if start.devices is not None:
            remember_devices(folder, start.devices)
        remember_engine(folder, start.engine)
        remember_users(folder, start.serves)
        start.reasons.keep(folder / REASONS)
        start.notifications.keep(folder / NOTIFICATIONS)
        start.links.keep(folder / LINKS)
        (folder / RESTORED).unlink(missing_ok=True)  # what it asks for is done
        able = engine.abilities
        for missing in (*able.remarks, *able.user_remarks, *by_sentence(able.node_remarks)):
            say(f"Note: {missing}")
        if start.demo:
            await demonstrate(active, folder)

    async def before_end(active: Daemon) -> None:
        await end_demonstration(active, folder)

    def when_up(link: str) -> None:
        shown = link if is_private(sys.stdout.fileno()) else ""
        lines = announcement(
            daemon, start.front.url(sock), folder, start.devices, start.reasons, shown
        )
        say("\n".join(lines))
        service.ready(_status(daemon))

    pinging = asyncio.create_task(service.ping(lambda: _status(daemon)))
    try:
        last = before_end if start.ends_demo else None
        address, front = folder / ADDRESS, start.front
        await serve(daemon, sock, local, address, when_up, when_active, last, front, pages)
        say(farewell(daemon, folder))
    finally:
        pinging.cancel()
        service.stopping()
        store.close()


def _status(daemon: Daemon) -> str:
    """For `systemctl status`."""
    health = daemon.health()
    if health.trouble or not daemon.is_active.is_set():
        return f"{health.role}: {health.trouble or 'another manager leads.'}"
    running, waiting = daemon.live_jobs()
    return f"{plural(running, 'job')} running, {waiting} waiting."


async def _engine(start: StartOptions) -> Engine:
    """What the catalog has under its name."""
    limits = start.limits
    settings = EngineSettings(
        folder=start.folder,
        store_name=partial(store_name, start.folder),
        choice=start.engine,
        machine=None if start.devices is None else start.devices.machine,
        say=say,
        limits=RunLimits(
            HangLimits(limits.hang_idle, limits.hang_busy, limits.hang_start),
            supervisor_silence_s=limits.supervisor_silence / 1000,
            fork_server_silence_s=limits.fork_server_silence / 1000,
            most_pids=limits.pids,
        ),
        was_there=remembered_engine(start.folder).address == start.engine.address,
        serves_users=start.runs_as_user,
    )
    make: MakeEngine = engine_maker(start.engine.name)
    return await make(settings)


def _store(start: StartOptions) -> Store:
    """Its database, put back from a copy where it is gone, no manager uses it and --adopt allows it."""
    url = start.database or f"sqlite:///{start.folder}/trainmaster.db"
    may_put_back = start.cold_start is ColdStart.ADOPT and not is_in_use(start.folder)
    if may_put_back and (said := put_back_copy(url, start.folder / COPIES)):
        say(said)
    return open_store(url)
