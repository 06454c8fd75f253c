"""`trainmaster up`: the manager itself, in one process, on this machine's GPUs or CPU slots."""

from __future__ import annotations

import os
import socket
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainmaster.cli.support.background import arguments_of, start_in_background, unusable_folder
from trainmaster.cli.support.format import settings_of
from trainmaster.cli.support.options import option
from trainmaster.client.address import PORT, USUAL_HOST, state_folder
from trainmaster.client.peer_check import ROOT
from trainmaster.errors import BadInput, system_reason

if TYPE_CHECKING:
    from trainmaster.api.front import Front
    from trainmaster.config.limits import Limits
    from trainmaster.config.type_speeds import Speeds
    from trainmaster.daemon.data_folder import ColdStart
    from trainmaster.daemon.idle_watch import IdleRule
    from trainmaster.model.policy_spec import PolicySpec

DATA = "Data folder for the manager's state. Default: TRAINMASTER_DATA, or the user data folder."
PORTS = f"TCP port; 0 picks a free one. Default: {PORT}, or the next that is free."
SLOTS = (
    "Use CPU slots instead of GPUs: N slots, or NxM for N nodes of M slots. Default: as at the last"
    " start. auto, and the default of a new folder: this machine's GPUs, else one slot per core."
)
ENGINE = (
    "What runs the jobs: local, this machine; ray, the nodes of a Ray cluster (docs/ray.md). Default: as at"
    " the last start; local in a new folder."
)
ADDRESS_OF = (
    "With --engine ray: the address of the cluster's head, which listens on 6379 by default."
)
NODES = (
    "With --engine ray: start a Ray cluster of N nodes on this machine instead, for trying out; --slots then"
    " says how many CPU slots each has."
)
FENCE = (
    "With --engine ray: a node that the cluster does not know to be alive ends its runs after so long, and"
    " they are started elsewhere. Default: 60s."
)
GPU_MEMORY = (
    "Memory that jobs may book on each GPU. Default: as at the last start. auto, and the default of a"
    " new folder: all that it has."
)
FORCE = "End jobs on devices that are gone, even if work is lost that they have not saved."
DATABASE = "Database, such as postgresql://… Default: SQLite in the data folder."
DATABASE_FILE = (
    "File with the database's address, for one with a password. Or set TRAINMASTER_DATABASE."
)
ADOPT = "Take over runs in the data folder that the database does not know."
START_FRESH = "Leave such runs alone, and number new jobs above them."
SELF_TEST = (
    "Test all idle devices at the start, not only GPUs that are new: a matrix product and copies; set aside"
    " what is broken."
)
SYSTEM = (
    "Serve every user of this machine, on /run/trainmaster/manager.sock; needs root. State in"
    " /var/lib/trainmaster unless --data says otherwise. Remembered for the next start."
)
AS_USER = (
    "Run each job as the Unix user who submits it, and not as the manager's own; needs root. --system"
    " implies it, and a data folder that was used so stays so."
)
PRINT_UNIT = (
    "Print a systemd unit that starts the manager with these options, and start nothing: of the system for"
    " root, else of the user."
)
DETACH = "Start in the background: return as soon as it answers."
SETTING = "Option of the policy, by default of `trainmaster`; can be repeated."
MAX_GRACE = "Longest grace period that a job may ask for. Default: 5m."
HOST = (
    "Address to listen on. One that other machines reach needs TLS: --tls-cert and --tls-key, or"
    " --behind-proxy."
)
TLS_CERT = "File with the certificate of the manager, and those that vouch for it (PEM)."
OPEN_KEY = 0o026
"""Rights of others, and of the group to write: a group may be there to read keys."""
TLS_KEY = "File with the private key of the certificate (PEM)."
PROXY = (
    "Address of a reverse proxy before the manager that speaks TLS, such as https://tm.example.org"
)
REASONS = (
    "File with reasons of failures to add to the table (docs/failures.md). Default: those of the last"
    " start. none, and the default of a new folder: only our own table."
)
NOTIFY = (
    "File that names a mail server, operators to tell of troubles, and hosts that jobs may post to"
    " (docs/notifications.md). Default: that of the last start. none: messages only to webhooks."
)
MEASURED = (
    "File with links that `trainmaster profile links` measured; policies predict speeds by them. Default:"
    " links.yaml in the data folder, if it is there. none: usual figures."
)
IDLE_AFTER = (
    "Reap idle GPUs: act on a job whose GPUs compute nothing, and that makes no step, for so long. Default:"
    " never."
)
IDLE_ACTION = (
    "What --idle-after does: notify, the default, says so in the job's story after half of the time; suspend"
    " also suspends it, where that loses nothing; end ends it."
)
CONTAINER_OPTIONS = (
    "Option that `container.options` of a job may have, such as --bind=/data/*, and no others; can be"
    " repeated. Default: any, and with --run-as-user those that let nothing of the machine in."
)
SPEEDS = (
    "Relative speed of a type of device, such as V100=0.4 or cpu=0.02, where 1 is the nominal type; wins over"
    " what is measured, and is remembered; can be repeated. measured: take back what was stated."
)
PAGE = "Serve pages to browsers, by a process that is started when somebody looks."
LIMITS = "Limit of this manager (docs/limits.md lists them); can be repeated."
POLICY = (
    "Scheduling policy, or a file with one of your own. Default: the one that was set last, or"
    " `trainmaster` in a new data folder."
)


def up(
    context: typer.Context,
    data: Annotated[Path | None, option("--data DIR", DATA)] = None,
    is_system: Annotated[bool | None, option("--system/--no-system", SYSTEM)] = None,
    runs_as_user: Annotated[bool, option("--run-as-user", AS_USER)] = False,
    host: Annotated[str, option("--host ADDRESS", HOST)] = USUAL_HOST,
    tls_cert: Annotated[Path | None, option("--tls-cert FILE", TLS_CERT)] = None,
    tls_key: Annotated[Path | None, option("--tls-key FILE", TLS_KEY)] = None,
    proxy: Annotated[str | None, option("--behind-proxy URL", PROXY)] = None,
    port: Annotated[int | None, option("--port PORT", PORTS, min=0, max=65535)] = None,
    slots: Annotated[str | None, option("--slots N|NxM|auto", SLOTS)] = None,
    gpu_memory: Annotated[str | None, option("--gpu-memory SIZE|auto", GPU_MEMORY)] = None,
    engine: Annotated[str | None, option("--engine NAME", ENGINE)] = None,
    address: Annotated[str | None, option("--address HOST:PORT", ADDRESS_OF)] = None,
    nodes: Annotated[int | None, option("--nodes N", NODES, min=1, max=64)] = None,
    fence: Annotated[str | None, option("--fence DURATION", FENCE)] = None,
    database: Annotated[str | None, option("--database URL", DATABASE)] = None,
    database_file: Annotated[Path | None, option("--database-file FILE", DATABASE_FILE)] = None,
    policy: Annotated[str | None, option("--policy NAME|FILE", POLICY)] = None,
    settings: Annotated[
        list[str] | None,
        option("--set KEY=VALUE", SETTING),
    ] = None,
    force: Annotated[bool, option("--force", FORCE)] = False,
    adopt: Annotated[bool, option("--adopt", ADOPT)] = False,
    starts_fresh: Annotated[bool, option("--start-fresh", START_FRESH)] = False,
    max_grace: Annotated[str | None, option("--max-grace DURATION", MAX_GRACE)] = None,
    limits: Annotated[list[str] | None, option("--limit NAME=VALUE", LIMITS)] = None,
    failure_reasons: Annotated[str | None, option("--failure-reasons FILE|none", REASONS)] = None,
    idle_after: Annotated[str | None, option("--idle-after DURATION", IDLE_AFTER)] = None,
    idle_action: Annotated[
        str | None, option("--idle-action notify|suspend|end", IDLE_ACTION)
    ] = None,
    container_options: Annotated[
        list[str] | None, option("--container-option PATTERN", CONTAINER_OPTIONS)
    ] = None,
    notifications: Annotated[str | None, option("--notifications FILE|none", NOTIFY)] = None,
    links: Annotated[str | None, option("--links FILE|none", MEASURED)] = None,
    speeds: Annotated[list[str] | None, option("--speed TYPE=SPEED", SPEEDS)] = None,
    demo: Annotated[
        bool, option("--demo", "Submit a few real training jobs, and again when they have ended.")
    ] = False,
    self_test: Annotated[bool, option("--self-test", SELF_TEST)] = False,
    has_page: Annotated[bool, option("--page/--no-page", PAGE)] = True,
    detach: Annotated[bool, option("-d --detach", DETACH)] = False,
    prints_unit: Annotated[bool, option("--print-unit", PRINT_UNIT)] = False,
    ends_demo: Annotated[
        bool, option("--end-demo", "On Ctrl-C cancel the jobs of --demo; other jobs keep running.")
    ] = False,
) -> None:
    """Start the manager: the scheduler, its HTTP API and its pages for browsers.

    It runs until Ctrl-C, or with -d in the background until `trainmaster down`. Jobs keep running
    meanwhile, and the next `trainmaster up` finds them again. A second manager on the same database
    is a standby, and takes over when the first is gone.

    Examples:
        trainmaster up
        trainmaster up -d
        trainmaster up --slots 4 --policy tiresias-l
        trainmaster up --engine ray --address 10.0.0.1:6379
        trainmaster up --engine ray --nodes 4
        trainmaster up --database postgresql://tm@localhost/trainmaster
        trainmaster up --data ./.trainmaster --demo
        trainmaster up --host 0.0.0.0 --tls-cert tm.crt --tls-key tm.key
        trainmaster up --print-unit > ~/.config/systemd/user/trainmaster.service
    """
    _refuse_open_network(host, is_encrypted=tls_cert is not None or proxy is not None)
    if is_system and os.geteuid() != 0:
        raise BadInput("--system serves every user of this machine, and needs root.")
    if runs_as_user and os.geteuid() != 0:
        raise BadInput("--run-as-user starts jobs as the users who submit them, and needs root.")
    folder = state_folder(data, is_system=bool(is_system))
    try:
        is_file = folder.exists() and not folder.is_dir()
    except OSError as error:
        raise unusable_folder(folder, error) from None
    if is_file:
        raise BadInput(f"--data {folder} is a file: name a folder.")
    if detach and not prints_unit:
        start_in_background(folder, arguments_of(context))
        return
    from trainmaster.cli.support.remembered_users import Serves, served

    serves = served(folder, is_system=is_system, runs_as_user=runs_as_user)
    if prints_unit:
        _print_unit(folder, arguments_of(context), serves is Serves.SYSTEM)
        return

    from trainmaster.cli.support.database_option import database_of
    from trainmaster.cli.support.engine_option import LOCAL, engine_choice, refuse_device_options
    from trainmaster.cli.support.link_profiling import LINKS
    from trainmaster.cli.support.manager import NOTIFICATIONS, StartOptions, run_manager
    from trainmaster.cli.support.remembered_file import remembered
    from trainmaster.cli.support.remembered_reasons import reasons_of
    from trainmaster.cli.support.remembered_slots import devices_of
    from trainmaster.config.links import MeasuredLinks, links_in
    from trainmaster.config.notifications import NO_SETTINGS, settings_in

    cold_start = _cold_start(adopt, starts_fresh, folder)
    url = database_of(database, database_file)
    chosen = _stated_policy(policy, settings_of(settings or (), "--set"))
    bounds = _limits(limits or (), max_grace)
    reasons = reasons_of(folder, failure_reasons)
    choice = engine_choice(folder, engine, address, nodes, fence, slots)
    if choice.name != LOCAL:
        refuse_device_options(choice.name, gpu_memory=gpu_memory, links=links)
    devices = devices_of(folder, slots, gpu_memory) if choice.name == LOCAL else None
    messages = remembered(
        folder / NOTIFICATIONS,
        notifications,
        "--notifications",
        NO_SETTINGS,
        settings_in,
    )
    unmeasured: MeasuredLinks = ()
    measured = remembered(folder / LINKS, links, "--links", unmeasured, links_in)
    start = StartOptions(
        folder=folder,
        devices=None if devices is None else devices.with_links(measured.value),
        engine=choice,
        links=measured,
        database=url,
        policy=chosen,
        cold_start=cold_start,
        limits=bounds,
        ends_lost_runs=force,
        demo=demo,
        ends_demo=ends_demo,
        reasons=reasons,
        notifications=messages,
        tests_devices=self_test,
        speeds=_speeds(speeds or ()),
        front=_front(tls_cert, tls_key, proxy),
        serves=serves,
        container_options=tuple(container_options or ()),
        idle_rule=_idle_rule(idle_after, idle_action),
        has_page=has_page,
    )
    run_manager(start, host, port)


def _print_unit(folder: Path, arguments: Sequence[str], is_system: bool) -> None:
    """Files are named in full, since a service starts elsewhere."""
    from trainmaster.api.host_check import HOSTS
    from trainmaster.cli.support.console import remark, write
    from trainmaster.cli.support.database_option import VARIABLE
    from trainmaster.cli.support.service_unit import unit_text
    from trainmaster.engines.ray.admission import SETTINGS

    if os.environ.get(VARIABLE):
        remark("Note", (f"{VARIABLE} is not in the unit: use --database-file",))
    named = [os.path.abspath(word) if Path(word).is_file() else word for word in arguments]
    command = [sys.executable, "-m", "trainmaster", "up", "--data", str(folder), *named]
    kept = {name: os.environ[name] for name in (HOSTS, *SETTINGS) if os.environ.get(name)}
    text = unit_text(command, folder, kept, for_root=os.geteuid() == ROOT, is_system=is_system)
    write(text)


def _idle_rule(after: str | None, action: str | None) -> IdleRule | None:
    from trainmaster.config.units import duration_ms
    from trainmaster.daemon.idle_watch import IdleAction, IdleRule
    from trainmaster.text.formatting import as_sentence

    if action not in (None, *IdleAction):
        raise BadInput(f"--idle-action is {', '.join(IdleAction)}, not {action}.")
    if after is None:
        if action is not None:
            raise BadInput("--idle-action needs --idle-after: say for how long GPUs may be idle.")
        return None
    try:
        return IdleRule(duration_ms(after), IdleAction(action or IdleAction.NOTIFY))
    except ValueError as error:
        raise BadInput(as_sentence(f"--idle-after {error}")) from None


def _cold_start(adopt: bool, starts_fresh: bool, folder: Path) -> ColdStart:
    """What the flags say; the first start after a restore adopts what is newer than the backup."""
    from trainmaster.daemon.data_folder import RESTORED, ColdStart

    if adopt and starts_fresh:
        raise BadInput("--adopt and --start-fresh exclude each other: say one of them.")
    if starts_fresh:
        return ColdStart.START_FRESH
    return ColdStart.ADOPT if adopt or (folder / RESTORED).exists() else ColdStart.REFUSE


def _speeds(stated: Sequence[str]) -> Speeds | None:
    from trainmaster.config.type_speeds import SpeedError, speeds_of

    try:
        return speeds_of(stated)
    except SpeedError as error:
        raise BadInput(f"--speed {error}") from None


def _limits(stated: Sequence[str], max_grace: str | None) -> Limits:
    from trainmaster.config.limits import limits_of

    return limits_of([*stated, *([] if max_grace is None else [f"max_grace={max_grace}"])])


def _refuse_open_network(host: str, *, is_encrypted: bool) -> None:
    """Tokens must not go over a network in the clear."""
    import ipaddress

    try:
        found = {each[4][0] for each in socket.getaddrinfo(host, None)}
    except OSError:
        raise BadInput(f"--host {host} is not an address of this machine.") from None
    is_local = all(ipaddress.ip_address(str(each).partition("%")[0]).is_loopback for each in found)
    if not is_local and not is_encrypted:
        raise BadInput(
            f"--host {host} would send tokens over the network in the clear: give --tls-cert and --tls-key,"
            " or --behind-proxy URL where a proxy speaks TLS; or use 127.0.0.1, and reach it from elsewhere"
            " through `ssh -L 8470:127.0.0.1:8470 HOST`."
        )


def _front(certificate: Path | None, key: Path | None, proxy: str | None) -> Front:
    from trainmaster.api.front import CERTIFICATE, Front
    from trainmaster.cli.support.console import remark
    from trainmaster.input_files import read_text

    if (certificate is None) != (key is None):
        raise BadInput("--tls-cert and --tls-key belong together: give both.")
    if proxy is not None and not proxy.startswith("https://"):
        raise BadInput(f"--behind-proxy {proxy}: give the proxy's address as https://HOST.")
    front = Front(certificate, key, None if proxy is None else proxy.rstrip("/"))
    texts = [
        read_text(path, flag)
        for flag, path in (("--tls-cert", certificate), ("--tls-key", key))
        if path is not None
    ]
    if len(texts) == 2 and CERTIFICATE.search(texts[0]) is None and CERTIFICATE.search(texts[1]):
        raise BadInput(
            f"--tls-cert {certificate} holds no certificate, and --tls-key {key} does: exchange them."
        )
    try:
        front.check()
    except (OSError, ValueError) as error:
        raise BadInput(
            f"--tls-cert {certificate}, --tls-key {key} cannot be used: {error}."
        ) from None
    mode = 0 if key is None else stat.S_IMODE(key.stat().st_mode)
    if mode & OPEN_KEY:
        said = f"others can read or change --tls-key {key} (mode {mode:04o}): chmod go= {key}"
        remark("Warning", [said])
    return front


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
