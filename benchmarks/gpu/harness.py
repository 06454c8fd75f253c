"""What the measurements on a GPU share: programs, a manager of their own, time limits, results as they come.

A result is written as soon as it is known, so that a run that is cut short loses nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from trainmaster.gpu.driver import FAKE_GPUS, open_driver

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
GIB, MIB = 1 << 30, 1 << 20
ENDED = ("succeeded", "failed", "timed_out", "cancelled")
POLL_S = 0.2

Found = dict[str, Any]


class StepTimeout(Exception):
    """A step has used up its time."""


class Absent(Exception):
    """A part of Trainmaster that is measured is not there: one sentence."""


# -- results and time ----------------------------------------------------------------------------------------


class Results:
    """One JSON file of named results, written again with each, and the same on the screen."""

    def __init__(self, name: str, out: Path | None = None) -> None:
        folder = out or Path(os.environ.get("OUT") or ROOT / "benchmarks/results/gpu")
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.path = folder, folder / f"{name}.json"
        self.began = time.monotonic()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what runs is ended
        self.found: Found = {
            "script": name,
            "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        }
        self.found |= {"machine": machine(), "steps": self._former()}

    def _former(self) -> Found:
        """Steps of an earlier run on the same machine stay until they are measured again."""
        if not self.path.exists():
            return {}
        read = json.loads(self.path.read_text())
        steps: Found = read["steps"] if read.get("machine") == machine() else {}
        return steps

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.began:6.1f} s] {text}", flush=True)

    def add(self, step: str, **what: Any) -> None:
        """More of one step's results."""
        self.found["steps"].setdefault(step, {}).update(what)
        beside = self.path.with_suffix(".tmp")
        beside.write_text(json.dumps(self.found, indent=1, default=str) + "\n")
        beside.replace(self.path)
        for name, each in what.items():
            self.say(f"{step}: {name} = {short(each)}")

    def step(self, name: str, limit_s: float, does: Callable[[], None]) -> bool:
        """Do one step within its time. What goes wrong is a result, and the next step comes."""
        began = time.monotonic()
        self.found["steps"].pop(name, None)
        self.say(f"--- {name} (at most {limit_s:.0f} s)")
        try:
            with time_limit(limit_s):
                does()
            went = "ok"
        except StepTimeout:
            went = f"not done within {limit_s:.0f} s"
        except Absent as absent:
            went = f"skipped: {absent}"
        except Exception as problem:
            went = f"{type(problem).__name__}: {problem}"
            self.add(name, traceback=traceback.format_exc()[-1500:])
        self.add(name, went=went, took_s=round(time.monotonic() - began, 2))
        return went == "ok"


def short(value: Any, most: int = 600) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= most else f"{text[:most]} ... ({len(text)} characters)"


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """StepTimeout in the main thread when the time is over, wherever it is."""

    def over(*_: object) -> None:
        raise StepTimeout

    former = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, max(0.1, seconds))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)


def wait_for(true: Callable[[], Any], seconds: float, every: float = POLL_S) -> Any:
    """What `true` answers once it is true; None when the time is over."""
    until = time.monotonic() + seconds
    while True:
        answer = true()
        if answer:
            return answer
        if time.monotonic() > until:
            return None
        time.sleep(every)


# -- the machine ---------------------------------------------------------------------------------------------


def is_fake() -> bool:
    return bool(os.environ.get(FAKE_GPUS))


def machine() -> Found:
    driver = open_driver()
    gpus = driver.gpus()
    if not gpus:
        sys.exit(
            "This machine has no NVIDIA GPU that the driver knows: see whether `nvidia-smi` works."
        )
    found = {"gpu": gpus[0].name, "gpu_memory": gpus[0].memory, "driver": driver.version}
    return found | {"cpus": os.cpu_count(), "is_fake": is_fake(), "python": sys.version.split()[0]}


def gpu_memory_mib() -> int:
    """Memory in use on the first GPU."""
    return open_driver().readings()[0].memory_used // MIB


def process_memory_mib(pid: int) -> int | None:
    """What one process has on its GPUs; None where the driver does not list it."""
    found = [each.memory for each in open_driver().processes() if each.pid == pid]
    return sum(found) // MIB if found else None


def train_python() -> str:
    """The Python of the training programs: TRAIN_PYTHON, else this one."""
    return sys.executable if is_fake() else os.environ.get("TRAIN_PYTHON", sys.executable)


def train_command(*words: object) -> list[str]:
    """The training program, with these options."""
    program = HERE / ("fake_train.py" if is_fake() else "train.py")
    return [train_python(), str(program), *map(str, words)]


def train_env() -> dict[str, str]:
    """What the programs that stand in for training need to be found; a real one needs nothing."""
    past = os.environ.get("PYTHONPATH", "")
    return {"PYTHONPATH": f"{ROOT}:{past}"} if is_fake() else {}


# -- programs without a manager ------------------------------------------------------------------------------


class Program:
    """A training program that runs beside this one, with what it has printed."""

    def __init__(self, folder: Path, name: str, *words: object) -> None:
        self.out, self._log = folder / f"{name}.json", folder / f"{name}.log"
        command = train_command(*words, "--out", self.out)
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env=env_with(train_env()), start_new_session=True
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def lines(self) -> list[Found]:
        read = self._log.read_text(errors="replace").splitlines()
        return [json.loads(line) for line in read if line.startswith("{") and line.endswith("}")]

    def ready(self, seconds: float) -> Found:
        """What it says when its training begins."""
        found = wait_for(
            lambda: (
                [each for each in self.lines() if "ready" in each]
                or self.process.poll() is not None
            ),
            seconds,
        )
        if not isinstance(found, list):
            raise RuntimeError(f"did not get ready: {self._log.read_text(errors='replace')[-800:]}")
        return found[0]

    def step(self) -> int:
        """The step that it last printed."""
        return max((each.get("step", 0) for each in self.lines()), default=0)

    def result(self, seconds: float) -> Found:
        """What it says at its end."""
        self.process.wait(seconds)
        if not self.out.exists():
            raise RuntimeError(f"ended without a result: {self._log.read_text()[-800:]}")
        found: Found = json.loads(self.out.read_text())
        return found

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()


def env_with(more: dict[str, str]) -> dict[str, str]:
    return {**os.environ, **more}


def call(command: Sequence[object], seconds: float, **more: str) -> Found:
    """A program's exit code, its lines and what it took; rc is None when it had to be ended."""
    began = time.perf_counter()
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=seconds, env=env_with(more)
        )
        rc, out, err = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:
        rc, out, err = None, text_of(late.stdout), text_of(late.stderr)
    found: Found = {"rc": rc, "s": round(time.perf_counter() - began, 3)}
    found |= {"lines": [parsed_line(line) for line in out.splitlines()]}
    return found | ({"stderr": err[-1200:]} if err else {})


def text_of(said: str | bytes | None) -> str:
    return said.decode(errors="replace") if isinstance(said, bytes) else said or ""


def parsed_line(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return line


def has_module(name: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def checkpoint(verb: str, *pids: int, seconds: float = 60.0) -> Found:
    """freeze, thaw or state by our own program."""
    if not has_module("trainmaster.gpu.checkpoint"):
        raise Absent("trainmaster.gpu.checkpoint is not there")
    return call([sys.executable, "-m", "trainmaster.gpu.checkpoint", verb, *pids], seconds)


def environment(pid: int) -> list[str]:
    """What says to a program how it shares its GPU."""
    said = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    return sorted(each for each in said if each.startswith(("CUDA_", "TRAINMASTER_")))


def is_mps_client(pid: int) -> bool:
    return any(each.startswith("CUDA_MPS_PIPE_DIRECTORY=") for each in environment(pid))


# -- a manager -----------------------------------------------------------------------------------------------


class Manager:
    """A `trainmaster up` of our own in a new folder; ended with all its jobs."""

    def __init__(self, *options: object, folder: Path | None = None) -> None:
        self.folder = folder or Path(tempfile.mkdtemp(prefix="tmgpu-"))
        self.data = self.folder / "data"
        self._options = [str(each) for each in options]
        self.start()

    def __enter__(self) -> Manager:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self) -> None:
        began = time.perf_counter()
        said = self.trainmaster("up", "-d", "--port", 0, *self._options, seconds=60)
        self.start_s = round(time.perf_counter() - began, 2)
        words = said["text"].split()
        self.url = next(word.rstrip(",") for word in words if word.startswith("http://"))
        self.pid = int(words[words.index("Process") + 1].rstrip(","))

    def kill(self) -> None:
        """As `kill -9` does: no good-bye."""
        os.kill(self.pid, signal.SIGKILL)
        wait_for(lambda: not Path(f"/proc/{self.pid}").exists(), 10)

    def trainmaster(self, *words: object, seconds: float = 30.0, stdin: str | None = None) -> Found:
        """One command of the command line; RuntimeError where it fails."""
        command = [sys.executable, "-m", "trainmaster", *map(str, words)]
        env = env_with({"TRAINMASTER_DATA": str(self.data)})
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
            input=stdin,
            env=env,
        )
        if done.returncode:
            shown = shlex.join(["trainmaster", *map(str, words)])
            raise RuntimeError(
                f"{shown}: exit code {done.returncode}: {done.stderr.strip()[-600:]}"
            )
        return {"text": done.stdout + done.stderr}

    def submit(self, name: str, command: Sequence[str], **fields: Any) -> str:
        """A job by its file; its id."""
        env = train_env() | fields.pop("env", {})
        job = {
            "name": name,
            "command": list(command),
            "env": env,
            "workdir": str(self.folder),
        } | fields
        said = self.trainmaster("submit", "--parsable", "-", stdin=json.dumps(job))
        return str(said["text"].split()[0])

    def train(self, name: str, *words: object, **fields: Any) -> str:
        """A training job whose result `result` reads."""
        words = (*words, "--out", self.folder / f"{name}.json")
        return self.submit(name, train_command(*words), **fields)

    def result(self, name: str) -> Found | None:
        path = self.folder / f"{name}.json"
        found: Found | None = json.loads(path.read_text()) if path.exists() else None
        return found

    def get(self, path: str, body: object = None) -> Any:
        """An answer of the API; with a body, that of a POST."""
        token = (self.data / "admin-token").read_text().strip()
        asked = urllib.request.Request(
            f"{self.url}/api/v1{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {token}", "content-type": "application/json"},
        )
        with urllib.request.urlopen(asked, timeout=20) as answer:
            return json.loads(answer.read())

    def state(self, job: str) -> str:
        return str(self.get(f"/jobs/{job}")["state"])

    def pids(self, job: str) -> list[int]:
        rows = [row for row in self.story(job) if row["what"] == "started"]
        return [int(pid) for pid in rows[-1]["detail"]["pids"]] if rows else []

    def story(self, job: str) -> list[Found]:
        rows: list[Found] = self.get(f"/jobs/{job}/story")["story"]
        return rows

    def sentences(self, job: str) -> list[str]:
        rows = self.story(job)
        return [f"{row['at_s'] - rows[0]['at_s']:.1f} s: {row['sentence']}" for row in rows]

    def wait(self, jobs: Sequence[str], seconds: float) -> bool:
        """Whether all have ended in time."""
        return bool(
            wait_for(lambda: all(self.state(job) in ENDED for job in jobs), seconds, every=0.5)
        )

    def suspend(self, job: str, seconds: float = 40.0) -> str:
        """Suspend a job, as soon as that would lose no work: its memory has to be measured before."""
        until = time.monotonic() + seconds
        while True:
            try:
                return str(self.trainmaster("suspend", job)["text"])
            except RuntimeError:
                if time.monotonic() > until:
                    raise
                time.sleep(1.0)

    def cancel(self, jobs: Sequence[str]) -> None:
        """Kill those that have not ended."""
        left = [job for job in jobs if self.state(job) not in ENDED]
        if left:
            with contextlib.suppress(RuntimeError):
                self.trainmaster("cancel", "--now", *left)

    def wait_ready(self, gate: Path, jobs: Sequence[str], seconds: float) -> list[int]:
        """Wait until the programs of all these jobs are ready at their gate; their process ids."""

        def ready() -> list[int] | str | None:
            pids = [int(each.stem) for each in gate.glob("*.ready")]
            ended = [job for job in jobs if self.state(job) in ENDED]
            return f"job {ended[0]} ended" if ended else pids if len(pids) >= len(jobs) else None

        found = wait_for(ready, seconds, every=0.5)
        if isinstance(found, list):
            return found
        raise RuntimeError(f"not ready within {seconds:.0f} s: {found or 'some have not said so'}")

    def log(self) -> str:
        path = self.data / "manager.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def end(self) -> None:
        with contextlib.suppress(Exception):
            self.trainmaster("down", "--jobs", seconds=30)
        shutil.rmtree(self.folder, ignore_errors=True)
