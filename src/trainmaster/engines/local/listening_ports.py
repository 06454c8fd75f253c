"""Which TCP ports processes of this machine listen on, as the kernel says (/proc/net/tcp)."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

TABLES = {"/proc/net/tcp": socket.AF_INET, "/proc/net/tcp6": socket.AF_INET6}
LISTENING = "0A"
Address = IPv4Address | IPv6Address
LOOPBACK: dict[int, Address] = {4: IPv4Address("127.0.0.1"), 6: IPv6Address("::1")}


@dataclass(frozen=True, slots=True)
class Listener:
    """A socket that listens: its address and inode."""

    address: Address
    inode: int

    @property
    def reached_at(self) -> Address:
        """Where it is to be reached from this machine."""
        return LOOPBACK[self.address.version] if self.address.is_unspecified else self.address


@dataclass(frozen=True, slots=True)
class OwnPort:
    """A port that only the processes asked about listen on, at this address."""

    host: str
    inodes: frozenset[int]


def own_port(port: int, pids: Iterable[int]) -> OwnPort | None:
    """Where these processes listen on a port; None where they do not, or others might answer there too."""
    found = tuple(listeners(port))
    owned = held_sockets(pids) if found else frozenset()
    for each in sorted(found, key=_nearness):
        inodes = frozenset(other.inode for other in found if _might_answer(other, each.reached_at))
        if each.inode in owned and inodes <= owned:
            return OwnPort(str(each.reached_at), inodes)
    return None


def listeners(port: int) -> Iterator[Listener]:
    """Sockets of any process of this machine that listen on this port."""
    for table, family in TABLES.items():
        with contextlib.suppress(OSError), open(table) as file:
            next(file, None)
            for line in file:
                fields = line.split()
                if len(fields) < 10 or fields[3] != LISTENING:
                    continue
                text, _, number = fields[1].rpartition(":")
                if int(number, 16) == port:
                    yield Listener(_address(family, text), int(fields[9]))


def held_sockets(pids: Iterable[int]) -> frozenset[int]:
    """Inodes of the sockets that these processes have open."""
    found: set[int] = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for entry in os.scandir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError, ValueError):
                    kind, _, inode = os.readlink(entry.path).partition(":[")
                    if kind == "socket":
                        found.add(int(inode.rstrip("]")))
    return frozenset(found)


def _address(family: int, text: str) -> Address:
    """`0100007F` is 127.0.0.1: words of four bytes in the machine's own order."""
    packed = b"".join(
        struct.pack("=I", int(text[at : at + 8], 16)) for at in range(0, len(text), 8)
    )
    return ip_address(socket.inet_ntop(family, packed))


def _might_answer(listener: Listener, address: Address) -> bool:
    """Whether the kernel may give it a connection to this address; `::` may answer for both families."""
    own = listener.address
    if own == address or own == IPv6Address("::"):
        return True
    return own.is_unspecified and own.version == address.version


def _nearness(listener: Listener) -> tuple[bool, int]:
    return not listener.reached_at.is_loopback, listener.address.version


def same_listeners(port: int, before: Collection[int], host: str) -> bool:
    """Whether still the same sockets, and no others, would answer there."""
    address = ip_address(host)
    return {each.inode for each in listeners(port) if _might_answer(each, address)} == set(before)
