"""The self-test of this machine's GPU, at the start and by command, and a GPU set aside and given back.

python -m benchmarks.gpu.self_test [--out DIR]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks.gpu import harness
from benchmarks.gpu.harness import Manager, Results

TESTS = 3


def run(results: Results) -> None:
    with Manager("--self-test") as manager:
        job = manager.train("first", "--seconds", 3, gpus=1)
        results.add("self-test", first_ended=manager.wait([job], 60), story=manager.sentences(job))
        node = manager.get("/nodes")["nodes"][0]["name"]
        tests = []
        for _ in range(TESTS):
            began = time.perf_counter()
            said = manager.trainmaster("node", "test", "--json", node, seconds=120)["text"]
            tests.append({"s": round(time.perf_counter() - began, 2), "said": said})
            results.add("self-test", tests=tests)
        manager.trainmaster("node", "block", f"{node}:0")
        job = manager.train("second", "--seconds", 3, gpus=1)
        time.sleep(2.0)
        results.add("self-test", while_blocked=manager.trainmaster("explain", job)["text"])
        results.add("self-test", nodes=manager.trainmaster("nodes", "--devices")["text"])
        manager.trainmaster("node", "unblock", f"{node}:0")
        results.add("self-test", second_ended=manager.wait([job], 60), state=manager.state(job))
        results.add("self-test", log=harness.short(manager.log(), 3000))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    results = Results("self_test", parser.parse_args().out)
    results.step("self-test", 200, lambda: run(results))


if __name__ == "__main__":
    main()
