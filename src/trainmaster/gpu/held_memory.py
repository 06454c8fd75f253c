"""`python -m trainmaster.gpu.held_memory`: how much processes have on GPUs now, by the driver's own count.

It answers each line of its input by one line of JSON, and ends with its input:
    {"n": 1, "pids": [4711, 4712]}
    {"n": 1, "held": {"4711": 524288000}}
The answer has those that the driver lists: none where it does not answer, or counts processes by other
numbers, as in containers.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence

from trainmaster.gpu.checkpoint import memory_of
from trainmaster.gpu.driver import Driver, DriverError, open_driver


def held(pids: Sequence[int], driver: Driver) -> dict[int, int]:
    try:
        return memory_of(pids, driver)
    except DriverError:
        driver.close()
        return {}


def answers(lines: Iterator[str], driver: Driver) -> Iterator[str]:
    for line in lines:
        said = json.loads(line)
        yield json.dumps({"n": said["n"], "held": held(said["pids"], driver)})


def main() -> None:
    driver = open_driver()
    with contextlib.suppress(DriverError):
        driver.processes()  # the first question takes longest
    for answer in answers(iter(sys.stdin.readline, ""), driver):
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
