"""Takes the stacks of a run's processes: a program of its own, because reading another process may last.

    python -m trainmaster.engines.local.stack_dump RUN_FOLDER ACCOUNT PID ...

Python stacks are read by py-spy where it is installed and the kernel lets it: as the run's user, in whose
hands is what it reads. Of every process what /proc says. All of it goes into `stacks.txt` of the run's
folder; the last line of the output is JSON with a sentence for each rank, and why there are no Python stacks,
where there are none.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from trainmaster.durable_files import write_whole
from trainmaster.engines.local import processes
from trainmaster.engines.local.logs import STACKS
from trainmaster.engines.local.privileges import account_in, identity
from trainmaster.failures.stacks import Frame, ProcessStack, Thread, rank_sentences
from trainmaster.model.launch_spec import Account

MOST_PROCESSES = 64
EACH_S = 5.0
ALL_S = 15.0
NOT_INSTALLED = "py-spy is not installed (pip install 'trainmaster[stacks]')"
NOT_ALLOWED = (
    "the kernel does not let py-spy read them (ptrace_scope, or a container without SYS_PTRACE)"
)
NO_ANSWER = "py-spy did not answer in time"
STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "in disk sleep",
    "T": "stopped",
    "t": "traced",
    "Z": "a zombie",
}


def py_spy() -> str | None:
    """Beside this Python, or on the PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), "py-spy")
    return beside if os.access(beside, os.X_OK) else shutil.which("py-spy")


def taken(
    pids: Sequence[int], spy: str | None, account: Account | None = None
) -> tuple[list[ProcessStack], str]:
    """The processes that there are still, and why one of them has no Python stack; empty: all have."""
    until, trouble, found = time.monotonic() + ALL_S, "", []
    for pid in pids[:MOST_PROCESSES]:
        command = _text(pid, "cmdline").replace("\0", " ").strip()
        if not command:
            continue
        threads: tuple[Thread, ...] = ()
        if _is_python(pid):
            threads, why = _threads(pid, spy, account, until - time.monotonic())
            trouble = trouble or why
        rank = processes.variables_of(pid, ("RANK",)) or ("",)
        found.append(
            ProcessStack(
                pid,
                command,
                int(rank[0]) if rank[0].isdecimal() else None,
                _state(pid),
                _text(pid, "wchan").strip("0\n"),
                tuple(_text(pid, "stack").splitlines()),
                threads,
            )
        )
    return found, trouble


def threads_of(dumped: Sequence[dict[str, Any]]) -> tuple[Thread, ...]:
    """As `py-spy dump --json` says."""
    return tuple(
        Thread(
            each.get("thread_name") or str(each["thread_id"]),
            each.get("os_thread_id") == each["pid"],
            bool(each.get("active")),
            tuple(Frame(one["name"], one["filename"], one["line"]) for one in each["frames"]),
        )
        for each in dumped
    )


def text_of(found: Sequence[ProcessStack], trouble: str) -> str:
    """For people."""
    lines = [f"No Python stacks: {trouble}.\n"] if trouble else []
    for process in found:
        rank = "" if process.rank is None else f"rank {process.rank}, "
        where = f" in {process.wchan}" if process.wchan else ""
        lines.append(f"{rank}process {process.pid}, {process.state}{where}: {process.command}")
        lines += [f"  kernel {each}" for each in process.kernel if not process.threads]
        for thread in process.threads:
            how = "active" if thread.is_active else "waiting"
            lines.append(f"  thread {thread.name} ({how})")
            lines += [f"    {each.function} ({each.file}:{each.line})" for each in thread.frames]
        lines.append("")
    return "\n".join(lines)


def _threads(
    pid: int, spy: str | None, account: Account | None, left_s: float
) -> tuple[tuple[Thread, ...], str]:
    if spy is None:
        return (), NOT_INSTALLED
    argv = [spy, "dump", "--nonblocking", "--json", "--pid", str(pid)]
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            timeout=max(0.1, min(EACH_S, left_s)),
            check=False,
            **identity(account),
        )
        if done.returncode == 0:
            return threads_of(json.loads(done.stdout)), ""
    except subprocess.TimeoutExpired:
        return (), NO_ANSWER
    except (OSError, ValueError, KeyError, TypeError) as problem:
        return (), f"py-spy failed: {problem}"
    said = done.stderr.decode(errors="replace").strip()
    if "ermission" in said or "not permitted" in said:
        return (), NOT_ALLOWED
    first = said.partition("\n")[0].removeprefix("Error: ")
    return (), f"py-spy failed: {first or done.returncode}"


def _is_python(pid: int) -> bool:
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("python")
    except OSError:
        return False


def _state(pid: int) -> str:
    letter = _text(pid, "stat").rpartition(")")[2][1:2]
    return STATES.get(letter, letter)


def _text(pid: int, name: str) -> str:
    try:
        with open(f"/proc/{pid}/{name}", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def main(arguments: Sequence[str]) -> None:
    folder, account, *pids = arguments
    found, trouble = taken([int(pid) for pid in pids], py_spy(), account_in(account))
    try:
        write_whole(os.path.join(folder, STACKS), text_of(found, trouble), mode=0o600)
    except OSError as problem:
        trouble = trouble or f"they could not be written: {problem.strerror}"
    sys.stdout.write(json.dumps({"stacks": rank_sentences(found), "trouble": trouble}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
