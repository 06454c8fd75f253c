"""Ten thousand jobs: submitted in three ways, waiting, listed; and a hundred thousand that have ended.

All slots are taken by jobs that sleep, so that everything submitted waits.
"""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.live_daemon import MeasuringClient, command
from benchmarks.live_empty_job import cores, until
from tests.live.daemons import LiveDaemon, live

SLEEPER = {"command": "exec sleep 100000", "snapshot": False}
EMPTY = {"command": "true", "snapshot": False}
CLIENTS = 8
PAGE = 1000
Found = dict[str, Any]


@contextmanager
def probe_latency(daemon: LiveDaemon) -> Iterator[Found]:
    """Query one job repeatedly in the background; the delays are filled in at the end."""
    felt: Found = {}
    times: list[float] = []
    is_over = threading.Event()

    def ask() -> None:
        client = MeasuringClient(daemon)
        while not is_over.wait(0.05):
            times.append(_timed(lambda: client.call("GET", "/api/v1/jobs/1")))
        client.hang_up()

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield felt
    finally:
        is_over.set()
        thread.join()
        worst, middle = max(times, default=0.0), median(times) if times else 0.0
        felt |= {"asked": len(times), "median_ms": round(middle, 1), "worst_ms": round(worst, 1)}


# -- submitting ----------------------------------------------------------------------------------------


def _in_one_request(daemon: LiveDaemon, count: int) -> None:
    MeasuringClient(daemon).call("POST", "/api/v1/jobs", {"jobs": [EMPTY] * count})


def _as_array(daemon: LiveDaemon, count: int) -> None:
    MeasuringClient(daemon).call("POST", "/api/v1/jobs", EMPTY | {"array": f"0-{count - 1}"})


def _singly(daemon: LiveDaemon, count: int) -> None:
    def some(number: int) -> None:
        client = MeasuringClient(daemon)
        for _ in range(number):
            client.call("POST", "/api/v1/jobs", EMPTY)
        client.hang_up()

    with ThreadPoolExecutor(CLIENTS) as threads:
        list(threads.map(some, [count // CLIENTS] * CLIENTS))


WAYS = {
    "one request": _in_one_request,
    "an array": _as_array,
    f"single requests, {CLIENTS} clients": _singly,
}


def submitted(count: int, folder: Path) -> list[Found]:
    """Each way on a fresh daemon; with the first one's queue the passes and lists are measured."""
    found = []
    for number, (way, submit) in enumerate(WAYS.items()):
        with live(folder / str(number), "--slots", "2") as daemon:
            client = MeasuringClient(daemon)
            client.call("POST", "/api/v1/jobs", {"jobs": [SLEEPER] * 2})
            until(lambda: client.counts().get("running") == 2, "the slots to be taken", 0.02)  # noqa: B023
            with probe_latency(daemon) as others:
                took = _timed(lambda: submit(daemon, count)) / 1000  # noqa: B023
            pending = client.counts().get("pending", 0)
            if pending != count:
                raise RuntimeError(f"{way}: {count} jobs were submitted, {pending} are there")
            said: Found = {
                "way": way,
                "jobs": count,
                "took_s": round(took, 3),
                "jobs_per_s": round(count / took),
                "found": pending,
                "others": others,
            }
            if way == "one request":
                said |= {"queue": queued(client, count)}
            found.append(said)
            print(f"  {way}: {count} jobs in {said['took_s']} s", flush=True)
    return found


# -- waiting and listing -------------------------------------------------------------------------------


def queued(client: MeasuringClient, count: int) -> Found:
    """How long passes and lists take while `count` jobs wait."""
    return {
        "memory": client.memory(),
        "passes": [passes(client, policy) for policy in ("trainmaster", "fifo", "tiresias-l")],
        "lists": lists(client, count),
    }


def passes(client: MeasuringClient, policy: str, changes: int = 20) -> Found:
    """By the daemon's own metrics, while jobs are submitted and cancelled one by one."""
    client.call("PUT", "/api/v1/policy", {"name": policy, "options": {}})
    time.sleep(0.5)
    job = client.call("POST", "/api/v1/jobs", EMPTY)["jobs"][0]["id"]  # builds the caches
    client.call("POST", f"/api/v1/jobs/{job}/cancel")
    before, waits = _metered(client), []
    for _ in range(changes):
        began = time.perf_counter()
        job = client.call("POST", "/api/v1/jobs", EMPTY)["jobs"][0]["id"]
        waits.append(time.perf_counter() - began)
        client.call("POST", f"/api/v1/jobs/{job}/cancel")
    after = _metered(client)
    number = after[1] - before[1]
    return {
        "policy": policy,
        "passes": number,
        "mean_ms": round((after[0] - before[0]) / number * 1000, 2),
        "longest_below_ms": _longest(before[2], after[2]),
        "submit_ms": round(median(waits) * 1000, 1),
    }


METER = "trainmaster_scheduling_pass_seconds"


def _metered(client: MeasuringClient) -> tuple[float, int, dict[float, int]]:
    """Seconds and number of passes so far, and how many took at most how long."""
    text = client.raw("GET", "/metrics")[1].decode()
    buckets = re.findall(rf'^{METER}_bucket{{le="(.+)"}} (\S+)$', text, re.M)
    total = re.search(rf"^{METER}_sum (\S+)$", text, re.M)
    count = re.search(rf"^{METER}_count (\S+)$", text, re.M)
    assert total is not None
    assert count is not None
    at_most = {float(most): int(float(number)) for most, number in buckets}
    return float(total[1]), int(float(count[1])), at_most


def _longest(before: dict[float, int], after: dict[float, int]) -> float:
    """The least bound that no pass in between exceeded."""
    number = after[float("inf")] - before[float("inf")]
    return min(most for most in after if after[most] - before[most] == number) * 1000


def lists(client: MeasuringClient, count: int, rounds: int = 5) -> Found:
    """`ps` by the API (all of it, and one page) and as a whole command."""
    every = [_timed(lambda: _all_pages(client, count)) for _ in range(rounds if count else 0)]
    page = [_timed(lambda: client.call("GET", "/api/v1/jobs")) for _ in range(rounds)]
    words = [*command(), "ps", "--url", client.url]
    whole = [_timed(lambda: _run(words)) for _ in range(rounds)]
    short = [_timed(lambda: _run([*words, "--limit", "50"])) for _ in range(rounds)]
    return {
        "jobs": count,
        "api_all_ms": round(median(every), 1) if every else None,
        "api_page_of_100_ms": round(median(page), 1),
        "command_ms": round(median(whole), 1),
        "command_limit_50_ms": round(median(short), 1),
    }


def _all_pages(client: MeasuringClient, least: int) -> None:
    seen, before = 0, ""
    while True:
        found = client.call("GET", f"/api/v1/jobs?limit={PAGE}{before}")
        seen += len(found["jobs"])
        if found["next"] is None:
            break
        before = f"&before={found['next']}"
    if seen < least:
        raise RuntimeError(f"only {seen} of {least} jobs were listed")


def _timed(what: Any) -> float:
    began = time.perf_counter()
    what()
    return (time.perf_counter() - began) * 1000


def _run(words: list[str]) -> None:
    subprocess.run(words, check=True, capture_output=True)


# -- having ended --------------------------------------------------------------------------------------


def ended(really: int, count: int, folder: Path) -> Found:
    """Memory of one daemon under which `count` jobs have ended, and of one that is started on their store.

    `really` of them run; the others are arrays that are submitted, wait, and are cancelled: they leave as
    much in memory as jobs that ran, and a hundred thousand take a minute.
    """
    grown: list[Found] = []
    with live(folder, "--slots", str(cores())) as daemon:
        client = MeasuringClient(daemon)
        grown.append({"ended": 0, **client.memory()})
        for number in (really // 2, really):
            client.call("POST", "/api/v1/jobs", EMPTY | {"array": f"0-{really // 2 - 1}"})
            _until_ended(client, number)
            grown.append({"ended": number, **client.memory()})
        client.call("POST", "/api/v1/jobs", {"jobs": [SLEEPER] * cores()})
        while grown[-1]["ended"] < count:
            for _ in range(2):
                array = EMPTY | {"array": f"0-{(count - really) // 20 - 1}"}
                job = client.call("POST", "/api/v1/jobs", array)["jobs"][0]["id"]
                client.call("POST", f"/api/v1/jobs/{job}/cancel")
            grown.append({"ended": _ended(client), **client.memory()})
        told = lists(client, 0)
    with live(folder, "--slots", str(cores())) as daemon:
        return {
            "really_ran": really,
            "grown": grown,
            "lists": told,
            "restarted": MeasuringClient(daemon).memory(),
            "database_mib": round((folder / "trainmaster.db").stat().st_size / 2**20, 1),
        }


def _ended(client: MeasuringClient) -> int:
    counts = client.counts()
    return counts.get("succeeded", 0) + counts.get("cancelled", 0)


def _until_ended(client: MeasuringClient, number: int) -> None:
    until(lambda: _ended(client) >= number, f"{number} ends", 0.1, 600.0)
