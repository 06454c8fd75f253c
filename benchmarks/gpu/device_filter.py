"""A run opens the files of its own GPUs and of no others: a job with the GPU, one without, and one that is
suspended and resumed.

    python -m benchmarks.gpu.device_filter [--out DIR]

Needs root. Beside the machine's own files it makes one for the GPU and one for a GPU that is not given, with
`mknod`: outside of a job the driver answers for them, inside the kernel refuses the second one.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import stat
import time
from pathlib import Path

from benchmarks.gpu import harness
from benchmarks.gpu.harness import Absent, Found, Manager, Results
from trainmaster.engines.local.device_filter import MAJOR
from trainmaster.gpu.devices import has_device_files
from trainmaster.gpu.driver import open_driver

STEPS = 20_000
TRYING = """
import json, os, sys
answers = {}
for path in sys.argv[2:]:
    try:
        os.close(os.open(path, os.O_RDWR))
        answers[path] = "opened"
    except OSError as problem:
        answers[path] = problem.strerror
computes = None
if sys.argv[1] == "torch":
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"  # whatever the manager said
    import torch
    ones = torch.ones(64, 64, device="cuda") if torch.cuda.is_available() else None
    computes = ones is not None and bool((ones @ ones).sum() == 64**3)
print(json.dumps({"answers": answers, "computes": computes}))
"""
"""What the kernel and the driver answer for each file, and whether CUDA computes."""


def device_files(folder: Path) -> tuple[list[str], list[str]]:
    """Files of the first GPU, and of GPUs that no job gets."""
    minor = open_driver().gpus()[0].minor
    if minor is None:
        raise Absent("the driver does not say which file the GPU has")
    own, others = [f"/dev/nvidia{minor}"], list[str]()
    for number, into in ((minor, own), (minor + 1, others)):
        path = folder / f"made-{number}"
        with contextlib.suppress(PermissionError):
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(MAJOR, number))
            into.append(str(path))
    return [path for path in own if os.path.exists(path)], others


def tried(manager: Manager, paths: list[str], **fields: int) -> Found:
    """What a job is answered."""
    kind = "plain" if harness.is_fake() else "torch"
    job = manager.submit("trying", [harness.train_python(), "-c", TRYING, kind, *paths], **fields)
    manager.wait([job], 120)
    lines = manager.trainmaster("logs", job)["text"].splitlines()
    found = [json.loads(line) for line in lines if line.startswith('{"answers"')]
    if not found:
        raise RuntimeError(f"job {job} said: {lines[-20:]}; {manager.sentences(job)}")
    return dict(found[0])


def must_filter(manager: Manager) -> None:
    remarks = manager.get("/nodes")["nodes"][0]["remarks"]
    missing = [each for each in remarks if "nothing keeps them from opening others" in each]
    if missing:
        raise Absent(missing[0])


def with_gpu(results: Results) -> None:
    with Manager() as manager:
        own, others = device_files(manager.folder)
        paths = [*own, *others, "/dev/nvidiactl"]
        outside = harness.call([harness.train_python(), "-c", TRYING, "plain", *paths], 60)
        results.add("with-gpu", outside=outside["lines"])
        must_filter(manager)
        found = tried(manager, paths, gpus=1)
        refused = os.strerror(errno.EPERM)
        holds = all(found["answers"][path] != refused for path in own)
        holds = holds and all(found["answers"][path] == refused for path in others)
        results.add("with-gpu", **found, holds=holds and found["computes"] is not False)


def without_gpu(results: Results) -> None:
    """On CPU slots of the same machine."""
    if not has_device_files():
        raise Absent("where the kernel has no GPUs, nothing is refused")
    with Manager("--slots", 2) as manager:
        own, others = device_files(manager.folder)
        must_filter(manager)
        found = tried(manager, [*own, *others, "/dev/nvidiactl"])
        answers = [found["answers"][path] for path in (*own, *others)]
        holds = answers == [os.strerror(errno.EPERM)] * len(answers)
        results.add("without-gpu", **found, holds=holds and not found["computes"])


def suspended(results: Results) -> None:
    """The driver takes a run's memory out and back while the run may open its own GPU alone."""
    with Manager() as manager:
        must_filter(manager)
        job = manager.train("frozen", "--steps", STEPS, "--fill-gib", 1, gpus=1)
        harness.wait_for(lambda: manager.state(job) == "running", 30)
        time.sleep(5.0)
        manager.suspend(job)
        was_suspended = harness.wait_for(lambda: manager.state(job) == "suspended", 60)
        manager.trainmaster("resume", job)
        ended = manager.wait([job], 150)
        attempt = int(manager.get(f"/jobs/{job}")["attempt"])
        state, story = manager.state(job), manager.sentences(job)
        holds = bool(was_suspended) and ended and state == "succeeded" and attempt == 1
        results.add("suspended", state=state, attempt=attempt, story=story, holds=holds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    results = Results("device_filter", parser.parse_args().out)
    results.step("with-gpu", 150, lambda: with_gpu(results))
    results.step("without-gpu", 150, lambda: without_gpu(results))
    results.step("suspended", 290, lambda: suspended(results))


if __name__ == "__main__":
    main()
