"""Where a manager keeps its state, and how a client finds its address."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path

from trainmaster.cli.support.console import write_error
from trainmaster.cli.support.errors import BadInput, Failed, system_reason

URL = "TRAINMASTER_URL"
DATA = "TRAINMASTER_DATA"
HERE = ".trainmaster"
"""The state of `make run`, in the folder that it was started in."""
SYSTEM_FOLDER = Path("/var/lib/trainmaster")
"""The state of the manager for everybody on this machine."""
ADDRESS = "address"
PORT = 8470
"""Of `trainmaster up`, unless it is told otherwise or the port is taken."""
ROOT = 0
USUAL_HOST = "127.0.0.1"
PROBE_S = 2.0
SOCKETS = Path("/proc/net/tcp")
LISTENS = "0A"


def user_data_folder() -> Path:
    """The user's own folder for data of programs."""
    from platformdirs import user_data_path

    return user_data_path("trainmaster")


def state_folder(stated: Path | None, *, is_system: bool = False) -> Path:
    """Where `trainmaster up` keeps its state: in the stated folder, else that of the environment, else the
    user's, or that of the manager for everybody."""
    usual = SYSTEM_FOLDER if is_system else user_data_folder()
    return Path(os.path.abspath(stated or os.environ.get(DATA) or usual))


@dataclass(frozen=True, slots=True)
class Place:
    """Where a manager answers, and the data folder whose file says so; None where no file does."""

    url: str
    folder: Path | None = None


def find_address(url: str | None, data: Path | None) -> Place:
    """The manager's address: from the option, else the environment, else files, else the usual one."""
    stated = url or (os.environ.get(URL) if data is None else None)
    if stated:
        return Place(_checked(stated))
    for folder in _folders(data):
        found = address_in(folder)
        if found is not None:
            return Place(found, folder)
    stated_folder = data or os.environ.get(DATA)
    if not stated_folder and answers_as_ours(USUAL_HOST, PORT):
        return Place(f"http://{USUAL_HOST}:{PORT}")
    where = f"in {stated_folder}" if stated_folder else "here"
    start = f"trainmaster up --data {stated_folder}" if stated_folder else "trainmaster up"
    raise Failed(
        f"No Trainmaster runs {where}: start one with `{start}`, or say where it is with --url."
    )


def answers_as_ours(host: str, port: int) -> bool:
    """Whether a Trainmaster of this very user answers there; no other is trusted with jobs."""
    return listener_of(port) == os.geteuid() and is_manager(f"http://{host}:{port}")


def is_manager(url: str) -> bool:
    """Whether a Trainmaster answers there, of whatever version."""
    scheme, _, rest = url.partition("://")
    kind = HTTPSConnection if scheme == "https" else HTTPConnection
    connection = kind(rest.partition("/")[0], timeout=PROBE_S)
    try:
        connection.request("GET", "/healthz")
        said = json.loads(connection.getresponse().read())
    except (OSError, HTTPException, ValueError):
        return False
    finally:
        connection.close()
    return isinstance(said, dict) and {"role", "version"} <= said.keys()


def listener_of(port: int) -> int | None:
    """The user whose program listens on this port of the machine, as the kernel says; None if none does."""
    try:
        lines = SOCKETS.read_text().splitlines()[1:]
    except OSError:  # not Linux
        return None
    for fields in map(str.split, lines):
        if fields[3] == LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
            return int(fields[7])
    return None


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
    write_error(
        f"Note: {path} belongs to another user and is not used: give --data {folder} if you trust it.\n"
    )
    return False


def address_in(folder: Path) -> str | None:
    """The address of the manager of that folder; None while none runs."""
    path = folder / ADDRESS
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        url = _checked(str(said["url"]))
        return url if is_alive(said.get("pid")) else None
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
    return True


def _checked(url: str) -> str:
    stated = url if "://" in url else f"http://{url}"
    if not stated.startswith(("http://", "https://")):
        raise BadInput(f"`{url}` is not the address of a manager: write http://HOST:PORT.")
    return stated.rstrip("/")
