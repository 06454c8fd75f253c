"""`trainmaster up`: the manager itself, in one process, on this machine's GPUs or CPU slots."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainmaster.cli.support.console import examples
from trainmaster.cli.support.daemon_address import user_data_folder
from trainmaster.cli.support.errors import BadInput, Failed

if TYPE_CHECKING:
    from trainmaster.daemon.daemon import Daemon
    from trainmaster.gpu.devices import Machine

EPILOG = examples(
    "trainmaster up",
    "trainmaster up --slots 4 --policy tiresias-l",
    "trainmaster up --database postgresql://tm@localhost/trainmaster",
    "trainmaster up --data ./.trainmaster --demo",
)
PORT = 8470
LOG_BYTES = 16 << 20
LOG_FILES = 4
OWN_FILES = ("trainmaster.db*", "address", "daemon.log*")
OWN_FOLDERS = ("runs", "jobs")


def up(
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            help="Data folder for the manager's state. Default: the user data folder.",
        ),
    ] = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="TCP port; 0 picks a free one.")
    ] = PORT,
    slots: Annotated[
        str | None,
        typer.Option(
            "--slots",
            metavar="N|NxM",
            help="Without GPUs: number of CPU slots to use in their place, as N, or as N nodes of M slots.",
        ),
    ] = None,
    database: Annotated[
        str | None,
        typer.Option(
            "--database",
            metavar="URL",
            help="Database, such as postgresql://… Default: SQLite in the data folder.",
        ),
    ] = None,
    policy: Annotated[
        str,
        typer.Option(
            "--policy",
            help="Scheduling policy of a new data folder; later `policy set` changes it.",
        ),
    ] = "trainmaster",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Option of the policy; can be repeated."),
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Submit a few real training jobs on the first start.")
    ] = False,
    ends_demo: Annotated[
        bool,
        typer.Option(
            "--end-demo", help="On Ctrl-C cancel the jobs of --demo; other jobs keep running."
        ),
    ] = False,
) -> None:
    """Start the manager: the scheduler, its HTTP API and a page with nodes, queues and jobs.

    It runs until Ctrl-C. Jobs keep running meanwhile, and the next `trainmaster up` finds them again.
    A second manager on the same database is a standby, and takes over when the first is gone.
    """
    import asyncio

    from trainmaster.api.server import listening, url_of
    from trainmaster.daemon.service_api import Refusal
    from trainmaster.engines.protocol import EngineError
    from trainmaster.store.errors import StoreError

    folder = (data or user_data_folder()).absolute()
    options = _options(settings or [])
    found = _checked(slots, policy, options)
    try:
        keep_private(folder)
        sock = listening(host, port)
    except OSError as error:
        where = error.filename or f"{host}:{port}"
        raise Failed(f"{where}: {(error.strerror or str(error)).lower()}.") from None
    _log_to(folder / "daemon.log")
    typer.echo(f"Trainmaster at {url_of(sock)}, state in {folder}")
    try:
        asyncio.run(_up(folder, sock, found, database, (policy, options), demo, ends_demo))
    except (Refusal, StoreError, EngineError) as error:
        raise Failed(str(error)) from None


def keep_private(folder: Path) -> None:
    """Make the state the user's alone: it holds the environment of jobs, with the keys in it.

    A folder that was there before may be somebody's for other things too: it stays as wide as it is, and
    what is ours in it is tightened.
    """
    os.umask(0o077)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for names, mode in ((OWN_FILES, 0o600), (OWN_FOLDERS, 0o700)):
        for path in (found for name in names for found in folder.glob(name)):
            if path.stat().st_mode & 0o077 and not path.is_symlink():
                path.chmod(mode)


def _options(settings: list[str]) -> tuple[tuple[str, str], ...]:
    for each in settings:
        if "=" not in each:
            raise BadInput(f"--set {each} is not of the form key=value.")
    pairs = (each.partition("=") for each in settings)
    return tuple(sorted((key, value) for key, _, value in pairs))


def _checked(slots: str | None, policy: str, options: tuple[tuple[str, str], ...]) -> Machine:
    """This machine, before anything is opened; BadInput where a flag cannot be."""
    from trainmaster.daemon.policies import policy_of
    from trainmaster.daemon.service_api import Refusal
    from trainmaster.gpu.devices import machine

    try:
        policy_of(policy, options)
    except Refusal as error:
        raise BadInput(str(error)) from None
    return machine(slots)


async def _up(
    folder: Path,
    sock: object,
    found: Machine,
    database: str | None,
    policy: tuple[str, tuple[tuple[str, str], ...]],
    demo: bool,
    ends_demo: bool,
) -> None:
    import socket

    from trainmaster.api.server import serve
    from trainmaster.cli.support.demo import demonstrate, end_demonstration
    from trainmaster.daemon.daemon import Daemon
    from trainmaster.engines.local.engine import LocalEngine
    from trainmaster.store.open import open_store
    from trainmaster.whatif.forecast import forecast_start

    assert isinstance(sock, socket.socket)
    engine = LocalEngine(folder, found.topology, found.devices)
    store = open_store(database or f"sqlite:///{folder}/trainmaster.db")
    daemon = Daemon(store, engine, folder, policy=policy, forecaster=forecast_start, say=typer.echo)

    async def beside(active: Daemon) -> None:
        for remark in engine.abilities.remarks:
            typer.echo(f"Note: {remark}")
        if demo:
            await demonstrate(active, folder)

    async def before_end(active: Daemon) -> None:
        await end_demonstration(active, folder)

    try:
        await serve(daemon, sock, folder / "address", beside, before_end if ends_demo else None)
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
