"""`python -m trainmaster.gpu.watch SECONDS`: says every so often what the driver answers, in lines of JSON.

A process of its own, which ends with its input: a driver that hangs or crashes does not touch the manager.
"""

from __future__ import annotations

import contextlib
import json
import select
import sys
from dataclasses import asdict, dataclass
from typing import Any

from trainmaster.gpu.driver import (
    Driver,
    DriverError,
    Gpu,
    GpuEvent,
    GpuProcess,
    Reading,
    open_driver,
)


@dataclass(frozen=True, slots=True)
class Look:
    """All that the driver says at one moment; the events since the last look."""

    version: str = ""
    gpus: tuple[Gpu, ...] = ()
    readings: tuple[Reading, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    events: tuple[GpuEvent, ...] = ()
    trouble: str = ""
    """Why it does not answer; then there is nothing else."""

    def to_json(self) -> str:
        return json.dumps(asdict(self), default=sorted)

    @classmethod
    def from_json(cls, line: str | bytes) -> Look:
        said: dict[str, Any] = json.loads(line)
        return cls(
            version=said["version"],
            gpus=tuple(_gpu(each) for each in said["gpus"]),
            readings=tuple(Reading(**each) for each in said["readings"]),
            processes=tuple(GpuProcess(**each) for each in said["processes"]),
            events=tuple(GpuEvent(**each) for each in said["events"]),
            trouble=said["trouble"],
        )


def _gpu(said: dict[str, Any]) -> Gpu:
    return Gpu(**said | {name: frozenset(said[name]) for name in ("near", "linked")})


class Watch:
    """Looks again and again; what the GPUs are is asked again only after trouble."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._gpus: tuple[Gpu, ...] = ()

    def look(self) -> Look:
        driver = self._driver
        if not self._gpus:
            with contextlib.suppress(DriverError):  # one that is lost leaves the others to be read
                self._gpus = driver.gpus()
        try:
            return Look(
                driver.version,
                self._gpus,
                driver.readings(),
                driver.processes(),
                driver.events(),
            )
        except DriverError as problem:
            self._gpus = ()
            driver.close()
            return Look(trouble=str(problem))


def main() -> None:
    every_s, watch = float(sys.argv[1]), Watch(open_driver())
    while True:
        sys.stdout.write(watch.look().to_json() + "\n")
        sys.stdout.flush()
        if select.select([sys.stdin], [], [], every_s)[0]:  # its input has ended
            return


if __name__ == "__main__":
    main()
