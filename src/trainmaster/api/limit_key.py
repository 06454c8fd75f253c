"""Whose limits a request or a connection counts against."""

from __future__ import annotations

import ipaddress

from starlette.types import Scope

from trainmaster.api.caller import Caller
from trainmaster.api.peer import SCOPE, Peer
from trainmaster.api.tcp_peer import NOBODY, End, kernel_uid

IPV6_NETWORK = 64
"""One household or machine has that much of IPv6, and can use a new address each time."""


def limit_key_of(scope: Scope, *, is_proxied: bool) -> str | None:
    """The user of a request, else where it comes from; None where it comes from a reverse proxy."""
    caller: Caller | None = scope.get("state", {}).get("caller")
    if caller is not None:
        return caller.user
    peer: Peer | None = scope.get(SCOPE)
    host, _ = scope.get("client") or ("", 0)
    return origin_of(peer, host, is_proxied=is_proxied)


def origin_of(peer: Peer | None, host: str, *, is_proxied: bool) -> str | None:
    """Where a connection comes from: a Unix user as the kernel says, or an address."""
    if peer is not None:
        return of_user(peer.uid)
    return None if is_proxied else f"the address {_network(host)}"


def tcp_origin(client: End, server: End, *, is_proxied: bool) -> str | None:
    """Where a TCP connection comes from. Within this machine it is its user's, as the kernel says: an address
    would be everybody's."""
    uid = None if is_proxied else kernel_uid(client, server)
    if uid is not None and uid != NOBODY:
        return of_user(uid)
    return origin_of(None, client[0], is_proxied=is_proxied)


def of_user(uid: int) -> str:
    return f"the Unix user {uid}"


def _network(host: str) -> str:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if address.version == 4:
        return str(address)
    return str(ipaddress.ip_network((address, IPV6_NETWORK), strict=False))
