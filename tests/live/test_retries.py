"""Retries and inputs with real processes: what helps is tried again, what fails for all is set aside."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.live.daemons import LiveDaemon, live, until

pytestmark = pytest.mark.live

BUG = """
import time
time.sleep(0.2)  # it loads, and fails on its first batch
raise RuntimeError("expected 64 labels and got 32")
"""
READS = "import sys; print(len(open(sys.argv[1]).read()))"
ECC = "echo 'RuntimeError: CUDA error: uncorrectable ECC error encountered' >&2; exit 1"


def story(daemon: LiveDaemon, job: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = daemon.call("GET", f"/api/v1/jobs/{job}/story")["story"]
    return found


def devices(daemon: LiveDaemon, job: str) -> list[str]:
    ordered = [each for each in story(daemon, job) if each["what"] == "launch ordered"]
    return [json.dumps(each["detail"]["on"]) for each in ordered]


def killed_and_started(daemon: LiveDaemon) -> None:
    daemon.kill()
    daemon.start()
    daemon.until_active()


def test_retries_and_inputs_over_kills_of_the_manager(tmp_path: Path) -> None:
    data = tmp_path / "set.bin"
    for name, text in (("bug.py", BUG), ("a.py", READS), ("b.py", READS)):
        (tmp_path / name).write_text(text)

    delays = ("--limit", "retry_delay=3s", "--limit", "outage_delay=2m")
    with live(tmp_path, "--slots", "3", *delays) as daemon:

        def submit(command: str, **more: Any) -> str:
            return daemon.submit(command=command, workdir=str(tmp_path), snapshot=False, **more)

        # A program that fails on its first batch is not retried.
        bug = submit("python3 bug.py", retries=5)
        ended = daemon.until_state(bug, "failed")
        assert (ended["attempt"], ended["failure"]["retry"][:12]) == (1, "Not retried:")

        # Nor one that asks for more host memory than there is.
        asks = "echo 'MemoryError: Unable to allocate 931. TiB for an array' >&2; exit 1"
        full = daemon.until_state(submit(asks, retries=5), "failed")
        assert "and the largest node has" in full["failure"]["retry"]

        # One whose device is to blame goes on elsewhere, also if the manager is killed in between.
        ecc = submit(f"test -e {tmp_path}/go || {{ {ECC}; }}", retries=5)
        until(lambda: daemon.job(ecc)["reason"] is not None, "its first attempt to have failed")
        (tmp_path / "go").touch()
        killed_and_started(daemon)
        assert daemon.until_state(ecc, "succeeded")["attempt"] == 2
        first, second = devices(daemon, ecc)
        assert first != second

        # Its expected start is the end of the delay, and its end there the cancellation.
        refused = submit("echo 'OSError: [Errno 113] No route to host' >&2; exit 1", retries=5)
        until(lambda: daemon.job(refused)["reason"] is not None, "its first attempt to have failed")
        told = daemon.call("GET", f"/api/v1/jobs/{refused}/explain")
        assert told["code"] == "RetryDelay"
        assert told["forecast"]["start_s"] > daemon.job(refused)["submit_s"] + 100
        failed = next(each for each in story(daemon, refused) if each["what"] == "failed")
        until(lambda: time.time() > failed["at_s"] + 1, "a moment after its failure")
        daemon.call("POST", f"/api/v1/jobs/{refused}/cancel")
        ended = daemon.until_state(refused, "cancelled")
        assert ended["finish_s"] > failed["at_s"] + 1

        # An input that fails across three jobs of two programs is set aside, and jobs that name it wait.
        for command in ("python3 a.py set.bin", "python3 a.py set.bin", f"python3 b.py {data}"):
            daemon.until_state(submit(command, retries=0), "failed")
        until(lambda: daemon.call("GET", "/api/v1/inputs")["inputs"], "the input to be set aside")
        waits = submit(f"python3 a.py --in {data}")
        stated = submit("true", data=[str(tmp_path)])
        daemon.until_state(stated, "succeeded")
        killed_and_started(daemon)
        reason = daemon.until_state(waits, "pending")["reason"]
        assert reason["code"] == "InputBlocked"
        assert f"trainmaster inputs unblock {data}" in reason["sentence"]
        job = {"command": f"python3 b.py {data}", "workdir": str(tmp_path)}
        (draft,) = daemon.call("POST", "/api/v1/jobs?dry_run=true", job)["jobs"]
        assert draft["job"]["reason"]["code"] == "InputBlocked"
        assert draft["forecast"]["start_s"] is None
        told = daemon.call("GET", f"/api/v1/jobs/{waits}/explain")
        assert told["numbers"] is None, "free slots would not help"
        (row,) = daemon.call("GET", "/api/v1/inputs")["inputs"]
        assert (row["path"], row["waiting"], len(row["jobs"])) == (str(data), [waits], 3)

        # It comes back when it has changed: the job fails for its own reason then.
        data.write_text("x" * 10)
        daemon.until_state(waits, "failed")
        assert daemon.call("GET", "/api/v1/inputs") == {"inputs": []}
        os.remove(data)
