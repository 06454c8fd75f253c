"""`trainmaster up`: the manager itself, in one process, on this machine's GPUs or CPU slots."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainmaster.cli.support.address import user_data_folder
from trainmaster.cli.support.errors import BadInput, Failed, system_reason
from trainmaster.cli.support.format import settings_of
from trainmaster.cli.support.options import option

if TYPE_CHECKING:
    from trainmaster.daemon.daemon import Daemon
    from trainmaster.gpu.devices import Machine

PORT = 8470
LOG_BYTES = 16 << 20
LOG_FILES = 4
OWN_FILES = ("trainmaster.db*", "address", "daemon.log*")
OWN_FOLDERS = ("runs", "jobs")
SLOTS = (
    "Use CPU slots instead of GPUs: N slots, or NxM for N nodes of M slots."
    " Default on a machine without GPUs: one slot per core."
)
DATABASE = "Database, such as postgresql://… Default: SQLite in the data folder."
POLICY = "Scheduling policy of a new data folder; later `policy set` changes it."


def up(
    data: Annotated[
        Path | None,
        option("--data DIR", "Data folder for the manager's state. Default: the user data folder."),
    ] = None,
    host: Annotated[str, option("--host ADDRESS", "Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, option("--port PORT", "TCP port; 0 picks a free one.", min=0, max=65535)
    ] = PORT,
    slots: Annotated[str | None, option("--slots N|NxM", SLOTS)] = None,
    database: Annotated[str | None, option("--database URL", DATABASE)] = None,
    policy: Annotated[str, option("--policy NAME", POLICY)] = "trainmaster",
    settings: Annotated[
        list[str] | None, option("--set KEY=VALUE", "Option of the policy; can be repeated.")
    ] = None,
    demo: Annotated[
        bool, option("--demo", "Submit a few real training jobs on the first start.")
    ] = False,
    ends_demo: Annotated[
        bool, option("--end-demo", "On Ctrl-C cancel the jobs of --demo; other jobs keep running.")
    ] = False,
) -> None:
    """Start the manager: the scheduler, its HTTP API and a page with nodes, queues and jobs.

    It runs until Ctrl-C. Jobs keep running meanwhile, and the next `trainmaster up` finds them again.
    A second manager on the same database is a standby, and takes over when the first is gone.

    Examples:
        trainmaster up
        trainmaster up --slots 4 --policy tiresias-l
        trainmaster up --database postgresql://tm@localhost/trainmaster
        trainmaster up --data ./.trainmaster --demo
    """
    import asyncio

    from trainmaster.api.server import listening, url_of
    from trainmaster.daemon.policies import policy_of
    from trainmaster.daemon.service_api import RequestError
    from trainmaster.engines.protocol import EngineError
    from trainmaster.gpu.devices import detect_machine
    from trainmaster.store.errors import StoreError

    folder = (data or user_data_folder()).absolute()
    chosen = policy, tuple(sorted(settings_of(settings or (), "--set").items()))
    try:
        policy_of(*chosen)
    except RequestError as error:
        raise BadInput(str(error)) from None
    found = detect_machine(slots)
    try:
        keep_private(folder)
        sock = listening(host, port)
    except OSError as error:
        raise Failed(f"{error.filename or f'{host}:{port}'}: {system_reason(error)}.") from None
    _log_to(folder / "daemon.log")
    typer.echo(f"Trainmaster at {url_of(sock)}, state in {folder}")
    try:
        asyncio.run(_serve(folder, sock, found, database, chosen, demo, ends_demo))
    except (RequestError, StoreError, EngineError) as error:
        raise Failed(str(error)) from None


def keep_private(folder: Path) -> None:
    """Make the state readable by its user only: it holds the environment of jobs, with secrets.

    A folder that was there before may be used for other things too: its own permissions stay, and
    only the manager's files in it are made private.
    """
    os.umask(0o077)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for names, mode in ((OWN_FILES, 0o600), (OWN_FOLDERS, 0o700)):
        for path in (found for name in names for found in folder.glob(name)):
            if path.stat().st_mode & 0o077 and not path.is_symlink():
                path.chmod(mode)


async def _serve(
    folder: Path,
    sock: socket.socket,
    found: Machine,
    database: str | None,
    policy: tuple[str, tuple[tuple[str, str], ...]],
    demo: bool,
    ends_demo: bool,
) -> None:
    """Run the manager until a signal stops it."""
    from trainmaster.api.server import serve
    from trainmaster.cli.support.demo import demonstrate, end_demonstration
    from trainmaster.daemon.daemon import Daemon
    from trainmaster.engines.local.engine import LocalEngine
    from trainmaster.store.open import open_store
    from trainmaster.whatif.forecast import forecast_start

    engine = LocalEngine(folder, found.topology, found.devices)
    store = open_store(database or f"sqlite:///{folder}/trainmaster.db")
    daemon = Daemon(store, engine, folder, policy=policy, forecaster=forecast_start, say=typer.echo)

    async def when_active(active: Daemon) -> None:
        for remark in engine.abilities.remarks:
            typer.echo(f"Note: {remark}")
        if demo:
            await demonstrate(active, folder)

    async def before_end(active: Daemon) -> None:
        await end_demonstration(active, folder)

    try:
        last = before_end if ends_demo else None
        await serve(daemon, sock, folder / "address", when_active, last)
    finally:
        store.close()


def _log_to(path: Path) -> None:
    """The manager's own log: lines of JSON in a file that never grows too large."""
    import logging
    import logging.handlers

    import structlog

    writer = logging.handlers.RotatingFileHandler(path, maxBytes=LOG_BYTES, backupCount=LOG_FILES)
    writer.setFormatter(logging.Formatter("%(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [writer]
    root.setLevel(logging.INFO)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    structlog.configure(
        processors=[
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
