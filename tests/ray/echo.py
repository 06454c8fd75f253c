"""A launcher for tests of the link alone: it answers, and begins runs that are nothing but a process."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from trainmaster.gpu.devices import Machine


class Echo:
    def __init__(self, folder: Path, machine: Machine) -> None:
        self.folder, self.machine = folder, machine

    async def open(self) -> None:
        await asyncio.sleep(0)

    async def echo(self, *words: object) -> tuple[object, ...]:
        return words

    async def fail(self, why: str) -> None:
        raise LookupError(why)

    async def wait(self, seconds: float) -> int:
        await asyncio.sleep(seconds)
        return os.getpid()

    async def environ(self) -> dict[str, str]:
        return dict(os.environ)

    async def place(self) -> tuple[str, int]:
        return str(self.folder), os.getpid()
