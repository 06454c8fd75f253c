"""`trainmaster up`: the manager itself, in one process, on this machine's GPUs or CPU slots."""

from __future__ import annotations

import os
import re
import shlex
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainmaster.cli.support.address import DATA, PORT, USUAL_HOST, user_data_folder
from trainmaster.cli.support.background import LOG, OUTPUT, arguments_of, start_in_background
from trainmaster.cli.support.console import remark
from trainmaster.cli.support.errors import BadInput, Failed, system_reason
from trainmaster.cli.support.files import read_text
from trainmaster.cli.support.format import settings_of
from trainmaster.cli.support.options import option
from trainmaster.text.formatting import plural

if TYPE_CHECKING:
    from trainmaster.config.limits import Limits
    from trainmaster.daemon.daemon import Daemon
    from trainmaster.daemon.data_folder import ColdStart
    from trainmaster.gpu.devices import Machine
    from trainmaster.model.policy_spec import PolicySpec

PORTS = f"TCP port; 0 picks a free one. Default: {PORT}, or the next that is free."
AS_ROOT = (
    "Note: it was started as root, and everyone logged in to this machine can run commands as root through"
    " it: start it as a user of its own."
)
PASSWORD = re.compile(r"[^/]*://[^/@]*:[^/@]+@")
LOG_BYTES = 16 << 20
LOG_FILES = 4
OWN_FILES = ("trainmaster.db*", "address", f"{LOG}*", "daemon.log*", OUTPUT, "store.json", "lock")
OWN_FOLDERS = ("runs", "jobs", "programs", "backups")
SLOTS = (
    "Use CPU slots instead of GPUs: N slots, or NxM for N nodes of M slots."
    " Default on a machine without GPUs: one slot per core."
)
DATABASE = "Database, such as postgresql://… Default: SQLite in the data folder."
DATABASE_FILE = (
    "File with the database's address, for one with a password. Or set TRAINMASTER_DATABASE."
)
DATABASE_VARIABLE = "TRAINMASTER_DATABASE"
ADOPT = "Take over runs in the data folder that the database does not know."
START_FRESH = "Leave such runs alone, and number new jobs above them."
DETACH = "Start in the background: return as soon as it answers."
SETTING = "Option of the policy, by default of `trainmaster`; can be repeated."
MAX_GRACE = "Longest grace period that a job may ask for. Default: 5m."
HOST = "Address to listen on: one of this machine itself."
LIMITS = "Limit of this manager (docs/limits.md lists them); can be repeated."
POLICY = (
    "Scheduling policy, or a file with one of your own. Default: the one that was set last, or"
    " `trainmaster` in a new data folder."
)


def up(
    context: typer.Context,
    data: Annotated[
        Path | None,
        option("--data DIR", "Data folder for the manager's state. Default: the user data folder."),
    ] = None,
    host: Annotated[str, option("--host ADDRESS", HOST)] = USUAL_HOST,
    port: Annotated[int | None, option("--port PORT", PORTS, min=0, max=65535)] = None,
    slots: Annotated[str | None, option("--slots N|NxM", SLOTS)] = None,
    database: Annotated[str | None, option("--database URL", DATABASE)] = None,
    database_file: Annotated[Path | None, option("--database-file FILE", DATABASE_FILE)] = None,
    policy: Annotated[str | None, option("--policy NAME|FILE", POLICY)] = None,
    settings: Annotated[
        list[str] | None,
        option("--set KEY=VALUE", SETTING),
    ] = None,
    adopt: Annotated[bool, option("--adopt", ADOPT)] = False,
    starts_fresh: Annotated[bool, option("--start-fresh", START_FRESH)] = False,
    max_grace: Annotated[str | None, option("--max-grace DURATION", MAX_GRACE)] = None,
    limits: Annotated[list[str] | None, option("--limit NAME=VALUE", LIMITS)] = None,
    demo: Annotated[
        bool, option("--demo", "Submit a few real training jobs, and again when they have ended.")
    ] = False,
    detach: Annotated[bool, option("-d --detach", DETACH)] = False,
    ends_demo: Annotated[
        bool, option("--end-demo", "On Ctrl-C cancel the jobs of --demo; other jobs keep running.")
    ] = False,
) -> None:
    """Start the manager: the scheduler, its HTTP API and a page with nodes, queues and jobs.

    It runs until Ctrl-C, or with -d in the background until `trainmaster down`. Jobs keep running
    meanwhile, and the next `trainmaster up` finds them again. A second manager on the same database
    is a standby, and takes over when the first is gone.

    Examples:
        trainmaster up
        trainmaster up -d
        trainmaster up --slots 4 --policy tiresias-l
        trainmaster up --database postgresql://tm@localhost/trainmaster
        trainmaster up --data ./.trainmaster --demo
    """
    import asyncio

    from trainmaster.api.server import listening, listening_near
    from trainmaster.config.limits import limits_of
    from trainmaster.config.validation import ConfigError
    from trainmaster.daemon.data_folder import ColdStart
    from trainmaster.daemon.service_api import RequestError
    from trainmaster.engines.local.descriptors import raise_limit
    from trainmaster.engines.protocol import EngineError
    from trainmaster.gpu.devices import detect_machine
    from trainmaster.store.errors import StoreError

    _refuse_network(host)
    if adopt and starts_fresh:
        raise BadInput("--adopt and --start-fresh exclude each other: say one of them.")
    cold_start = (
        ColdStart.ADOPT if adopt else ColdStart.START_FRESH if starts_fresh else ColdStart.REFUSE
    )
    folder = (data or user_data_folder()).absolute()
    if detach:
        start_in_background(folder, arguments_of(context))
        return
    url = _database(database, database_file)
    chosen = _stated_policy(policy, settings_of(settings or (), "--set"))
    try:
        of_grace = [] if max_grace is None else [f"max_grace={max_grace}"]
        bounds = limits_of([*(limits or ()), *of_grace])
    except ConfigError as error:
        raise BadInput(str(error)) from None
    found = detect_machine(slots)
    try:
        keep_private(folder)
        sock = listening_near(host, PORT) if port is None else listening(host, port)
    except OSError as error:
        where = error.filename or f"{host}:{PORT if port is None else port}"
        raise Failed(f"{where}: {system_reason(error)}.") from None
    raise_limit()
    _log_to(folder / LOG)
    try:
        asyncio.run(_serve(folder, sock, found, url, chosen, cold_start, bounds, demo, ends_demo))
    except (RequestError, StoreError, EngineError) as error:
        raise Failed(str(error)) from None


def _refuse_network(host: str) -> None:
    """Whoever reaches the manager can run commands as its user, so only this machine may."""
    import ipaddress

    try:
        found = {each[4][0] for each in socket.getaddrinfo(host, None)}
    except OSError:
        raise BadInput(f"--host {host} is not an address of this machine.") from None
    if not all(ipaddress.ip_address(str(each).partition("%")[0]).is_loopback for each in found):
        raise BadInput(
            f"--host {host} would let everyone on the network run commands as you: use 127.0.0.1, and"
            " reach it from elsewhere through `ssh -L 8470:127.0.0.1:8470 HOST`."
        )


def _database(url: str | None, file: Path | None) -> str | None:
    """The database that flags or the environment name; a password in a flag is seen by everybody."""
    if url is not None and file is not None:
        raise BadInput("--database and --database-file exclude each other: say one of them.")
    if file is not None:
        found = read_text(file, "--database-file").strip()
        if not found or "\n" in found:
            raise BadInput(f"--database-file {file} must hold one line, the database's address.")
        return found
    if url is not None and PASSWORD.match(url):
        remark(
            "Note",
            (
                "everybody on this machine can read the password in the process list: use"
                " --database-file, TRAINMASTER_DATABASE or ~/.pgpass",
            ),
        )
    return url or os.environ.get(DATABASE_VARIABLE)


def _stated_policy(name: str | None, settings: Mapping[str, str]) -> PolicySpec | None:
    """The policy that the command line names, checked; None where it names none."""
    from trainmaster.daemon.policies import DEFAULT_POLICY, policy_of
    from trainmaster.daemon.service_api import RequestError
    from trainmaster.policy_files import spec_of

    if name is None and not settings:
        return None
    try:
        spec = spec_of(name or DEFAULT_POLICY.name, settings)
        policy_of(spec)
    except RequestError as error:
        raise BadInput(str(error)) from None
    except OSError as error:
        raise BadInput(f"{error.filename} cannot be read: {system_reason(error)}.") from None
    return spec


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
    policy: PolicySpec | None,
    cold_start: ColdStart,
    limits: Limits,
    demo: bool,
    ends_demo: bool,
) -> None:
    """Run the manager until a signal stops it."""
    from trainmaster.api.server import serve, url_of
    from trainmaster.cli.support.demo import demonstrate, end_demonstration
    from trainmaster.daemon.daemon import Daemon
    from trainmaster.daemon.data_folder import COPIES, ColdStart
    from trainmaster.engines.local.engine import LocalEngine
    from trainmaster.store.open import open_store, put_back_copy
    from trainmaster.whatif.forecast import forecast_start

    engine = LocalEngine(
        folder,
        found.topology,
        found.devices,
        found.numbers,
        supervisor_silence_s=limits.supervisor_silence / 1000,
        fork_server_silence_s=limits.fork_server_silence / 1000,
    )
    url = database or f"sqlite:///{folder}/trainmaster.db"
    if cold_start is ColdStart.ADOPT and (said := put_back_copy(url, folder / COPIES)):
        typer.echo(said)
    store = open_store(url)
    daemon = Daemon(
        store,
        engine,
        folder,
        policy=policy,
        forecaster=forecast_start,
        cold_start=cold_start,
        limits=limits,
        say=typer.echo,
    )

    async def when_active(active: Daemon) -> None:
        for missing in engine.abilities.remarks:
            typer.echo(f"Note: {missing}")
        if demo:
            await demonstrate(active, folder, url_of(sock))

    async def before_end(active: Daemon) -> None:
        await end_demonstration(active, folder)

    def when_up() -> None:
        typer.echo("\n".join(announcement(daemon, url_of(sock), folder)))

    try:
        last = before_end if ends_demo else None
        await serve(daemon, sock, folder / "address", when_up, when_active, last)
        typer.echo(farewell(daemon, folder))
    finally:
        store.close()


def announcement(daemon: Daemon, url: str, folder: Path) -> Iterator[str]:
    """What it does, where it is, what it found, and how to reach it."""
    health = daemon.health()
    if health.trouble:
        yield f"Trainmaster at {url}, waiting for its database: {health.trouble}"
    elif health.role != "active":
        yield f"Trainmaster at {url}, a standby: another one leads on this database and is used."
        return
    else:
        yield f"Trainmaster at {url}, state in {folder}"
        running, waiting = daemon.live_jobs()
        kinds = ((running, "running job"), (waiting, "waiting job"))
        found = [plural(number, kind) for number, kind in kinds if number]
        if found:
            yield f"Found {' and '.join(found)}."
    if folder != user_data_folder():
        yield f"In other terminals: export {DATA}={shlex.quote(str(folder))}"
    if os.geteuid() == 0:
        yield AS_ROOT


def farewell(daemon: Daemon, folder: Path) -> str:
    """What goes on without the manager, and how to come back to it."""
    if not daemon.is_active.is_set():
        return "Stopped."
    running, waiting = daemon.live_jobs()
    if not running and not waiting:
        return "Stopped; there are no unfinished jobs."
    where = "" if folder == user_data_folder() else f" --data {shlex.quote(str(folder))}"
    goes_on = "goes on" if running == 1 else "go on"
    waits = "waits" if waiting == 1 else "wait"
    said = [f"{plural(running, 'job')} {goes_on}"] if running else []
    said += [f"{waiting if said else plural(waiting, 'job')} {waits}"] if waiting else []
    them = "it" if running + waiting == 1 else "them"
    return f"Stopped. {', '.join(said)}; `trainmaster up{where}` finds {them} again."


def _log_to(path: Path) -> None:
    """The manager's own log: lines of JSON in a file that never grows too large."""
    import logging
    import logging.handlers

    import structlog

    from trainmaster.daemon.repeated_lines import RepeatedLines

    writer = logging.handlers.RotatingFileHandler(path, maxBytes=LOG_BYTES, backupCount=LOG_FILES)
    writer.setFormatter(logging.Formatter("%(message)s"))
    writer.addFilter(RepeatedLines())
    logging.raiseExceptions = False  # a log on a full disk is not worth a traceback for every line
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
