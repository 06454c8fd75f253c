"""A stand-in for the daemon that is killed: launches runs of a folder over and over, as a restart does.

python launching.py FOLDER FIRST LAST
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.live.stage import local_engine, placed
from trainmaster.model.actions import Freeze, Launch, Thaw
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import LaunchSpec

SCRIPT = "echo $$ >> ../counts/$TRAINMASTER_JOB; sleep 0.0$(($TRAINMASTER_JOB % 10)); exit 0"


async def launch_all(folder: Path, first: int, last: int) -> None:
    """Observe, then order everything once more, whether it was done before or not."""
    runs = [Run(str(number), 1) for number in range(first, last)]
    recipe = LaunchSpec(
        command=("sh", "-c", SCRIPT),
        workdir=str(folder / "work"),
        checkpoint_dir=str(folder / "checkpoints"),
    )
    engine = local_engine(folder)
    await engine.open(lambda report, n: None)
    await engine.observe(dict.fromkeys(runs, 0))
    for run in runs:
        await engine.execute(Launch(run, placed(1), 0), recipe)
        if int(run.job) % 5 == 0:
            await engine.execute(Freeze(run), recipe)
            await engine.execute(Thaw(run), recipe)
        await asyncio.sleep(0.002)
    print("ordered", flush=True)
    await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(launch_all(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
