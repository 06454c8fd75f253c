"""Ten thousand jobs: submitted in three ways, waiting, listed; and a hundred thousand that have ended.

All slots are taken by jobs that sleep, so that everything submitted waits.
"""

from __future__ import annotations

import re
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.live_daemon import Client, LiveDaemon, command, live
from benchmarks.live_stamp import until

SLEEPER = {"command": "exec sleep 100000", "snapshot": False}
EMPTY = {"command": "true", "snapshot": False}
CLIENTS = 8
PAGE = 1000
Found = dict[str, Any]


class Prober:
    """Asks for a job's sheet again and again meanwhile: what somebody else would feel."""

    def __init__(self, url: str) -> None:
        self._client = Client(url)
        self._times: list[float] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._is_over.wait(0.05):
            began = time.perf_counter()
            self._client.call("GET", "/api/v1/jobs/1")
            self._times.append(time.perf_counter() - began)

    def __enter__(self) -> Prober:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._client.hang_up()

    def said(self) -> Found:
        times = sorted(self._times) or [0.0]
        return {
            "asked": len(self._times),
            "median_ms": round(median(times) * 1000, 1),
            "worst_ms": round(times[-1] * 1000, 1),
        }


# -- submitting ----------------------------------------------------------------------------------------


def _in_one_request(daemon: LiveDaemon, count: int) -> None:
    daemon.call("POST", "/api/v1/jobs", {"jobs": [EMPTY] * count})


def _as_array(daemon: LiveDaemon, count: int) -> None:
    daemon.call("POST", "/api/v1/jobs", EMPTY | {"array": f"0-{count - 1}"})


def _singly(daemon: LiveDaemon, count: int) -> None:
    def some(number: int) -> None:
        client = Client(daemon.url)
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
    """Each way on a fresh daemon; with the last one's queue the passes and lists are measured."""
    found = []
    for number, (way, submit) in enumerate(WAYS.items()):
        with _full(folder / str(number)) as daemon:
            with Prober(daemon.url) as prober:
                began = time.perf_counter()
                submit(daemon, count)
                took = time.perf_counter() - began
            said: Found = {
                "way": way,
                "jobs": count,
                "took_s": round(took, 3),
                "jobs_per_s": round(count / took),
                "found": daemon.counts().get("pending", 0),
                "others": prober.said(),
            }
            if said["found"] != count:
                raise RuntimeError(f"{way}: {count} jobs were submitted, {said['found']} are there")
            if way == "one request":
                said |= {"queue": queued(daemon, count)}
            found.append(said)
            print(f"  {way}: {count} jobs in {said['took_s']} s", flush=True)
    return found


def _full(folder: Path) -> Any:
    """A daemon whose slots are all taken."""
    return _Full(folder)


class _Full:
    def __init__(self, folder: Path) -> None:
        self._live = live(folder, "--slots", "2")

    def __enter__(self) -> LiveDaemon:
        daemon = self._live.__enter__()
        daemon.call("POST", "/api/v1/jobs", {"jobs": [SLEEPER] * 2})
        until(lambda: daemon.counts().get("running") == 2, "the slots to be taken", 0.02)
        return daemon

    def __exit__(self, *error: Any) -> None:
        self._live.__exit__(*error)


# -- waiting and listing -------------------------------------------------------------------------------


def queued(daemon: LiveDaemon, count: int) -> Found:
    """How long passes and lists take while so many wait."""
    return {
        "memory": daemon.memory(),
        "passes": [passes(daemon, policy) for policy in ("trainmaster", "fifo", "tiresias-l")],
        "lists": lists(daemon, count),
    }


def passes(daemon: LiveDaemon, policy: str, changes: int = 20) -> Found:
    """By the daemon's own meter: one newcomer, then it is withdrawn, a step for each."""
    daemon.call("PUT", "/api/v1/policy", {"name": policy, "options": {}})
    time.sleep(0.5)
    job = daemon.call("POST", "/api/v1/jobs", EMPTY)["jobs"][0]["id"]  # builds what is kept
    daemon.call("POST", f"/api/v1/jobs/{job}/cancel")
    before, waits = _metered(daemon), []
    for _ in range(changes):
        began = time.perf_counter()
        job = daemon.call("POST", "/api/v1/jobs", EMPTY)["jobs"][0]["id"]
        waits.append(time.perf_counter() - began)
        daemon.call("POST", f"/api/v1/jobs/{job}/cancel")
    after = _metered(daemon)
    number = after[1] - before[1]
    return {
        "policy": policy,
        "passes": number,
        "mean_ms": round((after[0] - before[0]) / number * 1000, 2),
        "longest_below_ms": _longest(before[2], after[2]),
        "submit_ms": round(median(waits) * 1000, 1),
    }


METER = "trainmaster_scheduling_pass_seconds"


def _metered(daemon: LiveDaemon) -> tuple[float, int, dict[float, int]]:
    """Seconds and number of passes so far, and how many took at most how long."""
    text = daemon.raw("GET", "/metrics")[1].decode()
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


def lists(daemon: LiveDaemon, count: int, rounds: int = 5) -> Found:
    """`ps` by the API (all of it, and one page) and as a whole command."""
    every = [_timed(lambda: _all_pages(daemon, count)) for _ in range(rounds)]
    page = [_timed(lambda: daemon.call("GET", "/api/v1/jobs")) for _ in range(rounds)]
    words = [*command(), "ps", "--url", daemon.url]
    whole = [_timed(lambda: _run(words)) for _ in range(rounds)]
    short = [_timed(lambda: _run([*words, "--limit", "50"])) for _ in range(rounds)]
    return {
        "jobs": count,
        "api_all_ms": round(median(every), 1),
        "api_page_of_100_ms": round(median(page), 1),
        "command_ms": round(median(whole), 1),
        "command_limit_50_ms": round(median(short), 1),
    }


def _all_pages(daemon: LiveDaemon, least: int) -> None:
    seen, before = 0, ""
    while True:
        found = daemon.call("GET", f"/api/v1/jobs?limit={PAGE}{before}")
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
    """Memory: after jobs that really ran, and with as many more in the store as make up `count`.

    The first is one daemon that runs them all; its growth is what ended jobs leave in memory. The others
    are copies of a real job's rows, written through the store's own `append`; then a daemon starts on it.
    """
    with live(folder) as daemon:
        start = daemon.memory()
        grown = []
        for _ in range(2):  # caches fill during the first half
            before = daemon.counts().get("succeeded", 0)
            job = EMPTY | {"array": f"0-{really // 2 - 1}"}
            daemon.call("POST", "/api/v1/jobs", job)
            _until_succeeded(daemon, before + really // 2)
            grown.append(daemon.memory())
    copied = _copy_rows(folder, count - really)
    with live(folder) as daemon:
        resting = daemon.memory()
        told = lists(daemon, 0)
        daemon.call("POST", "/api/v1/jobs", EMPTY)
        _until_succeeded(daemon, really + copied + 1)
        return {
            "really_ran": really,
            "copied_into_the_store": copied,
            "at_start": start,
            "after_half": grown[0],
            "after_all_that_ran": grown[1],
            "restarted_on_all": resting,
            "after_lists": daemon.memory(),
            "lists": told,
            "database_mib": round((folder / "trainmaster.db").stat().st_size / 2**20, 1),
        }


def _until_succeeded(daemon: LiveDaemon, number: int) -> None:
    until(lambda: daemon.counts().get("succeeded", 0) >= number, f"{number} ends", 0.1, 600.0)


def _copy_rows(folder: Path, count: int) -> int:
    """So many more jobs that ended like the first one did, with its story."""
    from trainmaster.store.contract import Wanted
    from trainmaster.store.opening import open_store
    from trainmaster.store.rows import Batch, StepRow

    store = open_store(f"sqlite:///{folder}/trainmaster.db")
    try:
        until(store.lead, "the store to be free", 0.1)
        (row,) = store.jobs(Wanted(states=frozenset({"succeeded"}), limit=1))
        story = store.story(row.id)
        last = store.steps(after=max(0, _last_step(store) - 1))[-1]
        number = store.last_number()
        for base in range(0, count, PAGE):
            names = [str(number + 1 + base + each) for each in range(min(PAGE, count - base))]
            step = StepRow(last.seq + 1 + base // PAGE, last.now_ms, "[]", "[]")
            jobs = tuple(replace(row, id=name, array=None, array_index=None) for name in names)
            told = tuple(replace(each, job=name) for name in names for each in story)
            store.append([Batch(step, jobs, told)])
    finally:
        store.close()
    return count


def _last_step(store: Any) -> int:
    snapshot = store.snapshot()
    after = 0 if snapshot is None else snapshot.seq
    steps = store.steps(after=after)
    return int(steps[-1].seq) if steps else int(after)
