"""All of it once, in two minutes: what works on this GPU, most telling first.

    python -m benchmarks.gpu.first_look [--seconds 110] [--out DIR]

Each step has its own time; a step that fails or is not there is a result, and the next one comes. For figures
to publish run the programs beside this one, which repeat and compare.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.gpu import harness
from benchmarks.gpu.harness import Absent, Found, Manager, Program, Results

CYCLES = 3
QUANTUM_S = 5
STEPS = 9000
"""At 2 ms or so: the programs of the first steps train on beside the later ones."""


class FirstLook:
    """The steps, in their order; what one starts, another may use."""

    def __init__(self, results: Results, folder: Path) -> None:
        self.results, self.folder = results, folder
        self.programs: list[Program] = []
        self.manager: Manager | None = None
        self.beside: subprocess.Popen[bytes] | None = None

    def program(self, name: str, *words: object) -> Program:
        self.programs.append(Program(self.folder, name, *words))
        return self.programs[-1]

    # (a)
    def start_programs(self) -> None:
        """Two equal programs: one will be frozen, the other not."""
        words = ("--steps", STEPS, "--fill-gib", 1, "--deterministic", "--seed", 7)
        self.frozen, self.undisturbed = (
            self.program("frozen", *words),
            self.program("other", *words),
        )

    def record(self) -> None:
        """What NVML answers on this machine."""
        path = self.results.folder / "h200.json"
        if not harness.has_module("trainmaster.gpu.record"):
            raise Absent("trainmaster.gpu.record is not there")
        said = harness.call([sys.executable, "-m", "trainmaster.gpu.record", path], 20)
        self.results.add("record", **said)

    # (b)
    def freeze_and_thaw(self) -> None:
        """A program with 1 GiB leaves its GPU and comes back, by our own program."""
        add = self.results.add
        module = "cuda.core.checkpoint"
        if not harness.is_fake():
            code = f"import time; t = time.time(); import {module}; print(time.time() - t)"
            add("freeze", import_cuda_core=harness.call([sys.executable, "-c", code], 20))
        add("freeze", ready=self.frozen.ready(30))
        pid = self.frozen.pid
        add("freeze", state=harness.checkpoint("state", pid, seconds=15))
        for cycle in range(CYCLES):
            row: Found = {"before": self.memory(pid), "step": self.frozen.step()}
            row["freeze"] = harness.checkpoint("freeze", pid, seconds=20)
            row["between"], began = self.memory(pid), time.monotonic()
            if cycle == 0:
                row["state"] = harness.checkpoint("state", pid, seconds=15)
            row["process_state"] = process_state(pid)
            time.sleep(max(0.0, 0.5 - (time.monotonic() - began)))
            row["thaw"] = harness.checkpoint("thaw", pid, seconds=20)
            row["after"] = self.memory(pid)
            add("freeze", **{f"cycle_{cycle}": row})
            time.sleep(1.2)
        add(
            "freeze",
            step_afterwards=self.frozen.step(),
            is_alive=self.frozen.process.poll() is None,
        )

    def memory(self, pid: int) -> Found:
        return {"gpu_mib": harness.gpu_memory_mib(), "process_mib": harness.process_memory_mib(pid)}

    # (f)
    def errors(self) -> None:
        """A process that is gone, and one that does not use a GPU."""
        ended = subprocess.Popen(["true"])
        ended.wait()
        with subprocess.Popen(["sleep", "60"]) as plain:
            both = harness.checkpoint("state", ended.pid, plain.pid, seconds=10)
            self.results.add("errors", state_of_gone_and_plain=both)
            for name, pid in (("gone", ended.pid), ("plain", plain.pid)):
                said = harness.checkpoint("freeze", pid, seconds=10)
                self.results.add("errors", **{f"freeze_{name}": said})
            plain.kill()

    # (c)
    def rotate(self) -> None:
        """Two programs take turns on the GPU by being frozen; then the user freezes one."""
        add = self.results.add
        settings = ("--set", f"quantum_s={QUANTUM_S}", "--set", "packing=off")
        self.manager = Manager("--policy", "gandiva", *settings)
        add(
            "rotate",
            up_s=self.manager.start_s,
            nodes=self.manager.trainmaster("node", "list")["text"],
        )
        words = ("--seconds", 300, "--fill-gib", 0.25)
        jobs = [self.manager.train(name, *words, gpus=1) for name in ("one", "two")]
        try:
            self.watch(jobs)
            self.by_hand(jobs)
        finally:
            self.manager.cancel(jobs)

    def watch(self, jobs: list[str]) -> None:
        """Until the first has made room for the second and came back, or it is clear that it does not."""
        add, manager = self.results.add, self.manager
        assert manager is not None
        is_moving = harness.wait_for(lambda: self.has(jobs[1], "started"), 5 * QUANTUM_S, 1)
        does = is_moving and harness.wait_for(lambda: self.has(jobs[0], "resumed"), 45, 1)
        add("rotate", did_rotate=bool(does), ps=manager.trainmaster("ps")["text"])
        add("rotate", stories=[manager.sentences(job) for job in jobs])

    def has(self, job: str, what: str) -> bool:
        assert self.manager is not None
        return any(row["what"] == what for row in self.manager.story(job))

    def by_hand(self, jobs: list[str]) -> None:
        """The user suspends and resumes; the other one is cancelled first, so that nobody else does."""
        manager, add = self.manager, self.results.add
        assert manager is not None
        manager.cancel(jobs[1:])
        if not harness.wait_for(lambda: manager.state(jobs[0]) == "running", 10):
            raise RuntimeError(f"job {jobs[0]} is {manager.state(jobs[0])}")
        time.sleep(1.0)
        before = harness.gpu_memory_mib()
        manager.suspend(jobs[0], 15)
        harness.wait_for(lambda: manager.state(jobs[0]) == "suspended", 10)
        between = harness.gpu_memory_mib()
        manager.trainmaster("resume", jobs[0])
        harness.wait_for(lambda: manager.state(jobs[0]) == "running", 10)
        add("rotate", gpu_mib_by_hand=[before, between, harness.gpu_memory_mib()])
        add("rotate", story_by_hand=manager.sentences(jobs[0])[-8:])

    # (d)
    def halves(self) -> None:
        """Two jobs of half a GPU side by side under MPS; one of them is asked to freeze."""
        add = self.results.add
        manager = self.manager = self.manager or Manager("--policy", "gandiva")
        gate = manager.folder / "gate"
        gate.mkdir()
        words = ("--seconds", 5, "--gate", gate)
        jobs = [manager.train(name, *words, gpus=0.5) for name in ("left", "right")]
        try:
            pid = manager.wait_ready(gate, jobs, 25)[0]
            said = harness.environment(pid)
            add("halves", environment=said)
            if harness.is_mps_client(pid):
                add("halves", state_of_a_client=harness.checkpoint("state", pid, seconds=10))
                add("halves", freeze_of_a_client=harness.checkpoint("freeze", pid, seconds=10))
                harness.checkpoint("thaw", pid, seconds=10)
            (gate / "go").touch()
            add("halves", ended=manager.wait(jobs, 15))
            add("halves", results=[manager.result(name) for name in ("left", "right")])
        finally:
            add("halves", stories=[manager.sentences(job) for job in jobs])
            add("halves", show=manager.trainmaster("show", jobs[0])["text"])
            manager.cancel(jobs)

    # (e)
    def start_cooperative(self) -> None:
        """A program that gives back its memory itself, at 1 GiB: beside what comes now."""
        if not harness.has_module("benchmarks.gpu.cooperative"):
            raise Absent("benchmarks/gpu/cooperative.py is not there")
        path = self.results.folder / "cooperative.json"
        words = ["--gib", "1", "--pauses", "3", "--out", str(path)]
        with (self.results.folder / "cooperative.log").open("wb") as log:
            self.beside = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.gpu.cooperative", *words],
                stdout=log,
                stderr=log,
            )

    def cooperative(self) -> None:
        """What it said."""
        if self.beside is None:
            raise Absent("it was not started")
        self.results.add("cooperative", rc=self.beside.wait(20))
        said = (self.results.folder / "cooperative.log").read_text(errors="replace")
        self.results.add("cooperative", said=said[-3000:])

    def compare(self) -> None:
        """Whether the program that was frozen has the weights of the one that was not."""
        both = [each.result(25) for each in (self.frozen, self.undisturbed)]
        same = both[0]["weights"] == both[1]["weights"]
        self.results.add("compare", weights_are_the_same=same, frozen=both[0], undisturbed=both[1])

    def end(self) -> None:
        for program in self.programs:
            program.end()
        if self.beside is not None and self.beside.poll() is None:
            self.beside.kill()
        if self.manager is not None:
            (self.results.folder / "manager.log").write_text(self.manager.log()[-500_000:])
            self.manager.end()


def process_state(pid: int) -> str:
    """R, S, T (stopped) ... of a process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=110.0, help="for all of it")
    parser.add_argument("--out", type=Path, help="folder of the results")
    asked = parser.parse_args()
    os.environ.pop("TRAINMASTER_URL", None)
    results = Results("first_look", asked.out)
    until = time.monotonic() + asked.seconds
    with tempfile.TemporaryDirectory(prefix="tmlook-", ignore_cleanup_errors=True) as folder:
        look = FirstLook(results, Path(folder))
        steps = (
            ("start", 5, look.start_programs),
            ("record", 20, look.record),
            ("freeze", 60, look.freeze_and_thaw),
            ("start cooperative", 5, look.start_cooperative),
            ("rotate", 75, look.rotate),
            ("compare", 15, look.compare),
            ("halves", 45, look.halves),
            ("cooperative", 20, look.cooperative),
            ("errors", 15, look.errors),
        )
        try:
            for name, limit_s, does in steps:
                left = until - time.monotonic()
                if left < 2:
                    results.add(name, went="skipped: no time left")
                else:
                    results.step(name, min(limit_s, left), does)
        finally:
            look.end()
    results.say(f"written to {results.path}")


if __name__ == "__main__":
    main()
