"""The TCP sockets that listen on this machine, and whose they are, as the kernel says."""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import NamedTuple

Address = IPv4Address | IPv6Address
TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
"""All TCP sockets of this machine, of IPv4 and of IPv6."""
LISTENS = "0A"
WORD = 4
"""Bytes of an address that stand together in the tables, in the machine's order."""

SOCK_DIAG = 4
"""The kernel's socket for questions about sockets, sock_diag(7): a hundred times as quick as its tables."""
BY_FAMILY, FAILED, DONE = 20, 2, 3
REQUEST_ALL = 0x301
TCP, LISTEN_STATE = 6, 1 << 10
HEADER = struct.Struct("=IHHII")
QUESTION = struct.Struct("=BBxxI")
PORTS = struct.Struct(">HH")
ANY_PEER = bytes(32 + 4) + b"\xff" * 8
"""Any address, interface and cookie."""
SOURCE = 8
"""Where an answer has the address that is listened on; its user and inode are at OWNER."""
OWNER = struct.Struct("=II")
OWNER_AT = 64
ANSWER_S = 2.0


class Listener(NamedTuple):
    """A socket that listens."""

    uid: int
    inode: int


def listeners_at(address: Address, port: int) -> frozenset[Listener]:
    """The sockets that get what is sent to this address; none where the kernel does not say."""
    try:
        found = [
            each for family in (socket.AF_INET, socket.AF_INET6) for each in _ask(family, port)
        ]
    except (OSError, AttributeError):  # an old kernel, or not Linux
        found = list(_in_tables(port))
    exact = {listener for bound, listener in found if bound == address}
    return frozenset(exact or {listener for bound, listener in found if bound.is_unspecified})


def sockets_of(pid: int) -> set[int]:
    """The sockets that a process has open, by their inodes; none of another user's process."""
    found = set()
    with suppress(OSError):  # it has ended, or is another user's
        for each in os.scandir(f"/proc/{pid}/fd"):
            kind, _, number = os.readlink(each.path).partition(":")
            if kind == "socket":
                found.add(int(number.strip("[]")))
    return found


def _ask(family: int, port: int) -> Iterator[tuple[Address, Listener]]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, SOCK_DIAG) as kernel:
        kernel.settimeout(ANSWER_S)
        body = QUESTION.pack(family, TCP, LISTEN_STATE) + PORTS.pack(port, 0) + ANY_PEER
        kernel.send(HEADER.pack(HEADER.size + len(body), BY_FAMILY, REQUEST_ALL, 1, 0) + body)
        while True:
            for kind, answer in _messages(kernel.recv(1 << 16)):
                if kind == DONE:
                    return
                if kind == FAILED:
                    raise OSError("the kernel does not answer")
                size = 4 if answer[0] == socket.AF_INET else 16
                if PORTS.unpack_from(answer, SOURCE - PORTS.size)[0] == port:
                    bound = ip_address(answer[SOURCE : SOURCE + size])
                    yield _unmapped(bound), Listener(*OWNER.unpack_from(answer, OWNER_AT))


def _messages(text: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(text):
        size, kind, *_ = HEADER.unpack_from(text, at)
        yield kind, text[at + HEADER.size : at + size]
        at += (size + 3) & ~3


def _in_tables(port: int) -> Iterator[tuple[Address, Listener]]:
    for table in TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:  # not Linux, or without IPv6
            continue
        for fields in map(str.split, lines):
            written, _, number = fields[1].rpartition(":")
            if fields[3] == LISTENS and int(number, 16) == port:
                yield _address(written), Listener(int(fields[7]), int(fields[9]))


def _address(written: str) -> Address:
    """An address as the tables write it."""
    raw = bytes.fromhex(written)
    step = -1 if sys.byteorder == "little" else 1
    words = (raw[at : at + WORD][::step] for at in range(0, len(raw), WORD))
    return _unmapped(ip_address(b"".join(words)))


def _unmapped(address: Address) -> Address:
    """The IPv4 address that an IPv6 socket listens on, where it is one."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return address if mapped is None else mapped
