"""A network namespace of its own for tests with Ray, which listens on all interfaces whatever it is told."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from pathlib import Path

NEW_USER, NEW_NETWORK = 0x10000000, 0x40000000
GET_FLAGS, SET_FLAGS, UP = 0x8913, 0x8914, 1
ADDRESS = "TRAINMASTER_TEST_RAY_ADDRESS"
"""A cluster of the user's own to test on instead."""
RUNS = "TRAINMASTER_TEST_RAY"
"""Set where `python -m tests.ray` runs the tests."""


class NoNamespace(Exception):
    """One sentence for people."""


def enter() -> None:
    """Move this process into a new one, in which there is a loopback and nothing else."""
    uid, gid = os.geteuid(), os.getegid()
    kinds = NEW_NETWORK if uid == 0 else NEW_NETWORK | NEW_USER
    library = ctypes.CDLL(None, use_errno=True)
    try:
        if library.unshare(kinds):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        if kinds & NEW_USER:
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
            Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
        loopback_up()
    except OSError as error:
        raise NoNamespace(
            "Ray listens on all interfaces, so its tests need a network namespace of their own, which this"
            f" machine does not let us make ({error.strerror}): run them as root or allow user namespaces, or"
            f" name a cluster of yours in {ADDRESS}."
        ) from error


def loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        asked = struct.pack("16sH14x", b"lo", 0)
        (flags,) = struct.unpack("16xH14x", fcntl.ioctl(line, GET_FLAGS, asked))
        fcntl.ioctl(line, SET_FLAGS, struct.pack("16sH14x", b"lo", flags | UP))


def is_closed() -> bool:
    """Whether nobody outside can reach what listens here."""
    return {name for _, name in socket.if_nameindex()} == {"lo"}


def refuse_open_network() -> None:
    if not is_closed():
        raise NoNamespace(
            "A Ray cluster for tests is only started in a network namespace: `make test-ray`."
        )
