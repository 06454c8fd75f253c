"""Where a manager keeps its state, and how a client finds its address."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from http.client import HTTPException
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from trainmaster.client.connection import UNIX, Place, connection_to
from trainmaster.client.known_managers import known_managers
from trainmaster.client.listening_sockets import listeners_at, sockets_of
from trainmaster.client.notes import note
from trainmaster.client.peer_check import ROOT, check_path, listening_process, trusted
from trainmaster.errors import BadInput, CommandError, Failed, system_reason
from trainmaster_sdk.process_tree import stat_of

URL = "TRAINMASTER_URL"
DATA = "TRAINMASTER_DATA"
HERE = ".trainmaster"
"""The state of `make run`, in the folder that it was started in."""
SYSTEM_FOLDER = Path("/var/lib/trainmaster")
"""The state of the manager for everybody on this machine."""
ADDRESS = "address"
PORT = 8470
"""Of `trainmaster up`, unless it is told otherwise or the port is taken."""
USUAL_HOST = "127.0.0.1"
PROBE_S = 2.0
OWN_SOCKETS = "/tmp/trainmaster-{uid}"
"""The folder with the sockets of a user's managers."""
SYSTEM_SOCKET = Path("/run/trainmaster/manager.sock")
"""Of the manager for everybody on this machine."""


def user_data_folder() -> Path:
    """The user's own folder for data of programs."""
    from platformdirs import user_data_path

    return user_data_path("trainmaster")


def state_folder(stated: Path | None, *, is_system: bool = False) -> Path:
    """Where `trainmaster up` keeps its state: in the stated folder, else that of the environment, else the
    user's, or that of the manager for everybody."""
    usual = SYSTEM_FOLDER if is_system else user_data_folder()
    return Path(os.path.abspath(stated or os.environ.get(DATA) or usual))


def find_address(url: str | None, data: Path | None) -> Place:
    """The manager that is meant: by the option, else the environment, else files, else what runs here."""
    stated = url or (os.environ.get(URL) if data is None else None)
    if stated:
        return _stated(stated)
    for folder in _folders(data):
        found = place_of(folder)
        if found is not None:
            return found
    stated_folder = data or os.environ.get(DATA)
    if not stated_folder:
        found = _own_manager() or _remembered() or _system_manager()
        if found is not None:
            return found
    where = f"in {stated_folder}" if stated_folder else "here"
    start = f"trainmaster up --data {stated_folder}" if stated_folder else "trainmaster up"
    raise Failed(
        f"No Trainmaster runs {where}: start one with `{start}`, or say where it is with --url."
    )


def _stated(url: str) -> Place:
    if not url.startswith(UNIX):
        checked = _checked(url)
        return Place(checked, pin=known_managers().pin_of(checked))
    path = Path(url.removeprefix(UNIX).removeprefix("//"))
    if not path.is_absolute():
        raise BadInput(f"`{url}` is not the address of a manager: write unix:/PATH.")
    if path == SYSTEM_SOCKET:
        return _system_manager() or Place(url, path)
    return Place(f"{UNIX}{path}", path)


def _own_manager() -> Place | None:
    """One's own manager at the usual port, whatever its data folder; by its socket, which needs no token."""
    listeners = listeners_at(ip_address(USUAL_HOST), PORT)
    url = f"http://{USUAL_HOST}:{PORT}"
    if {each.uid for each in listeners} != {os.geteuid()} or not is_manager(Place(url)):
        return None
    inodes = {each.inode for each in listeners}
    for path in sorted(Path(OWN_SOCKETS.format(uid=os.geteuid())).glob("manager-*.sock")):
        pid = listening_process(path)
        if pid is not None and inodes & sockets_of(pid):
            return Place(url, path)
    system = _system_manager()
    if system is not None and system.owner == os.geteuid():
        pid = listening_process(SYSTEM_SOCKET, system.owner)
        if pid is not None and inodes & sockets_of(pid):
            return system
    return Place(url)


def is_process_of(place: Place, pid: int) -> bool:
    """Whether this process is the manager that answers there; not that of another machine, through ssh."""
    if place.socket is not None:
        return listening_process(place.socket, place.owner) == pid
    parts = urlsplit(place.url)
    open_here = sockets_of(pid)
    for *_, address in socket.getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_STREAM):
        listeners = listeners_at(ip_address(str(address[0]).partition("%")[0]), int(address[1]))
        if open_here.intersection(each.inode for each in listeners):
            return True
    return False


def _remembered() -> Place | None:
    """The manager on another machine that `trainmaster token use` has chosen."""
    known = known_managers()
    return None if known.default is None else Place(known.default, pin=known.pin_of(known.default))


def _system_manager() -> Place | None:
    """The manager for everybody, of whoever owns its folder below /run: only root can have made that."""
    try:
        owner = os.stat(SYSTEM_SOCKET.parent).st_uid
        os.stat(SYSTEM_SOCKET)
    except OSError:
        return None
    return Place(f"{UNIX}{SYSTEM_SOCKET}", SYSTEM_SOCKET, owner=owner)


def is_manager(place: Place) -> bool:
    """Whether a Trainmaster answers there, of whatever version."""
    connection = connection_to(place, PROBE_S)
    try:
        connection.request("GET", "/healthz")
        said = json.loads(connection.getresponse().read())
    except (OSError, HTTPException, ValueError, CommandError):
        return False
    finally:
        connection.close()
    return isinstance(said, dict) and {"role", "version"} <= said.keys()


def _folders(data: Path | None) -> Iterator[Path]:
    stated = data or os.environ.get(DATA)
    if stated:
        yield Path(stated)
        return
    if _is_own(Path(HERE)):
        yield Path(HERE)
    yield user_data_folder()


def _is_own(folder: Path) -> bool:
    """Whether only this user (or root) can have put the address there.

    The current folder may belong to another user: jobs, with the keys in their environment, would go
    wherever it says.
    """
    path = folder / ADDRESS
    try:
        owners = {each.stat().st_uid for each in (folder, path)}
    except OSError:
        return True  # no address, or one that cannot be read: reading it says so
    if owners <= {os.geteuid(), ROOT}:
        return True
    note(
        f"Note: {path} belongs to another user and is not used: give --data {folder} if you trust it."
    )
    return False


def place_of(folder: Path) -> Place | None:
    """Where the manager of that folder answers; None while none runs."""
    path = folder / ADDRESS
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        url = _checked(str(said["url"]))
        if not is_alive(said.get("pid")):
            return None
        own = _reachable(said.get("socket"))
        return Place(url, own, folder, _owner_of(path), known_managers().pin_of(url))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {system_reason(error)}.") from None
    except (ValueError, KeyError, TypeError):
        raise BadInput(
            f"{path} holds no address: give the manager's with --url, or start it again."
        ) from None


def pid_in(folder: Path) -> int | None:
    """The process of the manager that last wrote its address there."""
    try:
        said = json.loads((folder / ADDRESS).read_text(encoding="utf-8"))
        return int(said["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _reachable(path: object) -> Path | None:
    """The socket of an address file, unless it is closed to this user: then TCP and a token are left."""
    if not isinstance(path, str):
        return None  # a manager of an earlier version
    try:
        os.stat(path)
    except PermissionError:
        return None
    except OSError:
        pass  # asking there says that nobody answers
    return Path(path)


def _owner_of(address: Path) -> int | None:
    """Another user, whose folder was named and whom alone it obeys; None for oneself and root."""
    owner = address.parent.stat().st_uid
    if owner in trusted():
        return None
    check_path(address, trusted(owner))
    return owner


def is_alive(pid: object) -> bool:
    """Whether the manager that wrote an address is still there; True where that cannot be known."""
    if not isinstance(pid, int) or pid <= 0:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return stat_of(pid)[:1] != [b"Z"]  # one that was killed, where nobody has looked after it yet


def _checked(url: str) -> str:
    stated = url if "://" in url else f"http://{url}"
    if not stated.startswith(("http://", "https://")):
        raise BadInput(
            f"`{url}` is not the address of a manager: write https://HOST:PORT or unix:/PATH."
        )
    return stated.rstrip("/")
