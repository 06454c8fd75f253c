"""Whose port it is: of these processes alone, or perhaps of others too."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from trainmaster.engines.local.listening_ports import listeners, own_port, same_listeners

LISTEN = """
import socket, sys
made = socket.socket()
made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
made.bind((sys.argv[1], int(sys.argv[2])))
made.listen()
print("ready", flush=True)
sys.stdin.read()
"""


def listening(
    host: str = "127.0.0.1", family: socket.AddressFamily = socket.AF_INET
) -> socket.socket:
    made = socket.socket(family)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind((host, 0))
    made.listen()
    return made


def test_a_port_of_one_s_own() -> None:
    with listening() as own:
        port = own.getsockname()[1]
        found = own_port(port, [os.getpid()])
        assert found is not None
        assert found.host == "127.0.0.1"
        assert same_listeners(port, found.inodes, found.host)
        assert own_port(port, []) is None
        assert own_port(port, [1]) is None
    assert not same_listeners(port, found.inodes, found.host)
    assert own_port(port, [os.getpid()]) is None
    assert list(listeners(port)) == []


def test_a_port_of_all_addresses_is_reached_at_loopback() -> None:
    with listening("0.0.0.0") as own:
        found = own_port(own.getsockname()[1], [os.getpid()])
        assert found is not None
        assert found.host == "127.0.0.1"


def test_a_port_of_ipv6() -> None:
    with listening("::1", socket.AF_INET6) as own:
        found = own_port(own.getsockname()[1], [os.getpid()])
        assert found is not None
        assert found.host == "::1"


def test_a_port_that_another_process_answers_too_is_nobody_s() -> None:
    """Two programs of one account may share a port (SO_REUSEPORT): the kernel chooses one of them."""
    with listening() as own:
        port = own.getsockname()[1]
        other = subprocess.Popen(
            [sys.executable, "-c", LISTEN, "127.0.0.1", str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == b"ready\n"
            assert own_port(port, [os.getpid()]) is None
            assert own_port(port, [other.pid]) is None
            assert own_port(port, [os.getpid(), other.pid]) is not None
        finally:
            other.communicate()
