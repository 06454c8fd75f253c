"""The chaos run on Ray: jobs on four nodes while parts of the cluster and the manager are killed at random.

    python -m tests.ray.chaos [--seed N] [--policy NAME] [--jobs 40]

What must not be: a job that does not end as it should (lost); one that runs twice at once, by what its own
processes write down; one that goes on from before its last checkpoint; a run whose devices are not the same
for the manager and for Ray (`booking.py` says when that is judged); a process, or something reserved, that is
left when all jobs have ended. What is killed comes back after some seconds. The same seed gives the same jobs
and the same faults; when they happen depends on the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.live.chaos import ENDED, children, command_of, printed, signal_to, told_of
from tests.live.daemons import LiveDaemon, of_folder, until
from tests.ray import chaos_records as records
from tests.ray import namespace
from tests.ray.booking import CALM, BookingWatch, booking, differences, reserved_of
from tests.ray.cluster import RayCluster, Truth, two_racks

PROGRAM = Path(__file__).with_name("chaos_job.py")
NODES, GPUS = 4, 2
MOST_DOWN = 2
FENCE_S = 10
PATIENCE_S = 900.0
"""A busy machine may need minutes for what takes seconds on a free one."""
END_S = 900.0
HEAD_AWAY = "No Ray cluster answers"
"""What a manager says, before it ends, that is started while Ray's head is away."""
ARGUMENTS = (
    *("--engine", "ray", "--fence", f"{FENCE_S}s"),
    *("--limit", "losses=1000", "--limit", "retry_delay=100ms", "--limit", "max_retry_delay=1s"),
    *("--limit", "outage_delay=100ms"),
)
POLICIES: Mapping[str, tuple[str, ...]] = {
    "tiresias-l": ("thresholds_gpu_s=10,40",),
    "gandiva": ("quantum_s=4", "trial_s=5"),
    "max-min": (),
}


@dataclass(frozen=True)
class Kind:
    """Jobs of one kind: `seconds` on as many GPUs as they ask for at least."""

    gpus: str
    seconds: tuple[int, int]
    saves: bool
    weight: int


KINDS = (
    Kind("1", (1, 4), False, 5),
    Kind("1", (10, 40), True, 8),
    Kind("2", (8, 30), True, 6),
    Kind("2", (4, 10), False, 2),
    Kind("3", (8, 20), True, 3),
    Kind("4", (8, 20), True, 5),
    Kind("1-4", (20, 60), True, 7),
    Kind("2-4", (15, 40), True, 3),
    Kind("8", (3, 6), True, 1),
)
STEP_MS = 100
SAVE_EVERY = 10
DOOMED = 0.08
"""Part of the jobs that would run for ever, and are cancelled."""
FOR_EVER = 1_000_000


@dataclass
class Asked:
    """A job whose submission was answered."""

    is_doomed: bool
    is_cancelled: bool = False


@dataclass
class Scene:
    """A cluster, a manager with its jobs, and what is to come back."""

    cluster: RayCluster
    manager: LiveDaemon
    chance: random.Random
    work: Path
    say: Callable[[str], None]
    length: float = 1.0
    """How long jobs are, of what they are in a long run."""
    asked: dict[str, Asked] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    """Nodes that are killed, or frozen."""
    is_manager_down: bool = False
    returns: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    """When something comes back, and how."""
    returning: list[Future[None]] = field(default_factory=list)
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(8))
    ray_starts: threading.Lock = field(default_factory=threading.Lock)
    """Two nodes that start at once would choose the same ports."""
    submitted: int = 0

    def later(self, least_s: float, most_s: float, act: Callable[[], None]) -> None:
        self.returns.append((time.monotonic() + self.chance.uniform(least_s, most_s), act))

    def bring_back(self, all_of_it: bool = False) -> None:
        """Begin what is due; what has failed fails here."""
        now = time.monotonic()
        due = [each for each in self.returns if all_of_it or each[0] <= now]
        self.returns = [each for each in self.returns if each not in due]
        self.returning += [self.pool.submit(act) for _, act in due]
        for each in [each for each in self.returning if all_of_it or each.done()]:
            each.result(PATIENCE_S)
            self.returning.remove(each)

    # -- jobs ----------------------------------------------------------------------------------------------

    def submit(self) -> None:
        """One more; asked again by its key until it is answered."""
        self.submitted += 1
        kind = self.chance.choices(KINDS, [each.weight for each in KINDS])[0]
        is_doomed = kind.saves and self.chance.random() < DOOMED
        steps = int(self.length * self.chance.randint(*kind.seconds) * 1000) // STEP_MS
        least = int(kind.gpus.partition("-")[0])
        words = (
            *(str(FOR_EVER if is_doomed else steps), str(STEP_MS * least)),
            *(str(SAVE_EVERY if kind.saves else 0), str(self.work)),
        )
        job = {
            "name": f"chaos-{self.submitted}",
            "command": [sys.executable, "-S", str(PROGRAM), *words],
            "workdir": str(self.work),
            "gpus": kind.gpus,
            "ranks": "gpu",
            "retries": 0,
            "grace_period": "5s",
            "snapshot": False,
            "preflight": False,
            "stays_in_memory": self.chance.random() < 0.6,
        }
        key = {"Idempotency-Key": f"chaos-{self.submitted}"}

        def answered() -> Any:
            self.bring_back()
            with contextlib.suppress(*CALM):
                return self.manager.call("POST", "/api/v1/jobs", job, **key)["jobs"]
            return None

        (row,) = until(answered, "a submission to be answered", PATIENCE_S)
        self.asked[str(row["id"])] = Asked(is_doomed)

    def rows(self) -> dict[str, dict[str, Any]]:
        """All jobs; none where the manager does not answer."""
        with contextlib.suppress(*CALM):
            found = self.manager.call("GET", "/api/v1/jobs?limit=1000")["jobs"]
            return {str(row["id"]): row for row in found}
        return {}

    def unended(self) -> set[str] | None:
        """None where the manager does not answer."""
        rows = self.rows()
        return {id for id, row in rows.items() if row["state"] not in ENDED} if rows else None

    def cancel(self, id: str) -> None:
        with contextlib.suppress(*CALM):
            self.manager.call("POST", f"/api/v1/jobs/{id}/cancel")
            self.asked[id].is_cancelled = True

    # -- what comes back -----------------------------------------------------------------------------------

    def start_manager(self) -> None:
        self.manager.start()
        until(self.is_active, "the manager to lead", PATIENCE_S)
        self.is_manager_down = False

    def is_active(self) -> bool:
        process = self.manager.process
        assert process is not None
        if process.poll() is not None:
            said = printed(self.manager.folder).splitlines()
            assert any(HEAD_AWAY in line for line in said[-3:]), f"the manager has ended: {said}"
            self.manager.start()
        with contextlib.suppress(*CALM):
            return self.manager.url is not None and self.manager.health()["role"] == "active"
        return False

    def start_node(self, name: str) -> None:
        """Again and again while Ray's head is away."""

        def is_started() -> bool:
            with self.ray_starts, contextlib.suppress(AssertionError):
                self.cluster.kill_raylet(name)  # what an attempt before has left
                self.cluster.start_node(name)
                return True
            return False

        until(is_started, f"the raylet of {name} to start", PATIENCE_S)
        self.down.discard(name)

    def some_node(self) -> str | None:
        up = sorted(set(self.cluster.nodes) - self.down)
        return self.chance.choice(up) if len(self.down) < MOST_DOWN else None

    def one_of(self, pids: list[int]) -> int | None:
        return self.chance.choice(pids) if pids else None


# -- faults ------------------------------------------------------------------------------------------------


def raylet_killed(scene: Scene) -> str:
    """It comes back before its fence has passed, or after that."""
    name = scene.some_node()
    if name is None:
        return ""
    scene.down.add(name)
    scene.cluster.kill_raylet(name)
    scene.later(1, 2.5 * FENCE_S, lambda: scene.start_node(name))
    return name


def node_killed(scene: Scene) -> str:
    name = scene.some_node()
    if name is None:
        return ""
    scene.down.add(name)
    scene.cluster.kill_node(name)
    scene.later(1, 2.5 * FENCE_S, lambda: scene.start_node(name))
    return name


def raylet_frozen(scene: Scene) -> str:
    """If Ray counts it as dead before it goes on, it ends, and is started again."""
    name = scene.some_node()
    if name is None:
        return ""
    scene.down.add(name)
    pids = scene.cluster.raylet(name)
    for pid in pids:
        signal_to(pid, signal.SIGSTOP)

    def goes_on() -> None:
        for pid in pids:
            signal_to(pid, signal.SIGCONT)
        time.sleep(5)
        if not scene.cluster.raylet(name):
            scene.start_node(name)
        scene.down.discard(name)

    scene.later(1, FENCE_S, goes_on)
    return name


def launcher_killed(scene: Scene) -> str:
    return killed(scene, lambda pid: "LauncherActor" in command_of(pid))


def supervisor_killed(scene: Scene) -> str:
    return killed(scene, lambda pid: re.fullmatch(r"tm \d+\.\d+", name_of(pid)))


def gateway_killed(scene: Scene) -> str:
    process = scene.manager.process
    own = [] if process is None or process.poll() is not None else children(process.pid)
    pid = scene.one_of([each for each in own if name_of(each) == "tm ray gateway"])
    if pid is not None:
        signal_to(pid, signal.SIGKILL)
    return "" if pid is None else f"process {pid}"


def manager_killed(scene: Scene) -> str:
    if scene.is_manager_down:
        return ""
    scene.is_manager_down = True
    scene.manager.kill()
    scene.later(0.1, 0.8 * FENCE_S, scene.start_manager)
    return "it"


def head_killed(scene: Scene) -> str:
    if not scene.cluster.gcs():
        return ""
    scene.cluster.kill_head()
    scene.later(0.5, 0.6 * FENCE_S, scene.cluster.start_head)
    return "it"


def killed(scene: Scene, is_meant: Callable[[int], object]) -> str:
    """One such process, on any node that is up."""
    name = scene.some_node()
    pids = [] if name is None else scene.cluster.pids(name)
    pid = scene.one_of([pid for pid in pids if is_meant(pid)])
    if pid is not None:
        signal_to(pid, signal.SIGKILL)
    return "" if pid is None else f"process {pid} of {name}"


def name_of(pid: int) -> str:
    """As process lists show it."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().rstrip("\n")
    return ""


FAULTS: Mapping[str, tuple[Callable[[Scene], str], int]] = {
    "a raylet is killed": (raylet_killed, 4),
    "a node is killed": (node_killed, 4),
    "a raylet is stopped and continued": (raylet_frozen, 2),
    "a launcher is killed": (launcher_killed, 2),
    "a supervisor is killed": (supervisor_killed, 2),
    "the gateway is killed": (gateway_killed, 2),
    "the manager is killed": (manager_killed, 2),
    "Ray's head is killed": (head_killed, 1),
}
"""What is done (it says to whom, or nothing where it cannot be done now), and its weight."""


# -- the run -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """How much is asked of one run."""

    jobs: int = 40
    at_first: int = 20
    faults: int = 30
    pause_s: tuple[float, float] = (2.0, 8.0)
    length: float = 1.0
    """How long jobs are, of what `KINDS` says."""


def chaos(scene: Scene, plan: Plan) -> Counter[str]:
    """Jobs come and faults happen, until there were enough of both; then everything comes back."""
    done: Counter[str] = Counter()
    scene.start_manager()
    for _ in range(min(plan.jobs, plan.at_first)):
        scene.submit()
    between = max(1, plan.faults)
    while done.total() < plan.faults:
        time.sleep(scene.chance.uniform(*plan.pause_s))
        scene.bring_back()
        names, weights = [*FAULTS], [weight for _, weight in FAULTS.values()]
        name = scene.chance.choices(names, weights)[0]
        what = FAULTS[name][0](scene)
        if not what:
            continue
        done[name] += 1
        scene.say(f"{name}: {what}")
        due = plan.at_first + (plan.jobs - plan.at_first) * done.total() // between
        while scene.submitted < min(due, plan.jobs):
            scene.submit()
        cancel_one(scene)
    while scene.submitted < plan.jobs:
        scene.submit()
    scene.bring_back(all_of_it=True)
    scene.say("everything is back")
    finish(scene)
    return done


def cancel_one(scene: Scene) -> None:
    """One of those that would run for ever, once it has begun."""
    doomed = [id for id, each in scene.asked.items() if each.is_doomed and not each.is_cancelled]
    if doomed and scene.chance.random() < 0.3:
        scene.cancel(scene.chance.choice(doomed))


def finish(scene: Scene) -> None:
    def are_over() -> bool:
        for id, each in scene.asked.items():
            if each.is_doomed and not each.is_cancelled:
                scene.cancel(id)
        return scene.unended() == set()

    with contextlib.suppress(AssertionError):  # the verdict names those that have not
        until(are_over, "all jobs to end", END_S)


@dataclass
class Verdict:
    """What was found, by its kind; and what was counted."""

    jobs: int
    processes: int
    attempts: int
    found: Mapping[str, list[str]]
    watch: BookingWatch

    @property
    def findings(self) -> list[str]:
        return [f"{kind}: {line}" for kind, lines in self.found.items() for line in lines]

    def __str__(self) -> str:
        counts = ", ".join(f"{kind} {len(lines)}" for kind, lines in self.found.items())
        watch = self.watch
        return (
            f"{self.jobs} jobs, {self.attempts} attempts, {self.processes} processes; booking:"
            f" {watch.observations} observations ({watch.missed} more without an answer),"
            f" {watch.compared} comparisons, {watch.differing} of them not equal at once, for at most"
            f" {watch.longest_s:.1f} s; findings: {counts}"
        )


def judge(scene: Scene, watch: BookingWatch) -> Verdict:
    rows, wrote = scene.rows(), records.read(scene.work)
    of_all = [process for each in wrote.values() for process in each]
    return Verdict(
        jobs=len(scene.asked),
        processes=len(of_all),
        attempts=len({(each.job, each.attempt) for each in of_all}),
        found={
            "not ended as it should": not_as_due(scene, rows, wrote),
            "twice at once": [
                line for each in wrote.values() for line in records.twice_at_once(each)
            ],
            "steps lost": [line for each in wrote.values() for line in records.steps_lost(each)],
            "ranks apart": [line for each in wrote.values() for line in records.unlike(each)],
            "booking": watch.findings,
            "left": left(scene, watch.truth),
        },
        watch=watch,
    )


def not_as_due(
    scene: Scene, rows: Mapping[str, Any], wrote: Mapping[str, list[records.Process]]
) -> list[str]:
    found = []
    for id, asked in scene.asked.items():
        due = "cancelled" if asked.is_doomed else "succeeded"
        state = rows[id]["state"] if id in rows else "not there"
        if state != due:
            found.append(f"{id} is {state}: {str(told_of(scene, id))[-1500:]}")
        elif due == "succeeded" and not records.has_ended(wrote.get(id, [])):
            found.append(f"{id} succeeded, and its program did not come to its end")
    return found


def left(scene: Scene, truth: Truth) -> list[str]:
    """Programs, and what is reserved, some seconds after the end of all jobs."""

    def none_left() -> bool:
        return not (programs(scene) or unequal())

    def unequal() -> Mapping[Any, Any]:
        said = truth.answer()
        if said is None:
            return {"Ray": "no answer"}
        now, found = booking(scene.manager), reserved_of(said)
        return differences(now, found, now)[0] | dict.fromkeys(found.runs, "a group")

    with contextlib.suppress(AssertionError):
        until(none_left, "nothing to be left", 30)
    found = [f"process {pid}: {command_of(pid)}" for pid in programs(scene)]
    if unequal():
        print(truth.answer(), flush=True)
    return found + [f"{at}: booked and reserved: {pair}" for at, pair in unequal().items()]


def programs(scene: Scene) -> list[int]:
    return [pid for pid in of_folder(scene.work) if str(PROGRAM) in command_of(pid)]


def perform(
    folder: Path, policy: str, seed: int, plan: Plan, say: Callable[[str], None]
) -> Verdict:
    """One run, after which nothing of it is left."""
    work = folder / "work"
    work.mkdir(parents=True)
    chance = random.Random(f"{seed}/{policy}")
    options = [word for each in POLICIES[policy] for word in ("--set", each)]
    with RayCluster.running(*two_racks(NODES, GPUS)) as cluster:
        address = ("--address", cluster.address, "--policy", policy, *options)
        manager = LiveDaemon(folder / "data", *ARGUMENTS, *address)
        scene = Scene(cluster, manager, chance, work, say, plan.length)
        watch = BookingWatch(manager, Truth(cluster.address))
        try:
            watch.start()
            done = chaos(scene, plan)
            watch.stop()
            verdict = judge(scene, watch)
        finally:
            watch.stop()
            manager.kill()
            scene.pool.shutdown(wait=False, cancel_futures=True)
    for name, count in sorted(done.items()):
        say(f"{count:4} x {name}")
    for line in verdict.findings:
        say(f"FINDING {line}")
    say(str(verdict))
    return verdict


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="random seed")
    parser.add_argument("--policy", choices=[*POLICIES], help="only this one")
    parser.add_argument("--jobs", type=int, default=Plan.jobs, help="how many in each run")
    parser.add_argument("--faults", type=int, default=Plan.faults, help="how many in each run")
    asked = parser.parse_args()
    try:
        namespace.enter()
    except namespace.NoNamespace as refusal:
        print(refusal, file=sys.stderr)
        return 1
    findings = 0
    for policy in [asked.policy] if asked.policy else POLICIES:
        folder = Path(tempfile.mkdtemp(prefix="tm-chaos-ray-"))
        began = time.monotonic()

        def say(line: str, policy: str = policy, began: float = began) -> None:
            print(f"[{policy} {asked.seed} {time.monotonic() - began:6.1f}] {line}", flush=True)

        say(f"in {folder}")
        verdict = perform(folder, policy, asked.seed, Plan(asked.jobs, faults=asked.faults), say)
        findings += len(verdict.findings)
        if not verdict.findings:
            shutil.rmtree(folder, ignore_errors=True)
    return bool(findings)


if __name__ == "__main__":
    os.environ[namespace.RUNS] = "1"
    sys.exit(main())
