"""What a case of a failure is, and how well a set of them is classified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainmaster.daemon.failure_evidence import signal_name
from trainmaster.daemon.failure_table import built_in_table
from trainmaster.failures.classification import Evidence, classify
from trainmaster.model.failure import UNKNOWN_REASON, Failure

HERE = Path(__file__).parent
LOGS = sorted((HERE / "logs").glob("*.txt"))
PROGRAMS = sorted(p for p in (HERE / "programs").iterdir() if p.suffix in (".py", ".sh"))


@dataclass(frozen=True)
class Case:
    """A failure with the reason that a person gives it, and the one that it was given."""

    name: str
    expected: str
    found: Failure


def stated(file: Path, what: str) -> str:
    """What a comment at the head of a file says; empty: nothing."""
    head = f"# {what}: "
    lines = file.read_text(encoding="utf-8").splitlines()
    return next((line.removeprefix(head) for line in lines if line.startswith(head)), "")


def case(name: str, expected: str, code: int, lines: Sequence[str]) -> Case:
    evidence = Evidence(code, signal_name(code), 0, tuple(lines))
    return Case(name, expected, classify(evidence, built_in_table()))


def log_case(file: Path) -> Case:
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line[:2] != "# "]
    return case(file.stem, stated(file, "reason"), int(stated(file, "exit code")), lines)


def wrong(cases: Sequence[Case]) -> dict[str, str]:
    """By name: what was found and what was expected."""
    return {
        each.name: f"{each.found.reason}, not {each.expected}: {each.found.lines[-1:]}"
        for each in cases
        if each.found.reason != each.expected
    }


def figures(cases: Sequence[Case]) -> str:
    """Precision: right among those that were given a reason. Recall: right among those that have one."""
    given = [each for each in cases if each.found.reason != UNKNOWN_REASON]
    known = [each for each in cases if each.expected != UNKNOWN_REASON]
    right = sum(each.found.reason == each.expected for each in given)
    return (
        f"{len(cases)} failures: precision {right}/{len(given)} = {right / len(given):.3f},"
        f" recall {right}/{len(known)} = {right / len(known):.3f}"
    )


if __name__ == "__main__":
    cases = [log_case(file) for file in LOGS]
    print(figures(cases), *wrong(cases).items(), sep="\n")
