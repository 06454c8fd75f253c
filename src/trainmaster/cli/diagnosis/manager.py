"""Facts about the manager of a data folder: its address, what answers there, its sockets and certificate."""

from __future__ import annotations

import json
import os
import socket
import ssl
import time
from contextlib import closing, suppress
from http.client import HTTPException
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from trainmaster import __version__
from trainmaster.api.front import fingerprint
from trainmaster.api.local_socket import listener_at, own_path
from trainmaster.cli.diagnosis.facts import Answer, Manager
from trainmaster.client.address import ADDRESS, PORT, USUAL_HOST, is_alive
from trainmaster.client.connection import HTTPS_PORT, Place, connection_to
from trainmaster.client.listening_sockets import listeners_at
from trainmaster.daemon.folder_lock import LOCK
from trainmaster.engines.local.processes import lock_holders
from trainmaster.engines.protocol import EngineError
from trainmaster.errors import CommandError

ANSWER_S = 3.0
DAY_S = 86_400.0


def manager_facts(folder: Path) -> Manager:
    state, said = _address(folder)
    url, path = str(said.get("url", "")), str(said.get("socket") or "")
    parts = urlsplit(url or f"http://{USUAL_HOST}:{PORT}")
    owner = folder.stat().st_uid if folder.exists() else os.geteuid()
    is_up = state == "alive"
    days, trouble = (
        _certificate(parts.hostname or "", parts.port) if _is_https(url, is_up) else (None, "")
    )
    return Manager(
        own_version=__version__,
        address=state,
        pid=said.get("pid"),
        url=url,
        socket=path,
        processes=tuple(sorted(lock_holders(str(folder / LOCK)))),
        by_socket=_asked(Place(url, Path(path), owner=owner)) if is_up and path else None,
        by_port=_by_port(url or f"http://{USUAL_HOST}:{PORT}"),
        port=parts.port or PORT,
        port_users=_users_of(parts.hostname or USUAL_HOST, parts.port or PORT),
        stale_sockets=_stale(folder, path),
        certificate_days=days,
        certificate_trouble=trouble,
    )


def _address(folder: Path) -> tuple[str, dict[str, Any]]:
    try:
        said = json.loads((folder / ADDRESS).read_text(encoding="utf-8"))
        if not (isinstance(said["url"], str) and isinstance(said["pid"], int)):
            raise ValueError
    except FileNotFoundError:
        return "none", {}
    except (OSError, ValueError, KeyError, TypeError):
        return "unreadable", {}
    return ("alive" if is_alive(said["pid"]) else "dead"), said


def _by_port(url: str) -> Answer | None:
    """Whatever its certificate is: nothing secret is sent, and other checks judge the certificate."""
    parts, pin = urlsplit(url), None
    if parts.scheme == "https":
        at = (parts.hostname or "", parts.port or HTTPS_PORT)
        try:
            pem = ssl.get_server_certificate(at, timeout=ANSWER_S)
        except OSError:
            return None
        pin = fingerprint(ssl.PEM_cert_to_DER_cert(pem))
    return _asked(Place(url, pin=pin))


def _asked(place: Place) -> Answer | None:
    """What /healthz says there, which needs no token; None where nobody answers in time."""
    connection = connection_to(place, ANSWER_S)
    try:
        connection.request("GET", "/healthz")
        said = json.loads(connection.getresponse().read())
    except ValueError:
        return Answer(is_ours=False)
    except HTTPException:
        return Answer(is_ours=False)
    except (OSError, CommandError):
        return None
    finally:
        connection.close()
    if not isinstance(said, dict) or not {"role", "version"} <= said.keys():
        return Answer(is_ours=False)
    return Answer(
        is_ours=True,
        role=said["role"],
        version=said["version"],
        trouble=said.get("trouble") or "",
        notes=tuple(said.get("notes") or ()),
        step_age_s=said.get("step_age_s"),
    )


def _users_of(host: str, port: int) -> tuple[int, ...]:
    try:
        address = ip_address(socket.gethostbyname(host))
    except (OSError, ValueError):
        return ()
    return tuple(sorted({each.uid for each in listeners_at(address, port)}))


def _stale(folder: Path, stated: str) -> tuple[str, ...]:
    """Sockets of this folder's manager without a listener."""
    known = {Path(stated)} if stated else set()
    with suppress(EngineError):
        known.add(own_path(folder))
    return tuple(
        sorted(str(each) for each in known if each.is_socket() and listener_at(each) is None)
    )


def _is_https(url: str, is_up: bool) -> bool:
    return is_up and url.startswith("https://")


def _certificate(host: str, port: int | None) -> tuple[float | None, str]:
    """Days until it ends, and why it is not valid: it is trusted for this, its dates are checked."""
    at = (host, port or 443)
    try:
        pem = ssl.get_server_certificate(at, timeout=ANSWER_S)
        trusting = ssl.create_default_context(cadata=pem)
        trusting.check_hostname = False
        trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        with (
            closing(socket.create_connection(at, ANSWER_S)) as plain,
            trusting.wrap_socket(plain, server_hostname=host) as secured,
        ):
            ends = (secured.getpeercert() or {}).get("notAfter")
    except ssl.SSLCertVerificationError as error:
        return None, error.verify_message
    except OSError:
        return None, ""
    return None if ends is None else (ssl.cert_time_to_seconds(str(ends)) - time.time()) / DAY_S, ""
