"""Keeps web sites out: other sites must not make a browser on this machine send requests to the manager.

A page of another site can resolve its own name to 127.0.0.1 (DNS rebinding), post a form here, or ask for
what is costly to answer. The first comes with that name in `Host`, the others with that site in `Origin` or
as cross-site in `Sec-Fetch-Site`; all are refused. A link that a person follows to a page of ours is not.
No answer carries a CORS header, so that no other site may read one.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Collection

import psutil
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from trainmaster.api.responses import error

OURS = frozenset({"localhost", "127.0.0.1", "[::1]"})
ANY = "*"
HOSTS = "TRAINMASTER_HOSTS"
"""More names, with commas."""
HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]]+)(:\d+)?")
FOREIGN = frozenset({"cross-site", "same-site"})
"""Other sites, and other ports or names of this one, as browsers say it."""
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class HostCheck:
    """Checks the headers of every request first."""

    def __init__(self, app: ASGIApp, hosts: Collection[str] = ()) -> None:
        self._app = app
        self._hosts = OURS.union(_bracketed(each.lower()) for each in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._host_refusal(headers.get("host", ""))
        status = 400
        if refusal is None:
            status, refusal = 403, self._origin_refusal(scope, headers)
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await error(status, refusal)(scope, receive, send)

    def _host_refusal(self, host: str) -> str | None:
        if ANY in self._hosts or self._is_ours(host):
            return None
        return (
            f"This manager does not serve the host name {host[:100]!r}: ask for its address, or start it"
            " with that name in TRAINMASTER_HOSTS."
        )

    def _origin_refusal(self, scope: Scope, headers: Headers) -> str | None:
        origin = headers.get("origin")
        is_safe = scope["method"] in SAFE_METHODS
        is_page = is_safe and not scope["path"].startswith("/api/")
        is_followed = is_page and headers.get("sec-fetch-dest") == "document"
        is_foreign = headers.get("sec-fetch-site") in FOREIGN and not is_followed
        if origin is not None:
            is_foreign = is_foreign or origin.partition("://")[2] != headers.get("host")
        if not is_foreign:
            return None
        may = "ask" if is_safe else "change"
        return f"This request comes from another web site, which may not {may} anything here."

    def _is_ours(self, host: str) -> bool:
        found = HOST.fullmatch(host.lower())
        if found is None:
            return False
        below = found[1].partition(".")[2]
        return found[1] in self._hosts or (below != "" and f"*.{below}" in self._hosts)


def names_of(sock: socket.socket) -> set[str]:
    """The host names by which this socket may be addressed: its addresses, the machine's name, and those
    that TRAINMASTER_HOSTS lists."""
    listed = (each.strip() for each in os.environ.get(HOSTS, "").split(","))
    names = {each for each in listed if each}
    address = ipaddress.ip_address(str(sock.getsockname()[0]).partition("%")[0])
    if address.is_loopback:
        return names
    names |= {socket.gethostname(), socket.getfqdn(), str(address)}
    if address.is_unspecified:
        found = (each.address for all_of in psutil.net_if_addrs().values() for each in all_of)
        names |= {each.partition("%")[0] for each in found}
    return names


def _bracketed(host: str) -> str:
    """An IPv6 address as it stands in a URL."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
