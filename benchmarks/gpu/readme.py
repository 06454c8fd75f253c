"""The README's section on training, command by command, on this machine's GPU.

    python -m benchmarks.gpu.readme [--out DIR]

Its jobs ask for one GPU each here, so that one GPU is enough.
"""

from __future__ import annotations

import argparse
import shlex
import time
from pathlib import Path

from benchmarks.gpu import harness
from benchmarks.gpu.harness import Manager, Results


def run(results: Results) -> None:
    with Manager() as manager:
        said: list[dict[str, str]] = []

        def do(*words: str) -> str:
            text = str(manager.trainmaster(*words, seconds=60)["text"])
            said.append({"command": shlex.join(["trainmaster", *words]), "said": text})
            results.add("readme", commands=said)
            return text

        for name in ("resnet", "bert"):
            train = harness.train_command("--seconds", 60, "--fill-gib", 1)
            env = [f"--env={key}={value}" for key, value in harness.train_env().items()]
            do("run", "--gpus", "1", "-d", "-n", name, *env, "--", *train)
        harness.wait_for(lambda: manager.pids("1"), 20)
        harness.wait_for(lambda: harness.process_memory_mib(manager.pids("1")[0]), 40)
        time.sleep(3.0)
        do("ps")
        do("explain", "bert")
        do("logs", "resnet")
        said.append({"command": "trainmaster suspend resnet", "said": manager.suspend("resnet")})
        started = harness.wait_for(lambda: manager.state("2") == "running", 60)
        results.add("readme", bert_started=bool(started))
        do("ps")
        do("resume", "resnet")
        do("show", "resnet")
        results.add("readme", both_ended=manager.wait(["1", "2"], 240))
        results.add("readme", states=[manager.state(job) for job in ("1", "2")])
        do("story", "resnet")
        do("story", "bert")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    results = Results("readme", parser.parse_args().out)
    results.step("readme", 400, lambda: run(results))


if __name__ == "__main__":
    main()
