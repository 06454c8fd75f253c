"""The identity check: does every policy still decide what it decided when the record was made?

`record` simulates every policy on a set of small scenarios and writes a digest of each result; `check`
does it again and compares. A result is `simulate --json` without `wall_s` and `options` (a renamed
option changes no decision). Scenarios cover gangs, failures, fractions, elastic and opportunistic jobs,
queues, deadlines, unequal GPUs and failing nodes. The quick set takes about two minutes, `--full` adds
larger loads and public traces from ../shared/data, where it is there.

    python -m benchmarks.identity record --tree /path/to/checkout    # normally done once, before a change
    python -m benchmarks.identity check
    python -m benchmarks.identity check --full --only elastic --policy trainmaster
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainmaster.catalog import POLICIES

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "data"
RECORD = ROOT / "benchmarks" / "results" / "identity.json"
FILES = Path(__file__).with_name("scenarios")
"""Cluster, queues and performance that scenarios name."""
FIGURES = ("avg_jct_s", "makespan_s", "preemptions", "migrations")

MODELS = ("resnet50", "vgg16", "lstm", "transformer", "unknown", "")


@dataclass(frozen=True)
class JobMix:
    """What a generated trace is made of."""

    jobs: int = 120
    seed: int = 1
    gap_s: int = 300
    fractions: float = 0.0
    elastic: float = 0.0
    opportunistic: float = 0.0
    failing: float = 0.0
    deadlines: float = 0.0
    queues: tuple[str, ...] = ("",)
    types: tuple[str, ...] = ("",)

    def rows(self) -> Iterator[dict[str, object]]:
        chance, at = random.Random(self.seed), 0
        for n in range(self.jobs):
            at += int(chance.expovariate(1 / self.gap_s))
            gpus = chance.choice((1, 1, 1, 1, 2, 2, 4, 4, 8, 12))
            length = max(20, int(chance.lognormvariate(7.5, 1.6)))
            user = f"u{chance.randrange(5)}"
            row: dict[str, object] = {
                "job_id": f"j{n}",
                "submit_s": at,
                "gpus": gpus,
                "duration_s": length,
                "queue": chance.choice(self.queues),
                "user": user,
                "app": f"{user}-app{chance.randrange(4)}",
                "model": chance.choice(MODELS),
                "priority": chance.choice((0, 0, 0, 0, 0, 0, 0, 0, 0, 2)),
                "gpu_util": chance.choice(("", 0.2, 0.5, 0.9)),
                "gpu_memory_gib": chance.choice(("", "", 2, 5, 11)),
                "iterations": chance.choice(("", 1000)),
            }
            if chance.random() < self.fractions and gpus == 1:
                row["gpu_share"] = chance.choice((0.25, 0.5))
                row["gpu_memory_gib"] = chance.choice((2, 5))
            elif chance.random() < self.elastic:
                row |= {"min_gpus": max(1, gpus // 2), "max_gpus": gpus * chance.choice((1, 2, 4))}
            if chance.random() < self.opportunistic:
                row["class"] = "opportunistic"
            if chance.random() < self.failing:
                row["status"] = chance.choice(("failed", "killed"))
                row["failed_attempts_s"] = chance.choice(("", "60", "120;30"))
            if chance.random() < self.deadlines:
                row["deadline_s"] = at + int(length * chance.uniform(1.1, 6))
            row["gpu_type"] = chance.choice(self.types)
            yield row

    def csv(self) -> str:
        rows = list(self.rows())
        names = list(dict.fromkeys(name for row in rows for name in row))
        lines = [",".join(str(row.get(name, "")) for name in names) for row in rows]
        return "\n".join([",".join(names), *lines]) + "\n"


@dataclass(frozen=True)
class Case:
    """One call of `simulate` for all policies."""

    name: str
    trace: JobMix | Path
    cluster: str
    options: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    """Options of policies, `POLICY.OPTION=VALUE`: those with which the record was made."""


TEAMS = ("vision", "speech", "ops")
QUICK = (
    Case("gangs-ideal", JobMix(seed=1), "4x4", ("--perf", "ideal")),
    Case("gangs-default", JobMix(seed=2, failing=0.3), "2x3x4"),
    Case("fractions", JobMix(seed=3, fractions=0.6, opportunistic=0.3), "2x2x4"),
    Case("elastic", JobMix(seed=4, elastic=0.6, gap_s=400), "2x3x4"),
    Case("elastic-idle", JobMix(seed=5, elastic=0.8, gap_s=1500), "4x8", ("--perf", "ideal")),
    Case(
        "queues",
        JobMix(seed=6, queues=TEAMS, failing=0.1, gap_s=400),
        "2x3x4",
        ("--queues", "queues.yaml"),
    ),
    Case(
        "elastic-queues",
        JobMix(140, 2, elastic=0.5, fractions=0.3, deadlines=0.1, gap_s=150, queues=TEAMS),
        "2x3x4",
        ("--queues", "queues.yaml"),
    ),
    Case("named-queues", JobMix(seed=7, queues=TEAMS, fractions=0.2), "4x4"),
    Case("deadlines", JobMix(seed=8, deadlines=0.5), "2x3x4", ("--estimates", "noisy:0.3")),
    Case("unknown-lengths", JobMix(seed=9, elastic=0.3), "2x3x4", ("--estimates", "none")),
    Case(
        "unequal-failing",
        JobMix(seed=10, types=("", "A100", "V100"), elastic=0.2, fractions=0.2, gap_s=600),
        "cluster.yaml",
        ("--perf", "perf.yaml"),
        ("two-level.type_choice=first-free", "trainmaster.type_choice=first-free"),
    ),
)
MIX = JobMix(
    jobs=500, seed=21, fractions=0.3, elastic=0.3, opportunistic=0.1, failing=0.2, gap_s=250
)
FULL = (
    Case("mix", MIX, "2x4x8"),
    Case("mix-ideal", MIX, "4x8", ("--perf", "ideal")),
    Case(
        "mix-queues",
        JobMix(jobs=500, seed=22, fractions=0.2, elastic=0.3, queues=TEAMS, failing=0.2, gap_s=250),
        "2x4x8",
        ("--queues", "queues.yaml"),
    ),
    Case(
        "mix-deadlines", JobMix(jobs=400, seed=23, deadlines=0.3, elastic=0.2, gap_s=250), "2x3x8"
    ),
    Case("philly1k", SHARED / "philly" / "philly1k_job.csv", "32x4", ("--perf", "ideal")),
    Case("philly1k-default", SHARED / "philly" / "philly1k_job.csv", "8x4x4"),
    Case("tiresias-60", SHARED / "tiresias" / "60_job.csv", "15x4"),
)

Results = dict[str, dict[str, dict[str, Any]]]


def simulate(scenario: Case, policies: list[str], tree: Path) -> dict[str, dict[str, Any]]:
    """Digest and figures of each policy's result."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        shutil.copytree(FILES, work, dirs_exist_ok=True)
        trace = scenario.trace
        if isinstance(trace, JobMix):
            (work / "trace.csv").write_text(trace.csv())
            trace = work / "trace.csv"
        command = [sys.executable, "-m", "trainmaster", "simulate", str(trace)]
        command += ["--cluster", scenario.cluster, "--policy", ",".join(policies)]
        command += [*scenario.options, "--json", "out.json"]
        for each in scenario.settings:
            command += ["--set", each] if each.split(".")[0] in policies else []
        env = os.environ | {"PYTHONPATH": str(tree / "src"), "PYTHONHASHSEED": "0"}
        done = subprocess.run(
            command, cwd=work, env=env, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{scenario.name}: {done.stderr.strip() or done.stdout.strip()}")
        results = json.loads((work / "out.json").read_text())["results"]
    return {result["policy"]: digest(result) for result in results}


def digest(result: dict[str, Any]) -> dict[str, Any]:
    summary = result["summary"]
    summary.pop("wall_s")
    result.pop("options")
    body = json.dumps(result, sort_keys=True).encode()
    return {
        "digest": hashlib.sha256(body).hexdigest()[:16],
        **{key: summary[key] for key in FIGURES},
    }


def run(scenarios: list[Case], only: list[str], tree: Path, jobs: int) -> Results:
    def each(scenario: Case) -> tuple[str, dict[str, dict[str, Any]]]:
        chosen = [name for name in POLICIES if not only or name in only]
        found = simulate(scenario, chosen, tree) if chosen else {}
        print(f"  {scenario.name}: {len(found)} policies", file=sys.stderr)
        return scenario.name, found

    with ThreadPoolExecutor(jobs) as pool:
        return dict(pool.map(each, scenarios))


def differences(old: Results, new: Results) -> Iterator[str]:
    for name, policies in new.items():
        for policy, now in policies.items():
            before = old.get(name, {}).get(policy)
            if before is None:
                yield f"{name} {policy}: not recorded"
            elif before["digest"] != now["digest"]:
                changed = [f"{key} {before[key]} -> {now[key]}" for key in FIGURES]
                yield f"{name} {policy}: {', '.join(changed)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("record", "check"))
    parser.add_argument("--full", action="store_true", help="the larger set too")
    parser.add_argument("--only", action="append", default=[], help="a scenario")
    parser.add_argument("--policy", action="append", default=[], help="a policy")
    parser.add_argument("--tree", type=Path, default=ROOT, help="the checkout to simulate with")
    parser.add_argument("--record", type=Path, default=RECORD, help="where the record is")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    chosen = [
        scenario
        for scenario in (*QUICK, *(FULL if asked.full or asked.only else ()))
        if not asked.only or scenario.name in asked.only
    ]
    for scenario in [each for each in chosen if isinstance(each.trace, Path)]:
        if not Path(str(scenario.trace)).exists():
            print(f"  {scenario.name}: skipped, {scenario.trace} is not here", file=sys.stderr)
            chosen.remove(scenario)
    new = run(chosen, asked.policy, asked.tree, asked.jobs)
    old: Results = json.loads(asked.record.read_text()) if asked.record.exists() else {}
    count = sum(len(policies) for policies in new.values())
    if asked.what == "record":
        for name, policies in new.items():
            old.setdefault(name, {}).update(policies)
        asked.record.write_text(json.dumps(old, indent=1) + "\n")
        print(f"{count} results recorded.")
        return
    found = list(differences(old, new))
    print("\n".join([*found, f"{count - len(found)} of {count} results are identical."]))
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
