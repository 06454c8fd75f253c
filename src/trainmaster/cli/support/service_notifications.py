"""What a service manager is told of this process (sd_notify): that it is ready, works, and ends.

The protocol is one datagram of `NAME=value` lines to a socket; without one, nothing is said.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, MutableMapping

SOCKET, WATCHDOG, WATCHDOG_PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
PINGS = 3
"""In the time after which a silent service is taken to hang."""


class ServiceNotifications:
    """To the service manager that the environment names, once: processes that we start do not see it."""

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        self._path = environment.pop(SOCKET, "")
        said, pid = environment.pop(WATCHDOG, ""), environment.pop(WATCHDOG_PID, "")
        is_for_us = self._path != "" and pid in ("", str(os.getpid()))
        self.ping_s = int(said) / 1e6 / PINGS if is_for_us and said.isdecimal() else None
        """How often it wants to hear that this process works; None: never."""

    def ready(self, status: str) -> None:
        self._send("READY=1", f"STATUS={status}", f"MAINPID={os.getpid()}")

    def stopping(self) -> None:
        self._send("STOPPING=1", "STATUS=Stopping; jobs go on.")

    async def ping(self, status: Callable[[], str]) -> None:
        """Until cancelled, by the event loop itself: one that stands still sends none."""
        while self.ping_s is not None:
            self._send("WATCHDOG=1", f"STATUS={status()}")
            await asyncio.sleep(self.ping_s)

    def _send(self, *lines: str) -> None:
        if not self._path:
            return
        # `@` stands for the abstract namespace. A message that is lost is not worth an error.
        address = f"\0{self._path[1:]}" if self._path.startswith("@") else self._path
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
            out.setblocking(False)
            try:
                out.sendto("\n".join(lines).encode(), address)
            except OSError:
                return
